"""Describe an exception of a step in a warm child. Runs in any interpreter, like `child_main`.

An exception may be of the user's own class, whose methods may fail in any way: that must not break the child.
"""

from __future__ import annotations

import sys
import traceback

from mulligan.step_context.trace_frames import OWN_FOLDER, frames_of, user_frames
from mulligan.values.exception_names import debugger_hint, names_with_bases
from mulligan.worker.child.json_encoding import ENCODER

# `typing` itself is not imported: a process that is about to start should not wait for it.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# More than an event keeps: if this cuts a secret in two, the redactor cuts that part off again.
TRACE_CHARS_MAX = 40_000
TEXT_CHARS_MAX = 2000
# The limit for a reported error. Events allow less, and the worker reports what was dropped.
REPORT_BYTES_MAX = 1 << 20
STATUS_MAX = 0xFF
_WORD_BITS = 63


def exit_status(code: object) -> int:
    """Return the exit code for `sys.exit(code)`. A message is printed, and the code is 1."""
    if code is None:
        return 0
    if isinstance(code, int):
        # Python itself exits with -1 for a number that does not fit.
        return code & STATUS_MAX if code.bit_length() <= _WORD_BITS else STATUS_MAX
    _print_error(_to_text(code))
    return 1


def describe_error(error: BaseException, step: str, program: str, *, has_locals: bool = False) -> dict[str, Any]:
    """Describe an exception for the worker. `program` is the file name of the step's code in a traceback."""
    reported = _report_of(error)
    is_own_error = reported is not None and _is_raised_by_mulligan(error)
    trace = (
        "".join(traceback.format_exception_only(type(error), error))
        if is_own_error
        else _trace(error).replace(f'"{program}"', f'"<step {step}>"')
    )
    if reported is not None:
        if not is_own_error and _has_reason(error):
            _print_error(trace)  # its code and message may say nothing of what led to it
        about = {} if is_own_error else {**_classes_of(error), **_frames_of(error, program, step, has_locals)}
        return {"trace": trace, "reported": reported, **about}
    # Print it to the log, as Python does.
    _print_error(trace)
    text, kind = debugger_hint(error) or _to_text(error), type(error).__name__[:TEXT_CHARS_MAX]
    said = f"{kind}: {text}"[:TEXT_CHARS_MAX] if text else kind
    about = {**_classes_of(error), **_frames_of(error, program, step, has_locals)}
    return {"trace": trace, "exception": said, **about}


def _frames_of(error: BaseException, program: str, step: str, has_locals: bool) -> dict[str, Any]:
    try:
        return {"traceback": frames_of(error, program, step, has_locals=has_locals)}
    except BaseException:  # a class may have any attributes
        return {}


def _classes_of(error: BaseException) -> dict[str, Any]:
    try:
        names = [name[:TEXT_CHARS_MAX].encode("utf-8", "replace").decode() for name in names_with_bases(error)]
    except BaseException:  # a class may have any attributes
        return {}
    return {"exceptions": names}


def _report_of(error: BaseException) -> dict[str, Any] | None:
    """Return the report of a StepError; None for any other exception."""
    step_error = getattr(sys.modules.get("mulligan"), "StepError", None)
    if step_error is None or not isinstance(error, step_error):
        return None
    try:
        report = dict(error.report())
    except BaseException:
        return None
    size = _size(report)
    if 0 <= size <= REPORT_BYTES_MAX:
        return report
    details = {"dropped_bytes": size} if size > 0 else {"details": _to_text(report.get("details"))}
    report.update({name: _to_text(report[name]) for name in ("code", "message") if name in report}, details=details)
    return report if _size(report) > 0 else None


def _has_reason(error: BaseException) -> bool:
    """Whether it was raised `from` another exception, or while one was handled."""
    return error.__cause__ is not None or (error.__context__ is not None and not error.__suppress_context__)


def _size(report: dict[str, Any]) -> int:
    """Return the size as JSON in bytes; -1 if it is not JSON."""
    try:
        return len(ENCODER.encode(report).encode())
    except BaseException:
        return -1


def _print_error(text: str) -> None:
    try:
        print(text.rstrip(), file=sys.stderr)
    except BaseException:  # a step may have closed or replaced stderr  # noqa: S110
        pass


def _to_text(value: object) -> str:
    try:
        return str(value)[:TEXT_CHARS_MAX].encode("utf-8", "replace").decode()
    except BaseException:
        return "it cannot be shown"


def _is_raised_by_mulligan(error: BaseException) -> bool:
    """Whether an action of this package raised it: then no frame is the user's."""
    deepest = error.__traceback__
    while deepest is not None and deepest.tb_next is not None:
        deepest = deepest.tb_next
    return deepest is not None and deepest.tb_frame.f_code.co_filename.startswith(OWN_FOLDER)


def _trace(error: BaseException) -> str:
    """Return the traceback without our own frames, which come first, unless there are no others."""
    try:
        lines = traceback.format_exception(type(error), error, user_frames(error) or error.__traceback__)
        return "".join(lines)[-TRACE_CHARS_MAX:].encode("utf-8", "replace").decode()
    except BaseException:
        return ""
