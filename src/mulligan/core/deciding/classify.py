"""Rung 0: whatever happened to an attempt becomes a `Failure`, or nothing."""

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
    failure,
)

# A step may report a thousand errors; an event has room for the first few of them.
REPORTS_MAX = 20
CODE_CHARS_MAX = 100
DETAILS_BYTES_MAX = 16 * 1024


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a worker saw of an attempt that ended. Raw: what it means is said here, not there."""

    exit_code: int | None = 0
    signal: int | None = None
    is_timed_out: bool = False
    is_out_of_memory: bool = False
    # A code that the worker or the engine found, never the step itself: CONNECTION, HTTP_5XX, CIRCUIT_OPEN …
    code: str = ""
    message: str = ""
    stderr_tail: str = ""
    # What it printed last, where it wrote nothing to stderr.
    stdout_tail: str = ""
    trace: str = ""
    details: dict[str, Any] = {}
    # What the step wrote to $MULLIGAN_ERROR, and why that could not be read.
    reported: tuple[Any, ...] = ()
    report_error: str = ""
    missing_outputs: tuple[str, ...] = ()
    output_error: str = ""
    # It was made to end, by a signal: whatever it says then, it has not done what it was there for.
    is_stopped: bool = False
    # The failure itself, as somebody wants it who tries what follows from it: believed, whatever its code.
    said: Failure | None = None
    # Of one that is timed out: it was the time of the whole visit that was up.
    is_past_deadline: bool = False
    # It ended well, and has no output all the same: why.
    output_warning: str = ""
    # Why a path that the step asked for does not lead to its log.
    log_warning: str = ""


_NOTHING_WRONG = Outcome()
# What is said of an attempt that wrote nothing itself; of the last, not its own time was up, but its visit's.
TOO_LARGE = "it used more memory than it may"
TOO_LONG, PAST_DEADLINE = "it took longer than its timeout", "it took longer than its deadline"


# Details of a TIMEOUT: the name of the limit that struck, and how long that is, where it is not the step's own.
LIMIT, LIMIT_SECONDS = "limit", "limit_seconds"


def limit_struck(found: Failure) -> str:
    """Which limit a TIMEOUT exceeded: `timeout` or `deadline` of the step, `read_timeout` of a request, `own` where the
    step itself reports it …
    """
    if found.code != "TIMEOUT":
        return ""
    named = found.details.get(LIMIT)
    if isinstance(named, str):
        return named
    return "deadline" if found.message == PAST_DEADLINE else "timeout"


def classify(outcome: Outcome) -> tuple[Failure | None, tuple[Failure, ...]]:
    """The failure, if it is one, and the step's warnings. An error that the step reports fails it even on exit 0."""
    if outcome == _NOTHING_WRONG:
        return None, ()
    if outcome.said is not None:
        return outcome.said, ()
    reports = [_reported(report, outcome) for report in outcome.reported]
    warnings = tuple(report for report in reports if report.severity == "warning")
    errors = [report for report in reports if report.severity != "warning"]
    errors.sort(key=lambda report: report.severity != "critical")
    found = _failure(outcome, errors[:REPORTS_MAX])
    return found, (*warnings[:REPORTS_MAX], *_unread(outcome, found))


def _unread(outcome: Outcome, found: Failure | None) -> Iterator[Failure]:
    """What it gave and nobody has; what it said of itself and nobody could read, where it failed for another reason."""
    if outcome.output_warning:
        yield failure("OUTPUT_INVALID", outcome.output_warning, severity="warning")
    if outcome.log_warning:
        yield failure("OUTPUT_MISSING", outcome.log_warning, severity="warning")
    in_words = f"$MULLIGAN_ERROR {outcome.report_error}"
    if outcome.report_error and found is not None and found.message != in_words:
        yield failure("OUTPUT_INVALID", in_words, severity="warning")


def _failure(outcome: Outcome, errors: list[Failure]) -> Failure | None:
    code, message = _seen(outcome)
    if code in ("TIMEOUT", "OUT_OF_MEMORY") or not errors:
        return _filled(outcome, code, message, tuple(errors)) if code else None
    first, *others = errors
    return msgspec.structs.replace(
        first,
        exit_code=_exit_code(outcome),
        signal=outcome.signal,
        details={**outcome.details, **first.details},
        trace=outcome.trace[-TRACE_CHARS_MAX:],
        cause=tuple(others),
    )


def _seen(outcome: Outcome) -> tuple[str, str]:
    """The code for what was seen from outside, and what happened in words. The first line that fits."""
    if outcome.is_timed_out:
        return "TIMEOUT", PAST_DEADLINE if outcome.is_past_deadline else TOO_LONG
    if outcome.is_out_of_memory:
        return "OUT_OF_MEMORY", TOO_LARGE
    if outcome.code:
        return _believed(outcome.code), outcome.message or outcome.code
    if outcome.signal is not None:
        return "SIGNALED", f"killed by signal {outcome.signal}"
    if outcome.exit_code:
        return "EXIT_NONZERO", f"exit code {outcome.exit_code}"
    if outcome.report_error:
        return "OUTPUT_INVALID", f"$MULLIGAN_ERROR {outcome.report_error}"
    if outcome.missing_outputs:
        return "OUTPUT_MISSING", "not there after exit 0: " + ", ".join(outcome.missing_outputs)
    if outcome.output_error:
        return "OUTPUT_INVALID", outcome.output_error
    return "", ""


def _believed(code: str) -> str:
    """Most engine codes are for the core to find. A worker may say that a breaker is open, and that it has a bug."""
    return code if code not in ENGINE_CODES or code in ("CIRCUIT_OPEN", "INTERNAL") else "EXCEPTION"


def _filled(outcome: Outcome, code: str, in_words: str, cause: tuple[Failure, ...]) -> Failure:
    """The tail of stderr where there is any, else what happened in words."""
    speaks = code in ("EXIT_NONZERO", "SIGNALED", "TIMEOUT", "OUT_OF_MEMORY") and outcome.stderr_tail.strip()
    printed = outcome.stdout_tail.strip() if not speaks else ""
    details = {**outcome.details, "stdout": printed} if printed else outcome.details
    return failure(
        code,
        outcome.stderr_tail.strip() if speaks else in_words,
        exit_code=_exit_code(outcome),
        signal=outcome.signal,
        details=details,
        trace=outcome.trace[-TRACE_CHARS_MAX:],
        cause=cause,
    )


def _exit_code(outcome: Outcome) -> int | None:
    """Death by signal N is exit code 128+N; a timeout has none."""
    if outcome.is_timed_out:
        return None
    return 128 + outcome.signal if outcome.signal is not None else outcome.exit_code


def _reported(report: Any, outcome: Outcome) -> Failure:
    """A step's own word. Engine codes are not believed: only the engine knows that a worker was lost."""
    if not isinstance(report, dict):
        return failure("EXCEPTION", _text(report)[:MESSAGE_CHARS_MAX])
    code = report.get("code")
    code = _text(code)[:CODE_CHARS_MAX] if code and isinstance(code, (str, int)) else "EXCEPTION"
    details = report.get("details")
    details = _fitting(details) if isinstance(details, dict) else {}
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


def _text(value: Any) -> str:
    """What a step said, as it was written: JSON where it is no text."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _fitting(details: dict[str, Any]) -> dict[str, Any]:
    """What a step says beside its error; of what an event has no room for, only how much it was."""
    size = len(msgspec.json.encode(details))
    return dict(details) if size <= DETAILS_BYTES_MAX else {"dropped_bytes": size}
