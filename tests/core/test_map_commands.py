"""Commands of an item: their conditions, and what they read of earlier commands."""

from __future__ import annotations

from typing import Any

from mulligan.core.model import events as e
from mulligan.core.model.workflow import Action, Command, Handler, Map, Template
from mulligan.errors import ExpressionFailed
from mulligan.history.story import story
from mulligan.testing.history import History, command, expression, step, workflow


def run_of(*do: Command, items: Any = (1,), **answers: Any) -> History:
    flow = workflow(step("m", map=Map(over=expression("list")), do=do))
    return History(flow, {"list": list(items), **answers}).start()


def reading(name: str, **fields: Any) -> Command:
    return Command(action=Action("shell", {"text": "x"}, {"X": Template((expression(name, name),))}), **fields)


# -- previous --------------------------------------------------------------------------------------------------------


def test_an_item_reads_the_output_of_the_nearest_item_before_it_that_completed() -> None:
    seen: list[Any] = []
    do = (command("one"), reading("previous"))
    flow = workflow(step("m", map=Map(over=expression("list"), max_parallel=1, on_item_failure="collect"), do=do))
    run = History(flow, {"list": [1, 2, 3], "previous": lambda names: seen.append(names["previous"])}).start()

    run.ok("m[0].0").ok("m[0].1", output="first")
    run.ok("m[1].0").fail("m[1].1")
    run.ok("m[2].0").ok("m[2].1")

    assert seen == [None, "first", "first"]


def test_a_retry_of_the_run_reads_what_items_of_the_one_before_gave() -> None:
    seen: list[Any] = []
    policy = Map(over=expression("list"), max_parallel=1, on_item_failure="stop")
    flow = workflow(step("m", map=policy, do=(reading("previous"),)))
    run = History(flow, {"list": [1, 2], "previous": lambda names: seen.append(names["previous"])}).start()

    run.ok("m[0].0", output="first").fail("m[1].0").retry().ok("m[1].0")

    assert seen == [None, "first", "first"]
    assert run.status == "completed"


# -- outputs ---------------------------------------------------------------------------------------------------------


def test_a_command_reads_what_every_command_before_it_gave() -> None:
    seen: list[Any] = []
    run = run_of(command("one"), command("two"), reading("outputs"), outputs=lambda names: seen.append(names))

    run.ok("m[0].0", output="a").ok("m[0].1", output={"b": 1}).ok("m[0].2")

    assert seen == [{"outputs": ["a", {"b": 1}]}]


def test_the_first_command_reads_an_empty_list() -> None:
    seen: list[Any] = []

    run_of(reading("outputs"), outputs=lambda names: seen.append(names["outputs"]))

    assert seen == [[]]


def test_a_command_that_failed_and_may_counts_as_null() -> None:
    seen: list[Any] = []
    run = run_of(
        command("one", continue_on_error=True), reading("outputs"), outputs=lambda names: seen.append(names["outputs"])
    )

    run.fail("m[0].0")

    assert seen == [[None]]


def test_the_handler_of_a_command_reads_them_too() -> None:
    seen: list[Any] = []
    failing = command("two", on_failure=Handler((reading("outputs"),)))
    run = run_of(command("one"), failing, outputs=lambda names: seen.append(names["outputs"]))

    run.ok("m[0].0", output="a").fail("m[0].1")

    assert seen == [["a"]]


def test_each_item_has_its_own_and_they_go_with_its_end() -> None:
    run = run_of(command("one"), command("two"), items=[1, 2])

    run.ok("m[0].0", output="a").ok("m[1].0", output="b")
    assert (run["m[0]"].outputs, run["m[1]"].outputs) == (("a",), ("b",))
    run.ok("m[0].1").fail("m[1].1")

    assert (run["m[0]"].outputs, run["m[1]"].outputs) == ((), ())


def test_an_item_that_runs_once_more_starts_without_those_of_before() -> None:
    seen: list[Any] = []
    again = Handler((command("fix"),), rerun=1)
    do = (reading("outputs"), command("two"))
    flow = workflow(step("m", map=Map(over=expression("list")), do=do, on_failure=again))
    run = History(flow, {"list": [1], "outputs": lambda names: seen.append(names["outputs"])}).start()

    run.ok("m[0].0", output="a").fail("m[0].1").ok("m.on_failure@1.0")

    assert seen == [[], []]


# -- when ------------------------------------------------------------------------------------------------------------


def test_a_command_whose_condition_does_not_hold_is_skipped_and_the_item_goes_on() -> None:
    run = run_of(command("one"), command("two", when=expression("no")), command("three"), no=False)

    run.ok("m[0].0", output="a").ok("m[0].2", output="c")

    assert [fact.place for fact in run.facts(e.CommandSkipped)] == ["m[0].1"]
    assert [fact.place for fact in run.facts(e.CommandEntered)] == ["m[0].0", "m[0].2"]
    assert run["m"].output["results"] == ["c"]


def test_a_condition_reads_the_item_its_number_and_what_came_before() -> None:
    seen: list[Any] = []

    def answer(names: dict[str, Any]) -> bool:
        seen.append(names)
        return True

    asked = expression("asked", "item", "index", "output", "outputs")
    run = run_of(command("one"), command("two", when=asked), items=["x"], asked=answer)
    run.ok("m[0].0", output="a")

    assert seen == [{"item": "x", "index": 0, "output": "a", "outputs": ["a"]}]


def test_a_skipped_command_gives_null() -> None:
    seen: list[Any] = []
    last = Command(action=Action("shell", {"text": "x"}, {"X": Template((expression("it", "output", "outputs"),))}))
    run = run_of(
        command("one"), command("two", when=expression("no")), last, no=False, it=lambda names: seen.append(names)
    )

    run.ok("m[0].0", output="a")

    assert seen == [{"output": None, "outputs": ["a", None]}]


def test_an_item_of_which_every_command_is_skipped_completes_with_null() -> None:
    run = run_of(command("one", when=expression("no")), items=[1, 2], no=False)

    assert run.status == "completed"
    assert run["m"].output["results"] == [None, None]


def test_a_condition_that_cannot_be_evaluated_fails_its_command() -> None:
    def fail(names: dict[str, Any]) -> bool:
        raise ExpressionFailed("no such key: 'x'")

    run = run_of(command("one", when=expression("bad")), bad=fail)

    (failed,) = run.facts(e.CommandFailed)
    assert (failed.failure.code, failed.failure.message) == ("EXPRESSION_FAILED", "no such key: 'x'")
    assert (failed.failure.item, failed.failure.attempt) == (0, 1)
    assert run.statuses == {"m": "failed"}


def test_the_story_says_what_was_skipped_and_why() -> None:
    run = run_of(command("one", when=expression("item > 2")), **{"item > 2": False})

    told = [(line.place, line.text) for line in story(run.log, run.state.workflow)]

    assert ("m[0].0", "skipped: condition not met: item > 2") in told
