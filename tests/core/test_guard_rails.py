"""Guard rails: what a token may decide, whatever it is asked to decide."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from mulligan.core.model.agents.guard_rails import (
    AGENT_DECISIONS_PER_HOUR,
    AGENT_VERDICTS,
    VERDICTS,
    agent_user,
    refuse_beyond,
    refuse_keeping,
    verdict_of,
)
from mulligan.core.model.reports import ApprovalGiven, CancelRequested, Classified, RetryRequested
from mulligan.core.model.workflow import VERDICTS as STEP_VERDICTS
from mulligan.core.model.workflow import Budget
from mulligan.errors import ConfidenceTooLow, ScopeMissing, VerdictNotAllowed

AT = datetime(2026, 1, 1, tzinfo=UTC)


def classified(verdict: Any = "retry", **fields: Any) -> Classified:
    return Classified(AT, "build", verdict, "agent:night", "why", **fields)


def approval(is_approved: bool) -> ApprovalGiven:
    return ApprovalGiven(AT, "deploy", is_approved, "agent:night", "why")


def test_what_a_report_decides() -> None:
    assert verdict_of(classified("fail")) == "fail"
    assert [verdict_of(approval(one)) for one in (True, False)] == ["approve", "refuse"]
    assert verdict_of(CancelRequested(AT)) is None


def test_without_guard_rails_everything_is_allowed() -> None:
    for report in (classified("retry", budgets={"": Budget(cost=5)}), classified("fail"), approval(True)):
        refuse_beyond(report, (), None)


@pytest.mark.parametrize("report", [classified("fail"), approval(True), approval(False)])
def test_a_verdict_that_is_not_named_is_refused(report: Any) -> None:
    refuse_beyond(classified("retry"), ("retry",), None)
    with pytest.raises(VerdictNotAllowed) as refused:
        refuse_beyond(report, ("retry",), None)

    assert refused.value.data == {"verdict": verdict_of(report), "allowed": ["retry"]}
    assert refused.value.message == f"this token may not decide '{verdict_of(report)}'"
    assert refused.value.hint == "it may decide: retry; leave this to somebody else"


def test_a_refusal_lists_all_that_is_allowed() -> None:
    with pytest.raises(VerdictNotAllowed) as refused:
        refuse_beyond(approval(True), ("retry", "fail"), None)

    assert refused.value.hint == "it may decide: retry, fail; leave this to somebody else"


def test_verdicts_are_those_of_parked_steps_and_of_approvals_and_an_agent_has_the_first_by_default() -> None:
    about_steps = [verdict_of(classified(one)) for one in STEP_VERDICTS]

    assert [*VERDICTS] == [*about_steps, *(verdict_of(approval(one)) for one in (True, False))]
    assert [*AGENT_VERDICTS] == about_steps
    assert AGENT_DECISIONS_PER_HOUR == 20


def test_a_token_with_verdicts_raises_no_budget() -> None:
    with pytest.raises(VerdictNotAllowed) as refused:
        refuse_beyond(classified(budgets={"build": Budget(tokens=5)}), ("retry", "fail"), None)
    assert refused.value.message == "this token may not raise a budget"
    assert refused.value.hint == "leave it out; a person can raise it"
    with pytest.raises(VerdictNotAllowed):
        refuse_beyond(RetryRequested(AT, "agent:night", budgets={"": Budget(calls=5)}), ("retry", "fail"), None)


@pytest.mark.parametrize(
    ("confidence", "said"),
    [(None, "does not say how sure it is"), (0.74, "is 74% sure"), (float("nan"), "is nan% sure")],
)
def test_a_decision_that_is_not_sure_enough_is_refused(confidence: float | None, said: str) -> None:
    refuse_beyond(classified(confidence=0.75), (), 0.75)
    with pytest.raises(ConfidenceTooLow) as refused:
        refuse_beyond(classified(confidence=confidence), (), 0.75)

    assert refused.value.message == f"this decision {said}, and the token needs 75%"
    assert refused.value.hint == "leave it to a person"
    assert str(refused.value.data) == str({"confidence": confidence, "min_confidence": 0.75})


def test_an_approval_is_not_asked_for_its_confidence_and_a_cancellation_for_nothing() -> None:
    refuse_beyond(approval(True), ("approve",), 0.9)
    refuse_beyond(CancelRequested(AT), ("retry",), 0.9)


def test_an_agent_has_one_name_also_if_it_works_for_a_person() -> None:
    assert agent_user("night") == agent_user("agent:night") == "agent:night"


@pytest.mark.parametrize("verdicts", [(), ("approve",), ("retry", "approve")])
def test_who_may_approve_may_keep_an_approval(verdicts: tuple[str, ...]) -> None:
    refuse_keeping("deploy", verdicts, may_decide=True)


def test_an_approval_is_not_kept_by_whoever_may_not_approve() -> None:
    with pytest.raises(VerdictNotAllowed) as refused:
        refuse_keeping("deploy", ("retry",), may_decide=True)
    with pytest.raises(ScopeMissing) as without_scope:
        refuse_keeping("deploy", ("approve",), may_decide=False)

    hint = "leave it to a person, or begin at 'deploy', so that a person is asked again"
    why = "the approval of 'deploy' is kept, and nobody is asked again"
    assert str(refused.value) == f"this token may not decide 'approve': {why}"
    assert (refused.value.hint, refused.value.data) == (hint, {"verdict": "approve", "allowed": ["retry"]})
    assert str(without_scope.value) == f"this token has no scope 'decide': {why}"
    assert (without_scope.value.hint, without_scope.value.data) == (hint, {"scope": "decide"})
