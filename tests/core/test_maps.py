"""Maps: the list, its items, what their failures mean for the step, and what a later attempt runs again."""

from __future__ import annotations

from typing import Any

import pytest

from mulligan.core.effects import effects as fx
from mulligan.core.effects.tasks import make_task
from mulligan.core.model import events as e
from mulligan.core.model import reports as r
from mulligan.core.model.workflow import Action, Command, Map, Step, Template, Triage
from mulligan.core.turn import fold
from mulligan.errors import ExpressionFailed
from mulligan.testing.history import History, command, edge, expression, handler, retry, step, workflow

ONE = (command("one"),)


def mapped(do: tuple[Command, ...] = ONE, name: str = "m", policy: Map | None = None, **fields: Any) -> Step:
    """A map step over what the evaluator answers for `list`; fields of `Map` and of `Step` are sorted out."""
    of_map = {key: fields.pop(key) for key in list(fields) if key in Map.__struct_fields__ and key != "name"}
    return step(name, map=policy or Map(over=expression("list"), **of_map), do=do, **fields)


def run_of(items: Any, *steps: Any, answers: dict[str, Any] | None = None, **fields: Any) -> History:
    return History(workflow(*steps, **fields), {"list": items, **(answers or {})}).start()


def entered(run: History) -> list[int]:
    return [fact.index for fact in run.facts(e.ItemEntered)]


def values(run: History) -> list[Any]:
    found: list[Any] = run.facts(e.MapExpanded)[-1].items
    return found


# -- items -----------------------------------------------------------------------------------------------------------


def test_the_output_has_the_results_in_item_order() -> None:
    run = run_of(["x", "y", "z"], mapped())

    run.ok("m[2].0", output="Z").ok("m[0].0", output="X").ok("m[1].0", output="Y")

    assert run["m"].output == {
        "total": 3,
        "succeeded": 3,
        "failed": 0,
        "results": ["X", "Y", "Z"],
        "failures": [],
    }
    assert run.status == "completed"


def test_the_commands_of_an_item_run_one_after_the_other_and_the_last_one_gives_its_output() -> None:
    run = run_of([1, 2], mapped((command("one"), command("two"))))

    run.ok("m[0].0", output="a")
    assert run.queued == ["m[0].1", "m[1].0"]
    run.ok("m[0].1", output="b").ok("m[1].0").ok("m[1].1", output="c")

    assert run["m"].output["results"] == ["b", "c"]


def test_an_item_whose_command_fails_runs_no_further_command() -> None:
    run = run_of([1], mapped((command("one"), command("two"))))

    run.fail("m[0].0")

    assert [fact.place for fact in run.facts(e.CommandEntered)] == ["m[0].0"]
    assert run.statuses == {"m": "failed"}


def test_a_command_that_may_fail_does_not_fail_its_item() -> None:
    run = run_of([1], mapped((command("one", continue_on_error=True), command("two"))))

    run.fail("m[0].0").ok("m[0].1", output="fine")

    assert run["m"].output["results"] == ["fine"]


def test_an_item_sees_its_value_and_its_index() -> None:
    seen: list[Any] = []
    action = Action("shell", {"text": "x"}, {"IT": Template((expression("it", "pkg", "index"),))})
    flow = mapped((Command(action=action),), policy=Map(over=expression("list"), name="pkg"))

    run_of(["x", "y"], flow, answers={"it": lambda names: seen.append((names["pkg"], names["index"]))})

    assert seen == [("x", 0), ("y", 1)]


def test_an_empty_list_completes_at_once() -> None:
    run = run_of([], mapped())

    assert (run.status, run["m"].output["total"]) == ("completed", 0)


def test_max_parallel_bounds_how_many_items_run_together() -> None:
    run = run_of([1, 2, 3], mapped(max_parallel=2))
    assert entered(run) == [0, 1]

    run.ok("m[1].0")
    assert entered(run) == [0, 1, 2]
    run.ok("m[0].0", "m[2].0")

    assert run.status == "completed"


