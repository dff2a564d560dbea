"""Rung 0: the outcome of an attempt becomes a `Failure`, or none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from mulligan.core.model.failure import (
    CODES,
    ENGINE_CODES,
    MESSAGE_CHARS_MAX,
    SEVERITY,
    TRACE_CHARS_MAX,
    Failure,
    bounded_exceptions,
    bounded_traceback,
    code_of_exception,
    failure,
)
from mulligan.core.model.outcome import Outcome

# A step may report a thousand errors; an event holds the first few.
REPORTS_MAX = 20
CODE_CHARS_MAX = 100
DETAILS_BYTES_MAX = 16 * 1024


_SUCCESS = Outcome()
# Messages for an attempt that wrote nothing itself. A deadline bounds the whole visit.
# Logs of older releases say "it used more memory than it may": compare the beginning.
TOO_LARGE_PREFIX = "it used more memory than"
TOO_LARGE = f"{TOO_LARGE_PREFIX} its limit"
OUT_OF_JOB_MEMORY = f"{TOO_LARGE_PREFIX} the job of its worker has"
TOO_LONG, PAST_DEADLINE = "it took longer than its timeout", "it took longer than its deadline"


# Detail of a failure: what was wrong with the machine.
MACHINE = "machine"
# Details of a TIMEOUT: the name of the limit that was exceeded, and its length if it is not a limit of the step.
LIMIT, LIMIT_SECONDS = "limit", "limit_seconds"
# The limit that a task exceeded which takes longer than its workers live; and one that only the step itself knows.
WORKER_LIFE, OWN = "worker_life", "own"
# That of what is imported before a Python step is called.
IMPORT = "import"


def exceeded_limit(found: Failure) -> str:
    """Which limit a TIMEOUT exceeded; empty for any other failure.

    `timeout` or `deadline` of the step, `read_timeout` of a request, `own` if the step itself raises or reports the
    timeout, `worker_life` if it takes longer than its workers live, `import` before the call of a Python step,
    `event` if one that it waits for did not come in time.
    """
    if found.code != "TIMEOUT":
        return ""
    named = found.details.get(LIMIT)
    if isinstance(named, str):
        return named
    if found.exceptions:
        return OWN
    return "deadline" if found.message == PAST_DEADLINE else "timeout"


def is_own_shortage(found: Failure) -> bool:
    """Whether a step itself says that it ran out of memory: nobody has killed it, and its peak is not what it needs."""
    return found.code == "OUT_OF_MEMORY" and (bool(found.exceptions) or found.details.get(LIMIT) == OWN)


def lacks_memory(found: Failure) -> bool:
    """Whether more memory than the attempt had may help: not if it ran out by itself, without a limit of ours."""
    return found.code == "OUT_OF_MEMORY" and not (is_own_shortage(found) and "memory" not in found.details)


def classify(outcome: Outcome) -> tuple[Failure | None, tuple[Failure, ...]]:
    """The failure, if any, and the warnings. An error that the step reports fails it even with exit code 0."""
    if outcome == _SUCCESS:
        return None, ()
    if outcome.said is not None:
        return outcome.said, ()
    reports = [_reported_failure(report, outcome) for report in outcome.reported]
    warnings = tuple(report for report in reports if report.severity == "warning")
    errors = [report for report in reports if report.severity != "warning"]
    errors.sort(key=lambda report: report.severity != "critical")
    found = _failure(outcome, errors[:REPORTS_MAX])
    if found is not None and outcome.machine and outcome.machine not in found.message:
        # In front: the message of a step may be long, and nothing in it may name the cause.
        message = f"{outcome.machine}: {found.message}"
        found = msgspec.structs.replace(found, message=message[:MESSAGE_CHARS_MAX])
    return found, (*warnings[:REPORTS_MAX], *_warnings(outcome, found))


def _warnings(outcome: Outcome, found: Failure | None) -> Iterator[Failure]:
    """Warnings about an output, a log or an error report that could not be read."""
    if outcome.output_warning:
        yield failure("OUTPUT_TOO_LARGE", outcome.output_warning, severity="warning")
    if outcome.log_warning:
        yield failure("OUTPUT_MISSING", outcome.log_warning, severity="warning")
    in_words = f"$MULLIGAN_ERROR {outcome.report_error}"
    if outcome.report_error and found is not None and found.message != in_words:
        yield failure("OUTPUT_INVALID", in_words, severity="warning")


def _failure(outcome: Outcome, errors: list[Failure]) -> Failure | None:
    code, message = _observed_code(outcome)
    if code in ("TIMEOUT", "OUT_OF_MEMORY") or not errors:
        return _observed_failure(outcome, code, message, tuple(errors)) if code else None
    first, *others = errors
    return msgspec.structs.replace(
        first,
        exit_code=_exit_code(outcome),
        signal=outcome.signal,
        details={**outcome.details, **first.details},
        trace=outcome.trace[-TRACE_CHARS_MAX:],
        cause=tuple(others),
        exceptions=bounded_exceptions(outcome.exceptions),
        traceback=bounded_traceback(outcome.traceback) if outcome.traceback else (),
    )


def _observed_code(outcome: Outcome) -> tuple[str, str]:
    """The code and message for what the worker observed; the first that applies."""
    if outcome.is_timed_out:
        return "TIMEOUT", PAST_DEADLINE if outcome.is_past_deadline else TOO_LONG
    if outcome.is_out_of_memory:
        return "OUT_OF_MEMORY", TOO_LARGE
    if outcome.code:
        code = code_of_exception(outcome.exceptions) if outcome.code == "EXCEPTION" else _trusted_code(outcome.code)
        return code, outcome.message or outcome.code
    if outcome.signal is not None:
        return "SIGNALED", f"killed by signal {outcome.signal}"
    if outcome.exit_code:
        return "EXIT_NONZERO", f"exit code {outcome.exit_code}"
    if outcome.report_error:
        return "OUTPUT_INVALID", f"$MULLIGAN_ERROR {outcome.report_error}"
    if outcome.missing_outputs:
        return "OUTPUT_MISSING", "declared files missing after exit code 0: " + ", ".join(outcome.missing_outputs)
    if outcome.output_error:
        return "OUTPUT_INVALID", outcome.output_error
    return "", ""


def _trusted_code(code: str) -> str:
    """The code of a worker. Of the engine's codes it may report only CIRCUIT_OPEN and INTERNAL."""
    return code if code not in ENGINE_CODES or code in ("CIRCUIT_OPEN", "INTERNAL") else "EXCEPTION"


