"""Circuit breakers: who may pass one, and what the outcome of a task changes about it.

A breaker belongs to a store, not to a run: the store keeps its `Circuit`, gives the time, and asks here. `closed` lets
everything pass and counts failures in a row; so many of them open it until `retry_at`. Then one lease, the probe, may
pass: `half_open`. Its outcome decides.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal

import msgspec

from mulligan.core.deciding.classify import classify
from mulligan.core.model.formatting import format_time
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.reports import Report, TaskEnded
from mulligan.core.model.workflow import Breaker

Status = Literal["closed", "open", "half_open"]
Admission = Literal["go", "probe", "wait", "refuse"]
Verdict = Literal["success", "failure", "neither"]

# They say nothing about what the breaker guards.
_TELLS_NOTHING = frozenset(
    {"CANCELLED", "INTERRUPTED", "WORKER_LOST", "CIRCUIT_OPEN", "NO_CAPACITY", "BUDGET_EXCEEDED"}
)


class Guard(msgspec.Struct, frozen=True, omit_defaults=True):
    """The breaker that guards a task, and what the task's workflow says about it."""

    name: str
    rules: Breaker


class Circuit(msgspec.Struct, frozen=True):
    """The state of a breaker."""

    status: Status = "closed"
    # In a row.
    failures: int = 0
    # From when on it may be probed, of one that is not closed.
    retry_at: datetime | None = None
    # The token of the lease that probes, of one that is half open. The lease may be void.
    probe: int | None = None


CLOSED = Circuit()


class Counted(msgspec.Struct, frozen=True):
    """The end of a guarded task, for its breaker: what the lease `token` has brought to light."""

    token: int
    guard: Guard
    verdict: Verdict


def admission(circuit: Circuit, guard: Guard, now: datetime, *, is_probe_alive: bool) -> Admission:
    """Whether a task may be leased now: it goes, goes as the probe, stays in the queue, or is refused.

    While the probe is under way everybody waits, also who would rather fail: the answer is near.
    """
    if circuit.status == "closed":
        return "go"
    if circuit.status == "half_open":
        return "wait" if is_probe_alive else "probe"
    if circuit.retry_at is None or circuit.retry_at <= now:
        return "probe"
    return "refuse" if guard.rules.when_open == "fail" else "wait"


def probed(circuit: Circuit, token: int) -> Circuit:
    """The breaker while the lease with this token finds out whether things are well again."""
    return msgspec.structs.replace(circuit, status="half_open", probe=token)


def count(circuit: Circuit, counted: Counted, now: datetime) -> Circuit:
    """The breaker after an outcome that was accepted.

    Of one that is not closed only the probe's outcome counts: the others left before they could know.
    """
    if circuit.status == "closed":
        return _count_closed(circuit, counted, now)
    if circuit.status == "open" or circuit.probe != counted.token:
        return circuit
    if counted.verdict == "success":
        return CLOSED
    if counted.verdict == "failure":
        return _opened(circuit.failures + 1, counted.guard, now)
    # The next lease is the probe.
    return msgspec.structs.replace(circuit, status="open", probe=None)


def _count_closed(circuit: Circuit, counted: Counted, now: datetime) -> Circuit:
    if counted.verdict == "success":
        return CLOSED
    if counted.verdict == "neither":
        return circuit
    failures = circuit.failures + 1
    is_too_many = failures >= counted.guard.rules.failures
    return _opened(failures, counted.guard, now) if is_too_many else Circuit(failures=failures)


def _opened(failures: int, guard: Guard, now: datetime) -> Circuit:
    return Circuit("open", failures, now + timedelta(seconds=guard.rules.reset))


def judge(report: Report, guard: Guard) -> Verdict:
    """What the last report of a guarded task says about the thing that its breaker guards.

    One that was cut by the deadline of its visit may have had no time left to ask: waiting for the breaker took it.
    """
    if not isinstance(report, TaskEnded) or report.outcome.is_stopped or report.outcome.is_past_deadline:
        return "neither"
    if report.reused_run_id:
        return "neither"  # nothing was asked of it
    found, _ = classify(report.outcome)
    if found is None:
        return "success"
    return "neither" if found.code in _TELLS_NOTHING or found.code in guard.rules.ignore else "failure"


def refusal(guard: Guard, retry_at: datetime) -> Outcome:
    """What becomes of a task that will not wait for its breaker."""
    return Outcome(
        exit_code=None,
        code="CIRCUIT_OPEN",
        message=f"breaker '{guard.name}' is open until {format_time(retry_at)}",
        details={"breaker": guard.name, "retry_at": retry_at.isoformat()},
    )
