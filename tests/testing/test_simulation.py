"""Random histories keep every promise; a seed tells the same one everywhere; what is broken is found and cut down."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest

from mulligan.core import events as e
from mulligan.core import reports as r
from mulligan.core.classify import Outcome
from mulligan.core.workflow import Expression, Handler, Rule, Workflow, decode, encode
from mulligan.ports import FAULT_POINTS, fault
from mulligan.testing.clock import JumpingClock
from mulligan.testing.faults import Crash, faults
from mulligan.testing.history import Answers, command, edge, retry, step, workflow
from mulligan.testing.loop import Engine
from mulligan.testing.promises import check
from mulligan.testing.simulate import simulate
from mulligan.testing.simulator import Simulation
from mulligan.testing.store import STORE_FAULTS, MemoryStore, StoreFault
from mulligan.testing.tally import Tally
from mulligan.testing.workflows import Dice, is_lawful, random_workflow

SRC = Path(__file__).parents[2] / "src"
CHUNKS, CHUNK = 20, 100


# -- histories -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_random_histories_keep_every_promise(chunk: int) -> None:
    _, broken = simulate(range(chunk * CHUNK, (chunk + 1) * CHUNK))

    assert "\n".join(one.render() for one in broken) == ""


@pytest.fixture(scope="module")
def tally() -> Tally:
    """The first histories of the 2,000: what occurs in these occurs in all."""
    found, _ = simulate(range(300))
    return found


def test_every_kind_of_fact_occurs(tally: Tally) -> None:
    seen = {name for kind, name in tally.counts if kind == "fact"}

    assert {fact.__name__ for fact in e.FACTS} - seen == set()


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("strategy", {"recovery", "fallback", "cleanup", "custom"}),
        ("recovered by", {"recovery", "fallback", "custom", "rerun"}),
        ("join", {"any", "all", "first", "each"}),
        ("route", {"selected", "no_route", "skipped_terminal"}),
        ("command", {"do", "handler", "script", "success", "validator", "lister", "undo"}),
        ("stopping", {"cancelled", "cancelled now", "timed_out", "failed_fast"}),
        ("attempt", {"entered", "retry", "rerun", "lost", "interrupted", "classified"}),
        ("passed over", {"when", "need_unmet", "no_arrival"}),
        ("refused", {"already_ended", "already_started", "run_ended", "stale_attempt", "unknown_place"}),
        (
            "rung passed",
            {
                *("retry: no_rule", "retry: retries_exhausted", "retry: attempts_exhausted"),
                *("retry: rule_attempts_exhausted", "retry: deadline_passed"),
            },
        ),
        ("need", {f"{on}{of}" for on in ("success", "success_or_skipped", "always") for of in ("", " of a group")}),
        ("edge", {"success", "failure", "always", "failure, then rerun", "failure, then continue"}),
        ("action", {"shell", "python", "http", "agent", "wait", "approve", "workflow", "map"}),
        ("what happened", {"lose_worker", "interrupt", "repeat_report", "forge_report", "fire_early", "fire_again"}),
        ("what happened", {"cancel", "cancel_now", "pause", "resume", "decide", "child_ends", "ask_nonsense"}),
        ("what happened", {"store_fault", "wrong_clock", "fork", *(f"crash {point}" for point in FAULT_POINTS)}),
    ],
)
def test_the_whole_language_and_all_trouble_occur(tally: Tally, kind: str, names: set[str]) -> None:
    seen = {name for found, name in tally.counts if found == kind}

    assert names - seen == set()


def test_a_whole_history_can_be_checked_afterwards() -> None:
    simulation = Simulation(3).run()

    check(simulation.row.log, simulation.engines[0].state)


# -- one seed, one history -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(10))
def test_a_seed_tells_the_same_history_twice(seed: int) -> None:
    first, second = Simulation(seed).run(), Simulation(seed).run()

    assert first.log_bytes() == second.log_bytes()


def test_two_seeds_tell_two_histories() -> None:
    assert Simulation(1).run().log_bytes() != Simulation(2).run().log_bytes()


_TELL = """
import hashlib
from mulligan.testing.simulator import Simulation
print(hashlib.sha256(b"".join(Simulation(seed).run().log_bytes() for seed in range(25))).hexdigest())
"""


@pytest.mark.parametrize("hash_seed", ["0", "1", "4242"])
def test_a_seed_tells_the_same_history_in_every_process(hash_seed: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(SRC), "PYTHONHASHSEED": hash_seed}
    here = hashlib.sha256(b"".join(Simulation(seed).run().log_bytes() for seed in range(25))).hexdigest()

    there = subprocess.run([sys.executable, "-c", _TELL], env=environment, capture_output=True, text=True, check=True)

    assert there.stdout.strip() == here


# -- workflows -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(50))
def test_random_workflows_are_lawful_and_survive_being_written_down(seed: int) -> None:
    made = random_workflow(Random(seed))

    assert is_lawful(made)
    assert decode(encode(made)) == made


def test_a_cycle_that_a_need_closes_is_not_lawful() -> None:
    assert not is_lawful(workflow(step("a", needs=["b"]), step("b", needs=["a"])))
    assert is_lawful(workflow(step("a"), step("b", needs=["a"], next=["a"])))


def test_a_remediation_that_waits_for_what_it_repairs_is_not_lawful() -> None:
    assert not is_lawful(workflow(step("a", next=[edge("fix", "failure")]), step("fix", needs=["a"])))


def test_dice_answer_the_same_to_the_same_question_and_another_the_next_time() -> None:
    asked = [Dice("seed", errors_per_thousand=0) for _ in range(2)]
    question = Expression("bool.1")

    answers = [[dice.evaluate(question, {}) for _ in range(30)] for dice in asked]

    assert answers[0] == answers[1]
    assert set(answers[0]) == {True, False}


# -- faults ----------------------------------------------------------------------------------------------------------

LADDER = workflow(
    step("a", rules=(Rule(any=True, max_retries=1, recovery_script=command("script")),), next=["b"]),
    step("b", on_failure=Handler((command("fix"),)), undo=command("undo")),
    step("c", needs=["b"], rules=retry(1, delay=5)),
)


class Drive:
    """One run through a store, told what happens: `a`, `b` and the first try of `c` fail, all else ends well."""

    def __init__(self, definition: Workflow = LADDER) -> None:
        self.clock, self.store = JumpingClock(), MemoryStore()
        self.store.create(1, definition)
        self.store.put(1, r.RunRequested(self.clock.now(), 1))
        self.engine = Engine("one", 1, self.store, self.clock, Answers())
        self.crashes = 0

    def to_the_end(self) -> Drive:
        for _ in range(200):
            if self.engine.state.run.status == "completed":
                return self
            try:
                self._go_on()
            except Crash:
                self.crashes += 1
                self.clock.advance(6)
                self.engine.restart()
        raise AssertionError("the run does not end")

    def _go_on(self) -> None:
        while self.store.inbox(1):
            self.engine.take_turn(1)
        lease = self.store.lease("w1", self.clock.now())
        if lease is None:
            self.clock.advance(31)
            self.store.expire(self.clock.now())
            self.store.fire_timers(self.clock.now())
            return
        fault("after_lease")
        exit_code = int(lease.task.place in ("a", "b", "c") and lease.task.attempt == 1)
        fault("before_report")
        self.store.report(
            lease.token, r.TaskEnded(self.clock.now(), lease.task.place, lease.task.attempt, Outcome(exit_code))
        )

    def outcome(self) -> dict[str, tuple[str, str]]:
        return {place.key: (place.status, place.recovered_by) for place in self.engine.state.steps()}


EXPECTED = {"a": ("completed", ""), "b": ("completed", "recovery"), "c": ("completed", "")}


def test_without_faults_the_run_climbs_and_completes() -> None:
    assert Drive().to_the_end().outcome() == EXPECTED


@pytest.mark.parametrize("pass_number", range(1, 7))
@pytest.mark.parametrize("point", FAULT_POINTS)
def test_a_crash_at_any_fault_point_changes_nothing_about_the_outcome(point: str, pass_number: int) -> None:
    with faults() as points:
        points.arm(point, pass_number)
        drive = Drive().to_the_end()

    assert drive.crashes == 1
    assert drive.outcome().keys() == EXPECTED.keys()
    assert all(status == "completed" for status, _ in drive.outcome().values())
    check(drive.store.log(1), drive.engine.state)


@pytest.mark.parametrize("number", range(1, 11))
@pytest.mark.parametrize("kind", STORE_FAULTS)
def test_a_store_fault_at_any_commit_changes_nothing_about_the_outcome(kind: StoreFault, number: int) -> None:
    healthy, drive = Drive().to_the_end(), Drive()
    drive.store.faults.extend(_at(number, kind))

    drive.to_the_end()

    assert drive.outcome() == EXPECTED
    assert [type(x.fact) for x in drive.store.log(1)] == [type(x.fact) for x in healthy.store.log(1)]
    check(drive.store.log(1), drive.engine.state)


def _at(number: int, kind: StoreFault) -> list[StoreFault | None]:
    """Nothing for the first commits, then this."""
    return [None] * (number - 1) + [kind]


def test_two_engines_may_drive_one_run_and_each_reads_what_the_other_wrote() -> None:
    drive = Drive()
    other = Engine("two", 1, drive.store, drive.clock, Answers())

    drive.engine.take_turn(1)
    drive.store.put(1, r.PauseRequested(drive.clock.now(), "someone"))
    other.take_turn(1)
    drive.engine.catch_up()

    assert other.state.run.status == "paused"
    assert drive.engine.state == other.state


def test_an_engine_waits_while_another_holds_the_turn() -> None:
    drive = Drive()
    drive.store.take_turn(1, "two", drive.clock.now())

    assert not drive.engine.take_turn(1)
    assert len(drive.store.inbox(1)) == 1


class Stubborn(Answers):
    """Has no answer to anything, and is no expression's fault."""

    def evaluate(self, expression: Expression, names: Mapping[str, Any]) -> Any:
        raise ZeroDivisionError(expression.source)


def test_an_error_in_a_turn_leaves_everything_as_it_was() -> None:
    drive = Drive(workflow(step("a", when="asks")))
    drive.engine.evaluator = Stubborn()

    with pytest.raises(ZeroDivisionError):
        drive.engine.take_turn(1)

    assert drive.engine.state == Engine("fresh", 1, drive.store, drive.clock, Answers()).state
    assert (drive.store.log(1), len(drive.store.inbox(1))) == ([], 1)


def test_a_verb_that_is_refused_leaves_the_inbox_and_nothing_in_the_log() -> None:
    drive = Drive()
    drive.engine.take_turn(1)
    before = len(drive.store.log(1))
    drive.store.put(1, r.Classified(drive.clock.now(), "a", "retry", "someone", "because"))

    drive.engine.take_turn(1)

    assert drive.engine.refusals == 1
    assert drive.store.inbox(1) == []
    assert len(drive.store.log(1)) == before