def _observed_failure(outcome: Outcome, code: str, in_words: str, cause: tuple[Failure, ...]) -> Failure:
    """The observed failure. Its message is the tail of stderr if there is any, otherwise `in_words`."""
    speaks = code in ("EXIT_NONZERO", "SIGNALED", "TIMEOUT", "OUT_OF_MEMORY") and outcome.stderr_tail.strip()
    printed = outcome.stdout_tail.strip() if not speaks else ""
    details = {**outcome.details, "stdout": printed} if printed else outcome.details
    if speaks and outcome.stderr_head:
        tail = outcome.stderr_tail
        # What `strip` takes from the beginning of the tail belongs between the two.
        space = "" if outcome.stderr_left_out else tail[: len(tail) - len(tail.lstrip())]
        beginning: dict[str, Any] = {"head": outcome.stderr_head + space, "left_out": outcome.stderr_left_out}
    else:
        beginning = {}
    return failure(
        code,
        outcome.stderr_tail.strip() if speaks else in_words,
        **beginning,
        exit_code=_exit_code(outcome),
        signal=outcome.signal,
        details=details,
        trace=outcome.trace[-TRACE_CHARS_MAX:],
        cause=cause,
        exceptions=bounded_exceptions(outcome.exceptions),
        traceback=bounded_traceback(outcome.traceback) if outcome.traceback else (),
    )


def _exit_code(outcome: Outcome) -> int | None:
    """Death by signal N counts as exit code 128+N; a timeout has no exit code."""
    if outcome.is_timed_out:
        return None
    return 128 + outcome.signal if outcome.signal is not None else outcome.exit_code


def _reported_failure(report: Any, outcome: Outcome) -> Failure:
    """A failure that the step reports itself. It cannot use the engine's codes, such as WORKER_LOST."""
    if not isinstance(report, dict):
        return failure("EXCEPTION", _text(report)[:MESSAGE_CHARS_MAX])
    code = report.get("code")
    code = _text(code)[:CODE_CHARS_MAX] if code and isinstance(code, (str, int)) else "EXCEPTION"
    details = report.get("details")
    details = _bounded_details(details) if isinstance(details, dict) else {}
    if code in ENGINE_CODES:
        details["reported_code"], code = code, "EXIT_NONZERO" if outcome.exit_code else "EXCEPTION"
    severity = report.get("severity")
    fields: dict[str, Any] = {"details": details}
    if severity in ("warning", "error", "critical"):
        fields["severity"] = severity
    if isinstance(report.get("retryable"), bool):
        fields["retryable"] = report["retryable"]
    elif code not in CODES:
        fields["retryable"] = fields.get("severity", SEVERITY.get(code, "error")) != "critical"
    return failure(code, _text(report.get("message") or outcome.stderr_tail.strip() or code), **fields)


def failure_of_program(found: Failure, *believed: str) -> Failure:
    """What the process of a program says of a failure, as of any step: bounded, and without the engine's codes.

    `believed`: those that it may say.
    """
    code, details = found.code[:CODE_CHARS_MAX] or "EXCEPTION", _bounded_details(found.details)
    if code in ENGINE_CODES and code not in believed:
        details["reported_code"], code = code, "EXCEPTION"
    kept = {name: getattr(found, name) for name in ("severity", "retryable", "exit_code", "signal", "cause")}
    return failure(
        code,
        found.message,
        details=details,
        trace=found.trace[-TRACE_CHARS_MAX:],
        exceptions=bounded_exceptions(found.exceptions),
        traceback=bounded_traceback(found.traceback) if found.traceback else (),
        **kept,
    )


def _text(value: Any) -> str:
    """A reported value as text: a string as it is, anything else as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _bounded_details(details: dict[str, Any]) -> dict[str, Any]:
    """The reported details; only their size if they are too large for an event."""
    size = len(msgspec.json.encode(details))
    return dict(details) if size <= DETAILS_BYTES_MAX else {"dropped_bytes": size}
