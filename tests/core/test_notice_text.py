"""What a notice says: its title, its lines, the failures that it lists, and what each rung did about them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from mulligan.core.model import events as e
from mulligan.core.model.workflow import Action, Command, Map, NoticeRule, Rule, Triage
from mulligan.core.notices.due_notices import DueNotice, due_notices
from mulligan.history.notice_text import NoticeBody, NoticeFailure, notice_body
from mulligan.testing.history import T0, History, command, edge, expression, handler, retry, step, workflow

KINDS: Any = ("needs_person", "failed", "degraded", "completed", "recovered", "late")
OPS = NoticeRule(on=KINDS, to=("ops",), late_after=60.0)


def run_of(*steps: Any, start: Any = None, **fields: Any) -> History:
    return History(workflow(*steps, notify=(OPS,), **fields)).start(uid="u1", **(start or {}))


def last(run: History) -> NoticeBody:
    return notice_body(run.state, due_notices(run.state, run.log)[-1])


def answers(run: History) -> dict[str, str]:
    return {one.step: one.answer for one in last(run).failures}


def test_a_body_names_the_run_its_round_and_its_event() -> None:
    run = run_of(step("a")).fail("a").retry().ok("a")
    entry = next(one for one in run.log if isinstance(one.fact, e.RunCompleted))

    body = last(run)

    assert (body.run_id, body.workflow, body.round, body.status) == (1, "test", 2, "completed")
    assert (body.seq, body.at, body.event, body.parent_run_id) == (entry.seq, entry.at, "recovered", None)
    assert (body.step, body.request, body.details, body.failures_count) == ("", "", (), 0)


def test_a_body_is_stored_without_what_is_usual_and_read_with_it() -> None:
    stored = b'{"event":"test","title":"t","at":"2026-01-01T00:00:00Z","failures":[{"step":"a","what":"failed"}]}'

    body = msgspec.json.decode(stored, type=NoticeBody)

    assert msgspec.json.encode(body) == stored
    assert msgspec.structs.asdict(body) == {
        "event": "test",
        "title": "t",
        "at": T0,
        "run_id": 0,
        "workflow": "",
        "parent_run_id": None,
        "round": 1,
        "seq": 0,
        "status": "",
        "step": "",
        "request": "",
        "details": (),
        "failures": (NoticeFailure("a", "failed", "", ""),),
        "failures_count": 0,
        "has_run_out": False,
        "needs_force": False,
        "name": "",
    }


def test_a_child_run_names_its_caller() -> None:
    asks = NoticeRule(on=("needs_person",), to=("ops",))
    run = run_of(step("a", triage=Triage()), start={"parent_run_id": 7, "notify": (asks,)}).fail("a", 3)

    assert last(run).title == "run 1 of test, called by run 7 waits for a decision about 'a': EXIT_NONZERO 3"
    assert last(run).parent_run_id == 7


@pytest.mark.parametrize(
    ("run", "title"),
    [
        (run_of(step("a")).ok("a"), "completed"),
        (run_of(step("a", rules=retry(1))).fail("a").ok("a"), "completed after failures"),
        (run_of(step("a", continue_on_error=True)).fail("a"), "completed, degraded"),
        (run_of(step("a")).fail("a", 3), "failed: 'a' EXIT_NONZERO 3"),
    ],
)
def test_a_title_says_how_the_run_ended(run: History, title: str) -> None:
    assert last(run).title == f"run 1 of test {title}"


def test_a_failed_run_names_the_first_step_that_failed_it() -> None:
    run = run_of(step("a", continue_on_error=True), step("b"), step("c"), fail_fast="never")
    run.fail("a").fail("b", 3).fail("c", 4)

    body = last(run)

    assert (body.step, body.request, [one.step for one in body.failures]) == ("b", "", ["b", "c"])
    assert (body.failures[0].what, body.failures[0].code) == ("EXIT_NONZERO 3", "EXIT_NONZERO")


@pytest.mark.parametrize(("outcome", "has_run_out"), [({}, False), ({"is_out_of_memory": True}, True)])
def test_a_step_that_ran_out_of_memory_is_said_to_need_more(outcome: dict[str, Any], has_run_out: bool) -> None:
    assert last(run_of(step("a")).fail("a", 1, **outcome)).has_run_out == has_run_out


def test_one_step_that_ran_out_is_enough_and_only_a_failed_run_is_said_to_need_more() -> None:
    run = run_of(step("a"), step("b"), step("c", triage=Triage()), fail_fast="never")
    run.fail("a", 1, is_out_of_memory=True).fail("b").fail("c")

    assert not last(run).has_run_out
    assert last(run.classify("c", "fail")).has_run_out


def test_a_run_that_was_paused_by_a_bug_says_what_broke_in_one_line() -> None:
    run = run_of(step("a"))
    bug = e.Entry(
        run.state.run.seq + 1, run.state.run.at, 0, e.RunPaused("engine", " KeyError:\n 'x'\x1b " + "y" * 600)
    )

    body = notice_body(run.state, DueNotice("needs_person", "ops", bug, "k"))

    assert body.title == "run 1 of test is paused because of a bug in Mulligan"
    assert (body.request, body.step) == ("pause", "")
    assert body.details == (("KeyError: 'x'\\u001b " + "y" * 600)[:500],)


def test_a_late_run_says_what_it_is_at() -> None:
    run = run_of(step("a"), step("b")).started("a").ok("b").wait(61)
    many = run_of(*(step(f"s{number:02}") for number in range(13)))
    for number in range(13):
        many.started(f"s{number:02}")

    assert last(run).title == "run 1 of test is late: it has lasted longer than 60s"
    assert (last(run).details, last(run).step, last(run).request) == (("'a' is running",), "", "")
    assert last(many.wait(61)).details == (
        ", ".join(f"'s{number:02}' is running" for number in range(10)) + " and 3 other steps",
    )


def test_ten_active_steps_are_all_listed() -> None:
    run = run_of(*(step(f"s{number}") for number in range(10)))
    for number in range(10):
        run.started(f"s{number}")

    assert last(run.wait(61)).details == (", ".join(f"'s{number}' is running" for number in range(10)),)


# -- what is asked ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "details"),
    [
        ({}, ()),
        ({"message": "ship it?\nnow"}, ("ship it? now",)),
        ({"timeout": 60}, ("without an answer by 2026-01-01 00:01:00 UTC: refuse",)),
        ({"timeout": 60, "default": "approve"}, ("without an answer by 2026-01-01 00:01:00 UTC: approve",)),
    ],
)
def test_an_approval_says_what_is_asked_and_what_happens_without_an_answer(
    asked: dict[str, Any], details: tuple[str, ...]
) -> None:
    body = last(run_of(step("ship", action=Action("approve", asked))))

    assert (body.title, body.request) == ("run 1 of test waits for an approval: 'ship'", "approval")
    assert body.details == details


def test_an_approval_of_an_item_has_the_name_of_the_item() -> None:
    gate = Command(action=Action("approve", {"message": "open?"}))
    flow = workflow(step("check", map=Map(over=expression("list")), do=(gate,)), notify=(OPS,))
    body = last(History(flow, answers={"list": ["web", "api"]}).start(uid="u1"))

    assert (body.title, body.step) == ("run 1 of test waits for an approval: 'check[api]'", "check[1].0")
    assert body.name == "check[api]"


def test_a_parked_step_says_why_it_is_parked_what_was_tried_and_what_happens_without_a_decision() -> None:
    waits = run_of(step("a", triage=Triage("exhausted", 60.0, "retry"), rules=retry(1))).fail("a").fail("a", 3)
    plain = run_of(step("a", triage=Triage())).fail("a", 3)

    assert last(waits).details == (
        "parked: its retries are used up",
        "retried without success",
        "without a decision by 2026-01-01 00:01:00 UTC: retry",
    )
    assert last(plain).details == ("parked: no rule matched",)


def test_a_parked_step_says_what_all_rungs_did() -> None:
    rule = Rule(any=True, max_retries=1, recovery_script=Command(action=Action("shell", {"text": "mend"})))
    run = run_of(step("a", triage=Triage("exhausted"), rules=(rule,))).fail("a").ok("a.script@1").fail("a")

    assert last(run).details[1] == "retried without success, its recovery script ran"


# -- what the rungs did ----------------------------------------------------------------------------------------------


def test_each_rung_says_how_often_it_was_tried_and_whether_it_worked() -> None:
    mend = Command(action=Action("shell", {"text": "mend"}))
    rule = Rule(any=True, max_retries=3, recovery_script=mend)
    scripted = run_of(step("a", rules=(rule,))).fail("a").ok("a.script@1").fail("a").ok("a.script@2").ok("a")
    handled = run_of(step("a", on_failure=handler("x", strategy="fallback"))).fail("a").ok("a.on_failure@1.0")

    assert answers(scripted) == {"a": "retried twice, its recovery script ran twice, then completed"}
    assert answers(handled) == {"a": "its fallback handler ran, recovered"}


def test_rungs_of_other_steps_are_not_counted() -> None:
    run = run_of(step("a", rules=retry(2)), step("b", rules=retry(1))).fail("a").fail("a").ok("a").fail("b").ok("b")

    assert answers(run) == {"a": "retried twice, then completed", "b": "retried, then completed"}
    assert {one.what for one in last(run).failures} == {"failed"}


def test_what_the_rungs_did_for_several_items_is_added_up() -> None:
    mapped = step("m", map=Map(over=expression("items")), do=(replace(command("x"), rules=retry(1)),))
    run = History(workflow(mapped, notify=(OPS,)), {"items": [1, 2]}).start()
    for item in ("m[0].0", "m[1].0"):
        run.fail(item).ok(item)

    assert answers(run) == {"m": "retried twice, then completed"}


def test_what_failed_in_an_earlier_round_ran_again() -> None:
    assert answers(run_of(step("a")).fail("a").retry().ok("a")) == {"a": "ran again in a later round"}


def test_the_last_failure_of_each_step_is_listed() -> None:
    run = run_of(step("a")).fail("a", 3).retry().fail("a", 4).retry().ok("a")

    assert [(one.step, one.what) for one in last(run).failures] == [("a", "EXIT_NONZERO 4")]


def test_a_routed_failure_says_where_it_went() -> None:
    run = run_of(step("a", next=[edge("fix", "failure")]), step("fix")).fail("a").ok("fix")

    assert answers(run) == {"a": "routed to 'fix', which completed"}


def test_a_run_that_fails_at_its_end_says_so() -> None:
    run = run_of(step("a"), end=step("end", action=command("x").action)).ok("a").fail("end", 3)

    body = last(run)

    assert [(one.step, one.answer) for one in body.failures] == [("end", "the run fails")]
    assert (body.step, body.title) == ("", "run 1 of test failed")


@pytest.mark.parametrize(("count", "counted"), [(10, 0), (11, 11)])
def test_failures_are_counted_if_not_all_are_listed(count: int, counted: int) -> None:
    run = run_of(*(step(f"s{number}") for number in range(count)), fail_fast="never")
    for number in range(count):
        run.fail(f"s{number}")

    assert (len(last(run).failures), last(run).failures_count) == (10, counted)
