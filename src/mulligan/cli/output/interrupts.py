"""Ctrl-C and SIGTERM as a KeyboardInterrupt that does not get lost.

A signal handler raises wherever the program happens to be, and in some places Python drops what it raised, or makes
another error of it: in callbacks of the interpreter (the end of each import has one), in modules in C that import
others while they are imported, in `__set_name__` of a class that is being made. A worker that loses SIGTERM goes on,
and the server that has sent it waits for it. So nothing is raised inside an import, and what was dropped is raised
again.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import sys
from time import monotonic

TYPE_CHECKING = False
if TYPE_CHECKING:
    # `typing` takes as long to load as all of this file.
    from types import FrameType

    from _typeshed import Unused

# How soon a signal is handled again that came during an import.
AGAIN_SECONDS = 0.005
# An import that takes longer is interrupted nevertheless, and by a second signal at once: somebody's module may hang.
IMPORT_SECONDS_MAX = 30.0

_IMPORT = "<frozen importlib._bootstrap>"
# The signals that are to be handled again, and since when.
_waiting: dict[int, float] = {}


def raise_interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt; if a module is being imported, as soon as it is."""
    is_second = number in _waiting and (frame is None or frame.f_code is not _on_alarm.__code__)
    if _is_importing(frame) and not is_second:
        _handle_again(number)
        if monotonic() - _waiting[number] < IMPORT_SECONDS_MAX:
            return
    _waiting.pop(number, None)
    raise KeyboardInterrupt(number)


def raise_again(dropped: sys.UnraisableHookArgs) -> None:
    """As `sys.unraisablehook`: raise an interrupt again that Python has dropped, and show every other exception."""
    if isinstance(dropped.exc_value, KeyboardInterrupt):
        _handle_again(dropped.exc_value.args[0] if dropped.exc_value.args else _signal.SIGINT)
    else:
        sys.__unraisablehook__(dropped)


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code.co_filename != _IMPORT:
        frame = frame.f_back
    return frame is not None


def _handle_again(number: int) -> None:
    """Have the signal come again, for whoever handles it then."""
    _waiting.setdefault(number, monotonic())
    _signal.signal(_signal.SIGALRM, _on_alarm)
    _signal.setitimer(_signal.ITIMER_REAL, AGAIN_SECONDS)


def _on_alarm(*_: Unused) -> None:
    for number in tuple(_waiting):
        if _signal.getsignal(number) is not raise_interrupt:
            del _waiting[number]
        _signal.raise_signal(number)