# -- the list --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({}, "an object"),
        ("abc", "a string"),
        (3, "a number"),
        (1.5, "a number"),
        (True, "a boolean"),
        (None, "nothing"),
    ],
)
def test_what_is_no_list_fails_the_step(given: Any, what: str) -> None:
    run = run_of(given, mapped())

    found = run["m"].failure
    assert (found.code, found.message) == ("EXPRESSION_FAILED", f"'over' gave {what}, not a list")
    assert run.status == "failed"


def test_a_list_that_cannot_be_evaluated_fails_the_step() -> None:
    run = run_of(ExpressionFailed("no such key"), mapped())

    assert (run["m"].failure.code, run["m"].failure.message) == ("EXPRESSION_FAILED", "no such key")


LETTERS = ["b", "a", "c", "a", "d"]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"filter": expression("keep", "item")}, ["b", "a", "a", "d"]),
        ({"sort_by": expression("it", "item")}, ["a", "a", "b", "c", "d"]),
        ({"sort_by": expression("it", "item"), "sort_descending": True}, ["d", "c", "b", "a", "a"]),
        ({"distinct": expression("it", "item")}, ["b", "a", "c", "d"]),
        ({"offset": 2}, ["c", "a", "d"]),
        ({"offset": 9}, []),
        ({"max_items": 2}, ["b", "a"]),
        ({"max_items": 0}, []),
        ({"offset": 1, "max_items": 2}, ["a", "c"]),
        # All of them, in the order filter, sort, distinct, offset, max_items.
        (
            {
                "filter": expression("keep", "item"),
                "sort_by": expression("it", "item"),
                "distinct": expression("it", "item"),
                "offset": 1,
                "max_items": 1,
            },
            ["b"],
        ),
    ],
)
def test_the_list_is_filtered_sorted_made_distinct_and_cut(fields: dict[str, Any], expected: list[str]) -> None:
    answers = {"keep": lambda names: names["item"] != "c", "it": lambda names: names["item"]}

    run = run_of(LETTERS, mapped(**fields), answers=answers)

    assert values(run) == expected


def test_a_mixed_list_is_sorted_numbers_first_and_nulls_last() -> None:
    mixed = [None, "b", {"k": 1}, 2, "a", 1.5, True]

    run = run_of(
        mapped_values := mixed,
        mapped(sort_by=expression("it", "item")),
        answers={"it": lambda names: names["item"]},
    )

    assert values(run) == [True, 1.5, 2, "a", "b", {"k": 1}, None]
    assert mapped_values[0] is None


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"filter": expression("even", "index")}, ["a", "c"]),
        ({"sort_by": expression("backwards", "index")}, ["d", "c", "b", "a"]),
        ({"distinct": expression("half", "index")}, ["a", "c"]),
    ],
)
def test_an_item_may_be_chosen_by_its_index(fields: dict[str, Any], expected: list[str]) -> None:
    answers = {
        "even": lambda names: names["index"] % 2 == 0,
        "backwards": lambda names: -names["index"],
        "half": lambda names: names["index"] // 2,
    }

    run = run_of(["a", "b", "c", "d"], mapped(**fields), answers=answers)

    assert values(run) == expected


def test_objects_are_sorted_by_what_is_in_them_whatever_the_order_of_their_keys() -> None:
    items = [{"b": 1, "a": 2}, "zz", {"z": 0, "a": 1}]

    run = run_of(items, mapped(sort_by=expression("it", "item")), answers={"it": lambda names: names["item"]})

    assert values(run) == ["zz", {"z": 0, "a": 1}, {"b": 1, "a": 2}]


def test_distinct_tells_values_of_unlike_types_apart() -> None:
    run = run_of(
        [1, "1", 1, {"a": 1, "b": 2}, {"b": 2, "a": 1}],
        mapped(distinct=expression("it", "item")),
        answers={"it": lambda names: names["item"]},
    )

    assert values(run) == [1, "1", {"a": 1, "b": 2}]


