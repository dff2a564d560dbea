"""kill -9 at the first, the second, … pass of a fault point, then `resume`: the same outcome as undisturbed.

Each trial is three real processes: two that die, and one that goes on where they stopped.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from mulligan.core import events as e
from mulligan.service.verbs import Service
from proof.crashes.mortals import DONE_ONCE, EVERYTHING, Ended, Mortals, done, mortals, undisturbed
from proof.stage import Stage, outcome

POINTS = ("before_commit", "after_commit", "after_lease", "before_report")
DEATHS_MAX = 100
# How many commands an undisturbed run does for each step and item.
EXPECTED = Counter({"fetch": 3, "build": 3, "check[0]": 2, "check[1]": 1, "check[2]": 2, "count": 1, "deploy": 2})
EXPECTED.update({"repair": 1, "end": 1})


def expect_at_most_what_was_in_flight(stage: Stage, log: list[e.Entry]) -> None:
    """Only what was lost with a process was done again, once for each time, and each time under a lease of its own."""
    lost = Counter(owner(entry.fact.place) for entry in log if isinstance(entry.fact, e.AttemptLost))
    starts = [line for line in stage.lines() if line.verb == "start"]
    again = Counter(f"{line.step}[{line.item}]" if line.item != "-" else line.step for line in starts) - EXPECTED

    assert not DONE_ONCE - done(stage), "something was never done"
    assert not again - lost, f"done again: {again}, lost: {lost}"
    assert len({line.fence for line in starts}) == len(starts)


def owner(place: str) -> str:
    """The step or item that a command, a script or an attempt belongs to."""
    return place.partition(".")[0]


def brought_to_its_end(processes: Mortals, stage: Stage, service: Service, point: str, nth: int) -> Ended:
    """The run taken up by a process that is killed soon after, and by another one that is not."""
    (run,) = service.runs(limit=1)
    if run.status != "completed":
        processes.run(stage, "resume", str(run.run_id), "--json", point=point, nth=1 + nth % 3)
    verb = "show" if service.record(run.run_id).status == "completed" else "resume"
    return processes.run(stage, verb, str(run.run_id), "--json")


@pytest.mark.parametrize("point", POINTS)
def test_a_run_that_is_killed_anywhere_twice_and_resumed_comes_to_the_same_end(
    tmp_path: Path, store_url: str, point: str
) -> None:
    with mortals(Stage(tmp_path), tmp_path) as processes:
        expected = undisturbed(processes, tmp_path / "undisturbed", store_url)

        for nth in range(1, DEATHS_MAX):
            folder = tmp_path / str(nth)
            folder.mkdir()
            stage = Stage(folder, store_url)
            dead = processes.run(stage, "run", stage.workflow(EVERYTHING), "--json", point=point, nth=nth)
            if dead.code == 0:
                break
            assert dead.code == -9, dead.said

            with stage.service() as service:
                ended = brought_to_its_end(processes, stage, service, point, nth)

                assert ended.code == 0, f"killed at pass {nth}: {ended.said}"
                assert outcome(ended.shown) == expected, f"killed at pass {nth}"
                stage.expect_promises(service, ended.shown["run_id"])
                expect_at_most_what_was_in_flight(stage, list(service.events(ended.shown["run_id"])))
            stage.expect_no_overlap()
            stage.expect_nothing_left()

    assert 5 < nth < DEATHS_MAX - 1, f"the run was killed {nth - 1} times"
