"""Unexpected exceptions: a message with the place in the code, and the traceback on request."""

from __future__ import annotations

import traceback
from pathlib import Path

from mulligan.errors import MulliganError

PACKAGE = Path(__file__).parents[2]


class Bug(MulliganError):
    """A bug in Mulligan."""

    code = "internal.bug"


def bug(error: Exception) -> Bug:
    """An unexpected exception as a message with the place in the code."""
    words = " ".join(str(error).split())
    what = f"{type(error).__name__}: {words}" if words else type(error).__name__
    found = Bug(f"{what} ({_place(error)})", hint="this is a bug in Mulligan; MULLIGAN_DEBUG=1 shows the traceback")
    found.__cause__ = error
    return found


def traceback_of(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)).rstrip()


def _place(error: Exception) -> str:
    """The last line of Mulligan's code that the exception passed."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if Path(frame.filename).is_relative_to(PACKAGE)] or frames
    if not ours:
        return "nowhere"
    path = Path(ours[-1].filename)
    shown = path.relative_to(PACKAGE.parent) if path.is_relative_to(PACKAGE) else path.name
    return f"{shown}:{ours[-1].lineno}"