@pytest.mark.parametrize("key", ["filter", "sort_by", "distinct"])
def test_an_option_that_cannot_be_evaluated_fails_the_step(key: str) -> None:
    run = run_of([1], mapped(**{key: expression("bad", "item")}), answers={"bad": ExpressionFailed("no such key")})

    assert run["m"].failure.message == "no such key"


def test_a_command_may_list_the_items() -> None:
    run = run_of(None, mapped(policy=Map(lister=command("ls"), max_items=2)))
    assert run.queued == ["m.lister@1"]

    run.ok("m.lister@1", output=["x", "y", "z"])

    assert run.queued == ["m[0].0", "m[1].0"]


def test_a_lister_that_fails_fails_the_step_with_its_failure() -> None:
    run = run_of(None, mapped(policy=Map(lister=command("ls"))))

    run.fail("m.lister@1", 2)

    assert (run["m"].failure.code, run["m"].failure.exit_code) == ("EXIT_NONZERO", 2)
    assert run.status == "failed"


def test_a_lister_has_its_own_retries() -> None:
    run = run_of(None, mapped(policy=Map(lister=command("ls", rules=retry(1)))))

    run.fail("m.lister@1").ok("m.lister@1", output=[1]).ok("m[0].0")

    assert run.status == "completed"


def test_a_lister_that_prints_no_list_fails_the_step() -> None:
    run = run_of(None, mapped(policy=Map(lister=command("ls"))))

    run.ok("m.lister@1", output="x y z")

    assert run["m"].failure.message == "'over' gave a string, not a list"


# -- failures of items -----------------------------------------------------------------------------------------------


def test_by_default_all_items_run_and_then_the_step_fails() -> None:
    run = run_of([1, 2, 3], mapped(max_parallel=1))

    run.fail("m[0].0", 4).ok("m[1].0").fail("m[2].0", 5)

    found = run["m"].failure
    assert (found.code, found.message, found.details) == (
        "ITEMS_FAILED",
        "2 of 3 items failed",
        {"failed": 2, "total": 3},
    )
    assert [(cause.item, cause.exit_code) for cause in found.cause] == [(0, 4), (2, 5)]


def test_with_stop_no_new_item_starts_and_what_runs_may_end() -> None:
    run = run_of([1, 2, 3, 4], mapped(max_parallel=2, on_item_failure="stop"))

    run.fail("m[0].0")
    assert run.statuses == {"m": "running"}
    run.ok("m[1].0")

    assert (entered(run), run.statuses) == ([0, 1], {"m": "failed"})
    assert run["m"].failure.message == "1 of 4 items failed"


def test_with_collect_the_step_completes_and_tells_of_the_failures() -> None:
    run = run_of(["x", "y"], mapped(on_item_failure="collect"))

    run.fail("m[0].0", 4).ok("m[1].0", output="Y")

    assert run["m"].output == {
        "total": 2,
        "succeeded": 1,
        "failed": 1,
        "results": [None, "Y"],
        "failures": [{"index": 0, "item": "x", "code": "EXIT_NONZERO", "message": "exit code 4", "exit_code": 4}],
    }
    assert run.status == "completed"


@pytest.mark.parametrize(
    ("fields", "failed_items", "status"),
    [
        ({"max_failures": 2}, 2, "completed"),
        ({"max_failures": 2}, 3, "failed"),
        ({"max_failures": 0}, 1, "failed"),
        ({"max_failures": 0, "on_item_failure": "collect"}, 1, "failed"),
        # Strictly more than the share fails it.
        ({"failure_threshold": 0.2}, 2, "completed"),
        ({"failure_threshold": 0.2}, 3, "failed"),
        ({"failure_threshold": 0.25}, 2, "completed"),
        ({"failure_threshold": 0.25}, 3, "failed"),
        ({"failure_threshold": 0.3}, 3, "completed"),
        ({"failure_threshold": 0.0}, 1, "failed"),
        ({"failure_threshold": 1.0}, 10, "completed"),
        # The narrower of the two holds.
        ({"failure_threshold": 0.5, "max_failures": 1}, 2, "failed"),
        ({"failure_threshold": 0.1, "max_failures": 5}, 2, "failed"),
        ({"on_item_failure": "collect"}, 10, "completed"),
        ({}, 1, "failed"),
        ({}, 0, "completed"),
    ],
)
def test_how_many_items_may_fail(fields: dict[str, Any], failed_items: int, status: str) -> None:
    run = run_of(list(range(10)), mapped(**fields))

    for index in range(10):
        run.fail(f"m[{index}].0") if index < failed_items else run.ok(f"m[{index}].0")

    assert run.statuses == {"m": status}


