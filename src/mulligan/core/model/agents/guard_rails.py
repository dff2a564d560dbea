"""What a token may decide about runs: which verdicts, and how sure it has to be. Counting is left to the store."""

from __future__ import annotations

from collections.abc import Collection

from mulligan.core.model.reports import ApprovalGiven, Classified, Report, RetryRequested
from mulligan.errors import ConfidenceTooLow, ScopeMissing, VerdictNotAllowed

# What can be decided: the first two about a parked step, the others about an approval.
VERDICTS = ("retry", "fail", "approve", "refuse")
# Decisions of agents are recorded under this and their name.
AGENT_PREFIX = "agent:"
# Before the name of a webhook, where it acts, and in the keys of what its deliveries do.
HOOK_PREFIX = "hook:"
# What an agent may do unless it is said: it decides about failures, and not about what people asked to be asked for.
AGENT_VERDICTS = ("retry", "fail")
AGENT_DECISIONS_PER_HOUR = 20


def is_agent(user: str) -> bool:
    """Whether a name is that of an agent."""
    return user.startswith(AGENT_PREFIX)


def agent_user(name: str) -> str:
    """The name under which an agent is recorded: its own, or that of the user for whom it works."""
    return name if is_agent(name) else f"{AGENT_PREFIX}{name}"


def verdict_of(report: Report) -> str | None:
    """What a report decides; None if it decides nothing."""
    if isinstance(report, Classified):
        return report.verdict
    if isinstance(report, ApprovalGiven):
        return "approve" if report.is_approved else "refuse"
    return None


def refuse_keeping(approval: str, verdicts: Collection[str], *, may_decide: bool) -> None:
    """Refuse to keep what a person has approved, from somebody who may not approve."""
    hint = f"leave it to a person, or begin at '{approval}', so that a person is asked again"
    if not may_decide:
        raise ScopeMissing(
            f"this token has no scope 'decide': the approval of '{approval}' is kept, and nobody is asked again",
            hint=hint,
            scope="decide",
        )
    if verdicts and "approve" not in verdicts:
        raise VerdictNotAllowed(
            f"this token may not decide 'approve': the approval of '{approval}' is kept, and nobody is asked again",
            hint=hint,
            verdict="approve",
            allowed=list(verdicts),
        )


def refuse_beyond(report: Report, verdicts: Collection[str], min_confidence: float | None) -> None:
    """Refuse a decision that the guard rails do not allow. Empty verdicts and no confidence allow everything.

    A budget is raised by somebody without limits on verdicts: it is money, and a retry needs none.
    """
    if verdicts and isinstance(report, Classified | RetryRequested) and report.budgets:
        raise VerdictNotAllowed("this token may not raise a budget", hint="leave it out; a person can raise it")
    verdict = verdict_of(report)
    if verdict is None:
        return
    if verdicts and verdict not in verdicts:
        raise VerdictNotAllowed(
            f"this token may not decide '{verdict}'",
            hint=f"it may decide: {', '.join(verdicts)}; leave this to somebody else",
            verdict=verdict,
            allowed=list(verdicts),
        )
    if not isinstance(report, Classified) or min_confidence is None:
        return
    if report.confidence is None or not report.confidence >= min_confidence:
        said = "does not say how sure it is" if report.confidence is None else f"is {report.confidence:.0%} sure"
        raise ConfidenceTooLow(
            f"this decision {said}, and the token needs {min_confidence:.0%}",
            hint="leave it to a person",
            confidence=report.confidence,
            min_confidence=min_confidence,
        )
