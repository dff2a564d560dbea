"""The data that passes between the parts: workers, leases, runs, messages, commits. Plain structs without behaviour.

A *worker* is a process that holds leases and turns under one name. When it dies, all of them end: leases and turns
have no expiry time of their own. On the same host a free lock file proves that a worker is dead; on other hosts an old
heartbeat does, by the store's clock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Literal

import msgspec

from mulligan.core.deciding.workers.breaker import GuardedOutcome, Status
from mulligan.core.effects.effects import SetTimer, StopTask
from mulligan.core.effects.run_lists import RunFailures
from mulligan.core.effects.snapshot import Row
from mulligan.core.effects.tasks import Task
from mulligan.core.model.clusters.scheduler_job import WorkerJob
from mulligan.core.model.events import Entry
from mulligan.core.model.reports import AnyReport, Report, RunRequested
from mulligan.ports.server_records import NoticeRecord

# -- workers ---------------------------------------------------------------------------------------------------------


# What a worker's lock file proves: the worker is alive ("held"), dead ("free"), or neither.
LockState = Literal["held", "free", "unknown"]


class WorkerRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A process that takes turns and runs tasks. Its name is never used again."""

    name: str
    host: str
    pid: int
    # The lock file that the worker and its supervisor hold while any of their processes runs; "" for none.
    lock: str = ""
    # Its capacity: `doctor` shows it, and it shows when no worker can ever take a task.
    cpus: float = 0.0
    memory: int = 0
    gpus: int = 0
    labels: tuple[str, ...] = ()
    # Filled in when read: whether its heartbeat is too old by the store's clock.
    is_expired: bool = False
    # When it registered; None if an older version wrote the record.
    started_at: datetime | None = None
    # Filled in when read: the time of its last heartbeat.
    beat_at: datetime | None = None
    # When its time for tasks is over, by the clock of the store; None if it has no end.
    ends_at: datetime | None = None
    # The job of a scheduler in which it runs.
    job: WorkerJob | None = None
    # The most and the fewest nodes that a task of it may ask for.
    nodes: int = 1
    nodes_min: int = 1
    # The version of Mulligan that it is; "" for 0.1, which did not say so.
    version: str = ""
    # Whether it takes up runs that nothing drives, as `mulligan worker` does; None for a record of an older version.
    serves: bool | None = None
    # What is wrong with its machine, so that it takes no tasks; "" if nothing is.
    trouble: str = ""


class Offer(msgspec.Struct, frozen=True):
    """The free capacity of a worker, and its host."""

    cpus: float
    memory: int
    gpus: int
    labels: tuple[str, ...]
    host: str
    tasks_max: int
    # Tasks that ask for exactly so many processors are not wanted now: see `ResourcePool`.
    refused_cpus: tuple[float, ...] = ()
    # Only tasks of this project; None for all of them.
    project: str | None = None
    # How long the worker runs on: it takes no task whose timeout is longer. None if it has no end.
    seconds_left: float | None = None
    # The most and the fewest nodes that a task may ask for. One that asks for several has the worker for itself.
    nodes: int = 1
    nodes_min: int = 1
    # How many more it would lease ahead, to hold them until a slot is free: see `core.effects.lease_rules`.
    ahead: int = 0
    # Folders that are not on its host: it takes no task of a run that works in one of them.
    lacks: tuple[str, ...] = ()


class Lease(msgspec.Struct, frozen=True):
    """A worker's fenced right to run a task. `token` grows with every lease of the store."""

    task: Task
    worker: str
    token: int


# -- runs ------------------------------------------------------------------------------------------------------------


class NewRun(msgspec.Struct, frozen=True):
    """A run to be created: its pinned workflow (canonical JSON) and its request. The store fills in the id."""

    workflow: bytes
    version: str
    name: str
    request: RunRequested
    # The task of the parent run that waits for this one.
    parent_place: str = ""
    parent_attempt: int = 0
    # An idempotency key: the caller may repeat a request that got no answer. "" for none.
    key: str = ""
    # The name space that it belongs to. A child run is in the project of its parent, whatever this says.
    project: str = ""


class RunRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the store knows about a run without loading it."""

    run_id: int
    workflow: str
    version: str
    status: str
    round: int
    seq: int
    created_at: datetime
    updated_at: datetime
    degraded: bool = False
    reason: str = ""
    parent_run_id: int | None = None
    parent_place: str = ""
    parent_attempt: int = 0
    # The run at the top of the tree of child runs: the run itself if it has no parent.
    root_run_id: int = 0
    # The worker that holds its turn; "" for none.
    holder: str = ""
    # The user or program that started it.
    started_by: str = ""
    project: str = ""
    # Why its row cannot be read, so that the rest of this is a guess; "" if it can.
    damage: str = ""


class LoadedRun(msgspec.Struct, frozen=True):
    """A run as it is stored: enough to continue it."""

    record: RunRecord
    # Canonical JSON, as it was pinned.
    workflow: bytes
    rows: Sequence[Row]


class Message(msgspec.Struct, frozen=True):
    """A report in a run's inbox. `is_asking`: the sender waits for the answer."""

    id: int
    run_id: int
    report: AnyReport
    is_asking: bool = False


