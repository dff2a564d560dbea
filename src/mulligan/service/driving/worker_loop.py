"""Starting a worker: it waits for a store that does not answer yet, as it later waits for one that goes away."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from mulligan.engine.observers import Observer
from mulligan.errors import StoreUnavailable
from mulligan.service.driving.driver import Capacity, Driver, pauses
from mulligan.service.driving.local_worker import open_driver
from mulligan.service.home import Home
from mulligan.service.runs.stored.run_reader import RunReader

# How long a worker waits at least for a store that does not answer.
STORE_WAIT_SECONDS_MIN = 60.0


def gives_up(idle_seconds: float | None, waited_seconds: float) -> bool:
    """Whether a worker that has waited so long for its store ends: only one that also ends when it has nothing to do.

    A job of a cluster that cannot reach the store would otherwise wait until its time is over.
    """
    return idle_seconds is not None and waited_seconds > max(idle_seconds, STORE_WAIT_SECONDS_MIN)


@contextmanager
def open_worker(home: Home, capacity: Capacity, watcher: Observer) -> Iterator[Driver | None]:
    """A worker, alive while the context lasts; None if it was stopped before its store answered.

    It waits for a server that cannot be reached, is starting, or has no free connection. An error that waiting does not
    solve (a wrong password, a missing database) is raised at once, and so is any error of a store in a file.
    """
    with ExitStack() as held:
        yield _start(home, capacity, watcher, held)


def _start(home: Home, capacity: Capacity, watcher: Observer, held: ExitStack) -> Driver | None:
    reported = ""
    began = time.monotonic()
    # One for all tries: a server that has answered once is waited for, whatever answers in its place.
    reader = RunReader(home)
    held.callback(reader.close)
    try:
        with _interruptible():
            for seconds in pauses(home.lease_seconds):
                try:
                    return _start_once(reader, capacity, watcher, held)
                except StoreUnavailable as error:
                    if not home.store_url or gives_up(capacity.limits.idle_seconds, time.monotonic() - began):
                        raise
                    # Report each reason once.
                    if error.message != reported:
                        watcher.trouble(f"{error.message}; waiting for it ({error.hint})")
                    reported = error.message
                    time.sleep(seconds)
    except KeyboardInterrupt:
        pass
    return None


def _start_once(reader: RunReader, capacity: Capacity, watcher: Observer, held: ExitStack) -> Driver:
    with ExitStack() as trying:
        driver = trying.enter_context(open_driver(reader, capacity, observer=watcher, serves=True))
        held.push(trying.pop_all())
    return driver


@contextmanager
def _interruptible() -> Iterator[None]:
    """Raise KeyboardInterrupt for signals that nobody handles: a shell may have had us ignore them, as it may a driver.

    The command line handles them already, in its own way, so that they do not get lost while modules are imported.
    """
    unhandled = [
        number
        for number in (signal.SIGINT, signal.SIGTERM)
        if signal.getsignal(number) in (signal.SIG_IGN, signal.SIG_DFL)
    ]
    before = {number: signal.signal(number, signal.default_int_handler) for number in unhandled}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
