"""Exceptions that nobody foresaw: as words with the place to look, and as a traceback for who asks."""

from __future__ import annotations

import traceback
from pathlib import Path

from mulligan.errors import MulliganError

PACKAGE = Path(__file__).parent.parent


class Bug(MulliganError):
    """Something of ours that nobody foresaw."""

    code = "internal.bug"


def bug(error: Exception) -> Bug:
    """An exception that nobody foresaw, as a message with the place to look."""
    words = " ".join(str(error).split())
    what = f"{type(error).__name__}: {words}" if words else type(error).__name__
    found = Bug(f"{what} ({_place(error)})", hint="this is a bug of ours; MULLIGAN_DEBUG=1 shows the traceback")
    found.__cause__ = error
    return found


def traceback_of(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)).rstrip()


def _place(error: Exception) -> str:
    """The last line of our own code that the exception came through."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if Path(frame.filename).is_relative_to(PACKAGE)] or frames
    if not ours:
        return "nowhere"
    path = Path(ours[-1].filename)
    shown = path.relative_to(PACKAGE.parent) if path.is_relative_to(PACKAGE) else path.name
    return f"{shown}:{ours[-1].lineno}"
