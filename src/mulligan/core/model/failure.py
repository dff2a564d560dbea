"""The `Failure` record and the table of failure codes (rung 0 of the ladder)."""

from __future__ import annotations

import builtins
import math
from collections.abc import Iterable, Mapping, Set
from datetime import datetime
from itertools import islice
from typing import Any, Literal

import msgspec

from mulligan.core.model.text.lazy_regex import lazy_regex

Severity = Literal["warning", "error", "critical"]

# A code that is not in these tables is a step's own: an error, retryable.
_RETRYABLE = (
    "EXIT_NONZERO SIGNALED EXCEPTION CONNECTION HTTP_5XX HTTP_429 TIMEOUT OUT_OF_MEMORY OUTPUT_MISSING "
    "OUTPUT_INVALID VALIDATION_FAILED CHILD_FAILED ITEMS_FAILED NO_CAPACITY REQUIREMENTS_FAILED TOOL_FAILED"
).split()
_NOT_RETRYABLE = (
    "HTTP_4XX PERMISSION INPUT_INVALID EXPRESSION_FAILED APPROVAL_REFUSED APPROVAL_EXPIRED NO_ROUTE LOOP_LIMIT "
    "CIRCUIT_OPEN BUDGET_EXCEEDED TURN_LIMIT OUTPUT_TOO_LARGE NONDETERMINISTIC UNAWAITED"
).split()
_CRITICAL = "SECURITY_VIOLATION RUN_TIMEOUT INTERNAL".split()
_ENGINE_ONLY = "WORKER_LOST INTERRUPTED CANCELLED".split()
# Only attached to another failure, as a cause or a warning; never the failure that climbs the ladder.
_ATTACHED = "HANDLER_FAILED UNDO_FAILED BUDGET_UNREPORTED".split()

SEVERITY: dict[str, Severity] = {
    **dict.fromkeys(_RETRYABLE + _NOT_RETRYABLE + _ENGINE_ONLY + _ATTACHED, "error"),
    **dict.fromkeys(_CRITICAL, "critical"),
}
RETRYABLE: dict[str, bool] = {
    **dict.fromkeys(_RETRYABLE + _ENGINE_ONLY, True),
    **dict.fromkeys(_NOT_RETRYABLE + _CRITICAL + _ATTACHED, False),
}
CODES = frozenset(SEVERITY)
ENGINE_CODES = frozenset(
    _ENGINE_ONLY + _ATTACHED + ["RUN_TIMEOUT", "INTERNAL", "LOOP_LIMIT", "NO_ROUTE", "CIRCUIT_OPEN"]
)

# The code of an exception of one of these classes, which are Python's own, or of a class derived from it.
CODE_OF_EXCEPTION = {
    "ConnectionError": "CONNECTION",
    "TimeoutError": "TIMEOUT",
    "MemoryError": "OUT_OF_MEMORY",
    "PermissionError": "PERMISSION",
}
# How many names of classes a failure keeps, and how long they may be.
EXCEPTIONS_MAX, EXCEPTION_CHARS_MAX = 20, 200

# How many frames of a traceback a failure keeps, how many variables of each, how long a text of one and all are.
FRAMES_MAX, LOCALS_MAX, FRAME_CHARS_MAX, FRAME_TEXT_CHARS_MAX = 30, 25, 301, 32_000

