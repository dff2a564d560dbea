"""Events that are sent to a run: kept if they come early, delivered once, in the order in which they arrived."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.program_runs import LATER, every_row

from mulligan.core.deciding import run_events
from mulligan.core.deciding.report_checks import check_report
from mulligan.core.effects.snapshot import changes, restore
from mulligan.core.model import events as e
from mulligan.core.model import reports as r
from mulligan.core.model.actions import EVENT
from mulligan.core.model.kept_history import pack_history
from mulligan.core.model.workflow import Action, Map, Template
from mulligan.core.state.mailbox import free_events
from mulligan.core.turn import fold, follow
from mulligan.errors import IllegalTransition, InputInvalid, Refused, RunFinished
from mulligan.testing.history import T0, History, command, edge, expression, retry, step, workflow

PAID = Action(EVENT, {"event": "paid"})
PAYING = workflow(step("order"), step("pay", action=PAID, needs=["order"]), step("ship", needs=["pay"]))


def waiting(**params: Any) -> Action:
    return Action(EVENT, {"event": "paid", **params})


def free(run: History) -> list[Any]:
    return [event.value for _, event in free_events(run.state)]


def at_pay(run: History) -> History:
    return run.start().ok("order")


# -- early, late, in order ---------------------------------------------------------------------------------------------


def test_a_step_waits_for_its_event_and_has_its_value() -> None:
    run = at_pay(History(PAYING))
    assert run["pay"].status == "running" and not run.queued

    run.send("paid", {"amount": 40})

    assert run["pay"].output == {"amount": 40}
    assert run.queued == ["ship"]
    assert [type(fact).__name__ for fact in (entry.fact for entry in run.last)][:3] == [
        "EventReceived",
        "EventDelivered",
        "AttemptSucceeded",
    ]


def test_an_event_that_comes_early_is_kept() -> None:
    run = History(PAYING).start().send("paid", 40)
    assert free(run) == [40]

    run.ok("order")

    assert (run["pay"].output, free(run)) == (40, [])


def test_events_are_taken_in_the_order_in_which_they_arrived_by_the_step_that_was_entered_first() -> None:
    run = History(workflow(step("a", action=PAID), step("b", action=PAID), step("c", action=PAID))).start()

    run.send("paid", 1).send("other", 9).send("paid", 2)

    assert (run["a"].output, run["b"].output, run["c"].status) == (1, 2, "running")
    assert free(run) == [9]


def test_early_events_are_taken_in_the_order_in_which_they_arrived() -> None:
    chain = workflow(step("a", action=PAID), step("b", action=PAID, needs=["a"]))
    run = History(chain, {}).start().pause()
    for number in (1, 2, 3):
        run.send("paid", number)

    run.resume()

    assert (run["a"].output, run["b"].output, free(run)) == (1, 2, [3])


def test_an_open_wait_gets_its_event_while_the_run_is_paused() -> None:
    run = at_pay(History(PAYING)).pause().send("paid", 1)

    assert (run["pay"].status, run["ship"].status, run.status) == ("completed", "ready", "paused")


def test_the_name_may_be_made_of_values() -> None:
    name = Template(("paid-", expression("inputs.order", "inputs.order")))
    action = Action(EVENT, {"event": {"${}": "name"}}, {"name": name})
    run = History(workflow(step("pay", action=action)), {"inputs.order": 7}).start()

    run.send("paid-8").send("paid-7", "this")

    assert run["pay"].output == "this"


def test_each_item_of_a_map_waits_by_itself() -> None:
    run = History(workflow(step("m", map=Map(over=expression("list")), do=(step("", action=PAID),))), {"list": [1, 2]})
    run.start().send("paid", "first").send("paid", "second")

    assert run["m"].output["results"] == ["first", "second"]


# -- in time, and what it may be ---------------------------------------------------------------------------------------


def test_without_an_event_in_time_the_step_fails() -> None:
    run = History(workflow(step("pay", action=waiting(timeout=60.0)))).start().wait(61)

    assert (run.status, run["pay"].failure.code, run["pay"].failure.message) == (
        "failed",
        "TIMEOUT",
        "no event 'paid' came in time",
    )


@pytest.mark.parametrize("default", [0, None, {"paid": False}])
def test_without_an_event_in_time_the_default_is_its_output(default: Any) -> None:
    run = History(workflow(step("pay", action=waiting(timeout=60.0, default=default)))).start().wait(61)

    assert (run.status, run["pay"].output) == ("completed", default)


def test_an_event_after_the_time_is_left_for_the_next_attempt() -> None:
    run = History(workflow(step("pay", action=waiting(timeout=60.0), rules=retry(1, delay=10.0)))).start()
    run.wait(61).send("paid", 1)
    assert free(run) == [1]

    run.wait(10)

    assert (run.status, run["pay"].output) == ("completed", 1)


AMOUNT = {"type": "object", "required": ["amount"]}


def test_an_event_that_the_step_cannot_use_is_refused_and_the_step_goes_on_waiting() -> None:
    run = History(workflow(step("pay", action=waiting(schema=AMOUNT)))).start()

    with pytest.raises(InputInvalid, match="'pay' waits for 'paid', and cannot use this event: event has no 'amount'"):
        run.send("paid", {})

    assert run["pay"].status == "running" and free(run) == []
    assert run.send("paid", {"amount": 1}).status == "completed"


def test_an_early_event_that_the_step_cannot_use_fails_its_attempt_and_the_next_one_gets_the_next() -> None:
    pay = step("pay", action=waiting(schema=AMOUNT), needs=["order"], rules=retry(1))
    run = History(workflow(step("order"), pay)).start().send("paid", {}).send("paid", {"amount": 1}).ok("order")

    assert run["pay"].output == {"amount": 1}
    assert [fact.failure.code for fact in run.facts(e.AttemptFailed)] == ["OUTPUT_INVALID"]


def test_an_event_goes_to_the_first_step_that_can_use_it() -> None:
    number, text = (waiting(schema={"type": kind}) for kind in ("integer", "string"))
    run = History(workflow(step("a", action=number), step("b", action=text))).start()

    run.send("paid", "a text")

    assert (run["a"].status, run["b"].output) == ("running", "a text")


def test_a_name_that_nobody_can_send_fails_the_step() -> None:
    name = Template(("paid-", expression("inputs.order", "inputs.order")))
    action = Action(EVENT, {"event": {"${}": "name"}}, {"name": name})

    run = History(workflow(step("pay", action=action)), {"inputs.order": "a b"}).start()

    assert (run.status, run["pay"].failure.code) == ("failed", "INPUT_INVALID")


# -- once --------------------------------------------------------------------------------------------------------------


def test_a_second_event_with_the_same_key_is_the_same() -> None:
    run = at_pay(History(PAYING)).send("paid", 1, key="a")
    seq = run.state.run.seq

    run.send("paid", 1, key="a")

    assert run.state.run.seq == seq


def test_another_event_with_the_same_key_is_refused() -> None:
    run = at_pay(History(PAYING)).send("paid", 1, key="a")

    for name, value in (("paid", 2), ("refunded", 1)):
        with pytest.raises(Refused, match="another event was sent to run 1 with this key"):
            run.send(name, value, key="a")


def test_no_event_can_be_taken_twice() -> None:
    run = at_pay(History(PAYING)).send("paid", 1)
    seq = run.facts(e.EventDelivered)[0].event
    run = History(PAYING).start().ok("order")

    with pytest.raises(IllegalTransition, match="is not there to be taken by 'pay'"):
        fold(PAYING, [*run.log, e.Entry(run.state.run.seq + 1, T0, 0, e.EventDelivered("pay", 1, seq, "paid"))])


def test_a_loop_takes_another_event_in_each_visit() -> None:
    poll = step("poll", action=PAID, next=[edge("poll", when="again")])
    again = iter([True, True, False])
    run = History(workflow(poll), {"again": lambda names: next(again)}).start()

    for number in (1, 2, 3):
        run.send("paid", number)

    assert [fact.output for fact in run.facts(e.StepCompleted) if fact.step == "poll"] == [1, 2, 3]


@pytest.mark.parametrize(("one", "other"), [(1, True), ([0], [False]), ({"a": 1}, {"a": 1.0})])
def test_values_that_are_equal_in_python_and_not_as_json_are_different(one: Any, other: Any) -> None:
    run = at_pay(History(PAYING)).send("paid", one, key="a")

    with pytest.raises(Refused, match="another event was sent"):
        run.send("paid", other, key="a")


def test_who_got_no_answer_sends_again_also_when_the_run_has_ended() -> None:
    run = History(workflow(step("pay", action=PAID))).start().send("paid", 1, key="a")
    assert run.status == "completed"

    run.send("paid", 1, key="a")

    assert len(run.state.received) == 1


# -- other rounds ------------------------------------------------------------------------------------------------------


def test_an_event_is_there_once_more_if_its_step_runs_again() -> None:
    run = at_pay(History(PAYING)).send("paid", 40).fail("ship")
    assert run.status == "failed"

    run.retry("order").ok("order")

    assert (run["pay"].output, run.queued) == (40, ["ship"])


def test_an_event_is_not_there_again_if_its_step_keeps_its_result() -> None:
    run = at_pay(History(PAYING)).send("paid", 40).fail("ship").retry()

    assert (run.queued, free(run)) == (["ship"], [])


def test_an_event_that_a_step_has_failed_with_is_not_there_again() -> None:
    run = History(workflow(step("order"), step("pay", action=waiting(schema=AMOUNT), needs=["order"])))
    run.start().send("paid", {}).ok("order")
    assert run.status == "failed"

    run.retry()

    assert (run["pay"].status, free(run)) == ("running", [])


def test_events_of_items_that_keep_their_results_are_not_there_again() -> None:
    items = step("m", map=Map(over=expression("list")), do=(step("one", action=PAID), step("two")))
    run = History(workflow(items), {"list": [1, 2]}).start().send("paid", "a").send("paid", "b")
    run.ok("m[0].1").fail("m[1].1")
    assert run.status == "failed"

    run.retry()

    assert (run["m[0]"].output, run["m[1].1"].status, free(run)) == (None, "ready", [])
    assert [(one.place, one.value) for one in run.state.received.values()] == [("m[0].0", "a"), ("m[1].0", "b")]


def test_an_event_that_an_item_has_failed_with_is_not_there_again() -> None:
    items = step("m", needs=["order"], map=Map(over=expression("list")), do=(step("", action=waiting(schema=AMOUNT)),))
    run = History(workflow(step("order"), items), {"list": [1]}).start().send("paid", {}).ok("order")
    assert run.status == "failed"

    run.retry()

    assert (run.status, run["m[0].0"].status, free(run)) == ("running", "running", [])


@pytest.mark.parametrize("is_map", [False, True])
def test_a_step_that_was_undone_waits_for_another_event(is_map: bool) -> None:
    waits = {"map": Map(over=expression("list")), "do": (step("", action=PAID),)} if is_map else {"action": PAID}
    paying = workflow(step("pay", undo=command(), **waits), step("ship", needs=["pay"]))
    run = History(paying, {"list": [1]}).start().send("paid", 40).fail("ship").ok("pay.undo@1")
    assert run.status == "failed"

    run.retry()

    assert (run["pay"].status, run.queued, free(run)) == ("running", [], [])
    assert run.send("paid", 50).queued == ["ship"]


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "7", "a b", "a/b", "a" * 201])
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(InputInvalid, match="is not the name of an event"):
        check_report(r.EventSent(T0, name))


def test_a_large_value_and_a_long_key_are_refused() -> None:
    check_report(r.EventSent(T0, "a", "x" * 65_000, key="k" * 200))

    with pytest.raises(InputInvalid, match="a value has at most 64KiB"):
        check_report(r.EventSent(T0, "a", "x" * 66_000))
    with pytest.raises(InputInvalid, match="the key of an event has at most 200 characters"):
        check_report(r.EventSent(T0, "a", key="k" * 201))


@pytest.mark.parametrize("value", ["\ud800", object(), {1, 2, object()}])
def test_what_cannot_be_written_as_json_is_refused(value: Any) -> None:
    with pytest.raises(InputInvalid):
        check_report(r.EventSent(T0, "a", value))


def test_a_run_that_has_ended_gets_no_event() -> None:
    run = History(workflow(step("a"))).start().ok("a")

    with pytest.raises(RunFinished, match="run 1 completed, so nothing in it waits for an event"):
        run.send("paid")


def test_a_run_keeps_so_many_events_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_events, "FREE_EVENTS_MAX", 2)
    monkeypatch.setattr(run_events, "EVENTS_MAX", 4)
    run = History(workflow(step("a", action=PAID), step("b"))).start().send("x").send("x")

    with pytest.raises(Refused, match="2 events of run 1 wait for a step to take them, and no more can"):
        run.send("x")
    run.send("paid")
    run.state.free_events.clear()
    run.send("x")
    with pytest.raises(Refused, match="run 1 has got 4 events, and gets no more"):
        run.send("x")


# -- rows --------------------------------------------------------------------------------------------------------------


def test_a_run_that_is_read_from_its_rows_delivers_as_before() -> None:
    run = History(workflow(step("order"), step("pay", action=PAID), step("ship", action=waiting(event="shipped"))))
    run.start().send("paid", 1).send("paid", 2, key="k").send("other", 3)

    read = restore(run.state.workflow, every_row(run.state))

    assert read == run.state == fold(run.state.workflow, run.log)
    for index in ("free_events", "event_keys", "event_waits"):
        assert getattr(read, index) == getattr(run.state, index), index


def test_a_turn_with_events_can_be_undone() -> None:
    run = at_pay(History(PAYING))
    before = run.state.copy()
    run.state.begin()

    list(follow(run.state, r.EventSent(T0, "paid", 1), run.evaluator))
    assert changes(run.state)
    run.state.rollback()

    assert run.state == before
    for index in ("free_events", "event_keys", "event_waits"):
        assert {k: v for k, v in getattr(run.state, index).items() if v} == getattr(before, index), index


def test_a_fork_goes_on_waiting_and_has_the_events_that_came_early() -> None:
    run = History(PAYING).start().send("other", 1).ok("order")
    fork = History(PAYING)
    fork.clock = run.clock + LATER
    fork.report(
        r.RunRequested(
            fork.clock, run_id=2, history=pack_history(run.log), forked_from=1, forked_at=len(run.log), by="ann"
        )
    )
    assert free(fork) == [1]

    fork.send("paid", 5)

    assert (fork["pay"].output, run["pay"].status) == (5, "running")