def test_with_stop_and_a_bound_items_go_on_until_it_is_passed() -> None:
    run = run_of([1, 2, 3, 4], mapped(max_parallel=1, on_item_failure="stop", max_failures=1))

    run.fail("m[0].0").fail("m[1].0")

    assert (entered(run), run.statuses) == ([0, 1], {"m": "failed"})


def test_the_causes_of_a_step_with_many_failed_items_are_bounded() -> None:
    run = run_of(list(range(30)), mapped())

    for index in range(30):
        run.fail(f"m[{index}].0")

    assert (run["m"].failure.message, len(run["m"].failure.cause)) == ("30 of 30 items failed", 20)


def test_items_that_all_fail_before_they_start_are_judged_once() -> None:
    action = Action("shell", {"text": "x"}, {"IT": Template((expression("it", "item"),))})
    flow = mapped((Command(action=action),), validator=command("check"), on_item_failure="collect", max_parallel=1)

    run = run_of([1, 2, 3], flow, answers={"it": ExpressionFailed("no such key")})

    assert len(run.facts(e.AttemptSucceeded)) == 1
    assert run.queued == ["m.validator@1"]


# -- an item lives rungs 0 to 2 --------------------------------------------------------------------------------------


def test_an_item_is_retried_by_the_rules_of_its_command() -> None:
    run = run_of([1, 2], mapped((command("one", rules=retry(1, delay=5)),)))

    run.fail("m[0].0").ok("m[1].0").wait(5).ok("m[0].0")

    assert run.status == "completed"
    assert [(f.place, f.attempt) for f in run.facts(e.RetryScheduled)] == [("m[0].0", 2)]


def test_an_item_is_recovered_by_the_handler_of_its_command() -> None:
    run = run_of([1], mapped((command("one", on_failure=handler("fix")), command("two"))))

    run.fail("m[0].0").ok("m[0].0.on_failure@1.0", output="mended").ok("m[0].1", output="done")

    assert run["m"].output["results"] == ["done"]
    assert run.facts(e.ItemCompleted) == [e.ItemCompleted("m[0]", "m", 0, "done", "recovery")]
    assert (run.ended.degraded, run.ended.recovered_steps_count) == (True, 1)


def test_an_item_that_fails_is_not_recovered_although_one_of_its_commands_was() -> None:
    run = run_of([1], mapped((command("one", on_failure=handler("fix")), command("two"))))

    run.fail("m[0].0").ok("m[0].0.on_failure@1.0").fail("m[0].1")

    assert (run["m[0]"].status, run["m[0]"].recovered_by) == ("failed", "")


def test_commands_that_a_reader_added_are_not_counted_among_the_attempts_of_an_item() -> None:
    added = Command(action=Action("python", {"call": "mulligan.formats.x.runtime.added:open"}))
    run = run_of([1], mapped((added, command("one"), command("two", rules=retry(1)), added)))

    run.lose("m[0].0").ok("m[0].0").ok("m[0].1").fail("m[0].2").wait(60).ok("m[0].2").ok("m[0].3")

    # The lost attempt counts, so that no number comes twice.
    found = [(fact.place, fact.attempt) for fact in run.facts(e.AttemptScheduled) if fact.place != "m"]
    assert found == [("m[0].0", 1), ("m[0].0", 2), ("m[0].1", 2), ("m[0].2", 3), ("m[0].2", 4), ("m[0].3", 5)]
    assert run["m[0]"].attempt == 4


