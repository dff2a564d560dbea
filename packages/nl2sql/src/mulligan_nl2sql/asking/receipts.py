"""The receipts of a question, read from its run and the runs of its scans."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from mulligan import Run
from mulligan_nl2sql.asking.answers import DatabaseReceipt, FailedAttempt, Problem, Receipt, ScanReceipt, Status
from mulligan_nl2sql.failures import RULES
from mulligan_nl2sql.planning.failures import REFUSED
from mulligan_nl2sql.planning.planner import Explanation, Usage
from mulligan_nl2sql.planning.providers.agent import read_usage

# Of a scan whose planner is an agent of the engine.
AGENT_STEP = "agent"
# In this order of the path of a scan.
SCAN_STEPS = ("schema", AGENT_STEP, "plan", "check", "explain", "execute")
# No code is both repaired and retried by the workflow.
_REPAIRED = frozenset(code.value for code, rule in RULES.items() if rule.repair)
_NOT_SHOWN = frozenset({"type", "usage", "planner", "model", "reported_code"})
_MODEL_STEP = "decompose_with_model"
_DECOMPOSING_AGENT = "decompose_agent"
# Failures that say no more than that something inside has failed.
_OUTER = frozenset({"ITEMS_FAILED", "CHILD_FAILED"})


def read_receipt(run: Run) -> Receipt:
    """The receipt of a question as it is now."""
    children = {child.inputs["number"]: child for child in run.children}
    decomposed = run.steps["decompose"].output or {}
    scans = [_scan(one, children.get(one["number"])) for one in decomposed.get("scans", [])]
    read, by_agent = _attempts(run, _MODEL_STEP), _attempts(run, _DECOMPOSING_AGENT)
    return Receipt(
        planner=run.inputs["planner"],
        databases=list(_databases(run)),
        decomposed_by=decomposed.get("by"),
        attempts=len(by_agent or read),
        errors=[
            error
            for step, attempts in ((_DECOMPOSING_AGENT, by_agent), (_MODEL_STEP, read))
            for _, error in _failed_attempts(step, attempts)
        ],
        scans=scans,
        seconds=round(run.seconds, 3),
        usage=_sum(
            [
                _usage(run.steps[_MODEL_STEP].output),
                *_wasted(read),
                *wasted_by_agent(run, _DECOMPOSING_AGENT),
                *(scan.usage for scan in scans),
            ]
        ),
    )


def failure_of_run(run: Run) -> Problem | None:
    """The failure that a run ended with: the last one, and what is behind it."""
    if run.status == "cancelled":
        return Problem(code="CANCELLED", message=f"the run was cancelled{f': {run.reason}' if run.reason else ''}")
    failures = run.failures
    return _problem(failures[-1].failure) if failures else None


def with_origin(failure: Problem | None, receipt: Receipt) -> Problem | None:
    """The failure of a question with what the database or the scan says of it that has failed in this way."""
    if failure is None:
        return None
    parts = [*(scan.failure for scan in receipt.scans), *(database.failure for database in receipt.databases)]
    origin = next((one for one in parts if one is not None and one.code == failure.code), None)
    if origin is None:
        return failure
    details = {**origin.details, **failure.details}
    return msgspec.structs.replace(failure, step=origin.step, retryable=origin.retryable, details=details)


def status_of_run(run: Run, failure: Problem | None) -> Status:
    status = run.status
    if status == "completed":
        return Status.ANSWERED
    if status in ("failed", "cancelled"):
        return Status.REFUSED if failure is not None and failure.code == REFUSED else Status.FAILED
    return Status.UNFINISHED


def _problem(failure: Any) -> Problem:
    while failure.code in _OUTER and failure.cause:
        critical = [one for one in failure.cause if one.severity == "critical"]
        failure = critical[0] if critical else failure.cause[-1]
    details = {name: value for name, value in failure.details.items() if name not in _NOT_SHOWN}
    return Problem(
        # A step that passes the failure of another one on may not use the engine's own codes, such as CIRCUIT_OPEN.
        code=str(failure.details.get("reported_code", failure.code)),
        message=failure.message,
        severity=str(failure.severity),
        retryable=failure.retryable,
        step=failure.step,
        details=details,
    )


def _databases(run: Run) -> Iterator[DatabaseReceipt]:
    """In the order in which they were given. Those with an index that fits were not read."""
    kept = run.steps["kept"].output or {"databases": [], "misfits": {}}
    from_index = {one["database"]: one for one in kept["databases"]}
    items = {item.value["name"]: item for item in run.steps["index"].items}
    for name in (one["name"] for one in run.inputs["databases"]):
        item = items.get(name)
        read = from_index.get(name) if item is None or item.status != "completed" else item.output
        attempts = [attempt for attempt in (item.attempts if item else ()) if attempt.started_at is not None]
        failure = item.failure if item is not None and read is None else None
        yield DatabaseReceipt(
            database=name,
            tables=None if read is None else len(read["schema"]["tables"]),
            kept_at="" if read is None else read.get("kept_at", ""),
            misfit=kept["misfits"].get(name, "") or (read or {}).get("misfit", ""),
            attempts=len(attempts),
            errors=[error for _, error in _failed_attempts("index", attempts)],
            failure=None if failure is None else _problem(failure),
        )


def _scan(planned: dict[str, Any], run: Run | None) -> ScanReceipt:
    if run is None:
        return _not_started(planned)
    steps = run.steps
    plan = steps["plan"].output or {}
    query = (steps["check"].output or {}) if steps["check"].status == "completed" else {}
    has_executed = steps["execute"].status == "completed"
    result = (steps["execute"].output or {}) if has_executed else {}
    errors = _errors(run)
    failure = _located(failure_of_run(run), errors)
    status = status_of_run(run, failure)
    return ScanReceipt(
        database=planned["database"],
        question=planned["question"],
        status=status,
        run=run.id,
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
        attempts={name: count for name in SCAN_STEPS if (count := len(_attempts(run, name)))},
        repairs=max(0, sum(attempt.status == "succeeded" for attempt in steps["plan"].attempts) - 1),
        errors=errors,
        explained=msgspec.convert(plan.get("explained", []), list[Explanation]),
        usage=_sum([*map(_usage, _plans(run)), *_wasted(_attempts(run, "plan")), *wasted_by_agent(run)]),
        failure=None if status is Status.ANSWERED else failure,
    )


def _located(failure: Problem | None, errors: Sequence[FailedAttempt]) -> Problem | None:
    """The failure with the step where it arose: of a loop of repairs that is not the planner."""
    if failure is None:
        return None
    step = next((error.step for error in reversed(errors) if error.code == failure.code), failure.step)
    return msgspec.structs.replace(failure, step=step)


def _not_started(planned: dict[str, Any]) -> ScanReceipt:
    return ScanReceipt(
        database=planned["database"],
        question=planned["question"],
        status=Status.UNFINISHED,
        run=None,
        model="",
        planned_sql=None,
        sql=None,
        tables=[],
        cost=None,
        rows=None,
        cut=None,
        file=None,
        executed=False,
        seconds=0.0,
        attempts={},
        repairs=0,
        errors=[],
        explained=[],
        usage=Usage(),
        failure=None,
    )


def _attempts(run: Run, step: str) -> list[Any]:
    """The attempts that have begun: what waits, and a visit beyond the limit of repairs, is none."""
    return [attempt for attempt in run.steps[step].attempts if attempt.started_at is not None]


def _failed_sql(run: Run) -> str | None:
    """The last statement that failed, if there is no plan: the planner had nothing better."""
    failed = run.steps["refine"].output
    return str(failed[-1]["sql"]) if failed else None


def _plans(run: Run) -> list[dict[str, Any]]:
    """What every answer of the planner took: of those that failed later, and of the last."""
    failed = run.steps["refine"].output or []
    last = run.steps["plan"].output
    is_new = last is not None and not (failed and failed[-1]["sql"] == last["sql"])
    return [*failed, last] if is_new else failed


def _wasted(attempts: Sequence[Any]) -> list[Usage]:
    """What was spent on answers that were no use."""
    return [_usage(attempt.failure.details) for attempt in attempts if attempt.failure is not None]


def wasted_by_agent(run: Run, step: str = AGENT_STEP) -> list[Usage]:
    """What an agent has spent on attempts that failed."""
    if not run.inputs.get(AGENT_STEP):
        return []
    facts = [event["fact"] for event in run.events()]
    failed = [one for one in facts if one["type"] == "attempt.failed" and one["place"] == step]
    return [_spent(one.get("usage") or {}) for one in failed]


def _spent(said: dict[str, Any]) -> Usage:
    """As the engine records it: the sum beside its parts, if those are known."""
    read, written = said.get("input_tokens"), said.get("output_tokens")
    tokens = said.get("tokens") if read is None and written is None else {"input": read, "output": written}
    return read_usage({"tokens": tokens, "cost": said.get("cost")})


def _usage(described: dict[str, Any] | None) -> Usage:
    return msgspec.convert((described or {}).get("usage", {}), Usage)


def _file_of_rows(run: Run) -> str | None:
    kept = [file for attempt in run.steps["execute"].attempts for file in attempt.artifacts]
    return str(kept[-1].path) if kept else None


def _errors(run: Run) -> list[FailedAttempt]:
    """Every attempt that failed, in the order of time."""
    found = [one for name in SCAN_STEPS for one in _failed_attempts(name, _attempts(run, name))]
    return [error for _, error in sorted(found, key=lambda one: one[0] or run.created_at)]


def _failed_attempts(step: str, attempts: Sequence[Any]) -> list[tuple[Any, FailedAttempt]]:
    """When each ended, and what has resolved it: a later success of the same step."""
    found = []
    for at, attempt in enumerate(attempts):
        if (failure := attempt.failure) is None:
            continue
        is_resolved = any(later.status == "succeeded" for later in attempts[at + 1 :])
        error = FailedAttempt(
            step=step,
            attempt=at + 1,
            code=failure.code,
            severity=str(failure.severity),
            retryable=failure.retryable,
            message=failure.message,
            resolved_by=("repair" if failure.code in _REPAIRED else "retry") if is_resolved else "",
        )
        found.append((attempt.ended_at, error))
    return found


def _sum(usages: Sequence[Usage]) -> Usage:
    """What is known of the sum."""

    def total(name: str) -> Any:
        known = [value for usage in usages if (value := getattr(usage, name)) is not None]
        return sum(known) if known else None

    return Usage(total("input_tokens"), total("output_tokens"), total("cost"), total("tokens"))
