"""A worker that is started: it waits for a store that does not answer yet, as it waits for one that goes away later."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType

from mulligan.engine.observers import Observer
from mulligan.errors import StoreUnavailable
from mulligan.service.driver import Capacity, Driver, pauses
from mulligan.service.home import Home
from mulligan.service.run_control import RunControl
from mulligan.service.run_reader import RunReader


class _Ended(Exception):
    """Somebody has told us to end."""


@contextmanager
def open_worker(home: Home, capacity: Capacity, watcher: Observer) -> Iterator[Driver | None]:
    """A worker, alive while the context lasts; None where it was told to end before its store answered.

    It waits for a server that cannot be reached, is starting up, or has no free connection. What no waiting mends
    (a wrong password, a database that is not there) is raised at once, and so is trouble with a store in a file.
    """
    with ExitStack() as held:
        yield _entered(home, capacity, watcher, held)


def _entered(home: Home, capacity: Capacity, watcher: Observer, held: ExitStack) -> Driver | None:
    told = ""
    try:
        with _ended_by_signals():
            for seconds in pauses(home.lease_seconds):
                try:
                    return _entered_once(home, capacity, watcher, held)
                except StoreUnavailable as error:
                    if not home.store_url:
                        raise
                    # The reason may change; what stays the same is said once.
                    if error.message != told:
                        watcher.trouble(f"{error.message}; waiting for it ({error.hint})")
                    told = error.message
                    time.sleep(seconds)
    except _Ended:
        pass
    return None


def _entered_once(home: Home, capacity: Capacity, watcher: Observer, held: ExitStack) -> Driver:
    with ExitStack() as trying:
        reader = RunReader(home)
        trying.callback(reader.close)
        driver = trying.enter_context(RunControl(reader).driver(capacity, watcher))
        held.push(trying.pop_all())
    return driver


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    def end(number: int, frame: FrameType | None) -> None:
        raise _Ended

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
