"""Where a call was written, which flow is being built, and how a mistake is refused."""

from __future__ import annotations

import os
import sys
from contextvars import ContextVar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

_FOLDER = __file__.rpartition("/")[0] + "/"
# Frames in these folders are ours: a call was written outside of them.
_OWN_FOLDERS = (_FOLDER, _FOLDER.removesuffix("flows/") + "programs/")
# The recorder of the flow that is being built.
RECORDER: ContextVar[Any] = ContextVar("mulligan_flow", default=None)
# The program that is running: see `mulligan.programs`. It has `call`, and no flow is being built while it is set.
PROGRAM: ContextVar[Any] = ContextVar("mulligan_program", default=None)


class Site:
    """The position of a call in the user's file."""

    __slots__ = ("file", "line")

    def __init__(self, file: str, line: int) -> None:
        self.file = file
        self.line = line


def call_site() -> Site:
    """The position of the call that led here from outside this package."""
    frame = sys._getframe(1)
    while frame.f_back and frame.f_code.co_filename.startswith(_OWN_FOLDERS):
        frame = frame.f_back
    return Site(frame.f_code.co_filename, frame.f_lineno)


def refuse(code: str, message: str, *, hint: str = "", word: str = "", site: Site | None = None) -> NoReturn:
    """Raise a LanguageError that points at the user's line."""
    site = site or call_site()
    try:
        from mulligan.errors import LanguageError
        from mulligan.language.python import builder
    except ImportError:  # another interpreter, which runs steps and builds nothing
        raise RuntimeError(f"{message}; {hint}" if hint else message) from None
    problem = builder.problem_at(builder.CallSite(site.file, site.line), code, message, word, hint)
    raise LanguageError([problem]) from None


def given(arguments: dict[str, Any], *others: str) -> dict[str, Any]:
    """The keys of a file among the arguments of a call, which are its `locals()`: those that are not None."""
    return {key: value for key, value in arguments.items() if value is not None and key not in ("self", *others)}


def suggest(word: str, known: list[str]) -> str:
    """`did you mean …?`, or nothing."""
    from mulligan.language.text.suggestions import did_you_mean

    hint: str = did_you_mean(word, known)
    return hint


def current(what: str, instead: str = "", *, in_program: str = "", inside: str = "a @flow") -> Any:
    """The recorder of the flow that is being built; `what` is refused outside a flow.

    `in_program` is what to write in a program, where `what` is refused too. `inside` says where it belongs.
    """
    recorder = RECORDER.get()
    if recorder is None:
        if PROGRAM.get() is not None:
            raise RuntimeError(f"{what} is called inside a program; {in_program or 'it belongs to a @flow'}")
        if "MULLIGAN_ATTEMPT" in os.environ:  # the message becomes that of a failure, in one line
            raise RuntimeError(f"{what} is called inside a step; {instead or 'call it inside a @flow'}")
        hint = f"call it inside {inside}{', or ' + instead if instead else ''}"
        refuse("flow", f"{what} is called outside {inside.replace('@', '')}", hint=hint)
    return recorder


def running_program() -> Any:
    """The program whose code calls, or None. While a flow is built, its steps belong to the flow."""
    return PROGRAM.get() if RECORDER.get() is None else None


def refuse_run(called: Any) -> None:
    """Refuse a run that a program starts itself: a replay would start another one."""
    if running_program() is not None:
        name = called.__name__
        raise RuntimeError(f"'{name}' is run inside a program; call it: {name}(…), which is a child run")


def outside_program(what: str) -> NoReturn:
    """Refuse what only a running program can do."""
    if "MULLIGAN_ATTEMPT" in os.environ:
        raise RuntimeError(f"{what} is called inside a step; only a program can call it")
    refuse("program", f"{what} is called outside a program", hint="call it inside a function with @program")
