"""Random histories keep every promise; a seed tells the same one everywhere; what is broken is found and cut down."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from tests.support.nightly import IS_NIGHTLY, examples

from mulligan.core.model import events as e
from mulligan.core.model.workflow import Expression, decode, encode
from mulligan.ports import FAULT_POINTS
from mulligan.testing.history import edge, step, workflow
from proof.invariants.run_invariants import check
from proof.simulator.__main__ import simulate
from proof.simulator.fault_injection import FAULTS
from proof.simulator.shrinking import complaint
from proof.simulator.simulation import Simulation
from proof.simulator.workflows import RandomEvaluator, is_allowed, random_workflow

pytestmark = pytest.mark.one_by_one

SRC = Path(__file__).parents[2] / "src"
# The first ones are those whose kinds of things are counted.
COUNTED, CHUNK, HISTORIES = 150, 50, 300
# By day the kinds are not counted: a sabotage that needs one of them and is not found says so too.
BY_DAY = 40


# -- histories -------------------------------------------------------------------------------------------------------


@pytest.mark.nightly
@pytest.mark.parametrize("first", range(COUNTED, HISTORIES, CHUNK))
def test_random_histories_keep_every_promise(first: int) -> None:
    _, broken = simulate(range(first, first + CHUNK))

    assert "\n".join(one.render() for one in broken) == ""


# What has to occur among the counted ones, by kind.
EXPECTED: list[tuple[str, set[str]]] = [
    ("fact", {fact.__name__ for fact in e.FACTS}),
    ("strategy", {"recovery", "fallback", "cleanup", "custom"}),
    ("recovered by", {"recovery", "fallback", "custom", "rerun"}),
    ("join", {"any", "all", "first", "each"}),
    ("route", {"selected", "no_route", "skipped_terminal"}),
    ("command", {"do", "handler", "script", "success", "validator", "lister", "undo"}),
    ("stopping", {"cancelled", "cancelled now", "timed_out", "failed_fast"}),
    ("attempt", {"entered", "retry", "rerun", "lost", "interrupted", "classified"}),
    ("skipped", {"when", "need_unmet", "no_arrival"}),
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
    (
        "what happened",
        {"cancel", "cancel_now", "pause", "resume", "retry", "decide", "visit", "ask_nonsense", "items"},
    ),
    ("what happened", {"freeze", "newcomer", "wrong_clock", "reset_breakers", "fork", "outage", *FAULTS}),
    ("what happened", {"hostile, refused", "hostile, accepted", "forked with other inputs"}),
    ("what happened", {f"crash {point}" for point in (*FAULT_POINTS, "before commit", "after commit")}),
    ("store", {"memory", "shared", "sqlite"}),
    ("code", {"OUTPUT_TOO_LARGE"}),
]


@pytest.mark.parametrize("first", range(0, BY_DAY, BY_DAY // 4))
@pytest.mark.skipif(IS_NIGHTLY, reason="at night they are among those that are counted")
def test_a_few_random_histories_keep_every_promise(first: int) -> None:
    _, broken = simulate(range(first, first + BY_DAY // 4))

    assert "\n".join(one.render() for one in broken) == ""


@pytest.mark.nightly
def test_the_whole_language_and_all_trouble_occur_and_every_promise_is_kept() -> None:
    """One test, so that one process counts."""
    found, broken = simulate(range(COUNTED))

    assert "\n".join(one.render() for one in broken) == ""
    assert {(kind, name) for kind, names in EXPECTED for name in names} - found.counts.keys() == set()


def test_a_whole_history_can_be_checked_afterwards() -> None:
    simulation = Simulation(3).run()

    check(simulation.log, simulation.state, simulation.workflow)


# What these have found: a fork during `end` whose worktree cannot be opened; a store that fails when the reports of an
# ended run are passed on, while the turn of another was written in the same commit; a fork whose `end` a person
# approves before its worktree is open.
@pytest.mark.parametrize("seed", [9802998, 9901341, 9911548])
def test_a_history_that_was_broken_once_keeps_every_promise(seed: int) -> None:
    assert complaint(Simulation(seed)) == ""


# -- one seed, one history -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(examples(4, 10)))
def test_a_seed_tells_the_same_history_twice(seed: int) -> None:
    first, second = Simulation(seed).run(), Simulation(seed).run()

    assert first.log_bytes() == second.log_bytes()


def test_two_seeds_tell_two_histories() -> None:
    assert Simulation(1).run().log_bytes() != Simulation(2).run().log_bytes()


# So many are told in another process.
TOLD = examples(3, 8)
_TELL = """
import hashlib
from proof.simulator.simulation import Simulation
print(hashlib.sha256(b"".join(Simulation(seed).run().log_bytes() for seed in range(COUNT))).hexdigest())
"""


@pytest.mark.parametrize(
    "hash_seed", ["4242", *(pytest.param(number, marks=pytest.mark.nightly) for number in ("0", "1"))]
)
def test_a_seed_tells_the_same_history_in_every_process(hash_seed: str) -> None:
    environment = {**os.environ, "PYTHONPATH": f"{SRC}:{SRC.parent}", "PYTHONHASHSEED": hash_seed}
    here = hashlib.sha256(b"".join(Simulation(seed).run().log_bytes() for seed in range(TOLD))).hexdigest()
    told = _TELL.replace("COUNT", str(TOLD))

    there = subprocess.run([sys.executable, "-c", told], env=environment, capture_output=True, text=True, check=True)

    assert there.stdout.strip() == here


# -- workflows -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(50))
def test_random_workflows_are_valid_and_survive_being_written_down(seed: int) -> None:
    made = random_workflow(Random(seed))

    assert is_allowed(made)
    assert decode(encode(made)) == made


def test_a_cycle_that_a_need_closes_is_not_valid() -> None:
    assert not is_allowed(workflow(step("a", needs=["b"]), step("b", needs=["a"])))
    assert is_allowed(workflow(step("a"), step("b", needs=["a"], next=["a"])))


def test_a_remediation_that_waits_for_what_it_repairs_is_not_valid() -> None:
    assert not is_allowed(workflow(step("a", next=[edge("fix", "failure")]), step("fix", needs=["a"])))


def test_dice_answer_the_same_to_the_same_question_and_another_the_next_time() -> None:
    asked = [RandomEvaluator("seed", errors_per_thousand=0) for _ in range(2)]
    question = Expression("bool.1")

    answers = [[dice.evaluate(question, {}) for _ in range(30)] for dice in asked]

    assert answers[0] == answers[1]
    assert set(answers[0]) == {True, False}