def test_a_command_of_a_user_is_counted_whatever_its_module_is_called() -> None:
    own = Command(action=Action("python", {"call": "app.runtime.added:open"}))

    run = run_of([1], mapped((own, command("one")))).ok("m[0].0").ok("m[0].1")

    assert run["m[0]"].attempt == 2


def test_an_item_that_is_rerun_by_its_handler_runs_its_command_again() -> None:
    run = run_of([1], mapped((command("one", on_failure=handler("fix", rerun=1)),)))

    run.fail("m[0].0").ok("m[0].0.on_failure@1.0").ok("m[0].0", output="at last")

    assert run["m"].output["results"] == ["at last"]


def test_a_lost_item_is_tried_again_and_nothing_is_spent() -> None:
    run = run_of([1], mapped()).lose("m[0].0").ok("m[0].0")

    assert run.status == "completed"


def test_attempts_are_numbered_per_item_over_its_commands() -> None:
    run = run_of([1, 2], mapped((command("one", rules=retry(1)), command("two"))))

    run.fail("m[0].0").ok("m[0].0").ok("m[0].1").ok("m[1].0").ok("m[1].1")

    attempts = [(f.place, f.attempt) for f in run.facts(e.AttemptScheduled) if f.place != "m"]
    assert attempts == [("m[0].0", 1), ("m[1].0", 1), ("m[0].0", 2), ("m[0].1", 3), ("m[1].1", 2)]


def test_an_item_that_times_out_fails_like_any_command() -> None:
    run = run_of([1], mapped((command("one", timeout=5),))).fail("m[0].0", is_timed_out=True)

    assert run["m"].failure.cause[0].code == "TIMEOUT"


# -- the map as a step -----------------------------------------------------------------------------------------------


def test_a_handler_with_rerun_runs_the_failed_items_again_and_keeps_the_others() -> None:
    run = run_of(["x", "y", "z"], mapped(on_failure=handler("fix", rerun=1)))
    run.ok("m[0].0", output="X").fail("m[1].0").fail("m[2].0")

    run.ok("m.on_failure@1.0")
    assert run.queued == ["m[1].0", "m[2].0"]
    run.ok("m[1].0", output="Y").ok("m[2].0", output="Z")

    assert run["m"].output["results"] == ["X", "Y", "Z"]
    assert run["m"].attempt == 2
    assert fold(run.state.workflow, run.log) == run.state


def test_a_later_attempt_also_runs_the_items_that_were_never_entered() -> None:
    run = run_of([1, 2, 3], mapped(on_item_failure="stop", max_parallel=1, on_failure=handler("fix", rerun=1)))
    run.ok("m[0].0").fail("m[1].0")

    run.ok("m.on_failure@1.0").ok("m[1].0").ok("m[2].0")

    assert (entered(run), run.status) == ([0, 1, 1, 2], "completed")


def test_a_triage_that_says_retry_runs_the_failed_items_again() -> None:
    run = run_of([1, 2], mapped(triage=Triage())).ok("m[0].0").fail("m[1].0")

    run.classify("m", "retry").ok("m[1].0")

    assert run.status == "completed"


def test_a_remediation_that_reruns_the_map_keeps_the_items_that_are_done() -> None:
    run = run_of(["x", "y"], mapped(next=[edge("fix", "failure", then="rerun")]), step("fix"))
    run.ok("m[0].0", output="X").fail("m[1].0")

    run.ok("fix")
    assert run.queued == ["m[1].0"]
    run.ok("m[1].0", output="Y")

    assert (run["m"].visit, run["m"].output["results"]) == (2, ["X", "Y"])
    assert run.status == "completed"


