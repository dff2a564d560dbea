"""Driving a run in this process and showing it: what `mulligan run` and `mulligan.run` have in common."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Protocol

import msgspec

from mulligan.engine.observers import Observer
from mulligan.service.driving.debugging import kept_terminal
from mulligan.service.driving.driver import Capacity, Driver
from mulligan.service.driving.local_worker import open_driver
from mulligan.service.driving.outcome import Outcome, add_earlier_events, build_outcome
from mulligan.service.driving.run_progress import RunProgress
from mulligan.service.runs.stored.run_reader import RunReader
from mulligan.service.server.notices.observing import notifying


class RunDisplay(Observer, Protocol):
    """Shows a run while it is driven. The engine calls the methods of `Observer` between two rounds."""

    progress: RunProgress
    # Steps have the terminal: it says nothing while one runs.
    is_debugged: bool

    def begin(self, run_id: int, workflow: str) -> None:
        """The run is about to be driven."""

    def end(self, outcome: Outcome) -> None:
        """The run is no longer driven: it has ended, waits, or was interrupted."""

    def close(self) -> None:
        """Always called last, also after an error."""


class ShownRun(msgspec.Struct, frozen=True):
    """What came of driving a run, and the signal that interrupted it: 0 if none did."""

    outcome: Outcome
    interrupted_by: int


def drive_shown(
    reader: RunReader,
    begin: Callable[[Driver], int],
    display: RunDisplay,
    *,
    capacity: Capacity,
    wait_seconds: float,
) -> ShownRun:
    """Drive the run that `begin` starts or finds, until it ends or waits, and close the display."""
    begun_at = time.monotonic()
    display.is_debugged = capacity.debugging is not None and capacity.debugging.is_interactive
    try:
        observer = notifying(display, reader.home, os.getpid())
        with kept_terminal(capacity.debugging), open_driver(reader, capacity, observer=observer) as driver:
            run_id = begin(driver)
            display.begin(run_id, reader.record(run_id).workflow)
            is_taken_up = add_earlier_events(reader, run_id, display.progress)
            ending = driver.drive(run_id, wait_seconds)
            seconds = time.monotonic() - begun_at
            outcome = build_outcome(
                reader, driver.states, run_id, ending, display.progress, seconds, is_taken_up=is_taken_up
            )
            display.end(outcome)
            return ShownRun(outcome, driver.interrupted_by)
    finally:
        display.close()
