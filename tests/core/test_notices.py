"""Which notices follow from which facts, who gets them, their keys and their words."""

from __future__ import annotations

from typing import Any

import pytest

from mulligan.core.model import events as e
from mulligan.core.model.workflow import Action, Command, Map, NoticeRule, Triage, TriageAgent
from mulligan.core.notices.due_notices import due_notices
from mulligan.core.state.notice_rules import rules_for_child
from mulligan.core.turn import fold
from mulligan.history.notice_text import NoticeBody, notice_body
from mulligan.testing.history import History, command, edge, expression, handler, retry, step, workflow

ALL = ("needs_person", "failed", "degraded", "completed", "recovered")
OPS = NoticeRule(on=ALL, to=("ops",))  # type: ignore[arg-type]


def run_of(*steps: Any, notify: tuple[NoticeRule, ...] = (OPS,), **fields: Any) -> History:
    return History(workflow(*steps, notify=notify, **fields)).start(uid="u1")


def kinds_and_targets(run: History) -> list[tuple[str, str]]:
    return [(notice.kind, notice.target) for notice in due_notices(run.state, run.log)]


def bodies(run: History) -> list[NoticeBody]:
    return [notice_body(run.state, notice) for notice in due_notices(run.state, run.log)]


def asking() -> Any:
    return step("ship", action=Action("approve", {"message": "ship it?"}))


# -- which -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("run", "kinds"),
    [
        (run_of(step("a")).ok("a"), ["completed"]),
        (run_of(step("a")).fail("a"), ["failed"]),
        (run_of(step("a", continue_on_error=True)).fail("a"), ["degraded"]),
        (run_of(step("a", rules=retry(1))).fail("a").ok("a"), ["recovered"]),
        (run_of(step("a")).fail("a").retry().ok("a"), ["failed", "recovered"]),
        (run_of(step("a", triage=Triage())).fail("a"), ["needs_person"]),
        (run_of(step("a", triage=Triage())).fail("a").classify("a", "fail"), ["needs_person", "failed"]),
        (run_of(asking()), ["needs_person"]),
        (run_of(step("a")).cancel(), []),
        (run_of(step("a")).pause(), []),
    ],
    ids=[
        *("completed", "failed", "allowed", "retried", "another round", "parked", "parked and failed", "approval"),
        *("cancelled", "paused by a person"),
    ],
)
def test_a_target_that_wants_all_gets_one_notice_of_each_fact_under_its_most_telling_kind(
    run: History, kinds: list[str]
) -> None:
    assert kinds_and_targets(run) == [(kind, "ops") for kind in kinds]


def test_a_target_gets_what_its_rules_name_and_a_fact_once() -> None:
    rules = (
        NoticeRule(on=("completed",), to=("all", "twice")),
        NoticeRule(on=("failed",), to=("bad",)),
        NoticeRule(on=("completed", "recovered"), to=("twice",)),
    )

    run = run_of(step("a", rules=retry(1)), notify=rules).fail("a").ok("a")

    assert kinds_and_targets(run) == [("completed", "all"), ("recovered", "twice")]


def test_the_rules_that_a_run_is_started_with_are_added_to_those_of_its_workflow() -> None:
    mine = NoticeRule(on=("completed",), to=("me",))

    run = History(workflow(step("a"), notify=(OPS,))).start(notify=(mine,)).ok("a")

    assert kinds_and_targets(run) == [("completed", "ops"), ("completed", "me")]


def test_a_map_asks_nobody() -> None:
    mapped = step("m", map=Map(over=expression("items")), do=(Command(action=Action("shell", {"text": "x"})),))
    run = History(workflow(mapped, notify=(OPS,)), {"items": [1]}).start().ok("m[0].0")

    assert kinds_and_targets(run) == [("completed", "ops")]


