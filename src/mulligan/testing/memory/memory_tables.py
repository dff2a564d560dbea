"""The tables of memory stores: plain dicts in the order of writing."""

from __future__ import annotations

from datetime import datetime

import msgspec

from mulligan.core.deciding.workers.breaker import Circuit
from mulligan.core.effects.run_lists import QueuedShape, RunFailures
from mulligan.core.effects.tasks import Task
from mulligan.core.model.events import Entry
from mulligan.core.model.reports import Report, TimerKind
from mulligan.ports import (
    Answer,
    Commit,
    Message,
    NewRun,
    RunRecord,
    WorkerRecord,
)
from mulligan.store import refusals
from mulligan.store.encoding import encoded, report_from
from mulligan.testing.memory.artifact_memory import StoredArtifacts
from mulligan.testing.memory.memory_server_records import MemoryServerRecords

Timer = tuple[int, TimerKind, str, int]
TaskKey = tuple[int, str, int]


class StoredWorker(msgspec.Struct):
    record: WorkerRecord
    beat_at: datetime


class StoredRun(msgspec.Struct):
    """One run with its log, and the rows of its state by kind and key."""

    run_id: int
    new: NewRun
    root_run_id: int
    parent_run_id: int | None
    updated_at: datetime
    status: str = "running"
    round: int = 1
    seq: int = 0
    degraded: bool = False
    reason: str = ""
    holder: str = ""
    fence: int = 0
    log: list[Entry] = []
    rows: dict[tuple[str, str], tuple[str, bytes]] = {}
    failures: RunFailures = RunFailures()

    def record(self) -> RunRecord:
        new = self.new
        return RunRecord(
            run_id=self.run_id,
            workflow=new.name,
            version=new.version,
            status=self.status,
            round=self.round,
            seq=self.seq,
            created_at=new.request.at,
            updated_at=self.updated_at,
            degraded=self.degraded,
            reason=self.reason,
            parent_run_id=self.parent_run_id,
            parent_place=new.parent_place,
            parent_attempt=new.parent_attempt,
            root_run_id=self.root_run_id,
            holder=self.holder,
            started_by=new.request.by,
            project=new.project,
        )

    def advance(self, commit: Commit) -> None:
        self.log.extend(commit.entries)
        self.seq = self.log[-1].seq if self.log else commit.after
        self.status, self.round, self.updated_at = commit.status, commit.round, commit.at
        self.degraded, self.reason = commit.degraded, commit.reason
        self.failures = self.failures if commit.failures is None else commit.failures
        for kind, key, tag, data in commit.rows:
            if data is None:
                self.rows.pop((kind, key), None)
            else:
                self.rows[kind, key] = (tag, data)


class StoredTask(msgspec.Struct):
    """A queued task or, with a worker, a leased one: then the sequence number is the token of the lease."""

    task: Task
    worker: str = ""
    number: int = 0
    is_stopping: bool = False
    grace_seconds: float | None = None
    leased_at: datetime | None = None

    @property
    def task_key(self) -> TaskKey:
        return self.task.run_id, self.task.place, self.task.attempt

    @property
    def needs(self) -> tuple[float, int, int, int]:
        return self.task.cpus, self.task.memory or 0, self.task.gpus, self.task.nodes

    @property
    def shape(self) -> QueuedShape:
        """What it asks for, counted once."""
        task = self.task
        return QueuedShape(
            task.cpus, task.memory or 0, task.gpus, task.nodes, task.labels, task.seconds_needed or None, 1
        )


class StoredMessage(msgspec.Struct, frozen=True):
    message: Message
    # The task that the message of a lease is about: until it is drained, the run does not know the result.
    about: TaskKey | None = None


class MemoryTables:
    """The data that several memory stores share."""

    def __init__(self) -> None:
        self.workers: dict[str, StoredWorker] = {}
        self.runs: dict[int, StoredRun] = {}
        self.starts: dict[str, int] = {}
        self.messages: dict[int, StoredMessage] = {}
        self.answers: dict[int, Answer] = {}
        self.tasks: dict[TaskKey, StoredTask] = {}
        self.timers: dict[Timer, datetime] = {}
        self.breakers: dict[str, Circuit] = {}
        self.artifacts: StoredArtifacts = {}
        self.kept_server_records: MemoryServerRecords | None = None
        self.writes = 0
        self.last_run_id = 0
        self._last_message = 0
        self._last_number = 0

    def run(self, run_id: int) -> StoredRun:
        if run_id not in self.runs:
            raise refusals.unknown_run(run_id)
        return self.runs[run_id]

    def children(self, run_id: int) -> list[StoredRun]:
        return [run for run in self.runs.values() if run.parent_run_id == run_id]

    def add_run(self, new: NewRun, parent: StoredRun | None) -> StoredRun:
        self.last_run_id += 1
        run_id = self.last_run_id
        if new.key:
            self.starts[new.key] = run_id
        root = run_id if parent is None else parent.root_run_id
        new = new if parent is None else msgspec.structs.replace(new, project=parent.new.project)
        run = StoredRun(run_id, new, root, None if parent is None else parent.run_id, new.request.at)
        self.runs[run_id] = run
        return run

    def add_message(self, run_id: int, report: Report, *, is_asking: bool = False, about: TaskKey | None = None) -> int:
        """Put a copy of a report into a run's inbox, encoded and decoded as in a database."""
        self._last_message += 1
        message = Message(self._last_message, run_id, report_from(encoded(report)), is_asking)
        self.messages[self._last_message] = StoredMessage(message, about)
        return self._last_message

    def add_task(self, task: Task) -> StoredTask:
        """Store the task. A task that is queued twice is stored once."""
        return self.tasks.setdefault((task.run_id, task.place, task.attempt), StoredTask(task))

    def remove_task(self, kept: StoredTask) -> None:
        del self.tasks[kept.task_key]

    def next_number(self) -> int:
        self._last_number += 1
        return self._last_number

    @property
    def server_records(self) -> MemoryServerRecords:
        """What servers keep. It is created when somebody asks for it: few tests do."""
        if self.kept_server_records is None:
            self.kept_server_records = MemoryServerRecords(self.answers)
        return self.kept_server_records
