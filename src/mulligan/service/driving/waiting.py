"""Waiting for runs that other processes drive, until they have ended or need a person. Changes nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import msgspec

from mulligan.core.state.transitions import RUN_ENDED
from mulligan.errors import StoreUnavailable
from mulligan.ports import RunRecord
from mulligan.service.driving.driver import pauses
from mulligan.service.driving.outcome import exit_code
from mulligan.service.driving.store_changes import StoreChanges
from mulligan.service.runs.stored.run_reader import RunReader
from mulligan.service.runs.views.run_list import RunLine, WaitReason, summarize_runs

Until = Literal["ended", "person"]
# How often the store is read at least: a notification may be lost with its connection.
LOOK_SECONDS = 5.0
# How often the reasons of a wait are read at most; and how long only paused steps may be left before a person has to
# resume them.
HOLD_UPS_SECONDS, IDLE_SECONDS = 1.0, 2.0
# How long a run may be without a driver before nothing is said to drive it: it may be between two drivers. In a store
# that hosts share, or of a server, at least a lease: its workers may be starting again.
UNDRIVEN_SECONDS = 5.0
# The exit code of who waits for a run that nothing drives; no run ends with it.
NOT_DRIVEN = 5

# How often a run is checked that another process drives, and that is continued here if that process ends.
DRIVER_SECONDS = 0.2

# What only somebody outside ends: a person, or who sends an event.
OUTSIDE = ("pause", "approval", "triage", "event")


class WaitEvent(msgspec.Struct, frozen=True):
    """Something that happened while waiting.

    `ended`: a run has ended. `person`: a run needs a person and is not waited for any more. `undriven`: nothing drives
    a run, and it is not waited for any more. `held_up`: a run needs a person or a driver and is still waited for.
    `timeout`: the time is up. `trouble`: the store is unavailable.
    """

    kind: Literal["ended", "person", "undriven", "held_up", "timeout", "trouble"]
    line: RunLine | None = None
    hold_up: WaitReason | None = None
    text: str = ""
    # The runs that have not ended when the time is up.
    run_ids: tuple[int, ...] = ()

    @property
    def exit_code(self) -> int:
        """The exit code that `mulligan run` would have had; or that nothing drives the run."""
        assert self.line is not None
        if self.kind == "undriven":
            return NOT_DRIVEN
        return exit_code("ended" if self.kind == "ended" else "waiting", self.line.status)


def wait_for_driver(reader: RunReader, run_id: int) -> RunRecord:
    """The row of the run, once it has ended or no live process drives it. Waits while one does."""
    while (record := reader.record(run_id)).status not in RUN_ENDED and reader.driver_of(record) is not None:
        time.sleep(DRIVER_SECONDS)
    return record


class Waiter:
    """Waits for runs. One that nothing drives cannot end: unless `is_forever`, it is given up after a moment."""

    def __init__(
        self,
        reader: RunReader,
        run_ids: Sequence[int],
        *,
        until: Until = "ended",
        timeout_seconds: float | None = None,
        is_forever: bool = False,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reader = reader
        self._open = list(dict.fromkeys(run_ids))
        self._until = until
        self._monotonic = monotonic
        self._begun_at = monotonic()
        self._timeout_seconds = timeout_seconds
        self._looked_at: float | None = None
        self._is_forever = is_forever
        self._reported: set[tuple[int, str, str]] = set()
        # Since when a run has had no driver.
        self._undriven_since: dict[int, float] = {}
        # Since when a run has had only paused steps left.
        self._held_since: dict[int, float] = {}

    def events(self) -> Iterator[WaitEvent]:
        """What happens to the runs, until all have ended or the time is up. Each event comes once."""
        news: StoreChanges | None = None
        tries = pauses(self._reader.home.lease_seconds)
        is_away = False
        while True:
            try:
                if news is None:
                    # Listen before the first read, so that no end is missed in between.
                    self._reader.store.watch_run_ends()
                    news = StoreChanges(self._reader.store)
                yield from self._ended()
                yield from self._held_up()
                is_away, tries = False, pauses(self._reader.home.lease_seconds)
                left = self._left()
                if not self._open or left <= 0:
                    break
                is_soon = self._until == "person" or self._undriven_since
                news.wait(min(left, HOLD_UPS_SECONDS if is_soon else LOOK_SECONDS))
            except StoreUnavailable as error:
                if not is_away:
                    yield WaitEvent("trouble", text=f"{error.message}; waiting for it")
                is_away = True
                if self._left() <= 0:
                    break
                time.sleep(min(next(tries), self._left()))
        if self._open:
            yield WaitEvent("timeout", run_ids=tuple(self._open))

    def _left(self) -> float:
        if self._timeout_seconds is None:
            return float("inf")
        return self._begun_at + self._timeout_seconds - self._monotonic()

    def _ended(self) -> Iterator[WaitEvent]:
        ended = [run_id for run_id in self._open if self._reader.record(run_id).status in RUN_ENDED]
        for line in summarize_runs(self._reader, ended):
            self._open.remove(line.run_id)
            yield WaitEvent("ended", line)

    def _held_up(self) -> Iterator[WaitEvent]:
        """What the unfinished runs need a person or a driver for."""
        now = self._monotonic()
        if self._looked_at is not None and now - self._looked_at < HOLD_UPS_SECONDS:
            return
        self._looked_at = now
        for line in summarize_runs(self._reader, self._open):
            person = next((wait for wait in line.waiting_for if wait.kind in OUTSIDE), None)
            asked = person or self._only_paused(line, now)
            if asked is not None and self._until == "person":
                self._open.remove(line.run_id)
                yield WaitEvent("person", line, asked)
                continue
            undriven = self._undriven(line, now)
            if undriven is not None and not self._is_forever:
                self._open.remove(line.run_id)
                yield WaitEvent("undriven", line, undriven) if asked is None else self._left_to(asked, line)
                continue
            wait = asked or undriven
            if wait is not None and (line.run_id, wait.kind, wait.place) not in self._reported:
                self._reported.add((line.run_id, wait.kind, wait.place))
                yield WaitEvent("held_up", line, wait)

    def _left_to(self, asked: WaitReason, line: RunLine) -> WaitEvent:
        """That only a person can continue the run, and nothing drives it until then."""
        is_reported = (line.run_id, asked.kind, asked.place) in self._reported
        return WaitEvent("person", line, asked, text="nothing is running it until a person answers" * is_reported)

    def _undriven(self, line: RunLine, now: float) -> WaitReason | None:
        """That nothing drives the run, if it has been so for a while."""
        found = next((wait for wait in line.waiting_for if wait.kind == "driver"), None)
        if found is None:
            self._undriven_since.pop(line.run_id, None)
            return None
        home = self._reader.home
        grace = max(UNDRIVEN_SECONDS, home.lease_seconds) if home.store_url else UNDRIVEN_SECONDS
        return found if now - self._undriven_since.setdefault(line.run_id, now) >= grace else None

    def _only_paused(self, line: RunLine, now: float) -> WaitReason | None:
        """The paused steps, if nothing else of the run has moved for a while, so that a person has to resume them.

        Between two steps of an active run there may be nothing else for a moment.
        """
        paused = next((wait for wait in line.waiting_for if wait.kind == "step_pause"), None)
        if paused is None or any(wait.kind not in ("step_pause", "driver") for wait in line.waiting_for):
            self._held_since.pop(line.run_id, None)
            return None
        return paused if now - self._held_since.setdefault(line.run_id, now) >= IDLE_SECONDS else None
