"""What a program or an inline step has raised, as the engine records it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from mulligan.core.model.failure import MESSAGE_CHARS_MAX, RETRYABLE, bounded_exceptions, code_of_exception
from mulligan.errors import LanguageError
from mulligan.programs.errors import Nondeterministic, ProgramError, StepFailed
from mulligan.programs.messages import CallFailure
from mulligan.values.exception_names import debugger_hint, names_with_bases

TYPE_CHECKING = False
if TYPE_CHECKING:
    from traceback import TracebackException

TRACE_CHARS_MAX = 40_000
# Loaded for programs that are debugged.
DEBUGGER = "mulligan.step_context.debugger"
# Whether the failures of this process keep the local variables of their frames.
HAS_LOCALS = False
_SEVERITIES = ("warning", "error", "critical")
# Of this package: what it has called to check a step is no code of the user's either.
_OWN_FOLDER = __file__.rpartition("/programs/")[0] + "/"


def failure_of(error: BaseException) -> CallFailure:
    """The failure that an exception is. One that nothing has caught keeps the code that it had."""
    if isinstance(error, StepFailed):
        return _of_step(error)
    if isinstance(error, Nondeterministic):
        details = {"recorded": error.recorded, "asked": error.asked}
        return CallFailure(code="NONDETERMINISTIC", message=_short(error.message), retryable=False, details=details)
    if isinstance(error, LanguageError):
        text = "; ".join(f"{one.message}; {one.hint}" if one.hint else one.message for one in error.problems)
        return CallFailure(code="EXCEPTION", message=_short(text), trace=trace_of(error))
    if isinstance(error, ProgramError):
        retryable = error.code == "EXCEPTION"
        return CallFailure(code=error.code, message=_short(str(error)), retryable=retryable, trace=trace_of(error))
    exceptions, frames = _classes_of(error), _frames_of(error)
    reported = _report_of(error)
    if reported is not None:
        return CallFailure(trace=trace_of(error), exceptions=exceptions, traceback=frames, **reported)
    if (quit_report := _debugged(error)) is not None:
        return CallFailure(**quit_report)
    text, kind, code = debugger_hint(error) or _text(error), type(error).__name__, code_of_exception(exceptions)
    return CallFailure(
        code=code,
        message=_short(f"{kind}: {text}" if text else kind),
        retryable=RETRYABLE[code],
        trace=trace_of(error),
        exceptions=exceptions,
        traceback=frames,
    )


def _classes_of(error: BaseException) -> tuple[str, ...]:
    try:
        return bounded_exceptions(map(_plain, names_with_bases(error)))
    except Exception:
        return ()


def _frames_of(error: BaseException) -> tuple[dict[str, Any], ...]:
    # Few programs fail.
    from mulligan.step_context.trace_frames import frames_of

    try:
        return tuple(frames_of(error, "", "", has_locals=HAS_LOCALS))
    except Exception:
        return ()


def _debugged(error: BaseException) -> dict[str, Any] | None:
    """Let a person look at what was raised, if the program is debugged; the report, if they have ended it there."""
    debugger = getattr(sys.modules.get(DEBUGGER), "ACTIVE", None)
    if debugger is None or debugger.is_replaying:
        return None
    if debugger.quit_at:
        report: dict[str, Any] = debugger.quit_report()
        debugger.quit_at = ""
        return report
    debugger.show_traceback(trace_of(error))
    debugger.post_mortem(error, os.environ.get("MULLIGAN_STEP", "program"))
    return None


def _of_step(error: StepFailed) -> CallFailure:
    """The failure of a call; or one that the program itself has made, which may have any values."""
    severity = error.severity if error.severity in _SEVERITIES else "error"
    exit_code = error.exit_code if isinstance(error.exit_code, int) and abs(error.exit_code) < 1 << 31 else None
    return CallFailure(
        code=_plain(error.code) or "EXCEPTION",
        message=_short(_plain(error.message)),
        severity=severity,  # type: ignore[arg-type]
        retryable=bool(error.retryable),
        details=_details(error.details),
        trace=trace_of(error),
        exit_code=exit_code,
        step=_plain(error.step),
        attempt=error.attempt if isinstance(error.attempt, int) and 0 <= error.attempt < 1 << 31 else 0,
        exceptions=bounded_exceptions(map(_plain, error.exceptions)) if isinstance(error.exceptions, tuple) else (),
    )


def _details(found: object) -> dict[str, Any]:
    """What can be stored of the details of a failure: each one that cannot is said in words."""
    from mulligan.programs.call_values import storable

    details: dict[str, Any] = {}
    for name, value in found.items() if isinstance(found, Mapping) else ():
        key = _plain(name)
        try:
            details[key] = storable(value, f"'{key}'")
        except ProgramError as refusal:
            details[key] = refusal.message
    return details


def _report_of(error: BaseException) -> dict[str, Any] | None:
    """The fields of a StepError."""
    kind = getattr(sys.modules.get("mulligan"), "StepError", None)
    if kind is None or not isinstance(error, kind):
        return None
    try:
        found = error.report()
        fields: dict[str, Any] = {
            "code": _plain(found.get("code", "EXCEPTION")),
            "message": _short(_plain(found.get("message", ""))),
            "details": _details(found.get("details", {})),
        }
    except Exception:
        return None
    if found.get("severity") in _SEVERITIES:
        fields["severity"] = found["severity"]
    # As `classify` has it.
    by_code = RETRYABLE.get(fields["code"], fields.get("severity") != "critical")
    fields["retryable"] = found["retryable"] if isinstance(found.get("retryable"), bool) else by_code
    return fields


def site_of(error: BaseException) -> str:
    """Where in the user's code it was raised: "nightly.py:14"."""
    found = ""
    step = error.__traceback__
    while step is not None:
        file = step.tb_frame.f_code.co_filename
        if not file.startswith(_OWN_FOLDER) and "/asyncio/" not in file:
            found = f"{file.rpartition('/')[2]}:{step.tb_lineno}"
        step = step.tb_next
    return found


def trace_of(error: BaseException) -> str:
    """The traceback without our own frames."""
    # Few programs fail.
    import traceback

    try:
        shown = traceback.TracebackException.from_exception(error)
        _leave_out_own_frames(shown, 0)
        return "".join(shown.format())[-TRACE_CHARS_MAX:].encode("utf-8", "replace").decode()
    except Exception:
        return ""


def _leave_out_own_frames(shown: TracebackException, depth: int) -> None:
    kept = [frame for frame in shown.stack if not frame.filename.startswith(_OWN_FOLDER)]
    shown.stack[:] = kept
    for inner in (shown.__cause__, shown.__context__):
        if inner is not None and depth < 10:
            _leave_out_own_frames(inner, depth + 1)


def _text(error: BaseException) -> str:
    try:
        return _plain(error)
    except Exception:
        return "it cannot be shown"


def _plain(value: object) -> str:
    """It as a text that can be stored."""
    return str(value).encode("utf-8", "replace").decode()


def _short(text: str) -> str:
    return text[:MESSAGE_CHARS_MAX]
