"""The children of a server end when they are asked to, whatever they are just doing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from mulligan.api.processes.children import Child

# For what takes milliseconds: without an end it would take for ever.
SECONDS_MAX = 60.0
SLEEPS = ["-c", "import time; time.sleep(3600)"]
FAILS = ["-c", "raise SystemExit(3)"]


class Announcement(logging.Handler):
    """Is set when something is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.event = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.event.set()


def test_a_child_that_is_still_being_started_ends_when_it_is_asked_to() -> None:
    child = Child("background process", SLEEPS, logging.getLogger("tests.children"))

    async def just_started() -> None:
        # One turn of the loop: its process is asked for and not there yet.
        await asyncio.sleep(0)
        assert child.pid is None

    kept_until(child, just_started)


def test_a_child_that_waits_for_its_next_start_ends_when_it_is_asked_to() -> None:
    log, failed = logging.Logger("tests.children"), Announcement()
    log.addHandler(failed)
    child = Child("background process", FAILS, log, restart_seconds=3600.0)

    kept_until(child, failed.event.wait)


def kept_until(child: Child, moment: Callable[[], Awaitable[object]]) -> None:
    """Keep a child running, stop it at a moment, and wait until its watcher has ended."""

    async def keep() -> None:
        watcher = asyncio.ensure_future(child.keep_running())
        await moment()
        child.stop()
        await asyncio.wait_for(watcher, SECONDS_MAX)

    asyncio.run(keep())
