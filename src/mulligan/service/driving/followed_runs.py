"""Showing a run that another process drives, such as a worker of a server, as `shown_runs` shows one of ours."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from datetime import UTC, datetime

from mulligan.core.effects.snapshot import restore
from mulligan.core.evolve.evolve_run import evolve
from mulligan.core.model.workflow import decode
from mulligan.core.state.state import State
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.engine.observers import NullObserver
from mulligan.errors import StoreUnavailable
from mulligan.history.views import waits_for_outside
from mulligan.ports import RunRecord
from mulligan.service.driving.driver import Ending, pauses
from mulligan.service.driving.outcome import Outcome, add_earlier_events, build_outcome
from mulligan.service.driving.run_progress import RunProgress
from mulligan.service.driving.shown_runs import RunDisplay, ShownRun
from mulligan.service.driving.store_changes import StoreChanges
from mulligan.service.host.breakers import find_breaker_waits
from mulligan.service.runs.stored.run_reader import RunReader

# How long one look waits for a change: the display is drawn in between.
LOOK_SECONDS = 0.1
# How often the store is asked at least, how often whether only people can continue, and after which time without a
# worker that is said.
READ_SECONDS, WAITS_SECONDS, UNDRIVEN_SECONDS = 2.0, 1.0, 5.0
UNDRIVEN = "no worker of the server is running it; to start one: mulligan worker"
UNDRIVEN_HERE = "nothing is running it any more; to run it here: mulligan resume {}"


def follow_shown(reader: RunReader, begin: Callable[[], int], display: RunDisplay, *, wait_seconds: float) -> ShownRun:
    """Show the run that `begin` starts or finds, until it ends or waits, and close the display.

    Ctrl-C ends the showing alone: the run goes on.
    """
    begun_at = time.monotonic()
    try:
        since = reader.store.now() or datetime.now(UTC)
        run_id = begin()
        record = reader.record(run_id)
        display.begin(run_id, record.workflow)
        is_taken_up = record.created_at < since and add_earlier_events(reader, run_id, display.progress)
        followed = _FollowedRuns(reader, record, since, display, wait_seconds)
        ending: Ending
        try:
            ending = followed.follow()
        except KeyboardInterrupt:
            ending = "detached"
        outcome = build_outcome(
            reader,
            followed.states,
            run_id,
            ending,
            display.progress,
            time.monotonic() - begun_at,
            is_taken_up=is_taken_up,
        )
        display.end(outcome)
        return ShownRun(outcome, signal.SIGINT if ending == "detached" else 0)
    finally:
        display.close()


class QuietDisplay(NullObserver):
    """Shows nothing."""

    is_debugged = False

    def __init__(self) -> None:
        self.progress = RunProgress()

    def begin(self, run_id: int, workflow: str) -> None:
        pass

    def end(self, outcome: Outcome) -> None:
        pass

    def close(self) -> None:
        pass


class _FollowedRuns:
    """A run and the runs that it calls, moved on by their logs."""

    def __init__(
        self, reader: RunReader, record: RunRecord, since: datetime, display: RunDisplay, wait_seconds: float
    ) -> None:
        self._reader = reader
        self._run_id = record.run_id
        self._since = since
        self._display = display
        self._wait_seconds = wait_seconds
        # None until the first event of a run is known.
        self._runs: dict[int, State | None] = {record.run_id: None}
        self._waits_asked_at = self._driver_asked_at = time.monotonic()
        self._is_undriven = False

    @property
    def states(self) -> dict[int, State]:
        return {run_id: state for run_id, state in self._runs.items() if state is not None}

    def follow(self) -> Ending:
        """Show what happens until the run has ended, or only a person can continue it."""
        changes: StoreChanges | None = None
        tries = pauses(self._reader.home.lease_seconds)
        is_away = False
        read_at = 0.0
        while True:
            try:
                if changes is None:
                    self._reader.store.watch_run_ends()
                    changes = StoreChanges(self._reader.store)
                if changes.wait(LOOK_SECONDS) or is_away or time.monotonic() - read_at >= READ_SECONDS:
                    read_at = time.monotonic()
                    ending = self._look()
                    if ending is not None:
                        return ending
                    self._say_undriven()
                if is_away:
                    is_away, tries = False, pauses(self._reader.home.lease_seconds)
                    self._display.trouble("")
            except StoreUnavailable as error:
                if not is_away:
                    self._display.trouble(f"{error.message}; the run goes on, and is shown when it answers again")
                is_away = True
                time.sleep(next(tries))
            self._display.tick()

    def _look(self) -> Ending | None:
        records = self._reader.store.lists.records(self._open_runs())
        # Called runs last: their caller has to be known.
        for record in sorted(records, key=lambda record: record.run_id):
            self._move_on(record)
        root = self._runs[self._run_id]
        if root is not None and root.run.status in RUN_ENDED:
            return "ended"
        now = time.monotonic()
        if now - self._waits_asked_at < WAITS_SECONDS:
            return None
        self._waits_asked_at = now
        return "waiting" if self._waits() else None

    def _open_runs(self) -> list[int]:
        return [run_id for run_id, state in self._runs.items() if state is None or state.run.status not in RUN_ENDED]

    def _move_on(self, record: RunRecord) -> None:
        """Show the new events of a run, then those of the runs that it has called since."""
        run_id, state = record.run_id, self._runs[record.run_id]
        if record.seq == (state.run.seq if state is not None else 0):
            return
        if state is None:
            state = self._runs[run_id] = self._first_state(record)
        for entry in self._reader.events(run_id, state.run.seq):
            state.begin()
            evolve(state, entry)
            state.commit()
            self._display.committed(state, [entry])
        if state.workflow.children or state.graph.program:
            for child in self._reader.store.children(run_id):
                if child.run_id not in self._runs:
                    self._runs[child.run_id] = None
                    self._move_on(child)

    def _first_state(self, record: RunRecord) -> State:
        """Before its first event for a run that is new; otherwise as it is now."""
        loaded = self._reader.store.load(record.run_id)
        workflow = decode(loaded.workflow)
        return State(workflow) if record.created_at >= self._since else restore(workflow, loaded.rows)

    def _waits(self) -> bool:
        """Whether only a person can continue the run: nothing runs, and no timer is due soon."""
        store, now = self._reader.store, datetime.now(UTC)
        open_states = [state for state in self.states.values() if state.run.status not in RUN_ENDED]
        if not any(waits_for_outside(state, find_breaker_waits(store, state, now)) for state in open_states):
            return False
        if any(not task.breaker for task in store.lists.open_tasks([self._run_id])):
            return False
        if all(state.run.status == "paused" for state in open_states):
            return True
        due = min((timer.due for timer in store.lists.open_timers([self._run_id])), default=None)
        return due is None or (due - (store.now() or now)).total_seconds() > self._wait_seconds

    def _say_undriven(self) -> None:
        """Say that no worker has the run, and that one has it at last."""
        now = time.monotonic()
        if now - self._driver_asked_at < UNDRIVEN_SECONDS:
            return
        self._driver_asked_at = now
        is_undriven = not self._reader.is_driven(self._run_id)
        if is_undriven != self._is_undriven:
            self._is_undriven = is_undriven
            said = UNDRIVEN if self._reader.home.is_remote else UNDRIVEN_HERE.format(self._run_id)
            self._display.trouble(said if is_undriven else "")