def test_an_item_that_was_allowed_to_fail_is_a_failure_that_the_run_got_over() -> None:
    mapped = step("m", map=Map(over=expression("items"), on_item_failure="collect"), do=(command("x"),))
    rule = NoticeRule(on=("recovered",), to=("ops",))
    run = History(workflow(mapped, notify=(rule,)), {"items": [1, 2]}).start().fail("m[0].0").ok("m[1].0")

    assert kinds_and_targets(run) == [("recovered", "ops")]


def test_a_task_that_starts_asks_nobody_also_if_it_is_forgotten_since() -> None:
    run = run_of(step("a", on_failure=handler("clean", strategy="fallback"))).started("a").fail("a")
    run.started("a.on_failure@1.0").ok("a.on_failure@1.0")

    assert "a.on_failure@1.0" not in run.state.places
    assert kinds_and_targets(run) == [("degraded", "ops")]


def test_a_run_without_rules_tells_nobody() -> None:
    assert kinds_and_targets(run_of(step("a"), notify=()).fail("a")) == []


def test_a_run_that_the_engine_pauses_because_of_a_bug_needs_a_person() -> None:
    run = run_of(step("a"))
    bug = e.Entry(run.state.run.seq + 1, run.state.run.at, 0, e.RunPaused("engine", "engine_error: KeyError"))

    (notice,) = due_notices(run.state, [bug])

    assert notice.kind == "needs_person"
    assert notice_body(run.state, notice).details == ("engine_error: KeyError",)


# -- child runs ------------------------------------------------------------------------------------------------------


def test_a_child_run_tells_that_it_needs_a_person_to_the_targets_of_its_caller_and_nothing_else() -> None:
    caller = run_of(step("a"), notify=(OPS, NoticeRule(on=("failed",), to=("bad",))))

    handed_on = rules_for_child(caller.state)
    child = History(workflow(step("a", triage=Triage()), notify=(OPS,)))
    child.start(parent_run_id=7, notify=handed_on).fail("a").classify("a", "fail")

    assert kinds_and_targets(child) == [("needs_person", "ops")]
    assert rules_for_child(child.state) == handed_on


# -- late ------------------------------------------------------------------------------------------------------------


def late(*rules: tuple[str, float]) -> tuple[NoticeRule, ...]:
    return tuple(NoticeRule(on=("late",), to=(name,), late_after=seconds) for name, seconds in rules)


def test_a_run_is_late_once_for_each_duration_that_its_rules_name() -> None:
    run = run_of(step("a"), notify=late(("boss", 60), ("ops", 10), ("dev", 10))).started("a")

    run.wait(9)
    assert run.facts(e.RunLate) == []
    run.wait(2)
    assert kinds_and_targets(run) == [("late", "ops"), ("late", "dev")]
    run.wait(100)

    assert run.facts(e.RunLate) == [e.RunLate(10), e.RunLate(60)]
    assert kinds_and_targets(run)[2:] == [("late", "boss")]


def test_a_paused_run_is_late_too_and_an_ended_one_never() -> None:
    paused = run_of(step("a"), notify=late(("ops", 10))).pause().wait(11)
    ended = run_of(step("a"), notify=late(("ops", 10))).ok("a").wait(11)

    assert paused.facts(e.RunLate) == [e.RunLate(10)]
    assert paused.status == "paused"
    assert ended.facts(e.RunLate) == []


def test_each_round_may_be_late() -> None:
    run = run_of(step("a"), notify=late(("ops", 10))).wait(11).fail("a").retry().started("a").wait(11)

    assert run.facts(e.RunLate) == [e.RunLate(10), e.RunLate(10)]


# -- keys ------------------------------------------------------------------------------------------------------------


