"""A small store for one run's simulation: log, inbox, tasks with leases, timers; and store faults on demand.

Checks everything before it changes anything. The stores of the program make larger promises: `mulligan.ports.Store`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec

from ..core import effects as fx
from ..core.events import Entry
from ..core.reports import LeaseExpired, Report, StartsDue, TimerFired, TimerKind
from ..core.state import State
from ..core.workflow import Workflow
from ..errors import Conflict, MulliganError, StaleLease, UnknownRun

StoreFault = Literal["error_before", "error_after", "conflict"]
STORE_FAULTS: tuple[StoreFault, ...] = ("error_before", "error_after", "conflict")

TURN_SECONDS = 5.0
LEASE_SECONDS = 30.0


class StoreFailed(MulliganError):
    """The connection broke. Whether anything was written is not known to the caller."""

    code = "store.failed"


class Message(msgspec.Struct, frozen=True):
    """A report in a run's inbox."""

    id: int
    run_id: int
    report: Report


class Turn(msgspec.Struct, frozen=True):
    """The short right to write a run. `fence` grows with each holder: an older one is refused."""

    run_id: int
    holder: str
    fence: int
    expires_at: datetime


class Commit(msgspec.Struct, frozen=True):
    """What one turn writes, together or not at all."""

    entries: Sequence[Entry]
    effects: Sequence[fx.Effect]
    # The messages that this turn has answered.
    drained: Sequence[int]
    # The state after the turn.
    state: State


class Task(msgspec.Struct, frozen=True):
    """Known by its run, place and attempt: queued twice it is still one."""

    run_id: int
    place: str
    attempt: int


class Lease(msgspec.Struct, frozen=True):
    """A worker's time-limited, fenced right to a task."""

    task: Task
    worker: str
    token: int
    expires_at: datetime


class Timer(msgspec.Struct, frozen=True):
    """A time a run waits for. Known by all but its due time: set again, it is moved."""

    run_id: int
    kind: TimerKind
    place: str
    number: int
    due: datetime


class Child(msgspec.Struct):
    """A child run that was asked for, until its end is reported."""

    place: str
    attempt: int
    is_stopping: bool = False
    is_paused: bool = False


class Queued(msgspec.Struct):
    """A task in the queue, leased or not. `stop_grace_seconds` is set once it was asked to end."""

    task: Task
    lease: Lease | None = None
    is_stopping: bool = False
    stop_grace_seconds: float | None = None


class Row(msgspec.Struct):
    """Everything the store keeps of one run."""

    workflow: Workflow
    status: str = "new"
    log: list[Entry] = []
    inbox: dict[int, Report] = {}
    timers: dict[tuple[str, str, int], Timer] = {}
    tasks: dict[tuple[str, int], Queued] = {}
    children: dict[tuple[str, int], Child] = {}
    turn: Turn | None = None
    fence: int = 0


