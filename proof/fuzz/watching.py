"""One input under watch: how long it takes, and that nothing in it is executed."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import FrameType

from .sentences import Wrong
from .targets import Target

# Of the processor, not of the wall: the machine may have other things to do.
INPUT_SECONDS_MAX = 10.0
# Nothing that is read may lead there. The programs that `shells` and `playbooks` ask are their own.
_READER = "'-P', '-m', 'mulligan.service.server.catalogue.reading_process', "
_DEEDS = frozenset({"os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty", "subprocess.Popen"})
_DEEDS |= frozenset({"socket.connect", "ctypes.dlopen", "pty.spawn"})
_MAY_RUN = ("shell", "playbook_shell", "includes")
# An expression that may take long is evaluated in a process that is forked, in which the same is watched.
_MAY_FORK = ("expression", "request", "tool_call")


class TooLong(Wrong):
    """An input that takes too long."""


class Watch:
    """Lets a target have one input after the other, and says what is wrong with it as an exception."""

    def __init__(self, target: Target, seconds_max: float | None = INPUT_SECONDS_MAX) -> None:
        self._target = target
        self._seconds_max = seconds_max if threading.current_thread() is threading.main_thread() else None

    def __call__(self, data: bytes) -> None:
        with _limited(self._seconds_max), _canary(_forbidden(self._target.name)):
            self._target.run(data)


class _Canary:
    """Notices what is done in this process. A hook cannot be taken off again: there is one for all watches."""

    def __init__(self) -> None:
        self.forbidden: frozenset[str] = frozenset()

    def notice(self, event: str, told: tuple[object, ...]) -> None:
        # A server reads texts in a process of its own, whatever they say.
        if event in self.forbidden and _READER not in str(told):
            raise Wrong(f"an input has led to {event} {told!r:.200}")


@cache
def _hooked() -> _Canary:
    canary = _Canary()
    sys.addaudithook(canary.notice)
    return canary


def _forbidden(target: str) -> frozenset[str]:
    """What nothing that this target does may lead to."""
    if target in _MAY_RUN:
        return frozenset()
    return _DEEDS - {"os.fork"} if target in _MAY_FORK else _DEEDS


@contextmanager
def _canary(forbidden: frozenset[str]) -> Iterator[None]:
    canary = _hooked()
    canary.forbidden = forbidden
    try:
        yield
    finally:
        canary.forbidden = frozenset()


@contextmanager
def _limited(seconds: float | None) -> Iterator[None]:
    if seconds is None:
        yield
        return
    before = signal.signal(signal.SIGPROF, _give_up)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _give_up(number: int, frame: FrameType | None) -> None:
    raise TooLong("it takes too long")
