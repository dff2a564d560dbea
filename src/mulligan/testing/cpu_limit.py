"""Ends what computes without end, by the processor's time: a busy machine makes nobody late."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def limit_cpu(seconds: float) -> Iterator[None]:
    """Raise an AssertionError inside once it has computed for so long. For the main thread of a process."""

    def ring(*_: object) -> None:
        raise AssertionError(f"promise 10: after {seconds:g} seconds of computing there is no end of it")

    before = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