class MemoryStore:
    """Runs in memory. `faults`: what the next commits suffer, in order (None: nothing)."""

    def __init__(self) -> None:
        self._rows: dict[int, Row] = {}
        self._last_message = 0
        self._last_token = 0
        self.faults: deque[StoreFault | None] = deque()

    def row(self, run_id: int) -> Row:
        """All that is kept of a run, for tests to look at."""
        if run_id not in self._rows:
            raise UnknownRun(f"there is no run {run_id}", run_id=run_id)
        return self._rows[run_id]

    # -- runs ----------------------------------------------------------------------------------------------------

    def create(self, run_id: int, workflow: Workflow) -> None:
        if run_id in self._rows:
            raise Conflict(f"run {run_id} is there already")
        self._rows[run_id] = Row(workflow)

    def workflow(self, run_id: int) -> Workflow:
        return self.row(run_id).workflow

    def put(self, run_id: int, report: Report) -> int:
        row = self.row(run_id)
        self._last_message += 1
        row.inbox[self._last_message] = report
        return self._last_message

    def inbox(self, run_id: int) -> list[Message]:
        return [Message(number, run_id, report) for number, report in self.row(run_id).inbox.items()]

    def log(self, run_id: int, after: int = 0) -> list[Entry]:
        return self.row(run_id).log[after:]

    # -- turns ---------------------------------------------------------------------------------------------------

    def take_turn(self, run_id: int, holder: str, now: datetime) -> Turn | None:
        row = self.row(run_id)
        held = row.turn
        if held is not None and held.holder != holder and held.expires_at > now:
            return None
        row.fence += 1
        row.turn = Turn(run_id, holder, row.fence, now + timedelta(seconds=TURN_SECONDS))
        return row.turn

    def release_turn(self, turn: Turn) -> None:
        """Give the turn back before its time; a void one is nothing."""
        row = self.row(turn.run_id)
        if row.turn is not None and row.turn.fence == turn.fence:
            row.turn = None

    def commit(self, turn: Turn, commit: Commit) -> None:
        fault = self.faults.popleft() if self.faults else None
        if fault == "error_before":
            raise StoreFailed("the connection broke before the write")
        row = self.row(turn.run_id)
        if fault == "conflict":
            row.fence += 1
            row.turn = None
        self._refuse_stale(row, turn, commit)
        self._write(turn.run_id, row, commit)
        if fault == "error_after":
            raise StoreFailed("the connection broke after the write")

    def _refuse_stale(self, row: Row, turn: Turn, commit: Commit) -> None:
        if row.turn is None or row.turn.fence != turn.fence:
            raise Conflict(f"the turn of run {turn.run_id} is no longer held by '{turn.holder}'")
        expected = len(row.log) + 1
        if commit.entries and commit.entries[0].seq != expected:
            raise Conflict(f"the log of run {turn.run_id} goes on with {expected}, not {commit.entries[0].seq}")

    def _write(self, run_id: int, row: Row, commit: Commit) -> None:
        row.log.extend(commit.entries)
        row.status = commit.state.run.status
        for number in commit.drained:
            row.inbox.pop(number, None)
        for effect in commit.effects:
            _CARRY_OUT[type(effect)](run_id, row, effect)

    # -- timers --------------------------------------------------------------------------------------------------

    def fire_timers(self, now: datetime) -> int:
        fired = 0
        for run_id, row in self._rows.items():
            due = sorted((t for t in row.timers.values() if t.due <= now), key=lambda t: t.due)
            for timer in due:
                del row.timers[timer.kind, timer.place, timer.number]
                self.put(run_id, TimerFired(now, timer.kind, timer.place, timer.number))
            fired += len(due)
        return fired

    # -- tasks ---------------------------------------------------------------------------------------------------

    def lease(self, worker: str, now: datetime) -> Lease | None:
        free = (q for row in self._rows.values() if row.status != "paused" for q in row.tasks.values() if not q.lease)
        queued = next(free, None)
        if queued is None:
            return None
        self._last_token += 1
        queued.lease = Lease(queued.task, worker, self._last_token, now + timedelta(seconds=LEASE_SECONDS))
        return queued.lease

    def renew(self, token: int, now: datetime) -> Lease:
        queued = self._held(token)
        assert queued.lease is not None
        queued.lease = msgspec.structs.replace(queued.lease, expires_at=now + timedelta(seconds=LEASE_SECONDS))
        return queued.lease

    def report(self, token: int, report: Report) -> None:
        task = self._held(token).task
        del self.row(task.run_id).tasks[task.place, task.attempt]
        self.put(task.run_id, report)

    def expire(self, now: datetime) -> list[Lease]:
        leases = [q.lease for row in self._rows.values() for q in row.tasks.values() if q.lease]
        expired = [lease for lease in leases if lease.expires_at <= now]
        for lease in expired:
            task = lease.task
            self.report(lease.token, LeaseExpired(now, task.place, task.attempt, lease.worker))
        return expired

    def is_held(self, token: int) -> bool:
        return self._find(token) is not None

    def _held(self, token: int) -> Queued:
        queued = self._find(token)
        if queued is None:
            raise StaleLease(f"lease {token} is void")
        return queued

    def _find(self, token: int) -> Queued | None:
        every = (q for row in self._rows.values() for q in row.tasks.values())
        return next((q for q in every if q.lease is not None and q.lease.token == token), None)


# -- effects ---------------------------------------------------------------------------------------------------------


def _queue(run_id: int, row: Row, effect: fx.QueueTask) -> None:
    row.tasks.setdefault((effect.place, effect.attempt), Queued(Task(run_id, effect.place, effect.attempt)))


def _stop(run_id: int, row: Row, effect: fx.StopTask) -> None:
    """Out of the queue at once if nobody has it; else its worker is told, ends it and reports."""
    key = (effect.place, effect.attempt)
    queued = row.tasks.get(key)
    if queued is None:
        return
    if queued.lease is None:
        del row.tasks[key]
    else:
        queued.is_stopping, queued.stop_grace_seconds = True, effect.grace_seconds


def _set_timer(run_id: int, row: Row, effect: fx.SetTimer) -> None:
    timer = Timer(run_id, effect.kind, effect.place, effect.number, effect.due)
    row.timers[effect.kind, effect.place, effect.number] = timer


def _start_child(run_id: int, row: Row, effect: fx.StartChild) -> None:
    row.children.setdefault((effect.place, effect.attempt), Child(effect.place, effect.attempt))


def _stop_child(run_id: int, row: Row, effect: fx.StopChild) -> None:
    child = row.children.get((effect.place, effect.attempt))
    if child is not None:
        child.is_stopping = True


def _enter_more(run_id: int, row: Row, effect: fx.EnterMore) -> None:
    # Messages of others are numbered from one on.
    row.inbox[-effect.begin] = StartsDue(row.log[-1].at, effect.begin)


def _pause_children(run_id: int, row: Row, effect: fx.PauseChildren) -> None:
    for child in row.children.values():
        child.is_paused = True


def _resume_children(run_id: int, row: Row, effect: fx.ResumeChildren) -> None:
    for child in row.children.values():
        child.is_paused = False


_CARRY_OUT: dict[type[fx.Effect], Callable[[int, Row, Any], None]] = {
    fx.QueueTask: _queue,
    fx.StopTask: _stop,
    fx.SetTimer: _set_timer,
    fx.StartChild: _start_child,
    fx.StopChild: _stop_child,
    fx.EnterMore: _enter_more,
    fx.PauseChildren: _pause_children,
    fx.ResumeChildren: _resume_children,
}
