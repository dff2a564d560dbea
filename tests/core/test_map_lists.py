"""Maps: which list a visit continues with, and which of its items still start."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mulligan.core.model import events as e
from mulligan.core.model.workflow import Command, Map, Step, Triage
from mulligan.errors import ExpressionFailed
from mulligan.testing.history import History, command, edge, expression, step, workflow

ONE = (command("one"),)


def mapped(do: tuple[Command, ...] = ONE, policy: Map | None = None, **fields: Any) -> Step:
    return step("m", map=policy or Map(over=expression("list")), do=do, **fields)


def run_of(lists: list[Any], *steps: Step, **answers: Any) -> History:
    """A run in which the list is another each time that it is asked for; the last one stays."""
    given = iter(lists[:-1])
    return History(workflow(*steps), {"list": lambda _: next(given, lists[-1]), **answers}).start()


def entered(run: History) -> list[str]:
    return [fact.place for fact in run.facts(e.ItemEntered)]


def taken_up(run: History) -> tuple[list[Any] | None, tuple[int, ...] | None]:
    """The list that the last attempt began with, or what it takes up of the one it had."""
    last = run.facts(e.MapExpanded)[-1]
    return last.items, last.todo


def test_a_later_attempt_of_a_visit_goes_on_with_its_list_whatever_the_list_would_be_now() -> None:
    run = run_of([["x", "y"], ["z"]], mapped(triage=Triage())).ok("m[0].0").fail("m[1].0")

    run.classify("m", "retry")

    assert taken_up(run) == (None, (1,))


def test_after_the_visit_that_a_round_was_opened_for_all_that_failed_runs_again() -> None:
    mended = mapped(next=[edge("fix", "failure", then="rerun", codes=("ITEMS_FAILED",))])
    run = run_of([[1, 2, 3]], mended, step("fix")).fail("m[0].0").fail("m[1].0").ok("m[2].0").fail("fix")
    run.retry("m", items=(0,)).fail("m[0].0")
    assert entered(run)[3:] == ["m[0]"]

    run.ok("fix")

    assert entered(run)[4:] == ["m[0]", "m[1]"]


def test_numbers_that_are_equal_are_the_same_items_however_they_are_written() -> None:
    mended = mapped(next=[edge("fix", "failure", then="rerun")])
    run = run_of([[1, 2], [1.0, 2.0]], mended, step("fix")).ok("m[0].0").fail("m[1].0")

    run.ok("fix")

    assert taken_up(run) == (None, (1,))


@pytest.mark.parametrize(
    ("before", "after"), [([1, 2], [True, 2]), ([False, 2], [0, 2]), ([[{"a": 1}], 2], [[{"a": True}], 2])]
)
def test_a_boolean_is_no_number_and_so_another_item(before: list[Any], after: list[Any]) -> None:
    mended = mapped(next=[edge("fix", "failure", then="rerun")])
    run = run_of([before, after], mended, step("fix")).ok("m[0].0").fail("m[1].0")

    run.ok("fix")

    items, _ = taken_up(run)
    assert json.dumps(items) == json.dumps(after)


def test_every_text_is_sorted_before_whatever_is_no_text() -> None:
    items = [{"a": 1}, "~", [1], "}"]

    run = run_of([items], mapped(policy=Map(over=expression("list"), sort_by=expression("it", "item"))), it=_item)

    assert run.facts(e.MapExpanded)[0].items == ["}", "~", [1], {"a": 1}]


def _item(names: Any) -> Any:
    return names["item"]


def test_the_command_that_lists_the_items_is_the_first_and_only_one() -> None:
    run = run_of([None], mapped(policy=Map(lister=command("ls"))))

    assert run.facts(e.CommandEntered) == [e.CommandEntered("m.lister@1", "m", "lister", 0)]


def test_a_command_whose_condition_cannot_be_evaluated_fails_in_its_own_place() -> None:
    run = run_of([[1]], mapped((command("one", when=expression("bad")),)), bad=ExpressionFailed("no such key"))

    [failed] = run.facts(e.AttemptFailed)[:1]
    assert (failed.place, failed.attempt, failed.failure.message) == ("m[0].0", 1, "no such key")
    assert run.facts(e.CommandEntered) == [e.CommandEntered("m[0].0", "m[0]", "do", 0)]


def test_no_further_command_of_an_item_starts_when_the_time_of_its_map_is_up() -> None:
    run = run_of([[1]], mapped((command("one"), command("two")), deadline=30)).started("m[0].0").wait(30)

    run.ok("m[0].0")

    assert run.queued == []
    assert (run["m[0]"].status, run["m"].failure.code) == ("cancelled", "TIMEOUT")
