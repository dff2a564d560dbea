"""Circuit breakers: whether a task may be leased, and what its outcome changes.

A breaker belongs to a store, not to a run: the store keeps its `Circuit` and calls this module. `closed` lets tasks
through and counts consecutive failures; too many of them open it until `retry_at`. Then one task, the probe, gets
through (`half_open`), and its outcome closes or opens the breaker.

A closed breaker that has counted a failure admits only as many tasks at once as may still fail before it opens, so
that it opens after exactly so many. Tasks that ran already when the first one failed can exceed that, unless
`max_parallel` is not greater than `failures`: then `running + failures in a row <= failures` always holds.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal

import msgspec

from mulligan.core.deciding.classify import classify
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.reports import Report, TaskEnded
from mulligan.core.model.text.formatting import format_time
from mulligan.core.model.workflow import Breaker

Status = Literal["closed", "open", "half_open"]
Admission = Literal["go", "probe", "wait", "refuse"]
Verdict = Literal["success", "failure", "neither"]

# Failures that say nothing about the service that the breaker guards.
_NEUTRAL_CODES = frozenset(
    {"CANCELLED", "INTERRUPTED", "WORKER_LOST", "CIRCUIT_OPEN", "NO_CAPACITY", "BUDGET_EXCEEDED"}
)


class Guard(msgspec.Struct, frozen=True, omit_defaults=True):
    """The breaker of a task, and its rules in the workflow of that task."""

    name: str
    rules: Breaker


class Circuit(msgspec.Struct, frozen=True):
    """The state of a breaker."""

    status: Status = "closed"
    # Consecutive failures.
    failures: int = 0
    # Unless closed: when it may be probed.
    retry_at: datetime | None = None
    # If half open: the token of the probe's lease, which may have expired.
    probe: int | None = None
    # If closed: how many tasks may run at once, by the rules of the task that it was last asked for; None: any number.
    max_running: int | None = None


CLOSED = Circuit()
# Stands for the token of what is not leased from the store.
OUTSIDE = -1


class GuardedOutcome(msgspec.Struct, frozen=True):
    """The outcome of a guarded task, with the token of its lease."""

    token: int
    guard: Guard
    verdict: Verdict


def admission(circuit: Circuit, guard: Guard, now: datetime, *, is_probe_alive: bool, running: int) -> Admission:
    """Whether a task may be leased now: it goes, goes as the probe, stays in the queue, or is refused.

    `running`: how many tasks behind this breaker are leased. While a probe runs, or too many run at once, every task
    waits, also with `when_open: fail`, since the answer is near.
    """
    if circuit.status == "closed":
        limit = max_running(circuit, guard)
        return "go" if limit is None or running < limit else "wait"
    if circuit.status == "half_open":
        return "wait" if is_probe_alive else "probe"
    if circuit.retry_at is None or circuit.retry_at <= now:
        return "probe"
    return "refuse" if guard.rules.when_open == "fail" else "wait"


def max_running(circuit: Circuit, guard: Guard) -> int | None:
    """How many tasks may run at once behind a closed breaker; None: any number.

    After a failure as many as may still fail, so that those that run cannot exceed the failures that open it. At
    least one: another workflow may give the same breaker fewer failures than it has counted.
    """
    rules = guard.rules
    if not circuit.failures:
        return rules.max_parallel
    left = max(1, rules.failures - circuit.failures)
    return left if rules.max_parallel is None else min(left, rules.max_parallel)


def set_limit(circuit: Circuit, guard: Guard) -> Circuit:
    """The breaker with the limit for this task written down, so that stores need not read tasks that would wait."""
    limit = max_running(circuit, guard) if circuit.status == "closed" else None
    return circuit if limit == circuit.max_running else msgspec.structs.replace(circuit, max_running=limit)


def start_probe(circuit: Circuit, token: int) -> Circuit:
    """The breaker while the task with this lease token probes the service."""
    return msgspec.structs.replace(circuit, status="half_open", probe=token, max_running=None)


def count_outcome(circuit: Circuit, counted: GuardedOutcome, now: datetime) -> Circuit:
    """The breaker after an accepted outcome.

    Unless it is closed, only the outcome of the probe counts: other tasks started before the breaker opened.
    """
    if circuit.status == "closed":
        return _count_closed(circuit, counted, now)
    if circuit.status == "open" or circuit.probe != counted.token:
        return circuit
    if counted.verdict == "success":
        return set_limit(CLOSED, counted.guard)
    if counted.verdict == "failure":
        return _open(circuit.failures + 1, counted.guard, now)
    # The next lease is the probe.
    return msgspec.structs.replace(circuit, status="open", probe=None)


def count_from_outside(circuit: Circuit, counted: GuardedOutcome, now: datetime) -> Circuit:
    """The breaker after an outcome of something that is no task, such as a job of a scheduler.

    Nobody leases it, so an outcome that comes after the time of an open breaker is that of its probe.
    """
    is_due = circuit.status == "half_open" or (circuit.retry_at is not None and circuit.retry_at <= now)
    if circuit.status != "closed" and is_due:
        circuit = start_probe(circuit, counted.token)
    return count_outcome(circuit, counted, now)


def _count_closed(circuit: Circuit, counted: GuardedOutcome, now: datetime) -> Circuit:
    if counted.verdict == "success":
        return set_limit(CLOSED, counted.guard)
    if counted.verdict == "neither":
        return circuit
    failures = circuit.failures + 1
    if failures >= counted.guard.rules.failures:
        return _open(failures, counted.guard, now)
    return set_limit(Circuit(failures=failures), counted.guard)


def _open(failures: int, guard: Guard, now: datetime) -> Circuit:
    return Circuit("open", failures, now + timedelta(seconds=guard.rules.reset))


def breaker_verdict(report: Report, guard: Guard) -> Verdict:
    """What the last report of a task says about the service that its breaker guards.

    A task that passed the deadline of its visit counts for nothing: it may have spent its time waiting for the breaker.
    """
    if not isinstance(report, TaskEnded) or report.outcome.is_stopped or report.outcome.is_past_deadline:
        return "neither"
    if report.reused_run_id or report.outcome.machine:
        return "neither"  # the service was not called, or our own machine has failed
    found, _ = classify(report.outcome)
    if found is None:
        return "success"
    return "neither" if found.code in _NEUTRAL_CODES or found.code in guard.rules.ignore else "failure"


def no_capacity_outcome(message: str) -> Outcome:
    """The outcome of a task that leaves the queue since nobody will ever take it."""
    return Outcome(exit_code=None, code="NO_CAPACITY", message=message)


def open_circuit_outcome(guard: Guard, retry_at: datetime) -> Outcome:
    """The outcome of a task with `when_open: fail` while the breaker is open."""
    return Outcome(
        exit_code=None,
        code="CIRCUIT_OPEN",
        message=f"breaker '{guard.name}' is open until {format_time(retry_at)}",
        details={"breaker": guard.name, "retry_at": retry_at.isoformat()},
    )