def test_the_keys_follow_from_the_log_and_are_all_different() -> None:
    two = NoticeRule(on=ALL, to=("ops", "dev"))  # type: ignore[arg-type]
    run = run_of(step("a"), notify=(two,)).fail("a").retry().fail("a")

    keys = [notice.key for notice in due_notices(run.state, run.log)]
    again = [notice.key for notice in due_notices(fold(run.state.workflow, run.log), run.log)]

    assert keys == again
    assert len(set(keys)) == len(keys) == 4
    # A receiver knows a notice by it, whichever version of ours sends it again.
    assert keys[0] == "notice_7be57304afffc340193aa303772ff134"
    first, second = (History(workflow(step("a"), notify=(two,))).start().fail("a") for _ in range(2))
    second.state.run.run_id = 2
    assert due_notices(first.state, first.log)[0].key != due_notices(second.state, second.log)[0].key
    other = History(workflow(step("a"), notify=(two,))).start(uid="u2").fail("a")
    assert not {notice.key for notice in due_notices(other.state, other.log)} & set(keys)


# -- words -----------------------------------------------------------------------------------------------------------


def test_a_failed_run_says_what_failed_and_what_each_rung_did() -> None:
    broken = step("deploy", rules=retry(2), on_failure=handler("clean"))
    run = run_of(broken).fail("deploy").fail("deploy").fail("deploy", 3, stderr_tail="no such host")
    run.fail("deploy.on_failure@3.0")

    (body,) = bodies(run)

    assert body.title == "run 1 of test failed: 'deploy' EXIT_NONZERO 3: no such host"
    (failure,) = body.failures
    assert (failure.step, failure.code) == ("deploy", "EXIT_NONZERO")
    assert failure.answer == (
        "retried twice without success, its recovery handler ran without success, not handled: the run fails"
    )


def test_a_good_end_after_failures_says_what_helped() -> None:
    flaky = step("a", rules=retry(1))
    sent = step("b", needs="a", next=[edge("fix", "failure")])
    run = run_of(flaky, sent, step("fix")).fail("a").ok("a").fail("b").ok("fix")

    (body,) = bodies(run)

    assert body.title == "run 1 of test completed, degraded"
    assert [(one.step, one.answer) for one in body.failures] == [
        ("b", "routed to 'fix', which completed"),
        ("a", "retried, then completed"),
    ]


def test_a_question_says_what_is_asked_and_what_happens_without_an_answer() -> None:
    action = Action("approve", {"message": "ship it?", "timeout": 60})
    (asked,) = bodies(run_of(step("ship", action=action)))
    (parked,) = bodies(run_of(step("a", triage=Triage(timeout=60, default="retry"))).fail("a", 3))

    assert (asked.request, asked.step) == ("approval", "ship")
    assert asked.title == "run 1 of test waits for an approval: 'ship'"
    assert asked.details[0] == "ship it?"
    assert asked.details[1].endswith(":00 UTC: refuse")
    assert (parked.request, parked.step) == ("triage", "a")
    assert parked.title == "run 1 of test waits for a decision about 'a': EXIT_NONZERO 3"
    assert parked.details[0] == "parked: no rule matched"
    assert parked.details[-1].endswith(":00 UTC: retry")


def test_a_notice_lists_a_few_failures_and_counts_the_others() -> None:
    run = run_of(*(step(f"s{number}") for number in range(30)), fail_fast="never")
    for number in range(30):
        run.fail(f"s{number}")

    (body,) = bodies(run)

    assert len(body.failures) == 10
    assert body.failures_count == 30


def test_a_person_is_notified_when_the_agent_has_not_decided_and_not_before() -> None:
    agent = TriageAgent("claude", Command(action=Action("agent", {"provider": "claude"})))
    run = run_of(step("a", triage=Triage(agent=agent))).fail("a", 3)
    before = bodies(run)
    answer = {"verdict": "fail", "confidence": 0.5, "reason": "a column is missing"}

    (asked,) = bodies(run.ok("a.triager@1", output={"json": answer}))

    assert before == []
    assert (asked.request, asked.step) == ("triage", "a")
    assert asked.title == "run 1 of test waits for a decision about 'a': EXIT_NONZERO 3"
    assert asked.details[0].startswith("agent 'claude' suggests fail (50% sure): a column is missing; not applied: ")
