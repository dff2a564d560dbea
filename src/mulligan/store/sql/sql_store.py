"""What the stores on SQLite and on PostgreSQL do in the same way: all but turns, leases and time."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cached_property, partial
from itertools import groupby
from operator import itemgetter
from typing import Any

from msgspec.structs import replace

from mulligan.core.deciding.workers.breaker import OUTSIDE, Guard, GuardedOutcome, Verdict, no_capacity_outcome
from mulligan.core.effects.run_lists import QueuedShape
from mulligan.core.model.clusters.scheduler_job import JobEnd
from mulligan.core.model.codec import decode, decode_all
from mulligan.core.model.events import Entry
from mulligan.core.model.reports import LeaseExpired, Report, TaskEnded
from mulligan.core.model.workflow import Breaker
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.errors import CodecError
from mulligan.ports import (
    Answer,
    BreakerRecord,
    Lease,
    LoadedRun,
    Message,
    RunLists,
    RunRecord,
    ServerRecords,
    StopRequest,
    WaitingPlace,
    WorkerRecord,
)
from mulligan.store import refusals
from mulligan.store.breaker_transaction import BreakerTransaction, breaker_row
from mulligan.store.columns import (
    breaker_from,
    lately_row,
    lease_from,
    message_from,
    queued_row,
    queued_shape_from,
    run_from,
    stopped_from,
    tagged_row,
    waiting_from,
    whole_run_from,
)
from mulligan.store.encoding import answer_from, encoded, micros, moment_from, worker_from
from mulligan.store.run_search import NO_LIMIT
from mulligan.store.sql.shared_outputs import entry_id, whole_rows
from mulligan.store.sql.sql_arrays import Bigints, Texts
from mulligan.store.sql.sql_database import SqlDatabase
from mulligan.store.sql.sql_rows import BREAKER, TASK_KEY

# The task of a lease and what is reported about it: run, place, attempt, report.
TaskReport = tuple[int, str, int, Report]


class SqlStore:
    # What is removed with a run, each with the ids of all runs that go.
    _removals: tuple[str, ...] = (
        *("remove_events", "remove_rows", "remove_tasks", "remove_timers", "remove_starts", "remove_attributes"),
        *("remove_words", "remove_messages", "remove_notices_of_runs", "remove_log_chunks", "remove_runs"),
    )

    def __init__(self, database: SqlDatabase, lists: RunLists, lease_seconds: float) -> None:
        self._db = database
        self.lists = lists
        # A heartbeat that is older is too old.
        self._lease_micros = int(lease_seconds * 1_000_000)

    @cached_property
    def server_records(self) -> ServerRecords:
        # Imported on first use: a run without a server needs none of it.
        from mulligan.store.sql.sql_server_records import SqlServerRecords

        return SqlServerRecords(self._database_of_records())

    def close(self) -> None:
        self._db.close()

    # -- what differs

    def _database_of_records(self) -> SqlDatabase:
        return self._db

    def _time(self) -> dict[str, int]:
        """The time as a parameter of statements, unless they ask the database for it."""
        raise NotImplementedError

    def _now(self) -> datetime:
        """The time, inside the current transaction."""
        raise NotImplementedError

    def _add_messages(self, messages: Sequence[TaskReport]) -> None:
        """Put reports about tasks into the inboxes of their runs, inside the current transaction."""
        raise NotImplementedError

    def _load_breakers(self, names: Collection[str]) -> BreakerTransaction:
        """These breakers: no other transaction changes them until this one has ended."""
        raise NotImplementedError

    # -- workers

    def register(self, worker: WorkerRecord) -> None:
        about = {"name": worker.name, "host": worker.host, "record": encoded(worker)}
        self._db.query("register", **about, **self._time())

    def record_heartbeat(self, name: str) -> datetime | None:
        return self._first("record_heartbeat", name=name, **self._time())

    def set_trouble(self, name: str, trouble: str) -> None:
        def work() -> None:
            for (record,) in self._db.execute("worker_record", name):
                self._db.execute("update_worker", encoded(replace(worker_from(record), trouble=trouble)), name)

        self._db.write(work)

    def retire(self, name: str) -> None:
        self.expire(name, is_dead=True)

    def workers(self) -> list[WorkerRecord]:
        rows = self._db.query("workers", lease=self._lease_micros, **self._time())
        return [
            replace(worker_from(record), is_expired=bool(is_expired), beat_at=moment_from(beat_at))
            for record, is_expired, beat_at in rows
        ]

    def expire(self, name: str, *, is_dead: bool = False, job: JobEnd | None = None) -> bool:
        def work() -> bool:
            about = {"name": name, "is_dead": is_dead, "lease": self._lease_micros}
            gone = self._db.execute("remove_worker", **about, **self._time())
            if not gone:
                return False
            at = moment_from(gone[0][0])
            self._db.execute("void_turns", name)
            lost = self._db.execute("void_leases", name)
            self._add_messages(
                [
                    (run_id, place, attempt, LeaseExpired(at, place, attempt, name, job))
                    for run_id, place, attempt in lost
                ]
            )
            return True

        return self._db.write(work)

    # -- runs

    def run(self, run_id: int) -> RunRecord:
        rows = self._db.query("run", run_id)
        if not rows:
            raise refusals.unknown_run(run_id)
        return run_from(rows[0])

    def runs(self, *, limit: int = 50, before: int | None = None, statuses: Collection[str] = ()) -> list[RunRecord]:
        wanted = {"before": NO_LIMIT if before is None else before, "statuses": Texts(statuses), "limit": limit}
        statement = "unfinished_runs" if statuses and RUN_ENDED.isdisjoint(statuses) else "runs"
        return [run_from(row) for row in self._db.query(statement, **wanted)]

    def children(self, run_id: int) -> list[RunRecord]:
        return [run_from(row) for row in self._db.query("children", run_id)]

    def load(self, run_id: int) -> LoadedRun:
        records, bodies, rows = self._loaded([run_id])
        if not records:
            raise refusals.unknown_run(run_id)
        run = whole_run_from(records[0])
        body = _body(run, dict(bodies))
        if body is None:
            raise refusals.no_workflow(run_id)
        return LoadedRun(run, body, [row[1:] for row in self._whole(rows)])

    def load_all(self, run_ids: Collection[int]) -> list[LoadedRun]:
        records, bodies, rows = self._loaded(run_ids)
        body_of = dict(bodies)
        rows_of = {run_id: [row[1:] for row in found] for run_id, found in groupby(self._whole(rows), itemgetter(0))}
        loaded = []
        for record in records:
            with suppress(CodecError):
                run = whole_run_from(record)
                if (body := _body(run, body_of)) is not None:
                    loaded.append(LoadedRun(run, body, rows_of.get(run.run_id, [])))
        return loaded

    def _loaded(self, run_ids: Collection[int]) -> Sequence[list[Any]]:
        """The rows of these runs, the definitions that they use, and their tables, as they are at one moment."""
        raise NotImplementedError

    def log(self, run_id: int, after: int = 0, limit: int | None = None) -> list[Entry]:
        rows = self._db.query("log", run_id, after, NO_LIMIT if limit is None else limit)
        return decode_all([data for (data,) in rows], partial(self._entry, run_id))

    def search_log(self, run_id: int, any_of: tuple[str, ...], after: int = 0, *, also: str = "{") -> list[Entry]:
        texts = any_of[0].encode(), any_of[-1].encode(), also.encode()
        rows = self._db.query("search_log", run_id, after, *texts)
        return decode_all([data for (data,) in rows], partial(self._entry, run_id))

    def _entry(self, run_id: int, seq: int) -> Entry:
        found = self._db.query("entries", Bigints([entry_id(run_id, seq)]))
        if not found:
            raise CodecError(f"an event cannot be read: event {seq}, which has its output, is not in the log")
        return decode(found[0][1])

    def _whole(self, rows: Sequence[Any]) -> Sequence[Any]:
        return whole_rows(rows, self._db)

    def waiting_places(self) -> list[WaitingPlace]:
        return [waiting_from(row) for row in self._db.query("waiting_places")]

    def tallies(
        self, workflow: str | None = None, since: datetime | None = None, project: str | None = None
    ) -> list[tuple[int, str, str, str, bytes]]:
        begin = None if since is None else micros(since)
        return self._db.query("tallies", workflow=workflow, since=begin, project=project)

    def recent_rows(self, workflow: str, kind: str, key: str, limit: int) -> list[tuple[int, bytes]]:
        return [lately_row(row) for row in self._whole(self._db.query("recent_rows", kind, key, workflow, limit))]

    def tagged_rows(self, tag: str, limit: int, beside: int | None = None) -> list[tuple[int, str, str, bytes]]:
        rows = self._db.query("tagged_rows", tag=tag, limit=limit, beside=beside)
        return [tagged_row(row) for row in self._whole(rows)]

    def records_containing(self, text: str) -> Iterator[tuple[int, bytes]]:
        yield from self._db.query("records_containing", text=text.encode())

    def check_schema(self) -> None:
        self._db.query("check_schema")

    def _remove_runs(self, root_run_ids: Collection[int], *, is_forced: bool) -> list[tuple[int, str, str]]:
        """Remove the trees that may be removed, inside the current transaction: run, version and project of each."""
        found = self._db.execute("removable", wanted=Bigints(root_run_ids), is_forced=is_forced)
        gone = Bigints(run_id for run_id, _, _ in found)
        for name in self._removals:
            self._db.execute(name, gone)
        return found

    # -- inboxes

    def answer(self, message_id: int) -> Answer | None:
        rows = self._db.query("answer", message_id)
        return answer_from(rows[0][0]) if rows else None

    def inbox(self, run_ids: Collection[int]) -> list[Message]:
        return [message_from(row) for row in self._db.query("inbox", Bigints(run_ids))]

    def runs_with_messages(self, holder: str, root_run_id: int | None = None) -> list[int]:
        return [run_id for (run_id,) in self._db.query("runs_with_messages", holder=holder, root=root_run_id)]

    # -- tasks

    def queued_tasks(self, run_id: int) -> list[tuple[str, int]]:
        return [queued_row(row) for row in self._db.query("queued_tasks", run_id)]

    def queued_shapes(self, project: str | None = None) -> list[QueuedShape]:
        return [queued_shape_from(row) for row in self._db.query("queued_shapes", project=project, **self._time())]

    def refuse_queued(self, shape: QueuedShape, message: str, project: str | None = None) -> int:
        outcome = no_capacity_outcome(message)
        asked = {"cpus": shape.cpus, "memory": shape.memory, "gpus": shape.gpus, "nodes": shape.nodes}
        labels = encoded(shape.labels).decode()

        def work() -> int:
            found = self._db.execute("tasks_of_shape", **asked, labels=labels, timeout=shape.timeout, project=project)
            if found:
                now = self._now()
                self._end_queued(
                    [
                        (run_id, place, attempt, TaskEnded(now, place, attempt, outcome))
                        for run_id, place, attempt in found
                    ]
                )
            return len(found)

        return self._db.write(work)

    def _end_queued(self, ended: Sequence[TaskReport]) -> None:
        """Remove tasks from the queue, and report their end to their runs."""
        if ended:
            self._db.execute_rows("delete_queued", TASK_KEY, [task[:3] for task in ended])
            self._add_messages(ended)

    def leases_of(self, worker: str) -> list[Lease]:
        return [lease_from(row, worker) for row in self._db.query("leases_of", worker)]

    def has_leases(self, run_id: int) -> bool:
        return bool(self._db.query("has_leases", run_id))

    def stop_requests(self, worker: str) -> list[StopRequest]:
        return [stopped_from(row) for row in self._db.query("stop_requests", worker)]

    # -- breakers

    def breakers(self) -> list[BreakerRecord]:
        return [breaker_from(row) for row in self._db.query("breakers")]

    def count_outcome(self, name: str, rules: Breaker, verdict: Verdict) -> None:
        def work() -> None:
            breakers = self._load_breakers({name})
            breakers.count_from_outside(GuardedOutcome(OUTSIDE, Guard(name, rules), verdict))
            self._write_breakers(breakers)

        self._db.write(work)

    def _count(self, counted: Sequence[GuardedOutcome]) -> None:
        breakers = self._load_breakers({one.guard.name for one in counted})
        breakers.count_outcomes(counted)
        self._write_breakers(breakers)

    def _write_breakers(self, breakers: BreakerTransaction) -> None:
        """Write the changed breakers, and end the tasks that they refused."""
        self._end_queued([(task.run_id, task.place, task.attempt, ended) for task, ended in breakers.refused])
        changed = [breaker_row(*one) for one in breakers.changed.items()]
        if changed:
            self._db.execute_rows("put_breakers", BREAKER, changed)

    # -- time

    def _first(self, name: str, /, *params: Any, **named: Any) -> datetime | None:
        """The time that a statement finds first."""
        rows = self._db.query(name, *params, **named)
        return moment_from(rows[0][0]) if rows else None


def _body(run: RunRecord, bodies: dict[str, bytes]) -> bytes | None:
    """The definition of the run's own project; or the one for all projects, which an older version stored."""
    return bodies.get(f"@{run.project}/{run.version}", bodies.get(run.version))
