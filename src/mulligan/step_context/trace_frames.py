"""The frames of an exception as data: file, line, function, text, and the local variables where they are asked for.

Any interpreter: standard library only. A value may be of the user's own class, whose `__repr__` may fail, block or be
as long as it likes: what is kept is bounded in length, number and time.
"""

from __future__ import annotations

import linecache
import os
import signal
import time
from itertools import islice

# `typing` itself is not imported: a step that imports this should not wait for it.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType, TracebackType
    from typing import Any

# The whole package: its frames come first in a traceback, and are no code of the user's.
OWN_FOLDER = os.path.dirname(os.path.dirname(__file__)) + "/"
# Of a longer traceback, such as of an endless recursion, the outermost and the innermost frames are kept.
OUTER_FRAMES, INNER_FRAMES = 5, 25
TEXT_CHARS_MAX = 200
# Of one frame; and of the values of all frames together.
LOCALS_MAX, LOCAL_CHARS_MAX, CHARS_MAX = 25, 300, 16_000
ELEMENTS_MAX, DEPTH_MAX, INT_BITS_MAX = 10, 3, 1024
# The processor may be with the classes of the user for so long, for all values together.
SECONDS_MAX = 1.0
# A value whose name says that it is one is not kept, whether it was declared as a secret or not.
SECRET_WORDS = ("password", "passwd", "secret", "token", "api_key", "apikey", "credential", "private_key")
HIDDEN, UNSHOWABLE = "***", "it cannot be shown"
_CONTAINERS: dict[type, str] = {list: "[]", tuple: "()", set: "{}", frozenset: "{}"}


def frames_of(error: BaseException, program: str, step: str, *, has_locals: bool = False) -> list[dict[str, Any]]:
    """The frames of the user's code, the outermost first. `program` is the file name of a step's own code."""
    found: list[TracebackType] = []
    link = user_frames(error)
    while link is not None:
        found.append(link)
        link = link.tb_next
    if len(found) > OUTER_FRAMES + INNER_FRAMES:
        found = found[:OUTER_FRAMES] + found[-INNER_FRAMES:]
    frames = [_frame(one, program, step) for one in found]
    if has_locals:
        shown = Values()
        # The innermost first: there is no room for all of a deep traceback.
        for frame, one in zip(reversed(frames), reversed(found)):  # noqa: B905 - not before Python 3.10
            frame["locals"] = shown.locals_of(one.tb_frame)
    return frames


def user_frames(error: BaseException) -> TracebackType | None:
    """The traceback from the first frame of the user's code on; None if there is none."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(OWN_FOLDER):
        frames = frames.tb_next
    return frames


def _frame(link: TracebackType, program: str, step: str) -> dict[str, Any]:
    code, line = link.tb_frame.f_code, link.tb_lineno
    file = code.co_filename
    return {
        "file": _plain(f"<step {step}>" if file == program else file)[:TEXT_CHARS_MAX],
        "line": line,
        "function": _plain(getattr(code, "co_qualname", code.co_name))[:TEXT_CHARS_MAX],
        "text": _plain(linecache.getline(file, line, link.tb_frame.f_globals).strip())[:TEXT_CHARS_MAX],
    }


class _TooSlow(BaseException):
    """A `__repr__` has taken too long."""


class Values:
    """Shows the values of variables, while there is time and room."""

    def __init__(self, seconds: float = SECONDS_MAX) -> None:
        self._until = time.monotonic() + seconds
        self._chars_left = CHARS_MAX

    def locals_of(self, frame: FrameType) -> dict[str, str]:
        found: dict[str, str] = {}
        for name, value in islice(_variables(frame), LOCALS_MAX):
            if self._chars_left <= 0:
                break
            is_secret = any(word in name.lower() for word in SECRET_WORDS)
            text = HIDDEN if is_secret else _cut(self._show(value, 0))
            self._chars_left -= len(name) + len(text)
            found[_plain(name)[:TEXT_CHARS_MAX]] = text
        return found

    def _show(self, value: Any, depth: int) -> str:
        """It in words. A part is shown whole or not at all: half of a secret would not be recognised."""
        kind = type(value)
        if kind in (str, bytes):
            if len(value) <= LOCAL_CHARS_MAX:
                return repr(value)
            return f"{kind.__name__} of {len(value)}" if depth else repr(value[:LOCAL_CHARS_MAX])[:-1] + "…"
        if kind in (bool, float, type(None)) or (kind is int and value.bit_length() <= INT_BITS_MAX):
            return repr(value)
        if kind is dict:
            parts = [self._entry(name, one, depth + 1) for name, one in self._some(value.items(), depth)]
            return _container("{}", parts, len(value))
        if kind in _CONTAINERS:
            parts = [self._show(one, depth + 1) for one in self._some(value, depth)]
            return _container(_CONTAINERS[kind], parts, len(value))
        return self._repr(value, depth)

    def _some(self, values: Any, depth: int) -> list[Any]:
        return [] if depth >= DEPTH_MAX else list(islice(values, ELEMENTS_MAX))

    def _entry(self, name: Any, value: Any, depth: int) -> str:
        is_secret = type(name) is str and any(word in name.lower() for word in SECRET_WORDS)
        return f"{self._show(name, depth)}: {HIDDEN if is_secret else self._show(value, depth)}"

    def _repr(self, value: Any, depth: int) -> str:
        text = self._timed(value)
        name = f"<{_plain(type(value).__name__)[:TEXT_CHARS_MAX]}>"
        if text is None:
            return f"{name}: {UNSHOWABLE}"
        return text if len(text) <= LOCAL_CHARS_MAX or not depth else name

    def _timed(self, value: Any) -> str | None:
        """What the class of the user says; None if it fails, or takes too long."""
        left = self._until - time.monotonic()
        if left <= 0:
            return None
        before: Any = None
        try:
            before = signal.signal(signal.SIGALRM, _raise)
            signal.setitimer(signal.ITIMER_REAL, left)
        except ValueError:
            return None  # not in the main thread: nothing would stop it
        try:
            text = repr(value)
            return text if type(text) is str else None
        except BaseException:
            return None
        finally:
            _stop(before)


def _container(brackets: str, parts: list[str], count: int) -> str:
    more = [f"… {count} in all"] if count > len(parts) else []
    return f"{brackets[0]}{', '.join([*parts, *more])}{brackets[1]}"


def _stop(before: Any) -> None:
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def _raise(*_: object) -> None:
    # Again, should a `__repr__` catch it.
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    raise _TooSlow


def _variables(frame: FrameType) -> list[tuple[str, Any]]:
    """Of a module what it has made itself would be all of it: only the variables of functions are shown."""
    if frame.f_code.co_name == "<module>":
        return []
    return [(name, value) for name, value in list(frame.f_locals.items()) if not name.startswith("__")]


def _cut(text: str) -> str:
    """At the end alone, where half of a secret is looked for."""
    text = _plain(text)
    return text if len(text) <= LOCAL_CHARS_MAX else text[:LOCAL_CHARS_MAX] + "…"


def _plain(text: object) -> str:
    return str(text).encode("utf-8", "replace").decode()
