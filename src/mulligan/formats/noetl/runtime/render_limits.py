"""Limit the memory and the processor time of a template, whatever it calls.

A list of forbidden filters and methods would never be complete: `ljust`, `center`, `indent`, `slice`, and what the next
version adds. So the limits are those of the process that runs the step, for as long as the template is evaluated.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import resource
import threading
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

Value = TypeVar("Value")

_PAGE_BYTES = resource.getpagesize()
# Where an exception is lost, as in a destructor, the next one comes soon.
_AGAIN_SECONDS = 0.5


class Limits(NamedTuple):
    """Limits of one template: of processor time, and of memory beyond what the process uses already.

    `grace_seconds`: how long a function in C, which Python cannot interrupt, may go on until the process is killed.
    """

    cpu_seconds: float = 5.0
    memory_bytes: int = 512 << 20
    grace_seconds: float = 5.0


LIMITS = Limits()


class LimitReached(BaseException):
    """The template needs more than its limit; the text says of what.

    Not an `Exception`: nothing that a template calls may go on after it.
    """


class _Watch:
    """Whether a template is evaluated now: only then the timer interrupts."""

    is_on = False


def run_limited(work: Callable[[], Value], limits: Limits = LIMITS) -> Value:
    """Call `work` within the limits; LimitReached where it needs more. A call within another has its limits.

    A function in C that does not return is ended by SIGVTALRM, and the process with it.
    """
    # Only the main thread gets signals. Steps run there.
    if _Watch.is_on or threading.current_thread() is not threading.main_thread():
        return work()
    memory = resource.getrlimit(resource.RLIMIT_AS)
    handler = _signal.signal(_signal.SIGPROF, _interrupt)
    killing = _signal.signal(_signal.SIGVTALRM, _signal.SIG_DFL)
    before: tuple[Any, Any] = ((0.0, 0.0), (0.0, 0.0))
    try:
        _limit_memory(limits.memory_bytes, memory)
        try:
            _Watch.is_on = True
            before = (
                _signal.setitimer(_signal.ITIMER_PROF, limits.cpu_seconds, _AGAIN_SECONDS),
                _signal.setitimer(_signal.ITIMER_VIRTUAL, limits.cpu_seconds + limits.grace_seconds),
            )
            return work()
        finally:
            _Watch.is_on = False
    except MemoryError:
        raise LimitReached(f"it needs more than {limits.memory_bytes >> 20} MiB of memory") from None
    except _TimeUp:
        raise LimitReached(f"it needs more than {limits.cpu_seconds:g} s of processor time") from None
    finally:
        _signal.setitimer(_signal.ITIMER_PROF, *before[0])
        _signal.setitimer(_signal.ITIMER_VIRTUAL, *before[1])
        resource.setrlimit(resource.RLIMIT_AS, memory)
        _signal.signal(_signal.SIGPROF, handler or _signal.SIG_DFL)
        _signal.signal(_signal.SIGVTALRM, killing or _signal.SIG_DFL)


class _TimeUp(BaseException):
    pass


def _interrupt(*_: object) -> None:
    if _Watch.is_on:
        raise _TimeUp


def _limit_memory(more_bytes: int, before: tuple[int, int]) -> None:
    """Allow this much more memory than is used now. Without /proc only the time is limited."""
    try:
        with open("/proc/self/statm", "rb", 0) as statm:
            used = int(statm.read(64).split(None, 1)[0]) * _PAGE_BYTES
    except OSError:
        return
    allowed = used + more_bytes
    if before[0] == resource.RLIM_INFINITY or allowed < before[0]:
        resource.setrlimit(resource.RLIMIT_AS, (allowed, before[1]))
