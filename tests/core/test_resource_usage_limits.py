"""Proposals if several limits were exceeded, or if the failure does not record its limit."""

from __future__ import annotations

from typing import Any

import pytest

from mulligan.core.deciding.workers.resource_usage import (
    MIB,
    NO_MEMORY,
    NO_TIME,
    Proposal,
    adjustments_of,
    attempt_limits,
    peak_memory_by_step,
    proposals,
    ran_short,
)
from mulligan.core.model import events as e
from mulligan.core.model import reports as r
from mulligan.core.model.event_types import Adjusted
from mulligan.core.model.failure import failure
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.workflow import Map, Resources, Triage
from mulligan.testing.history import History, command, expression, handler, step, workflow

PER_ITEM = Map(over=expression("list"))


def ended(run: History, key: str, outcome: Outcome, peak: int = 0) -> History:
    usage = {"peak_memory": peak * MIB} if peak else {}
    run.tasks.pop(key, None)
    return run.report(r.TaskEnded(run.clock, key, run[key].attempt, outcome, usage=usage))


def out_of_memory(run: History, key: str, peak: int = 0) -> History:
    return ended(run, key, Outcome(signal=9, is_out_of_memory=True), peak)


def late(run: History, key: str, peak: int = 0) -> History:
    return ended(run, key, Outcome(None, is_timed_out=True), peak)


def proposed(run: History, *steps: str) -> tuple[Proposal, ...]:
    return proposals(run.state, steps, {})


def memory(mib: int) -> Resources:
    return Resources(memory=mib * MIB)


def said(code: str, **details: Any) -> Outcome:
    """A failure as somebody wants it who tries what follows from it."""
    return Outcome(said=failure(code, details=details))


def test_what_ran_out_of_time_says_nothing_of_memory_and_the_other_way_round() -> None:
    quick, slow = command("quick", resources=memory(10), timeout=5), command("slow", timeout=9)
    run = History(workflow(step("m", map=PER_ITEM, do=(quick, slow))), {"list": [1, 2]}).start()

    late(out_of_memory(run, "m[0].0", 12), "m[1].0", 500)

    assert proposed(run, "m") == (
        Proposal("m", "memory", 18 * MIB, 10.0 * MIB, 12 * MIB),
        Proposal("m", "timeout", 10, 5.0),
    )


def test_what_is_not_known_is_not_said() -> None:
    flow = workflow(step("unmeasured", resources=memory(10)), step("unasked"))
    run = History(flow).start()

    out_of_memory(out_of_memory(run, "unmeasured"), "unasked", 10)

    assert proposed(run, "unmeasured", "unasked") == (
        Proposal("unmeasured", "memory", 15 * MIB, 10.0 * MIB, None),
        Proposal("unasked", "memory", 15 * MIB, None, 10 * MIB),
    )


@pytest.mark.parametrize("status", ["completed", "running"])
def test_an_item_that_is_not_at_its_end_for_want_of_something_asks_for_nothing(status: str) -> None:
    """Its failure of before is still there: it was tried again."""
    one = command("one", resources=memory(10))
    run = History(workflow(step("m", map=PER_ITEM, do=(one,))), {"list": [1, 2]}).start()
    out_of_memory(run, "m[0].0", 10).ok("m[1].0").retry()

    run.ok("m[0].0") if status == "completed" else None

    assert (run["m[0]"].status, proposed(run, "m")) == (status, ())


def test_a_step_that_ran_out_and_was_then_cancelled_asks_for_more() -> None:
    run = History(workflow(step("a", resources=memory(10), triage=Triage()))).start()

    out_of_memory(run, "a", 10).cancel()

    assert run["a"].status in ("failed", "cancelled")
    assert proposed(run, "a") == (Proposal("a", "memory", 15 * MIB, 10.0 * MIB, 10 * MIB),)


def test_a_step_whose_failure_a_handler_has_mended_asks_for_nothing_when_it_runs_again() -> None:
    mended = step("a", resources=memory(10), on_failure=handler())
    run = History(workflow(mended, step("b", needs=["a"]))).start()
    out_of_memory(run, "a", 10).ok("a.on_failure@1.0").fail("b")
    assert (run["a"].status, run["a"].failure and run["a"].failure.code) == ("completed", "OUT_OF_MEMORY")

    run.retry("a", adjust=True)

    assert run.facts(e.RunReopened)[-1].adjustments == {}


def test_a_step_that_was_cancelled_while_it_ran_asks_for_nothing() -> None:
    run = History(workflow(step("a", resources=memory(10)))).start().started("a").cancel()

    run.fail("a", None, signal=15)

    assert (run["a"].status, proposed(run, "a")) == ("cancelled", ())


