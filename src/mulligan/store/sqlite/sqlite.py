"""The store in one SQLite file: for one host, any number of processes, no server."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import apsw
from msgspec.structs import replace

from mulligan.core.deciding.workers.breaker import (
    OUTSIDE,
    Guard,
    GuardedOutcome,
    Verdict,
    breaker_verdict,
    no_capacity_outcome,
)
from mulligan.core.effects.lease_rules import has_time_for, is_run_due, may_run_on
from mulligan.core.effects.run_lists import QueuedShape
from mulligan.core.effects.tasks import Task
from mulligan.core.model.clusters.scheduler_job import JobEnd
from mulligan.core.model.codec import decode, decode_all
from mulligan.core.model.events import Entry
from mulligan.core.model.reports import LeaseExpired, Report, TaskEnded, TaskStarted, TimerFired
from mulligan.core.model.workflow import Breaker
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.errors import CodecError, UnknownRun
from mulligan.ports import (
    NONE_AHEAD,
    Answer,
    Artifacts,
    AuditRecord,
    BreakerRecord,
    Clock,
    Commit,
    CommitResult,
    IdleRuns,
    Lease,
    LoadedRun,
    Message,
    NewRun,
    Offer,
    Poll,
    RunLists,
    RunRecord,
    ServerRecords,
    StopRequest,
    Turn,
    WaitingPlace,
    WorkerRecord,
)
from mulligan.store import refusals
from mulligan.store.artifact_files import ArtifactFiles
from mulligan.store.audit_rows import audit_row
from mulligan.store.breaker_transaction import BreakerTransaction, breaker_row
from mulligan.store.clock import PROCESS_CLOCK
from mulligan.store.columns import (
    breaker_from,
    circuit_from,
    lately_row,
    lease_from,
    message_from,
    queued_row,
    queued_shape_from,
    run_from,
    stopped_from,
    tagged_row,
    timer_row,
    turn_from,
    waiting_from,
    whole_run_from,
)
from mulligan.store.encoding import answer_from, encoded, micros, moment_from, task_from, worker_from
from mulligan.store.read_only import is_read_only
from mulligan.store.remaining_capacity import RemainingCapacity
from mulligan.store.sqlite.sqlite_commit import Leases, insert_runs, write_batch
from mulligan.store.sqlite.sqlite_file import SqliteFile, fetch_all, iterate
from mulligan.store.sqlite.sqlite_lists import SqliteRunLists
from mulligan.store.sqlite.sqlite_sequence import SQL, TaskSequence

Result = TypeVar("Result")

_NO_LIMIT = 2**63 - 1
_NONE = timedelta(0)


class SqliteStore:
    """Runs in one file. A heartbeat that is older than `lease_seconds` by `clock` is too old.

    `vfs` names another SQLite file system: with "memdb" the file is in the memory of this process.
    """

    is_shared = False

    def __init__(
        self,
        path: str | Path,
        *,
        clock: Clock | None = None,
        lease_seconds: float = 30.0,
        busy_seconds: float = 5.0,
        vfs: str = "",
    ) -> None:
        self._clock = clock or PROCESS_CLOCK
        self._lease = timedelta(seconds=lease_seconds)
        self._file = self._open(Path(path), busy_seconds, vfs)
        self.artifacts: Artifacts = ArtifactFiles(self._file.path.parent / "artifacts")
        self.lists: RunLists = SqliteRunLists(self._file)
        self._sequence, self._leases = TaskSequence(), Leases()
        self._seen_version = self._file.version()
        self._queued_max = 0

    def _open(self, path: Path, busy_seconds: float, vfs: str) -> SqliteFile:
        if not vfs and is_read_only(str(path)):
            # Imported here, since few homes are read-only.
            file: SqliteFile = import_module("mulligan.store.sqlite.sqlite_read_only").ReadOnlyFile(path, busy_seconds)
            return file
        return SqliteFile(path, busy_seconds, vfs)

    @cached_property
    def server_records(self) -> ServerRecords:
        # Imported on first use: a run without a server needs none of it.
        records: ServerRecords = import_module("mulligan.store.sqlite.sqlite_server_records").SqliteServerRecords(
            self._file
        )
        return records

    def close(self) -> None:
        self._file.close()

    @property
    def is_in_place(self) -> bool:
        return self._file.is_in_place

    def _oldest_beat(self) -> int:
        """The earliest moment at which a heartbeat is not too old."""
        return micros(self._clock.now() - self._lease)

    # -- workers

    def register(self, worker: WorkerRecord) -> None:
        row = (worker.name, worker.host, encoded(worker), micros(self._clock.now()))
        self._file.read(SQL["register"], *row)

    def record_heartbeat(self, name: str) -> datetime | None:
        return self._first(SQL["record_heartbeat"], micros(self._clock.now()), name)

    def set_trouble(self, name: str, trouble: str) -> None:
        def work(db: apsw.Cursor) -> None:
            for (record,) in fetch_all(db, SQL["worker_record"], name):
                db.execute(SQL["update_worker"], (encoded(replace(worker_from(record), trouble=trouble)), name))

        self._file.write(work)

    def retire(self, name: str) -> None:
        self.expire(name, is_dead=True)

    def workers(self) -> list[WorkerRecord]:
        rows = self._file.read(SQL["workers"], self._oldest_beat())
        return [_worker(record, bool(is_expired), beat_at) for record, is_expired, beat_at in rows]

    def expire(self, name: str, *, is_dead: bool = False, job: JobEnd | None = None) -> bool:
        def work(db: apsw.Cursor) -> bool:
            if not fetch_all(db, SQL["remove_worker"], name, is_dead, self._oldest_beat()):
                return False
            db.execute(SQL["void_turns"], (name,))
            lost = fetch_all(db, SQL["void_leases"], name)
            at = self._clock.now()
            db.executemany(
                SQL["insert_message"],
                [
                    (run_id, encoded(LeaseExpired(at, place, attempt, name, job)), place, attempt)
                    for run_id, place, attempt in lost
                ],
            )
            return True

        return self._file.write(work)

    # -- runs

    def create(self, runs: Sequence[NewRun], holder: str = "", *, audit: Sequence[AuditRecord] = ()) -> list[Turn]:
        def work(db: apsw.Cursor) -> list[Turn]:
            if holder and not _is_registered(db, holder):
                raise refusals.unknown_holder(holder)
            if audit:
                db.executemany(SQL["insert_audit"], [audit_row(record) for record in audit])
            return insert_runs(db, runs, holder)

        return self._file.write(work)

    def run(self, run_id: int) -> RunRecord:
        rows = self._file.read(SQL["run"], run_id)
        if not rows:
            raise refusals.unknown_run(run_id)
        return run_from(rows[0])

    def runs(self, *, limit: int = 50, before: int | None = None, statuses: Collection[str] = ()) -> list[RunRecord]:
        behind = _NO_LIMIT if before is None else before
        statement = "unfinished_runs" if statuses and RUN_ENDED.isdisjoint(statuses) else "runs"
        rows = self._file.read(SQL[statement], behind, _array(statuses), limit)
        return [run_from(row) for row in rows]

    def children(self, run_id: int) -> list[RunRecord]:
        return [run_from(row) for row in self._file.read(SQL["children"], run_id)]

    def load(self, run_id: int) -> LoadedRun:
        def work(db: apsw.Cursor) -> LoadedRun:
            record = fetch_all(db, SQL["run"], run_id)
            if not record:
                raise refusals.unknown_run(run_id)
            body = fetch_all(db, SQL["workflow"], record[0][2], record[0][-1])
            if not body:
                raise refusals.no_workflow(run_id)
            return LoadedRun(whole_run_from(record[0]), body[0][0], fetch_all(db, SQL["rows"], run_id))

        return self._file.read_together(work)

    def load_all(self, run_ids: Collection[int]) -> list[LoadedRun]:
        loaded = []
        for run_id in run_ids:
            with suppress(CodecError, UnknownRun):
                loaded.append(self.load(run_id))
        return loaded

    def log(self, run_id: int, after: int = 0, limit: int | None = None) -> list[Entry]:
        rows = self._file.read(SQL["log"], run_id, after, _NO_LIMIT if limit is None else limit)
        return decode_all([data for (data,) in rows])

    def search_log(self, run_id: int, any_of: tuple[str, ...], after: int = 0, *, also: str = "{") -> list[Entry]:
        texts = any_of[0].encode(), any_of[-1].encode(), also.encode()
        return [decode(data) for (data,) in self._file.read(SQL["search_log"], run_id, after, *texts)]

    def waiting_places(self) -> list[WaitingPlace]:
        return [waiting_from(row) for row in self._file.read(SQL["waiting_places"])]

    def tallies(
        self, workflow: str | None = None, since: datetime | None = None, project: str | None = None
    ) -> list[tuple[int, str, str, str, bytes]]:
        found: list[tuple[int, str, str, str, bytes]]
        found = self._file.read(SQL["tallies"], workflow, None if since is None else micros(since), project)
        return found

    def recent_rows(self, workflow: str, kind: str, key: str, limit: int) -> list[tuple[int, bytes]]:
        rows = self._file.read(SQL["recent_rows"], workflow, kind, key, limit)
        return [lately_row(row) for row in rows]

    def tagged_rows(self, tag: str, limit: int, beside: int | None = None) -> list[tuple[int, str, str, bytes]]:
        return [tagged_row(row) for row in self._file.read(SQL["tagged_rows"], tag, limit, beside)]

    def records_containing(self, text: str) -> Iterator[tuple[int, bytes]]:
        yield from self._file.read(SQL["records_containing"], text.encode())

    def check_schema(self) -> None:
        self._file.read(SQL["check_schema"])

    def skip_run_ids(self, last: int) -> int:
        ((highest,),) = self._file.read(SQL["last_number"], "run")
        if last > highest:
            self._file.write(lambda db: fetch_all(db, SQL["skip_numbers"], "run", last))
        return int(highest)

    def remove(self, root_run_ids: Collection[int], *, is_forced: bool = False) -> list[int]:
        def work(db: apsw.Cursor) -> list[int]:
            found = fetch_all(db, SQL["removable"], _array(root_run_ids), is_forced)
            gone = [run_id for run_id, _, _ in found]
            for name in (
                "remove_events",
                "remove_rows",
                "delete_timers",
                "delete_tasks",
                "remove_starts",
                "remove_attributes",
                "remove_words",
                "remove_new_words",
                "remove_messages",
                "remove_notices_of_run",
                "remove_log_chunks",
                "remove_run",
            ):
                db.executemany(SQL[name], [(run_id,) for run_id in gone])
            db.executemany(SQL["remove_workflow"], {(version, project) for _, version, project in found})
            return gone

        return self._file.write(work)

    # -- inboxes

    def put(self, run_id: int, report: Report, *, is_asking: bool = False) -> int:
        rows = self._file.read(SQL["put"], run_id, encoded(report), is_asking)
        if not rows:
            raise refusals.unknown_run(run_id)
        message_id: int = rows[0][0]
        return message_id

    def answer(self, message_id: int) -> Answer | None:
        rows = self._file.read(SQL["answer"], message_id)
        return answer_from(rows[0][0]) if rows else None

    def inbox(self, run_ids: Collection[int]) -> list[Message]:
        return [message_from(row) for row in self._file.read(SQL["inbox"], _array(run_ids))]

    def runs_with_messages(self, holder: str, root_run_id: int | None = None) -> list[int]:
        return [run_id for (run_id,) in self._file.read(SQL["runs_with_messages"], holder, root_run_id)]

    def poll(
        self,
        worker: str,
        root_run_id: int | None = None,
        *,
        holder: str = "",
        ahead: Mapping[int, timedelta] = NONE_AHEAD,
    ) -> Poll:
        called = self.runs_with_messages(worker, root_run_id)
        messages = [message_from(row) for row in self._file.read(SQL["inboxes_of"], worker)]
        due = self.next_due(root_run_id, holder=holder, ahead=ahead)
        return Poll(called, messages, self.stop_requests(worker), due)

    # -- turns

    def take_turns(self, run_ids: Collection[int], holder: str) -> list[Turn]:
        def work(db: apsw.Cursor) -> list[Turn]:
            if not _is_registered(db, holder):
                return []
            rows = fetch_all(db, SQL["take_turns"], holder, _array(run_ids))
            return sorted((turn_from(row, holder) for row in rows), key=lambda turn: turn.run_id)

        return self._file.write(work)

    def idle_runs(self, holder: str, after: tuple[int, int], limit: int) -> IdleRuns:
        rows = self._file.read(SQL["unfinished_page"], *after, limit)
        last = rows[-1] if len(rows) == limit else None
        found = [run_id for _, run_id, held_by in rows if held_by in ("", holder)]
        return IdleRuns(found, (last[0], last[1]) if last else None)

    def runs_with_work(self, run_ids: Collection[int]) -> list[int]:
        rows = self._file.read(SQL["runs_with_work"], _array(run_ids), micros(self._clock.now()))
        return [run_id for (run_id,) in rows]

    def release(self, turns: Iterable[Turn]) -> None:
        void = [(turn.run_id, turn.fence, turn.holder) for turn in turns]
        self._file.write(lambda db: db.executemany(SQL["release"], void))

    def commit(self, commits: Sequence[Commit]) -> list[CommitResult]:
        done = self._write(partial(self._write_commits, commits))
        for commit, one in zip(commits, done, strict=True):
            self._leases.drop(commit.ended)
            self._leases.keep(one.leases)
        return done

    def _write_commits(self, commits: Sequence[Commit], db: apsw.Cursor) -> list[CommitResult]:
        done = write_batch(db, commits, self._sequence, self._leases)
        counted: list[GuardedOutcome] = []
        for commit in commits:
            counted += commit.counted
        if counted:
            self._count(db, counted)
        return done

    def _write(self, work: Callable[[apsw.Cursor], Result]) -> Result:
        """Run a transaction that takes sequence numbers."""
        try:
            found = self._file.write(work)
        except BaseException:
            self._sequence.forget()
            raise
        self._sequence.written(self._file.connection)
        return found

    # -- tasks

    def queued_tasks(self, run_id: int) -> list[tuple[str, int]]:
        return [queued_row(row) for row in self._file.read(SQL["queued_tasks"], run_id)]

    def queued_shapes(self, project: str | None = None) -> list[QueuedShape]:
        rows = self._file.read(SQL["queued_shapes"], micros(self._clock.now()), project)
        return [queued_shape_from(row) for row in rows]

    def refuse_queued(self, shape: QueuedShape, message: str, project: str | None = None) -> int:
        outcome = no_capacity_outcome(message)
        asked = (shape.cpus, shape.memory, shape.gpus, _array(shape.labels), shape.nodes, shape.timeout)

        def work(db: apsw.Cursor) -> int:
            found = fetch_all(db, SQL["tasks_of_shape"], *asked, project)
            now = self._clock.now()
            for run_id, place, attempt in found:
                db.execute(SQL["delete_queued"], (run_id, place, attempt))
                ended = encoded(TaskEnded(now, place, attempt, outcome))
                db.execute(SQL["insert_message"], (run_id, ended, place, attempt))
            return len(found)

        return self._write(work)

    def leases_of(self, worker: str) -> list[Lease]:
        return [lease_from(row, worker) for row in self._file.read(SQL["leases_of"], worker)]

    def has_leases(self, run_id: int) -> bool:
        return bool(self._file.read(SQL["has_leases"], run_id))

    def lease(
        self, worker: str, offer: Offer, *, root_run_id: int | None = None, is_guarded: bool = False
    ) -> list[Lease]:
        if offer.tasks_max < 1:
            return []
        leases = self._write(lambda db: self._lease_fitting(db, worker, offer, root_run_id, is_guarded=is_guarded))
        self._leases.keep(leases)
        return leases

    def _lease_fitting(
        self, db: apsw.Cursor, worker: str, offer: Offer, root_run_id: int | None = None, *, is_guarded: bool = False
    ) -> list[Lease]:
        if not _is_registered(db, worker):
            return []
        breakers = self._load_breakers(db)
        tasks = self._fitting(db, offer, root_run_id, breakers, worker if is_guarded else "")
        tokens = self._sequence.take(db, len(tasks))
        leases = [Lease(task, worker, token) for task, token in zip(tasks, tokens, strict=True)]
        self._hand_out(db, leases, offer.host)
        breakers.note_leases(leases)
        self._write_breakers(db, breakers)
        return leases

    def report_and_lease(
        self,
        worker: str,
        ended: Sequence[tuple[int, Report, Guard | None]],
        offer: Offer,
        *,
        root_run_id: int | None = None,
    ) -> tuple[bool, list[Lease]]:
        def work(db: apsw.Cursor) -> list[Lease]:
            for one in ended:
                self._end_lease(db, *one)
            return self._lease_fitting(db, worker, offer, root_run_id) if offer.tasks_max >= 1 else []

        leases = self._write(work)
        self._leases.drop([token for token, _, _ in ended])
        self._leases.keep(leases)
        # A look into a file costs next to nothing.
        return bool(ended), leases

    def _fitting(
        self, db: apsw.Cursor, offer: Offer, root_run_id: int | None, breakers: BreakerTransaction, holder: str
    ) -> list[Task]:
        """The oldest free tasks that fit together and that their breakers admit.

        With a holder only guarded tasks of its runs.
        """
        wanted = (offer.cpus, offer.memory, offer.gpus, _array(offer.labels), offer.host)
        about = (root_run_id, micros(breakers.now))
        statement, of_whom = ("guarded_tasks", (holder,)) if holder else ("free_tasks", (offer.project,))
        capacity, found = RemainingCapacity(offer), []
        for data, *needs in iterate(db, SQL[statement], *wanted, *about, *of_whom):
            if not capacity.fits(*needs):
                continue
            task = task_from(data)
            is_allowed = has_time_for(task, offer.seconds_left) and may_run_on(
                task, offer.host, breakers.now, offer.lacks
            )
            if is_allowed and is_run_due(task, breakers.now):
                # With a cursor of its own: the other one is in the middle of its rows.
                found_due = fetch_all(
                    db.connection.cursor(), SQL["run_has_time_left"], task.run_id, micros(breakers.now)
                )
                is_allowed = bool(found_due)
            if is_allowed and breakers.admits(task):
                capacity.take(*needs)
                found.append(task)
            if capacity.is_full:
                break
        return found

    def _hand_out(self, db: apsw.Cursor, leases: Sequence[Lease], host: str) -> None:
        at = self._clock.now()
        for lease in leases:
            task = lease.task
            task_key = (task.run_id, task.place, task.attempt)
            db.execute(SQL["lease_task"], (lease.worker, lease.token, micros(at), *task_key))
            started = TaskStarted(at, task.place, task.attempt, lease.worker, host)
            db.execute(SQL["insert_message"], (task.run_id, encoded(started), task.place, task.attempt))

    def report(self, token: int, report: Report, *, guard: Guard | None = None) -> None:
        def work(db: apsw.Cursor) -> None:
            if not self._end_lease(db, token, report, guard):
                raise refusals.stale_lease(token)

        self._file.write(work)
        self._leases.drop([token])

    def report_all(self, ended: Sequence[tuple[int, Report, Guard | None]]) -> bool:
        self._file.write(lambda db: [self._end_lease(db, *one) for one in ended])
        self._leases.drop([token for token, _, _ in ended])
        # A look into a file costs next to nothing.
        return True

    def _end_lease(self, db: apsw.Cursor, token: int, report: Report, guard: Guard | None) -> bool:
        """End a lease with its last report. False if it is void."""
        task_key = self._leases.find(db, token)
        if task_key is None or not fetch_all(db, SQL["end_lease"], *task_key, token):
            return False
        run_id, place, attempt = task_key
        db.execute(SQL["insert_message"], (run_id, encoded(report), place, attempt))
        if guard is not None:
            self._count(db, [GuardedOutcome(token, guard, breaker_verdict(report, guard))])
        return True

    def stop_requests(self, worker: str) -> list[StopRequest]:
        return [stopped_from(row) for row in self._file.read(SQL["stop_requests"], worker)]

    # -- breakers

    def breakers(self) -> list[BreakerRecord]:
        return [breaker_from(row) for row in self._file.read(SQL["breakers"])]

    def count_outcome(self, name: str, rules: Breaker, verdict: Verdict) -> None:
        def work(db: apsw.Cursor) -> None:
            breakers = self._load_breakers(db)
            breakers.count_from_outside(GuardedOutcome(OUTSIDE, Guard(name, rules), verdict))
            self._write_breakers(db, breakers)

        self._write(work)

    def reset_breaker(self, name: str) -> bool:
        return bool(self._file.read(SQL["reset_breaker"], name))

    def _load_breakers(self, db: apsw.Cursor) -> BreakerTransaction:
        rows = fetch_all(db, SQL["circuits"])
        circuits = dict(circuit_from(row[:-2]) for row in rows)
        probing, running = [row[0] for row in rows if row[-2]], {row[0]: row[-1] for row in rows}
        return BreakerTransaction(self._clock.now(), circuits, probing, running)

    def _count(self, db: apsw.Cursor, counted: Iterable[GuardedOutcome]) -> None:
        breakers = self._load_breakers(db)
        breakers.count_outcomes(counted)
        self._write_breakers(db, breakers)

    def _write_breakers(self, db: apsw.Cursor, breakers: BreakerTransaction) -> None:
        """Write the changed breakers, and end the tasks that they refused."""
        for task, ended in breakers.refused:
            task_key = (task.run_id, task.place, task.attempt)
            db.execute(SQL["delete_queued"], task_key)
            db.execute(SQL["insert_message"], (task.run_id, encoded(ended), task.place, task.attempt))
        db.executemany(SQL["put_breaker"], [breaker_row(*changed) for changed in breakers.changed.items()])

    # -- time

    def fire_timers(
        self, root_run_id: int | None = None, *, holder: str = "", ahead: Mapping[int, timedelta] = NONE_AHEAD
    ) -> int:
        now = self._clock.now()
        wall = now + self._clock.stepped()

        def due(db: apsw.Cursor) -> list[tuple[datetime, list[Any]]]:
            """The due timers, each with the time of its run."""
            rows = fetch_all(db, *_below("due_timers", root_run_id, micros(now), micros(wall), holder))
            found = [(now + ahead.get(row[0], _NONE), row) for row in rows]
            for run_id, more in ahead.items():
                rows = fetch_all(db, SQL["due_timers_of"], run_id, micros(now + more))
                found += [(now + more, row) for row in rows if (now + more, row) not in found]
            return found

        def work(db: apsw.Cursor) -> int:
            timers = due(db)
            db.executemany(SQL["delete_timer"], [row for _, row in timers])
            fired = [
                (run_id, encoded(TimerFired(at, kind, place, number, wall if kind == "until" else None)), "", 0)
                for at, row in timers
                for run_id, kind, place, number in [timer_row(row)]
            ]
            db.executemany(SQL["insert_message"], fired)
            return len(timers)

        return self._file.write(work) if self._file.read_together(due) else 0

    def next_due(
        self, root_run_id: int | None = None, *, holder: str = "", ahead: Mapping[int, timedelta] = NONE_AHEAD
    ) -> datetime | None:
        now, stepped = self._clock.now(), self._clock.stepped()
        dues = [self._first(SQL["next_retry"], root_run_id, micros(now))]
        if not stepped:
            dues.append(self._first(*_below("next_timer", root_run_id, holder, 0)))
        else:
            dues.append(self._first(*_below("next_timer", root_run_id, holder, 1)))
            until = self._first(*_below("next_timer", root_run_id, holder, 2))
            dues.append(None if until is None else until - stepped)
        for run_id, more in ahead.items():
            due = self._first(SQL["next_timer_of"], run_id)
            dues.append(None if due is None else due - more)
        return min((due for due in dues if due is not None), default=None)

    def now(self) -> datetime | None:
        return None

    def _first(self, sql: str, *params: Any) -> datetime | None:
        rows = self._file.read(sql, *params)
        return moment_from(rows[0][0]) if rows else None

    def queue_mark(self) -> Hashable:
        ((queued, stopping),) = self._file.read(SQL["queue_mark"])
        # The newest task may have been leased meanwhile: that is nothing new for the others.
        self._queued_max = max(self._queued_max, queued or 0)
        return self._queued_max, stopping

    def has_changes(self) -> bool:
        version = self._file.version()
        if version == self._seen_version:
            return False
        self._seen_version = version
        return True

    def version(self) -> str | None:
        return None

    def fileno(self) -> int | None:
        return None

    def watch_run_ends(self) -> None:
        """Nothing to do: every write of another process counts as a change."""


def _is_registered(db: apsw.Cursor, name: str) -> bool:
    return bool(fetch_all(db, SQL["is_registered"], name))


def _below(name: str, root_run_id: int | None, *params: Any) -> tuple[Any, ...]:
    """The statement for the timers of all runs, or of those below one root, and its parameters."""
    return (SQL[name], *params) if root_run_id is None else (SQL[f"{name}_below"], *params, root_run_id)


def _array(values: Collection[Any]) -> str:
    return encoded(list(values)).decode()


def _worker(data: bytes, is_expired: bool, beat_at: int) -> WorkerRecord:
    return replace(worker_from(data), is_expired=is_expired, beat_at=moment_from(beat_at))
