"""What went wrong in a step of a warm child, in words. For any interpreter, as `child` is.

A step's objects are its own: whatever their code does when they are to show themselves, it does not stop us.
"""

from __future__ import annotations

import os
import sys
import traceback

from mulligan.worker.encodable import ENCODER

# More than an event keeps of it: what is cut here, perhaps within a secret, is cut again when secrets are hidden.
TRACE_CHARS_MAX = 40_000
TEXT_CHARS_MAX = 2000
# What a report may have beside its message: an event has room for less, and the worker says how much it was.
REPORT_BYTES_MAX = 1 << 20
STATUS_MAX = 0xFF
# The whole package: actions of other systems stand with their formats.
OWN_FOLDER = os.path.dirname(os.path.dirname(__file__)) + "/"
_WORD_BITS = 63


def exit_status(code: object) -> int:
    """What a process that ends so would give: a message is printed, and is 1."""
    if code is None:
        return 0
    if isinstance(code, int):
        # What does not fit is -1 to Python itself, never a good end.
        return code & STATUS_MAX if code.bit_length() <= _WORD_BITS else STATUS_MAX
    _say(_shown(code))
    return 1


def complaint(error: BaseException, step: str, program: str) -> dict:
    """What is told of a step that raised. `program` is what its text is called in a traceback."""
    reported = _reported(error)
    is_word_of_ours = reported is not None and _is_raised_by_us(error)
    trace = _last_line(error) if is_word_of_ours else _trace(error).replace(f'"{program}"', f'"<step {step}>"')
    if reported is not None:
        return {"trace": trace, "reported": reported}
    # As any program does: whoever reads its log finds it there.
    _say(trace)
    text, kind = _shown(error), type(error).__name__[:TEXT_CHARS_MAX]
    return {"trace": trace, "exception": f"{kind}: {text}"[:TEXT_CHARS_MAX] if text else kind}


def _reported(error: BaseException) -> dict | None:
    """What a StepError says; None of any other."""
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
    details = {"dropped_bytes": size} if size > 0 else {"details": _shown(report.get("details"))}
    report.update({name: _shown(report[name]) for name in ("code", "message") if name in report}, details=details)
    return report if _size(report) > 0 else None


def _size(report: dict) -> int:
    """In bytes, as JSON; -1: it is none."""
    try:
        return len(ENCODER.encode(report).encode())
    except BaseException:
        return -1


def _say(text: str) -> None:
    try:
        print(text.rstrip(), file=sys.stderr)
    except BaseException:  # a step may have closed or replaced it
        pass


def _shown(value: object) -> str:
    try:
        return str(value)[:TEXT_CHARS_MAX].encode("utf-8", "replace").decode()
    except BaseException:
        return "it cannot be shown"


def _is_raised_by_us(error: BaseException) -> bool:
    """Whether an action of ours says it: then no line that led there is the user's."""
    deepest = error.__traceback__
    while deepest is not None and deepest.tb_next is not None:
        deepest = deepest.tb_next
    return deepest is not None and deepest.tb_frame.f_code.co_filename.startswith(OWN_FOLDER)


def _last_line(error: BaseException) -> str:
    """The end of a traceback, without the way that led there."""
    return "".join(traceback.format_exception_only(type(error), error))


def _trace(error: BaseException) -> str:
    """The frames of the user's code: ours come first and are left out, unless there are no others."""
    try:
        frames = error.__traceback__
        while frames is not None and frames.tb_frame.f_code.co_filename.startswith(OWN_FOLDER):
            frames = frames.tb_next
        lines = traceback.format_exception(type(error), error, frames or error.__traceback__)
        return "".join(lines)[-TRACE_CHARS_MAX:].encode("utf-8", "replace").decode()
    except BaseException:
        return ""