def test_items_that_were_never_begun_ask_for_nothing() -> None:
    one_by_one = Map(over=expression("list"), max_parallel=1, on_item_failure="stop")
    one = command("one", resources=memory(10))
    run = History(workflow(step("m", map=one_by_one, do=(one,))), {"list": [1, 2]}).start()

    out_of_memory(run, "m[0].0", 10)

    assert (run.status, "m[1]" in run.state.places) == ("failed", False)
    assert proposed(run, "m") == (Proposal("m", "memory", 15 * MIB, 10.0 * MIB, 10 * MIB),)


@pytest.mark.parametrize(
    ("outcome", "is_short"),
    [
        (Outcome(signal=9, is_out_of_memory=True), True),
        (Outcome(None, is_timed_out=True), True),
        # No longer timeout of the step would have helped.
        (Outcome(None, is_timed_out=True, is_past_deadline=True), False),
        (Outcome(reported=({"code": "TIMEOUT", "details": {"limit": "read_timeout"}},)), False),
        (Outcome(exit_code=1), False),
    ],
)
def test_a_step_ran_short_of_memory_or_of_its_own_timeout(outcome: Outcome, is_short: bool) -> None:
    run = ended(History(workflow(step("a", timeout=5))).start(), "a", outcome)

    assert run["a"].failure is not None
    assert ran_short(run["a"].failure) is is_short


def test_what_ran_out_fails_with_the_codes_by_which_others_find_it() -> None:
    run = History(workflow(step("large"), step("slow", timeout=5))).start()

    late(out_of_memory(run, "large"), "slow")

    assert [place.failure and place.failure.code for place in run.state.steps()] == [NO_MEMORY, NO_TIME]


def test_the_most_that_any_of_the_failed_had_is_where_more_begins() -> None:
    run = History(workflow(step("m", map=PER_ITEM, do=(command("one"),))), {"list": [1, 2, 3]}).start()

    for index, mib in enumerate((20, 60, 40)):
        ended(run, f"m[{index}].0", said("OUT_OF_MEMORY", memory=mib * MIB))

    assert proposed(run, "m") == (Proposal("m", "memory", 90 * MIB, 60.0 * MIB, None),)


def test_where_the_failure_does_not_say_what_it_had_the_workflow_does() -> None:
    """The most that any command of an item has: which of them failed is not known any more."""
    commands = (command(), command("b", resources=memory(30), timeout=7), command("c", resources=memory(9), timeout=5))
    run = History(workflow(step("m", map=PER_ITEM, do=commands), step("bare")), {"list": [1, 2]}).start()

    ended(ended(run, "m[0].0", said("OUT_OF_MEMORY")), "m[1].0", said("TIMEOUT"))
    ended(run, "bare", said("TIMEOUT"))

    assert proposed(run, "m", "bare") == (
        Proposal("m", "memory", 45 * MIB, 30.0 * MIB, None),
        Proposal("m", "timeout", 14, 7.0),
    )


def test_more_time_is_proposed_only_where_the_timeout_of_the_step_struck() -> None:
    run = History(workflow(step("a", timeout=300.0), step("b", timeout=300.0), step("c", timeout=300.0))).start()
    silent = {"code": "TIMEOUT", "details": {"limit": "read_timeout", "limit_seconds": 1.0}}

    ended(ended(run, "a", Outcome(reported=(silent,))), "b", Outcome(is_timed_out=True, is_past_deadline=True))
    ended(run, "c", Outcome(is_timed_out=True))

    assert proposed(run, "a", "b", "c") == (Proposal("c", "timeout", 600, 300.0),)


def test_a_step_that_asks_for_cpus_alone_has_asked_for_no_memory() -> None:
    run = History(workflow(step("a", resources=Resources(cpus=2)))).start()

    ended(run, "a", said("OUT_OF_MEMORY"))

    assert proposed(run, "a") == ()


def test_time_that_a_round_gave_and_that_was_too_little_again_is_doubled_again() -> None:
    run = late(History(workflow(step("a", timeout=3))).start(), "a").retry(adjust=True)
    assert attempt_limits(run["a"]) == Adjusted(timeout=6.0)

    late(run, "a")

    assert proposed(run, "a") == (Proposal("a", "timeout", 12, 6.0),)


def test_peaks_are_found_in_a_whole_log_whoever_else_speaks_in_it() -> None:
    run = History(workflow(step("a"), step("b"))).start()

    out_of_memory(run, "a", 3)
    ended(run, "b", Outcome(), 5)

    assert peak_memory_by_step(run.log) == {"a": 3 * MIB, "b": 5 * MIB}


def test_what_is_given_by_step_has_whole_bytes_and_seconds_with_a_point() -> None:
    found = adjustments_of([Proposal("a", "memory", 7), Proposal("b", "timeout", 9), Proposal("a", "timeout", 8)])

    assert found == {"a": Adjusted(memory=7, timeout=8.0), "b": Adjusted(timeout=9.0)}
    assert (type(found["a"].memory), type(found["a"].timeout)) == (int, float)
