"""WaitingPlace for runs that others drive: until they have ended, or until a person is needed. Changes nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import msgspec

from mulligan.core.state.transitions import RUN_ENDED
from mulligan.errors import StoreUnavailable
from mulligan.service.driver import pauses
from mulligan.service.outcome import exit_code
from mulligan.service.run_list import RunLine, WaitReason, summarize_runs
from mulligan.service.run_reader import RunReader
from mulligan.service.store_changes import StoreChanges

Until = Literal["ended", "person"]
# Longest time without a look at the store: a notification may be lost with its connection.
LOOK_SECONDS = 5.0
# What a run waits for is asked this often at most. A run that nobody drives is told of after a while: whoever serves
# the store may be about to take it up.
HOLD_UPS_SECONDS, IDLE_SECONDS = 1.0, 2.0

PERSON = ("pause", "approval", "triage")


class WaitEvent(msgspec.Struct, frozen=True):
    """Something that whoever waits is told.

    `ended`: a run has; `person`: one waits for a person, and is no longer waited for; `held_up`: one that is still
    waited for needs a person, or somebody who drives it; `timeout`: the time is up; `trouble`: the store is away.
    """

    kind: Literal["ended", "person", "held_up", "timeout", "trouble"]
    line: RunLine | None = None
    hold_up: WaitReason | None = None
    text: str = ""
    # Those that have not ended when the time is up.
    run_ids: tuple[int, ...] = ()

    @property
    def exit_code(self) -> int:
        """What `mulligan run` would end with, had it driven the run."""
        assert self.line is not None
        return exit_code("ended" if self.kind == "ended" else "waiting", self.line.status)


def wait_for_runs(
    reader: RunReader,
    run_ids: Sequence[int],
    *,
    until: Until = "ended",
    timeout_seconds: float | None = None,
    monotonic: Callable[[], float] = time.monotonic,
) -> Iterator[WaitEvent]:
    """What happens to the runs, until all of them have ended or the time is up. Each is told of once."""
    return _Waiter(reader, run_ids, until, timeout_seconds, monotonic).events()


class _Waiter:
    def __init__(
        self,
        reader: RunReader,
        run_ids: Sequence[int],
        until: Until,
        timeout_seconds: float | None,
        monotonic: Callable[[], float],
    ) -> None:
        self._reader = reader
        self._open = list(dict.fromkeys(run_ids))
        self._until = until
        self._monotonic = monotonic
        self._begun_at = monotonic()
        self._timeout_seconds = timeout_seconds
        self._looked_at: float | None = None
        self._told: set[tuple[int, str, str]] = set()
        # Since when a run has had nothing left but steps that are paused.
        self._held_since: dict[int, float] = {}

    def events(self) -> Iterator[WaitEvent]:
        news: StoreChanges | None = None
        tries = pauses(self._reader.home.lease_seconds)
        is_away = False
        while True:
            try:
                if news is None:
                    # Heard before the first look, so that no end is missed between the two.
                    self._reader.store.watch_run_ends()
                    news = StoreChanges(self._reader.store)
                yield from self._ended()
                yield from self._held_up()
                is_away, tries = False, pauses(self._reader.home.lease_seconds)
                left = self._left()
                if not self._open or left <= 0:
                    break
                news.wait(min(left, HOLD_UPS_SECONDS if self._until == "person" else LOOK_SECONDS))
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
        """What a person has to do for those that have not ended."""
        now = self._monotonic()
        if self._looked_at is not None and now - self._looked_at < HOLD_UPS_SECONDS:
            return
        self._looked_at = now
        for line in summarize_runs(self._reader, self._open):
            person = next((wait for wait in line.waiting_for if wait.kind in PERSON), None)
            asked = person or self._only_paused(line, now)
            if asked is not None and self._until == "person":
                self._open.remove(line.run_id)
                yield WaitEvent("person", line, asked)
                continue
            idle = next((wait for wait in line.waiting_for if wait.kind == "driver"), None)
            is_idle = idle is not None and now - self._begun_at >= IDLE_SECONDS
            wait = asked or (idle if is_idle else None)
            if wait is not None and (line.run_id, wait.kind, wait.place) not in self._told:
                self._told.add((line.run_id, wait.kind, wait.place))
                yield WaitEvent("held_up", line, wait)

    def _only_paused(self, line: RunLine, now: float) -> WaitReason | None:
        """The steps that are paused, where nothing else of the run has moved for a while: a person has to resume them.

        Between two steps of a run that goes on there may be nothing else to see for a moment.
        """
        paused = next((wait for wait in line.waiting_for if wait.kind == "step_pause"), None)
        if paused is None or any(wait.kind not in ("step_pause", "driver") for wait in line.waiting_for):
            self._held_since.pop(line.run_id, None)
            return None
        return paused if now - self._held_since.setdefault(line.run_id, now) >= IDLE_SECONDS else None
