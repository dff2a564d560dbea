"""The plan of another round: what would run and why; and the refusals."""

from __future__ import annotations

from typing import Any

import pytest

from mulligan.core.deciding.rounds.rounds import items_to_rerun, plan_round, rerun_reasons
from mulligan.core.model import events as e
from mulligan.core.model import reports as r
from mulligan.core.model.workflow import Map
from mulligan.errors import MulliganError
from mulligan.testing.history import T0, History, command, expression, step, workflow


def run_of(*steps: Any, **fields: Any) -> History:
    answers = fields.pop("answers", None)
    return History(workflow(*steps, **fields), answers).start()


def mapped(name: str = "m", needs: Any = (), undo: Any = None, **policy: Any) -> Any:
    return step(name, map=Map(over=expression("list"), **policy), do=(command("one"),), needs=needs, undo=undo)


def collected(*outcomes: str, **policy: Any) -> History:
    """A run that completed although items of its map `m` failed."""
    run = run_of(mapped(on_item_failure="collect", **policy), step("aside"), answers={"list": [*outcomes]})
    for index, outcome in enumerate(outcomes):
        run.ok(f"m[{index}].0") if outcome == "ok" else run.fail(f"m[{index}].0")
    return run.ok("aside")


def reasons(run: History, from_step: str = "", **fields: Any) -> dict[str, str]:
    report = r.RetryRequested(T0, by="ada", from_step=from_step, **fields)
    return rerun_reasons(run.state, plan_round(run.state, report))


def items(run: History, from_step: str = "", named: tuple[int, ...] | None = None) -> dict[str, tuple[int, ...]]:
    return items_to_rerun(
        run.state, plan_round(run.state, r.RetryRequested(T0, by="ada", from_step=from_step, items=named))
    )


def refusal(run: History, from_step: str = "", **fields: Any) -> MulliganError:
    with pytest.raises(MulliganError) as caught:
        run.retry(from_step, **fields)
    return caught.value


# -- steps, and why --------------------------------------------------------------------------------------------------


def test_what_was_undone_runs_again_also_where_nothing_that_failed_was_built_on_it() -> None:
    run = run_of(step("a", undo=command("undo")), step("bad")).ok("a").fail("bad").ok("a.undo@1")

    assert reasons(run) == {"a": "it was undone", "bad": "it failed"}


def test_what_lies_behind_what_was_undone_runs_again() -> None:
    steps = [step("a", undo=command("undo")), step("mid", needs=["a"]), step("bad", needs=["mid"])]
    run = run_of(*steps, step("leaf", needs=["a"])).ok("a").ok("mid", "leaf").fail("bad").ok("a.undo@1")

    found = {"a": "it was undone", "mid": "it comes after 'a'", "bad": "it failed"}
    assert reasons(run) == {**found, "leaf": "it comes after 'a'"}
    # What the failed step depends on is gone, also if the rest is kept.
    assert reasons(run, keep_completed=True) == found


def test_what_was_built_on_what_was_undone_says_so_also_where_the_round_starts_elsewhere() -> None:
    steps = [step("a", undo=command("undo")), step("mid", needs=["a"]), step("bad", needs=["mid"]), step("other")]
    run = run_of(*steps).ok("a", "other").ok("mid").fail("bad").ok("a.undo@1")

    assert reasons(run, "other") == {
        "a": "it was undone",
        "mid": "it comes after 'a'",
        "bad": "it failed",
        "other": "the round starts here",
    }


def test_a_step_that_never_ran_says_what_became_of_it() -> None:
    run = run_of(step("bad"), step("after", needs=["bad"]), step("slow")).fail("bad").started("slow")

    run.cancel().fail("slow", signal=15)

    assert reasons(run) == {"bad": "it failed", "after": "it was skipped", "slow": "it was cancelled"}


def test_from_a_step_on_each_says_whether_it_would_have_run_anyway() -> None:
    steps = [step("a", next=["b"]), step("b", next=["c"]), step("c"), step("bad"), step("kept")]
    run = run_of(*steps).ok("a").ok("b").ok("c").fail("bad").ok("kept")

    assert reasons(run, "a") == {
        "a": "the round starts here",
        "b": "it comes after 'a'",
        "c": "it comes after 'a'",
        "bad": "it failed",
    }


def test_a_step_that_failed_behind_the_one_that_the_round_starts_from_has_failed() -> None:
    run = run_of(step("a"), step("b", needs=["a"])).ok("a").fail("b")

    assert reasons(run, "a") == {"a": "the round starts here", "b": "it failed"}
    assert reasons(run, "b") == {"b": "the round starts here"}


# -- items -----------------------------------------------------------------------------------------------------------


