"""What came of a question, read from its run: the rows or why there are none, and the receipt."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from mulligan import Run
from mulligan_nl2sql.failures import RULES
from mulligan_nl2sql.planning.failures import REFUSED
from mulligan_nl2sql.planning.planner import Explanation, Usage

# In this order of the path of a question.
STEPS = ("schema", "plan", "check", "explain", "execute")
# No code is both repaired and retried by the workflow.
_REPAIRED = frozenset(code.value for code, rule in RULES.items() if rule.repair)
_NOT_SHOWN = frozenset({"type", "usage", "planner", "model"})


class Status(StrEnum):
    """How a question ended. The exit code, the JSON and the text say the same."""

    ANSWERED = "answered"
    FAILED = "failed"
    REFUSED = "refused"
    # Its deadline has passed, or somebody has interrupted it: it can go on.
    UNFINISHED = "unfinished"


EXIT_CODES = {Status.ANSWERED: 0, Status.FAILED: 1, Status.REFUSED: 3, Status.UNFINISHED: 124}
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Why there is no answer."""

    code: str
    message: str
    severity: str = "error"
    retryable: bool = False
    step: str = ""
    details: dict[str, Any] = {}


class FailedAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """Something that went wrong on the way."""

    step: str
    # Which attempt at the step, from 1, over all visits.
    attempt: int
    code: str
    severity: str
    retryable: bool
    message: str
    # `retry`: the same again has worked; `repair`: another statement has; empty: nothing has.
    resolved_by: str = ""


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """How an answer came about. None: it did not come so far."""

    database: str
    planner: str
    model: str
    # As the planner wrote it, and as it was checked and executed.
    planned_sql: str | None
    sql: str | None
    tables: list[str]
    cost: float | None
    rows: int | None
    # `rows` or `bytes`: the limit that has cut the result; empty: it is whole.
    cut: str | None
    file: str | None
    executed: bool
    seconds: float
    attempts: dict[str, int]
    # Statements that the planner wrote after the first.
    repairs: int
    errors: list[FailedAttempt]
    explained: list[Explanation]
    usage: Usage


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What `--json` prints. `rows` is None if nothing was executed."""

    status: Status
    exit_code: int
    question: str
    run: int | None = None
    columns: list[str] = []
    rows: list[dict[str, Any]] | None = None
    failure: Problem | None = None
    receipt: Receipt | None = None


def read_answer(run: Run) -> Answer:
    """The answer of a run as it is now."""
    receipt = _receipt(run)
    failure = _failure(run)
    status = _status(run, failure)
    is_answered = status is Status.ANSWERED
    file = receipt.file if is_answered else None
    return Answer(
        status=status,
        exit_code=EXIT_CODES[status],
        question=run.inputs["question"],
        run=run.id,
        columns=list(run.steps["execute"].output["columns"]) if file else [],
        rows=_read_rows(file) if file else None,
        failure=None if is_answered else failure,
        receipt=receipt,
    )


def _status(run: Run, failure: Problem | None) -> Status:
    status = run.status
    if status == "completed":
        return Status.ANSWERED
    if status in ("failed", "cancelled"):
        return Status.REFUSED if failure is not None and failure.code == REFUSED else Status.FAILED
    return Status.UNFINISHED


def _failure(run: Run) -> Problem | None:
    """The failure that the run ended with: the last one."""
    if run.status == "cancelled":
        return Problem(code="CANCELLED", message=f"the run was cancelled{f': {run.reason}' if run.reason else ''}")
    failures = [visit.failure for visit in run.failures]
    if not failures:
        return None
    last = failures[-1]
    details = {name: value for name, value in last.details.items() if name not in _NOT_SHOWN}
    return Problem(
        code=last.code,
        message=last.message,
        severity=str(last.severity),
        retryable=last.retryable,
        step=last.step,
        details=details,
    )


def _receipt(run: Run) -> Receipt:
    steps = run.steps
    plan = steps["plan"].output or {}
    has_checked = steps["check"].status == "completed"
    query = (steps["check"].output or {}) if has_checked else {}
    has_executed = steps["execute"].status == "completed"
    result = (steps["execute"].output or {}) if has_executed else {}
    return Receipt(
        database=run.inputs["database"],
        planner=run.inputs["planner"],
        model=plan.get("model", ""),
        planned_sql=plan.get("sql") or _failed_sql(run),
        sql=query.get("sql"),
        tables=list(query.get("tables", ())),
        cost=steps["explain"].output if steps["explain"].status == "completed" else None,
        rows=result.get("rows"),
        cut=result.get("cut"),
        file=_file_of_rows(run) if has_executed else None,
        executed=has_executed,
        seconds=round(run.seconds, 3),
        attempts={name: count for name in STEPS if (count := len(_attempts(run, name)))},
        repairs=max(0, sum(attempt.status == "succeeded" for attempt in steps["plan"].attempts) - 1),
        errors=_errors(run),
        explained=msgspec.convert(plan.get("explained", []), list[Explanation]),
        usage=msgspec.convert(plan.get("usage", {}), Usage),
    )


def _attempts(run: Run, step: str) -> list[Any]:
    """The attempts that have begun: what waits, and a visit beyond the limit of repairs, is none."""
    return [attempt for attempt in run.steps[step].attempts if attempt.started_at is not None]


def _failed_sql(run: Run) -> str | None:
    """The last statement that failed, if there is no plan: the planner had nothing better."""
    failed = run.steps["refine"].output
    return str(failed[-1]["sql"]) if failed else None


def _read_rows(file: str) -> list[dict[str, Any]]:
    return [msgspec.json.decode(line) for line in Path(file).read_bytes().splitlines()]


def _file_of_rows(run: Run) -> str | None:
    kept = [file for attempt in run.steps["execute"].attempts for file in attempt.artifacts]
    return str(kept[-1].path) if kept else None


def _errors(run: Run) -> list[FailedAttempt]:
    """Every attempt that failed, in the order of time, and what has resolved it: a later success of the same step."""
    found = []
    for name in STEPS:
        attempts = _attempts(run, name)
        for at, attempt in enumerate(attempts):
            if (failure := attempt.failure) is None:
                continue
            is_resolved = any(later.status == "succeeded" for later in attempts[at + 1 :])
            found.append(
                (
                    attempt.ended_at or run.created_at,
                    FailedAttempt(
                        step=name,
                        attempt=at + 1,
                        code=failure.code,
                        severity=str(failure.severity),
                        retryable=failure.retryable,
                        message=failure.message,
                        resolved_by=("repair" if failure.code in _REPAIRED else "retry") if is_resolved else "",
                    ),
                )
            )
    return [error for _, error in sorted(found, key=lambda one: one[0])]
