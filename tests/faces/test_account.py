"""What the last lines of a run say of items whose list was made anew: the old ones are gone, with their troubles."""

from __future__ import annotations

from typing import Any

from mulligan.core.model.workflow import Map
from mulligan.service.runs.views.failure_summary import FailureSummary
from mulligan.testing.history import History, command, expression, step, workflow

MAPPED = step("m", map=Map(over=expression("list")), do=(command("one"),))


def fails_with(values: list[Any]) -> History:
    """A run whose last item has failed."""
    run = History(workflow(MAPPED), answers={"list": values}).start()
    return run.ok(*(f"m[{index}].0" for index in range(len(values) - 1))).fail(f"m[{len(values) - 1}].0")


def goes_again_with(run: History, values: list[Any]) -> None:
    """Another round, in which the list is another one."""
    run.evaluator.answers["list"] = values
    run.retry().ok(*(f"m[{index}].0" for index in range(len(values))))


def troubles(account: FailureSummary, run: History) -> list[tuple[str, str]]:
    return [(one.place, one.answer) for one in account.lines(run.state)]


def test_an_item_of_a_list_that_is_no_more_is_not_told_of():
    run = fails_with([1, 2])
    goes_again_with(run, [3])

    account = FailureSummary()
    account.update(run.log)

    assert troubles(account, run) == [("m", "then completed")]


def test_nor_is_it_by_whoever_looked_on_from_the_second_round_on():
    run = fails_with([1, 2])
    before = list(run.log)
    goes_again_with(run, [3])

    account = FailureSummary()
    account.update(run.log[len(before) :])
    account.add_earlier(before)

    assert troubles(account, run) == [("m", "then completed")]


def test_an_item_of_a_list_that_stands_keeps_its_story():
    run = fails_with([1, 2])
    run.retry().ok("m[1].0")

    account = FailureSummary()
    account.update(run.log)

    assert troubles(account, run) == [("m", "then completed"), ("m[1]", "then completed")]
