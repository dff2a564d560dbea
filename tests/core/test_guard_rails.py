"""Guard rails: what a token may decide, whatever it is asked to decide."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from mulligan.core.model.guard_rails import agent_user, refuse_beyond, verdict_of
from mulligan.core.model.reports import ApprovalGiven, CancelRequested, Classified, RetryRequested
from mulligan.core.model.workflow import Budget
from mulligan.errors import ConfidenceTooLow, VerdictNotAllowed

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


def test_a_token_with_verdicts_raises_no_budget() -> None:
    with pytest.raises(VerdictNotAllowed):
        refuse_beyond(classified(budgets={"build": Budget(tokens=5)}), ("retry", "fail"), None)
    with pytest.raises(VerdictNotAllowed):
        refuse_beyond(RetryRequested(AT, "agent:night", budgets={"": Budget(calls=5)}), ("retry", "fail"), None)


@pytest.mark.parametrize("confidence", [None, 0.79, float("nan")])
def test_a_decision_that_is_not_sure_enough_is_refused(confidence: float | None) -> None:
    refuse_beyond(classified(confidence=0.8), (), 0.8)
    with pytest.raises(ConfidenceTooLow):
        refuse_beyond(classified(confidence=confidence), (), 0.8)


def test_an_approval_is_not_asked_for_its_confidence_and_a_cancellation_for_nothing() -> None:
    refuse_beyond(approval(True), ("approve",), 0.9)
    refuse_beyond(CancelRequested(AT), ("retry",), 0.9)


def test_an_agent_has_one_name_also_if_it_works_for_a_person() -> None:
    assert agent_user("night") == agent_user("agent:night") == "agent:night"
