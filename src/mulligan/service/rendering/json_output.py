"""The results of `Service` as plain data for JSON: `--json` and an API give the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from mulligan.core.state.scope import error_view
from mulligan.errors import MulliganError, Problem


def to_json(result: Any) -> Any:
    """A result, or a list of results, as dicts, lists, texts and numbers."""
    if isinstance(result, list | tuple) and any(isinstance(one, msgspec.Struct | Problem) for one in result):
        return [to_json(one) for one in result]
    form = _FORMS.get(type(result).__name__)
    return form(result) if form is not None else msgspec.to_builtins(result)


def log_lines_to_json(piece: Any) -> Iterator[dict[str, Any]]:
    """A piece of a log that is followed, as one object per line; of one that was logged, also time, level, logger."""
    from mulligan.service.logs.log_levels import record_of

    about = {"run_id": piece.run_id, "place": piece.place, "attempt": piece.attempt, "stream": piece.stream}
    for line in piece.data.splitlines() if piece.stream else ():
        yield {**about, **(record_of(line) or {}), "text": _text(line)}


def error_to_json(error: MulliganError) -> dict[str, Any]:
    return {"code": error.code, "message": error.message, "hint": error.hint}


def _with_offsets(*names: str) -> Callable[[Any], dict[str, Any]]:
    """These times are written with `+00:00`, as they have always been. All others end in `Z`."""

    def form(result: Any) -> dict[str, Any]:
        times = {name: getattr(result, name) for name in names}
        return {**msgspec.to_builtins(result), **{name: at and at.isoformat() for name, at in times.items()}}

    return form


def _run_line(line: Any) -> dict[str, Any]:
    driver = line.driver
    return {
        **_with_offsets("created_at", "updated_at")(line),
        "driver": None if driver is None else {"pid": driver.pid, "host": driver.host},
        "asks": [{"run_id": one.run_id, "place": one.place, "kind": one.kind} for one in line.asks],
    }


def _coverage(found: Any) -> dict[str, Any]:
    from mulligan.analysis.coverage import figures

    return {"figures": msgspec.to_builtins(figures.count_figures(found)), **msgspec.to_builtins(found)}


def _attempt_log(log: Any) -> dict[str, Any]:
    return {"place": log.place, "attempt": log.attempt, "stdout": _text(log.stdout), "stderr": _text(log.stderr)}


def _decided_step(decided: Any) -> dict[str, Any]:
    one, error = decided.decision, decided.error
    return {
        **{name: getattr(one, name) for name in one.__struct_fields__ if name != "budgets"},
        "by": decided.by,
        "is_recorded": decided.is_recorded,
        "error": None if error is None else error_to_json(error),
        "follows": decided.follows,
        "starts": decided.starts,
    }


def _decisions_result(result: Any) -> dict[str, Any]:
    return {"dry_run": result.dry_run, "decisions": to_json(result.decisions)}


def _located_line(located: Any) -> dict[str, Any]:
    line = located.line
    return {
        "run_id": located.run_id,
        "seq": line.seq,
        "at": line.at.isoformat(),
        "place": line.place,
        "text": line.text,
        "tone": line.tone,
        **({"tail": list(line.tail)} if line.tail else {}),
        **({"name": line.name} if line.name else {}),
    }


def _located_wait(located: Any) -> dict[str, Any]:
    """A wait is not an event: it has no number and no time."""
    wait, text = located.wait, f"waits for {located.wait.text}"
    line = {"run_id": located.run_id, "seq": None, "at": None, "place": wait.place, "text": text, "tone": "wait"}
    return {**line, "waiting_for": msgspec.to_builtins(wait)}


def _run_moment(moment: Any) -> dict[str, Any]:
    from mulligan.service.runs.views import run_view

    view = run_view.part(moment.run, run_view.RUN if moment.is_whole else run_view.PAST_RUN_HEAD)
    names = [name for name in moment.__struct_fields__ if name not in ("run", "is_whole")]
    return {**{name: msgspec.to_builtins(getattr(moment, name)) for name in names}, "run": msgspec.to_builtins(view)}


def _step_points(found: Any) -> dict[str, Any]:
    return {**msgspec.to_builtins(found), "then": {} if found.then is None else msgspec.to_builtins(found.then)}


def _garbage_report(report: Any) -> dict[str, Any]:
    return {
        "dry_run": report.is_dry,
        "runs": report.runs,
        "artifacts": to_json(report.artifacts),
        "half_written": to_json(report.half_written),
        "logs": [{"run_id": int(one.name), "size": one.size} for one in report.logs],
        "workers": to_json(report.workers),
        "environments": to_json(report.environments),
        "size": report.size,
        "left": report.left,
        "lost": report.lost,
    }


def _handler_result(result: Any) -> dict[str, Any]:
    return {
        "step": result.step,
        "strategy": result.strategy,
        "outcome": result.outcome,
        "recovered_by": result.recovered_by or None,
        "output": result.output,
        "failure": error_view(result.failure) if result.failure else None,
        "commands": to_json(result.logs),
    }


def _problem(problem: Problem) -> dict[str, Any]:
    fields = ("message", "file", "line", "column", "hint")
    return {"code": problem.shown_code, **{field: getattr(problem, field) for field in fields}}


def _validation(found: Any) -> dict[str, Any]:
    about = {"ok": found.ok, "file": found.file, "format": found.format, "name": found.name, "steps": found.steps}
    return {**about, "problems": to_json(found.problems), "warnings": to_json(found.warnings)}


def _publication(done: Any) -> dict[str, Any]:
    return {
        **to_json(done.workflow),
        "is_new": done.is_new,
        "warnings": to_json(done.warnings),
        "schedules": list(done.schedules),
        "removed_schedules": list(done.removed_schedules),
        "dry_run": done.dry_run,
    }


def _published(one: Any) -> dict[str, Any]:
    shown: dict[str, Any] = msgspec.to_builtins(one)
    if one.text is None:
        del shown["text"]
    return shown


def _workflow_list(page: Any) -> dict[str, Any]:
    return {"workflows": [_published(one) for one in page.workflows], "next": page.next}


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


# By the name of the class, so that this module need not load those that define them.
_FORMS: dict[str, Callable[[Any], Any]] = {
    "Coverage": _coverage,
    "AttemptLog": _attempt_log,
    "Breaker": _with_offsets("retry_at"),
    "DecidedStep": _decided_step,
    "DecisionsResult": _decisions_result,
    "GarbageReport": _garbage_report,
    "HandlerResult": _handler_result,
    "LocatedLine": _located_line,
    "LocatedWait": _located_wait,
    "PendingEntry": _with_offsets("since", "due"),
    "Problem": _problem,
    "Publication": _publication,
    "PublishedWorkflow": _published,
    "RunLine": _run_line,
    "RunMoment": _run_moment,
    "StepPoints": _step_points,
    "Validation": _validation,
    "WorkflowList": _workflow_list,
}
