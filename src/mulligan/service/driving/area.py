"""Workers in this process, and waiting for those elsewhere, as `Service.driving` gives it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from mulligan.engine.observers import Observer
    from mulligan.ports import RunRecord, WorkerRecord
    from mulligan.service.driving.debugged_attempt import AttemptEnd, RecordedAttempt
    from mulligan.service.driving.driver import Capacity, Driver, Ending
    from mulligan.service.driving.outcome import Outcome
    from mulligan.service.driving.run_progress import RunProgress
    from mulligan.service.driving.shown_runs import RunDisplay, ShownRun
    from mulligan.service.driving.waiting import Until, WaitEvent
    from mulligan.service.runs.statistics.forecast import Forecast
    from mulligan.service.runs.stored.run_reader import RunReader


class Driving:
    """An area of `Service`, opened when it is first asked for."""

    def __init__(self, reader: RunReader) -> None:
        self._reader = reader

    def driver(
        self,
        capacity: Capacity | None = None,
        observer: Observer | None = None,
        lease_seconds: float | None = None,
    ) -> Driver:
        """A worker in this process, alive while its context lasts; by default with all that this machine has."""
        from mulligan.service.driving import driver, local_worker

        return local_worker.open_driver(self._reader, capacity or driver.machine(), observer, lease_seconds)

    def open_worker(self, capacity: Capacity, observer: Observer) -> AbstractContextManager[Driver | None]:
        """The same, for a worker that waits for its store; None where it was stopped before the store answered."""
        from mulligan.service.driving import worker_loop

        return worker_loop.open_worker(self._reader.home, capacity, observer)

    def drive_shown(
        self, begin: Callable[[Driver | None], int], display: RunDisplay, *, capacity: Capacity, wait_seconds: float
    ) -> ShownRun:
        """Drive the run that `begin` starts or finds, until it ends or waits, and close the display.

        On a server its workers drive it: here it is only shown.
        """
        if self._reader.home.is_remote:
            return self.follow_shown(begin, display, wait_seconds=wait_seconds)
        from mulligan.service.driving import shown_runs

        if os.environ.get("MULLIGAN_DEBUG"):
            from mulligan.service.driving import debugging

            capacity = debugging.debugged_if_asked(capacity, os.environ)
        return shown_runs.drive_shown(self._reader, begin, display, capacity=capacity, wait_seconds=wait_seconds)

    def debugged(self, capacity: Capacity, *, is_debugged: bool, has_locals: bool) -> Capacity:
        """The capacity of a worker whose steps in Python are debugged in the terminal of this process."""
        from mulligan.service.driving import debugging

        return debugging.debugged(capacity, is_debugged=is_debugged, has_locals=has_locals)

    def recorded_attempt(self, run_id: int, place: str, attempt: int | None = None) -> RecordedAttempt:
        """An attempt at a step in Python, by default the last one, to be debugged outside of its run."""
        from mulligan.service.driving import debugged_attempt

        return debugged_attempt.find_attempt(self._reader, run_id, place, attempt)

    def debug_attempt(self, recorded: RecordedAttempt, *, port: int = 0, has_locals: bool = False) -> AttemptEnd:
        """Run it in a debugger, in the terminal of this process or for an editor. Nothing is recorded."""
        from mulligan.service.driving import debugged_attempt, debugging

        wanted = debugging.debugging_attempt(port, has_locals=has_locals)
        return debugged_attempt.debug_attempt(self._reader, recorded, wanted)

    def follow_shown(
        self, begin: Callable[[Driver | None], int], display: RunDisplay, *, wait_seconds: float
    ) -> ShownRun:
        """Show the run that `begin` starts or finds, until it ends or waits, and close the display."""
        from mulligan.service.driving import followed_runs

        return followed_runs.follow_shown(self._reader, lambda: begin(None), display, wait_seconds=wait_seconds)

    def follow_quietly(self, begin: Callable[[Driver | None], int], *, wait_seconds: float) -> int:
        """The same without showing anything; the signal that ended the waiting, or 0."""
        from mulligan.service.driving import followed_runs

        return self.follow_shown(begin, followed_runs.QuietDisplay(), wait_seconds=wait_seconds).interrupted_by

    def outcome(
        self,
        driver: Driver,
        run_id: int,
        ending: Ending,
        progress: RunProgress,
        seconds: float,
        *,
        is_taken_up: bool = False,
    ) -> Outcome:
        """What came of driving a run: to be asked before the driver is closed."""
        from mulligan.service.driving import outcome

        return outcome.build_outcome(
            self._reader, driver.states, run_id, ending, progress, seconds, is_taken_up=is_taken_up
        )

    def forecast(self, slots: float) -> Forecast:
        """How the run that is driven will go on, for a display that asks often."""
        from mulligan.service.runs.statistics import forecast

        return forecast.Forecast(self._reader, slots)

    def wait_for_runs(
        self,
        run_ids: Sequence[int],
        *,
        until: Until = "ended",
        timeout_seconds: float | None = None,
        is_forever: bool = False,
    ) -> Iterator[WaitEvent]:
        """What happens to runs that other processes drive, until all have ended or the time is up.

        A run that nothing drives is given up after a moment, unless `is_forever`.
        """
        from mulligan.service.driving import waiting

        waiter = waiting.Waiter(
            self._reader, run_ids, until=until, timeout_seconds=timeout_seconds, is_forever=is_forever
        )
        return waiter.events()

    def wait_for_driver(self, run_id: int) -> RunRecord:
        """The row of a run, once it has ended or no live process drives it. Waits while one does."""
        from mulligan.service.driving import waiting

        return waiting.wait_for_driver(self._reader, run_id)

    def wait_for_changes(self, seconds: float) -> bool:
        """Whether another process writes to the store within so many seconds."""
        from mulligan.service.driving import store_changes

        return self._reader.home.is_there and store_changes.StoreChanges(self._reader.store).wait(seconds)

    def who_continues(self, run_id: int | None = None) -> WorkerRecord | None:
        """The live process that continues a run: its driver, or a worker that takes up runs that nothing drives.

        Without a run: such a worker. None also where a server continues it, and has not said with which worker.
        """
        driver = None if run_id is None else self._reader.driver_of(self._reader.record(run_id))
        return driver or (None if self._reader.home.is_remote else self._reader.serving_worker())