def test_of_a_map_that_failed_only_what_is_not_done_runs() -> None:
    run = (
        run_of(mapped(max_parallel=1, on_item_failure="stop"), answers={"list": [1, 2, 3]}).ok("m[0].0").fail("m[1].0")
    )
    assert run.status == "failed"

    assert items(run) == {"m": (1, 2)}
    # Those that failed, when they are asked for, are not run without those that nobody has begun.
    assert items(run, "m", ()) == {"m": (1, 2)}


def test_a_map_that_was_passed_over_after_it_had_items_runs_whole() -> None:
    run = run_of(step("a"), mapped(needs=["a"]), answers={"list": [1, 2]}).ok("a").ok("m[0].0").fail("m[1].0")
    run.retry("a").fail("a")
    assert run.statuses == {"a": "failed", "m": "skipped"}

    assert items(run) == {}


def test_of_a_map_that_was_cancelled_only_what_is_not_done_runs() -> None:
    run = run_of(mapped(), answers={"list": [1, 2]}).ok("m[0].0").started("m[1].0").cancel().fail("m[1].0", signal=15)

    assert items(run) == {"m": (1,)}


def test_a_map_that_runs_whole_names_no_items() -> None:
    run = run_of(step("a"), mapped(needs=["a"]), step("z"), answers={"list": [1, 2]}).ok("a", "z")
    run.ok("m[0].0").fail("m[1].0")

    assert items(run) == {"m": (1,)}
    # From a step before it on, everything is as if for the first time.
    assert items(run, "a") == {}
    assert items(run, "m") == {}
    assert items(run, "z") == {"m": (1,)}


def test_a_map_behind_what_was_undone_runs_whole() -> None:
    steps = [step("a", undo=command("undo")), mapped(needs=["a"])]
    run = run_of(*steps, answers={"list": [1, 2]}).ok("a").ok("m[0].0").fail("m[1].0").ok("a.undo@1")

    assert items(run) == {}


def test_items_that_were_asked_for_are_the_ones_that_run() -> None:
    assert items(collected("ok", "bad", "bad"), "m", (0, 2)) == {"m": (0, 2)}
    assert items(collected("ok", "bad", "bad"), "m", ()) == {"m": (1, 2)}


def test_items_run_in_their_order_whatever_order_they_were_named_in() -> None:
    run = collected(*["ok"] * 9)

    run.retry("m", items=(8, 1, 8))

    assert run.facts(e.RunReopened)[-1].indexes == (1, 8)


def test_what_was_cancelled_of_a_map_runs_with_what_is_named() -> None:
    """Without it the step would have no end."""
    run = run_of(mapped(), answers={"list": [1, 2, 3]}).ok("m[0].0").fail("m[1].0").started("m[2].0")
    run.cancel().fail("m[2].0", signal=15)

    assert items(run, "m", (0,)) == {"m": (0, 2)}
    assert items(run, "m", ()) == {"m": (1, 2)}


# -- where there is none ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcomes", "from_step", "hint"),
    [
        # The first item is one like any other.
        (("bad", "ok"), "", "to run the failed items of 'm' again: mulligan items 1 m --retry"),
        (("ok", "bad"), "m", "to run the failed items of 'm' again: mulligan items 1 m --retry"),
        # Who wants another step has no use for the items of this one.
        (("ok", "bad"), "aside", "to run it again from a step: mulligan fork 1 --from aside"),
        (("ok", "ok"), "", "to run it again from a step: mulligan fork 1 --from STEP"),
        (("ok", "ok"), "m", "to run it again from a step: mulligan fork 1 --from m"),
    ],
)
def test_a_run_that_completed_says_what_can_be_done_instead(
    outcomes: tuple[str, ...], from_step: str, hint: str
) -> None:
    assert refusal(collected(*outcomes), from_step).hint == hint


def test_the_number_of_items_is_no_item() -> None:
    error = refusal(collected("ok", "bad"), "m", items=(2,))

    assert error.render() == "error[refused]: step 'm' of run 1 has no item 2\n  its items are 0 to 1"


def test_a_map_that_never_began_has_no_items() -> None:
    run = run_of(step("a"), mapped(needs=["a"])).fail("a")

    assert refusal(run, "m", items=()).render() == (
        "error[run.nothing_to_retry]: step 'm' of run 1 has no items, so there is nothing to retry\n"
        "  to run what failed again: mulligan retry 1"
    )


@pytest.mark.parametrize(("from_step", "fields"), [("nope", {}), ("aside", {"items": ()})])
def test_a_refusal_names_the_step_for_whoever_does_not_read_sentences(from_step: str, fields: Any) -> None:
    assert refusal(collected("ok"), from_step, **fields).data["step"] == from_step