# Senders poll for their answer many times a second. After this many later messages the sender has certainly died.
ANSWERS_BEHIND_MAX = 100_000


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of a report: accepted if `error` is empty, otherwise refused with that error code."""

    error: str = ""
    message: str = ""
    hint: str = ""


class Turn(msgspec.Struct, frozen=True):
    """The right to write a run. `fence` grows with each holder: an older one is refused."""

    run_id: int
    holder: str
    fence: int


class ChildReport(msgspec.Struct, frozen=True):
    """A report to the unfinished child runs of one attempt or, with an empty place, to all child runs."""

    report: Report
    place: str = ""
    attempt: int = 0


class Commit(msgspec.Struct, kw_only=True):
    """What one turn writes, all or nothing."""

    turn: Turn
    # The last seq of the log before this commit.
    after: int
    entries: Sequence[Entry]
    # The changed rows of the state's tables: the snapshot and the read model.
    rows: Sequence[Row]
    # The columns of the run's row after the turn.
    status: str
    round: int
    at: datetime
    degraded: bool = False
    reason: str = ""
    # Tasks for any worker.
    queued: Sequence[Task] = ()
    # Tasks that this worker takes at once: new ones, or queued ones that are still free.
    taken: Sequence[Task] = ()
    # Tokens of this worker's leases whose end is in `entries`. A void one makes the commit a Conflict.
    ended: Sequence[int] = ()
    stopped: Sequence[StopTask] = ()
    timers: Sequence[SetTimer] = ()
    # Messages that this turn has processed, each with its answer if the sender waits for one.
    drained: Sequence[tuple[int, Answer | None]] = ()
    children: Sequence[NewRun] = ()
    # Reports to other runs, by run id, and to the child runs.
    outgoing: Sequence[tuple[int, Report]] = ()
    child_reports: Sequence[ChildReport] = ()
    # The round is over: its timers and tasks are deleted and the turn is released. A task that was leased while the
    # turn was decided, and is stopped by it, stays until its worker has ended it.
    is_last: bool = False
    # The outcomes of guarded tasks among the ended leases, for their breakers.
    counted: Sequence[GuardedOutcome] = ()
    # The failures that the run is found by from now on; None if they stay as they are.
    failures: RunFailures | None = None
    # Messages to people and programs about this turn. One whose key is in the store already is ignored.
    notices: Sequence[NoticeRecord] = ()
    # It has nothing but entries that correct no inputs, rows of which none is removed or there twice, ended leases, and
    # taken tasks that it has scheduled itself: a store may write it in fewer steps.
    is_ordinary: bool = False


class CommitResult(msgspec.Struct, frozen=True):
    """The result of a commit: the leases on `taken`, in order, and the turns of the child runs."""

    leases: Sequence[Lease] = ()
    children: Sequence[Turn] = ()


class StopRequest(msgspec.Struct, frozen=True):
    """A request to stop a leased task: SIGTERM, grace, SIGKILL. A grace of None lets the task finish."""

    token: int
    grace_seconds: float | None


class Poll(msgspec.Struct, frozen=True):
    """The answer to a poll: what others have written for a worker."""

    # Runs with messages whose turn is free or the worker's own.
    run_ids: list[int]
    # The inboxes of the runs whose turn the worker holds, oldest first.
    messages: list[Message]
    stops: list[StopRequest]
    # When, by `Clock.now`, the next timer is due, or a breaker that tasks wait for may be probed.
    due: datetime | None


class IdleRuns(msgspec.Struct, frozen=True):
    """A page of the unfinished runs that a worker may hold: their turn is free, or its own."""

    run_ids: list[int]
    # Where the next page begins: root and id of the last run that was looked at; None if there is no further one.
    after: tuple[int, int] | None


class WaitingPlace(msgspec.Struct, frozen=True):
    """A place that waits for a person or an event, in any run. `kind` is the row's tag."""

    run_id: int
    place: str
    kind: str
    # The run at the top of its tree.
    root_run_id: int = 0

    @property
    def is_for_a_person(self) -> bool:
        return self.kind in ("parked", "approval", "paused")


class BreakerRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A breaker that at least one task has asked, and how many tasks wait for it and run behind it."""

    name: str
    status: Status
    failures: int = 0
    retry_at: datetime | None = None
    waiting: int = 0
    running: int = 0
    # How many may run at once while it is closed; None: any number.
    max_running: int | None = None

    @property
    def is_full(self) -> bool:
        """Whether no more tasks may run at once."""
        return self.status == "closed" and self.max_running is not None and self.running >= self.max_running


class ArtifactRecord(msgspec.Struct, frozen=True):
    """A stored artifact or, with `is_whole` False, the remains of an interrupted write."""

    name: str
    size: int
    kept_at: datetime
    is_whole: bool = True


# Finds rows by their tag, in the project of a run: the signature of `RowSearch.tagged_rows`.
FindResults = Callable[[str, int, int], Sequence[tuple[int, str, str, bytes]]]

NONE_AHEAD: Mapping[int, timedelta] = MappingProxyType({})