def test_a_remediation_that_changed_the_list_has_all_of_it_run() -> None:
    items: list[str] = ["x", "y"]
    run = run_of(lambda _: list(items), mapped(next=[edge("fix", "failure", then="rerun")]), step("fix"))
    run.ok("m[0].0").fail("m[1].0")

    items.append("z")
    run.ok("fix")
    assert run.queued == ["m[0].0", "m[1].0", "m[2].0"]
    run.ok("m[0].0", "m[1].0", "m[2].0")

    assert [(f.place, f.attempt) for f in run.facts(e.AttemptScheduled) if f.place == "m[0].0"] == [
        ("m[0].0", 1),
        ("m[0].0", 2),
    ]
    assert run.status == "completed"
    assert fold(run.state.workflow, run.log) == run.state


def test_a_shorter_list_forgets_the_items_that_are_gone() -> None:
    items = ["x", "y"]
    run = run_of(lambda _: list(items), mapped(next=[edge("fix", "failure", then="rerun")]), step("fix"))
    run.fail("m[0].0").fail("m[1].0")

    items.pop()
    run.ok("fix").ok("m[0].0", output="X")

    assert run["m"].output == {"total": 1, "succeeded": 1, "failed": 0, "results": ["X"], "failures": []}


def test_a_list_in_another_order_is_the_same_list_and_its_items_keep_their_numbers() -> None:
    items: list[Any] = [{"a": 1, "b": 2}, "y"]
    run = run_of(lambda _: list(items), mapped(next=[edge("fix", "failure", then="rerun")]), step("fix"))
    run.ok("m[0].0", output="X").fail("m[1].0")

    items[:] = ["y", {"b": 2, "a": 1}]
    run.ok("fix")
    assert run.queued == ["m[1].0"]
    run.ok("m[1].0", output="Y")

    assert run["m"].output["results"] == ["X", "Y"]
    assert fold(run.state.workflow, run.log) == run.state


def test_a_list_that_has_another_item_twice_is_another_list() -> None:
    items = ["x", "x", "y"]
    run = run_of(lambda _: list(items), mapped(next=[edge("fix", "failure", then="rerun")]), step("fix"))
    run.ok("m[0].0").ok("m[1].0").fail("m[2].0")

    items[:] = ["x", "y", "y"]
    run.ok("fix")

    assert run.queued == ["m[0].0", "m[1].0", "m[2].0"]


def test_a_new_round_runs_the_failed_items_again_and_keeps_the_others() -> None:
    run = run_of(["x", "y"], mapped()).ok("m[0].0", output="X").fail("m[1].0")

    run.retry()
    assert run.queued == ["m[1].0"]
    run.ok("m[1].0", output="Y")

    assert (run.status, run["m"].output["results"]) == ("completed", ["X", "Y"])


def test_a_new_round_after_a_cancel_runs_what_was_not_done() -> None:
    run = run_of(["x", "y", "z"], mapped(max_parallel=2)).ok("m[0].0", output="X").started("m[1].0").cancel()
    run.fail("m[1].0", signal=15)
    assert run.status == "cancelled"

    run.retry()
    assert run.queued == ["m[1].0", "m[2].0"]
    run.ok("m[1].0", output="Y").ok("m[2].0", output="Z")

    assert run["m"].output["results"] == ["X", "Y", "Z"]


def test_a_map_that_was_undone_runs_all_its_items_again() -> None:
    run = run_of(["x"], mapped(undo=command("undo")), step("bad", needs=["m"])).ok("m[0].0").fail("bad").ok("m.undo@1")

    run.retry()

    assert run.queued == ["m[0].0"]


def test_a_loop_that_a_failure_takes_runs_the_failed_items_again() -> None:
    steps = (step("prepare", next=["m"]), mapped(next=[edge("prepare", "failure")]))
    run = run_of([1, 2], *steps).ok("prepare").ok("m[0].0").fail("m[1].0")

    run.ok("prepare")

    assert run.queued == ["m[1].0"]


def test_a_loop_after_a_success_runs_all_items_again() -> None:
    more = {"more": lambda names: names["output"]["results"][0] == "again"}
    run = run_of(["x", "y"], mapped(next=[edge("m", when="more")]), answers=more)

    run.ok("m[0].0", output="again").ok("m[1].0")
    assert run.queued == ["m[0].0", "m[1].0"]
    run.ok("m[0].0", "m[1].0")

    assert (run.status, run["m"].visit) == ("completed", 2)


