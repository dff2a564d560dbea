"""The way to the end, fact by fact: undos, `end` in every round, and what the last event counts."""

from __future__ import annotations

from typing import Any

import pytest

from mulligan.core.deciding.end_status import parse_end_output
from mulligan.core.model import events as e
from mulligan.core.model.artifacts import KEY, describe_artifact, make_reference
from mulligan.core.model.workflow import Map
from mulligan.errors import ExpressionFailed
from mulligan.testing.history import History, command, expression, handler, shell, step, workflow

END = step("end", action=shell("report"))


def run_of(*steps: Any, **fields: Any) -> History:
    answers = fields.pop("answers", None)
    return History(workflow(*steps, **fields), answers).start()


# -- facts -----------------------------------------------------------------------------------------------------------


def test_end_is_visited_once_a_round_and_its_visits_are_numbered() -> None:
    run = run_of(step("a"), end=END).fail("a").ok("end")
    assert run.status == "failed"

    run.retry().ok("a").ok("end")

    assert [fact.visit for fact in run.facts(e.StepEntered) if fact.step == "end"] == [1, 2]
    assert [fact.round for fact in run.facts(e.RunFailed, e.RunCompleted)] == [1, 2]


def test_end_is_scheduled_as_any_step_that_is_entered() -> None:
    run = run_of(step("a"), end=END).ok("a")

    assert run.follows[-1] == e.AttemptScheduled("end", 1, "entered")


def test_a_silent_end_completes_in_its_own_visit() -> None:
    run = run_of(step("a")).fail("a").retry().ok("a")

    assert [fact.visit for fact in run.facts(e.StepCompleted) if fact.step == "end"] == [1, 2]


def test_an_undo_is_the_only_command_of_its_kind() -> None:
    run = run_of(step("a", undo=command("undo")), step("b", needs=["a"])).ok("a")

    run.fail("b")

    assert run.facts(e.UndoStarted) == [e.UndoStarted("a", 1)]
    assert run.facts(e.CommandEntered) == [e.CommandEntered("a.undo@1", "a", "undo", 0)]


def test_now_leaves_undone_what_was_to_be_undone_next() -> None:
    steps = [step(name, undo=command(f"undo {name}")) for name in ("a", "b")]
    run = run_of(*steps, step("c", needs=["a", "b"])).ok("a", "b").fail("c").started("b.undo@1")

    run.cancel(now=True).ok("b.undo@1")

    assert (run["b"].is_undone, run["a"].is_undone, run.status) == (True, False, "cancelled")


def test_an_undo_that_was_stopped_says_so() -> None:
    run = run_of(step("a", undo=command("undo")), step("b", needs=["a"])).ok("a").fail("b").started("a.undo@1")

    run.cancel(now=True).fail("a.undo@1", signal=15)

    failure = run.facts(e.UndoFailed)[0].failure
    assert (failure.code, failure.message, failure.cause) == ("UNDO_FAILED", "the undo was stopped", ())


# -- counts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mended", "count"), [((), 0), ((0,), 1), ((0, 1), 1)])
def test_a_map_counts_as_recovered_once_if_any_of_its_items_was(mended: tuple[int, ...], count: int) -> None:
    one = command("one", on_failure=handler("fix"))
    steps = [step("m", map=Map(over=expression("list")), do=(one,)), step("other", on_failure=handler("fix"))]
    run = run_of(*steps, answers={"list": [1, 2]}).ok("other")

    for index in (0, 1):
        place = f"m[{index}].0"
        run.fail(place).ok(f"{place}.on_failure@1.0") if index in mended else run.ok(place)

    assert (run.ended.recovered_steps_count, run.ended.degraded) == (count, bool(mended))
    assert run.ended.total_steps == 2


# -- the word of `end` -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ({"status": "failed"}, {"status": "failed"}),
        ('{"status": "failed"}', {"status": "failed"}),
        (' \n{"status": "failed"}\n', {"status": "failed"}),
        # What is no object, or none that can be read.
        ("failed", {}),
        ('"failed"', {}),
        ('["status"]', {}),
        ('{"status": ', {}),
        (None, {}),
        (7, {}),
        # A reference says nothing itself: what it refers to would have to be read.
        ({KEY: {"status": "failed"}}, {}),
    ],
)
def test_end_says_an_object_or_nothing(output: Any, said: dict[str, Any]) -> None:
    assert parse_end_output(output) == said


LARGE = make_reference(describe_artifact("1/end/1/1/output.json", b"{}", "json"))


def test_what_end_says_at_length_is_fetched() -> None:
    said = '{"status": "failed", "reason": "too large"}'
    run = run_of(step("a"), end=END, answers={"output": said}).ok("a")

    run.ok("end", output=LARGE)

    assert (run.status, run.ended.reason) == ("failed", "too large")


def test_what_end_said_and_nobody_has_any_more_changes_nothing() -> None:
    run = run_of(step("a"), end=END, answers={"output": ExpressionFailed("it is gone")}).ok("a")

    run.ok("end", output=LARGE)

    assert (run.status, run.ended.reason) == ("completed", "")