# A NUL cannot go into an environment variable, a lone surrogate not into a file: a handler must start in spite of them.
UNWRITABLE = lazy_regex("[\x00\ud800-\udfff]")
MESSAGE_CHARS_MAX = 2000
# How much is kept of the beginning of a long stderr, whose end is the message.
HEAD_CHARS_MAX = 3000
TRACE_CHARS_MAX = 8000
# A child run may have thousands of failures, and handlers nest: only the nearest causes are kept.
CAUSES_MAX = 40


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """The structured record of a failure. Bounded, so that it fits in an event."""

    code: str
    message: str = ""
    severity: Severity = "error"
    retryable: bool = True
    exit_code: int | None = None
    signal: int | None = None
    step: str = ""
    item: int | None = None
    visit: int = 0
    attempt: int = 0
    at: datetime | None = None
    details: dict[str, Any] = {}
    trace: str = ""
    cause: tuple[Failure, ...] = ()
    handler_failure: Failure | None = None
    # If the message is the end of a longer stderr: its beginning, and how many bytes between the two were left out.
    head: str = ""
    left_out: int = 0
    # Of an exception in Python: its class, then its bases; of each the name under which it is defined, and the shorter
    # ones under which packages offer it. Classes of Python itself have no module: `ConnectionResetError`.
    exceptions: tuple[str, ...] = ()
    # Of such an exception: the frames of the user's code, the outermost first. Each has `file`, `line`, `function` and
    # `text`; and `locals`, the variables as text, where the worker was asked for them.
    traceback: tuple[dict[str, Any], ...] = ()

    @property
    def is_raised(self) -> bool:
        """Whether it is an exception without a code of its own: its message begins with the name of the class."""
        return self.code == code_of_exception(self.exceptions)

    @property
    def is_fatal(self) -> bool:
        """Whether only a rule that names its code retries it: it is critical or not retryable."""
        return self.severity == "critical" or not self.retryable

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes that edges match: its own, and HANDLER_FAILED if its handler failed too."""
        return (self.code, self.handler_failure.code) if self.handler_failure else (self.code,)


def code_of_exception(exceptions: Iterable[str]) -> str:
    """The code of an exception, by the names of its class and its bases."""
    return next((CODE_OF_EXCEPTION[name] for name in exceptions if name in CODE_OF_EXCEPTION), "EXCEPTION")


def builtin_exception(name: str) -> type[BaseException] | None:
    """The class of an exception of Python itself."""
    found = getattr(builtins, name, None)
    return found if isinstance(found, type) and issubclass(found, BaseException) else None


def known_classes(name: str) -> tuple[str, ...]:
    """The name of a class and those of its bases, as far as they are known without the module that defines it."""
    kind = builtin_exception(name)
    if kind is None:
        return (name, "Exception")
    return tuple(one.__name__ for one in kind.__mro__ if one not in (object, BaseException))


def bounded_traceback(frames: Iterable[Any]) -> tuple[dict[str, Any], ...]:
    """The frames that a failure keeps: of those that a process has said, with the fields that there are."""
    found: list[dict[str, Any]] = []
    chars = 0
    # The innermost first, since there it was raised.
    for one in reversed([one for one in frames if isinstance(one, Mapping)]):
        frame: dict[str, Any] = {"file": "", "line": 0, "function": "", "text": ""}
        for name in ("file", "function", "text"):
            frame[name] = _frame_text(one.get(name))
        frame["line"] = one["line"] if isinstance(one.get("line"), int) and 0 <= one["line"] < 1 << 31 else 0
        variables = one.get("locals")
        if isinstance(variables, Mapping):
            few = islice(variables.items(), LOCALS_MAX)
            frame["locals"] = {_frame_text(name): _frame_text(value) for name, value in few}
        chars += len(str(frame))
        if len(found) >= FRAMES_MAX or chars > FRAME_TEXT_CHARS_MAX:
            break
        found.append(frame)
    return tuple(reversed(found))


def _frame_text(value: object) -> str:
    return UNWRITABLE.sub("\ufffd", value[:FRAME_CHARS_MAX]) if isinstance(value, str) else ""


def bounded_exceptions(exceptions: Iterable[str]) -> tuple[str, ...]:
    """The names of classes that a failure keeps."""
    shown = (UNWRITABLE.sub("\ufffd", name[:EXCEPTION_CHARS_MAX]) for name in islice(exceptions, EXCEPTIONS_MAX))
    return tuple(shown)


def failure(code: str, message: str = "", **fields: Any) -> Failure:
    """A failure with the severity and retryability of its code by the table."""
    fields.setdefault("severity", SEVERITY.get(code, "error"))
    fields.setdefault("retryable", RETRYABLE.get(code, True))
    text = UNWRITABLE.sub("\ufffd", message[-MESSAGE_CHARS_MAX:])
    if fields.get("head"):
        fields["head"] = UNWRITABLE.sub("\ufffd", fields["head"][:HEAD_CHARS_MAX])
    return Failure(code=code, message=text, **{**fields, "cause": _bounded_causes(fields)})


def _bounded_causes(fields: Mapping[str, Any]) -> tuple[Failure, ...]:
    """The causes and their causes, level by level, CAUSES_MAX in total. The log has all of them where they occurred."""
    causes: tuple[Failure, ...] = fields.get("cause", ())
    near = list(causes[:CAUSES_MAX])
    for one in near:
        below = one.cause if one.handler_failure is None else (one.handler_failure, *one.cause)
        near += below[: CAUSES_MAX - len(near)]
    return causes if len(near) < CAUSES_MAX else _keep_causes(causes, {id(one) for one in near})


def _keep_causes(causes: Iterable[Failure], near: Set[int]) -> tuple[Failure, ...]:
    return tuple(
        msgspec.structs.replace(
            one,
            cause=_keep_causes(one.cause, near),
            handler_failure=next(iter(_keep_causes((one.handler_failure,), near)), None)
            if one.handler_failure
            else None,
        )
        for one in causes
        if id(one) in near
    )


def number_or_zero(value: Any) -> float:
    """A number reported by a step, a server or a worker; 0 if it is not a finite number."""
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else 0.0