def test_the_result_of_a_map_is_validated_like_any_other() -> None:
    run = run_of([1], mapped(validate=expression("fine", "output")), answers={"fine": False}).ok("m[0].0")

    assert run["m"].failure.code == "VALIDATION_FAILED"


def test_a_visit_after_one_that_failed_takes_up_the_same_items_in_whatever_order_they_come() -> None:
    lists = iter([[{"n": 1}, {"n": 2}], [{"n": 2}, {"n": 1}], [{"n": 2}, {"n": 3}]])
    fix = step("fix")
    flow = workflow(mapped(next=[edge("fix", on="failure", then="rerun")]), fix)
    run = History(flow, {"list": lambda _: next(lists)}).start().ok("m[0].0").fail("m[1].0")

    run.ok("fix")
    assert run.queued == ["m[1].0"]

    # Other items are another list, however many they are.
    run.fail("m[1].0").ok("fix")
    assert run.queued == ["m[0].0", "m[1].0"]


# -- cancel and deadline ---------------------------------------------------------------------------------------------


def test_cancel_in_the_middle_stops_what_runs_and_starts_nothing() -> None:
    run = run_of([1, 2, 3], mapped(max_parallel=2)).started("m[0].0").started("m[1].0")

    run.cancel().ok("m[0].0").fail("m[1].0", signal=15)

    assert (entered(run), run.statuses) == ([0, 1], {"m": "cancelled"})
    assert [type(f) for f in run.facts(e.ItemCompleted, e.ItemCancelled)] == [e.ItemCompleted, e.ItemCancelled]


def test_a_map_whose_items_all_end_in_their_grace_has_completed() -> None:
    run = run_of([1, 2], mapped()).started("m[0].0").started("m[1].0")

    run.cancel().ok("m[0].0", "m[1].0")

    assert run.statuses == {"m": "completed"}


def test_a_map_whose_last_item_was_backing_off_has_failed_when_all_others_are_done() -> None:
    run = run_of([1, 2], mapped((command("one", rules=retry(1, delay=60)),))).ok("m[0].0").fail("m[1].0")

    run.cancel()

    assert (run.statuses, run["m"].failure.code) == ({"m": "failed"}, "ITEMS_FAILED")


def test_a_map_that_misses_its_deadline_is_stopped_and_fails_with_timeout() -> None:
    run = run_of([1, 2, 3], mapped(max_parallel=2, deadline=30)).started("m[0].0").ok("m[1].0").started("m[2].0")

    run.wait(30)
    stops = [effect for effect in run.effects if isinstance(effect, fx.StopTask)]
    assert stops == [fx.StopTask("m[0].0", 1, 10.0), fx.StopTask("m[2].0", 1, 10.0)]
    run.fail("m[0].0", signal=15).ok("m[2].0")

    assert (run["m"].failure.code, run["m"].failure.message) == ("TIMEOUT", "the map took longer than its deadline")
    assert run.status == "failed"


@pytest.mark.parametrize("how", ["lose", "interrupt"])
def test_an_item_of_a_map_that_misses_its_deadline_does_not_run_again_because_its_worker_is_gone(how: str) -> None:
    run = run_of([1], mapped(deadline=30)).started("m[0].0").wait(30)

    getattr(run, how)("m[0].0")

    assert (run.queued, run["m"].status) == ([], "failed")
    assert run["m"].failure.code == "TIMEOUT"


def test_a_lister_that_misses_the_deadline_of_the_map_fails_it_with_timeout() -> None:
    run = run_of(None, mapped(policy=Map(lister=command("ls")), deadline=30)).started("m.lister@1")

    run.wait(30).fail("m.lister@1", signal=15)

    assert (run.statuses, run["m"].failure.code) == ({"m": "failed"}, "TIMEOUT")


