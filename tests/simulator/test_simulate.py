"""The command that runs histories: what it says, when it stops, how it cuts down what it has found."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from proof.simulator.__main__ import SimulationResult, main, simulate
from proof.simulator.fault_budget import FaultBudget
from proof.simulator.shrinking import smaller
from proof.simulator.simulation_pool import SimulationPool, TimeLimits, parts
from proof.simulator.simulation_totals import SimulationTotals
from proof.simulator.workflows import is_allowed, random_workflow

from .scripted import BROKEN, CRASHING, DYING, ENDLESS, KINDS, WELL, WORKFLOW, Scripted

ROOT = Path(__file__).parents[2]


# -- what is found ---------------------------------------------------------------------------------------------------


def test_a_broken_history_is_cut_down_to_the_least_that_still_breaks_the_promise() -> None:
    _, (found,) = simulate([BROKEN], Scripted)

    assert found.workflow is not None
    assert [step.name for step in found.workflow.steps] == ["b"]
    assert found.workflow.steps[0].rules == ()
    assert found.budget == FaultBudget(frozenset({"doubled", "late"}), steps_max=4, engines_max=2, store="memory")


def test_what_was_found_is_told_with_the_command_that_shows_it_again() -> None:
    _, (found,) = simulate([BROKEN + KINDS], Scripted)

    first, *_, last = found.render().split("\n\n")
    assert first == "seed 11: promise 3: that was one too many\n  1 steps"
    assert last == "to reproduce it: make simulate N=1 SEED=11"
    assert (
        "the fewest faults that still do this: without doubled, late; faults until step 4; "
        "2 engines at most; in a store of kind 'memory'\nwhat happened: lost 1" in found.render()
    )


def test_a_crash_is_a_finding_too() -> None:
    _, (found,) = simulate([CRASHING], Scripted)

    assert found.sentence == "crashed: ZeroDivisionError: by zero"


def test_a_history_that_goes_round_in_circles_is_a_finding() -> None:
    part = next(parts([ENDLESS], OnceEndless, lambda seed: True, TimeLimits(computing_seconds=0.05)))

    assert part.broken[0].sentence == "promise 10: after 0.05 seconds of computing there is no end of it"


class OnceEndless(Scripted):
    """Goes round in circles only where nothing of it is cut."""

    def run(self) -> None:
        if self.budget == FaultBudget() and self.workflow == WORKFLOW:
            super().run()


def test_smaller_workflows_are_smaller_and_valid() -> None:
    made = random_workflow(Random(5))

    candidates = list(smaller(made))

    assert candidates
    assert all(is_allowed(candidate) and candidate != made for candidate in candidates)


# -- what is said ----------------------------------------------------------------------------------------------------


def test_the_command_says_in_a_few_lines_how_much_was_seen(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["--histories", "1", "--seed", "50"], Scripted)

    *lines, blank, last = capsys.readouterr().out.splitlines()
    assert code == 0
    assert lines == ["stores: sqlite 1", "what happened: doubled 1, late 1, lost 1"]
    assert blank == ""
    assert last.startswith("1 histories of 1 runs, 0 events in 0 seconds (")
    assert last.endswith(" histories a second): no promise was broken")


def test_the_command_counts_everything_if_it_is_asked_to(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--histories", "1", "--verbose"], Scripted)

    assert "action:\n          3 shell\n" in capsys.readouterr().out


def test_crashes_are_counted_by_their_points() -> None:
    totals = SimulationTotals(2, counts=SimulationTotals().counts)
    totals.counts.update({("what happened", "crash b"): 1200, ("what happened", "crash a"): 3, ("store", "memory"): 2})

    assert totals.summary() == "stores: memory 2\n1,203 crashes: b 1,200, a 3"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        # As a person would say it.
        (1.0, "100 of 1,000 histories, 100 a second, 0 broken, 9 seconds left"),
        (100.0, "100 of 1,000 histories, 1 a second, 0 broken, 15 minutes left"),
        (10_000.0, "100 of 1,000 histories, 0 a second, 0 broken, 25 hours left"),
    ],
)
def test_progress_says_how_long_it_still_takes(seconds: float, words: str) -> None:
    assert TimedWorker(1000, totals=SimulationTotals(100), elapsed=seconds).progress() == words


class TimedWorker(SimulationResult):
    elapsed: float = 1.0

    @property
    def seconds(self) -> float:
        return self.elapsed


# -- when it stops ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_the_command_stops_at_the_first_broken_promise(jobs: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["--histories", "1000000000", "--seed", str(BROKEN), "--jobs", jobs], Sturdy)

    out = capsys.readouterr().out
    assert code == 1
    assert "to reproduce it: make simulate N=1 SEED=1\n" in out
    assert out.splitlines()[-1].endswith(": 1 broken")


class Sturdy(Scripted):
    """Only ever broken, once: all else is well."""

    def run(self) -> None:
        if self.seed == BROKEN:
            super().run()


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_the_command_goes_on_if_it_is_told_to(jobs: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["--histories", "3", "--keep-going", "--jobs", jobs], Scripted)

    out = capsys.readouterr().out
    assert code == 1
    assert {line.partition(":")[0] for line in out.splitlines() if line.startswith("seed ")} == {"seed 1", "seed 2"}
    assert out.splitlines()[-1].startswith("3 histories of 3 runs")


def test_a_process_that_dies_names_its_seed_and_another_goes_on_behind_it() -> None:
    seeds = range(DYING + KINDS, WELL + 2 * KINDS + 1, WELL + KINDS - DYING)
    with closing(SimulationPool(seeds, 1, Scripted)) as crew:
        found = list(crew.parts())

    assert sum(part.totals.histories for part in found) == 2
    deaths = [one for part in found for one in part.broken]
    assert [one.render() for one in deaths] == [
        "seed 13: promise 10: the process that ran it died, exit code 9\n\nto reproduce it: make simulate N=1 SEED=13"
    ]


@pytest.mark.nightly
def test_a_process_that_hangs_names_its_seed() -> None:
    with closing(SimulationPool(range(ENDLESS, ENDLESS + 1), 1, Hanging, TimeLimits(silent_seconds=0.0))) as crew:
        found = [one for part in crew.parts() for one in part.broken]

    assert [(one.seed, one.sentence) for one in found] == [
        (ENDLESS, "promise 10: the process that ran it hangs for 0 seconds")
    ]


class Hanging(Scripted):
    """Waits for ever, and computes nothing meanwhile."""

    def run(self) -> None:
        signal.pause()


def test_an_interrupt_lets_it_say_what_was_done(tmp_path: Path) -> None:
    program = (
        f"import sys; sys.path[:0] = [{str(ROOT)!r}]; from tests.simulator import test_simulate as t; t.without_end()"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "it runs\n"

        child.send_signal(signal.SIGINT)

        out, _ = child.communicate()
    assert child.returncode == 130
    assert out.splitlines()[-1].startswith("interrupted: ")


def without_end() -> None:
    """Histories until somebody interrupts them."""
    sys.exit(main(["--histories", "1000000000", "--seed", str(WELL), "--jobs", "1"], Telling))


class Telling(Scripted):
    """All is well, and the first says that it runs."""

    def run(self) -> None:
        if self.seed == WELL:
            print("it runs", flush=True)