def test_a_worker_lost_after_the_deadline_is_not_replaced() -> None:
    run = run_of([1], mapped(deadline=30)).started("m[0].0").wait(30)

    run.lose("m[0].0")

    assert run["m"].failure.code == "TIMEOUT"


def test_a_result_for_an_item_that_has_ended_is_refused() -> None:
    run = run_of([1, 2], mapped()).ok("m[0].0")

    run.report(r.TaskEnded(run.clock, "m[0].0", 1, output="again"))

    assert run.follows == [e.ReportRefused("m[0].0", 1, "unknown_place")]


# -- cost ------------------------------------------------------------------------------------------------------------


def test_events_grow_with_the_items_and_no_faster() -> None:
    def events(count: int) -> int:
        run = run_of(list(range(count)), mapped(max_parallel=50))
        for index in range(count):
            run.ok(f"m[{index}].0")
        assert run.status == "completed"
        return len(run.log)

    few, many = events(200), events(2000)

    # ItemEntered, CommandEntered, AttemptScheduled, AttemptSucceeded, CommandCompleted, ItemCompleted.
    assert many - few == 6 * 1800


@pytest.mark.parametrize(("most", "started"), [(1, 1), (2, 2), (2.0, 2), (9, 3)])
def test_an_expression_says_how_many_items_run_at_the_same_time(most: Any, started: int) -> None:
    run = run_of([1, 2, 3], mapped(parallel=expression("most")), answers={"most": most})

    assert len(entered(run)) == started


@pytest.mark.parametrize("most", [0, 1.5, -1, True, "2", None, [2]])
def test_a_number_of_items_that_makes_no_sense_fails_the_step(most: Any) -> None:
    run = run_of([1, 2], mapped(parallel=expression("most")), answers={"most": most})

    assert run["m"].failure is not None
    assert run["m"].failure.code == "EXPRESSION_FAILED"
    assert run["m"].failure.message.startswith("'max_parallel' gave ")


def test_a_number_of_items_that_makes_no_sense_any_more_lets_the_others_go_on_one_by_one() -> None:
    run = run_of([1, 2, 3, 4], mapped(parallel=expression("most")), answers={"most": 2})

    run.evaluator.answers["most"] = 0
    run.ok("m[0].0")
    assert len(entered(run)) == 2
    run.ok("m[1].0")
    assert len(entered(run)) == 3
    run.ok("m[2].0").ok("m[3].0")

    assert run.status == "completed"


# -- the time of an item ---------------------------------------------------------------------------------------------


def test_the_time_of_an_item_bounds_all_of_its_commands_together() -> None:
    run = run_of([1], mapped(do=(command("one"), command("two")), item_timeout=60.0))
    first = make_task(run.state, "m[0].0").deadline

    run.wait(40).ok("m[0].0")
    second = make_task(run.state, "m[0].1").deadline
    run.started("m[0].1").wait(20).fail("m[0].1", is_timed_out=True, is_past_deadline=True)

    assert first is not None and first == second
    assert (run.status, run["m"].failure.code) == ("failed", "ITEMS_FAILED")
    assert run["m[0]"].failure.code == "TIMEOUT"


def test_a_retry_or_a_handler_does_not_begin_after_the_time_of_an_item() -> None:
    do = (command("one", rules=retry(1, delay=30), on_failure=handler("two")),)
    run = run_of([1], mapped(do=do, item_timeout=20.0))

    run.wait(10).fail("m[0].0")
    assert run["m[0].0"].status == "handling"
    run.wait(10)

    assert (run.status, run["m[0]"].status) == ("failed", "failed")


def test_an_item_that_runs_again_has_its_whole_time_again() -> None:
    run = run_of([1], mapped(do=(command("one"),), item_timeout=60.0)).wait(50).fail("m[0].0")

    run.wait(100).retry()

    assert run.queued == ["m[0].0"]
    deadline = make_task(run.state, "m[0].0").deadline
    assert deadline is not None and deadline > run.state.places["m[0]"].entered_at
