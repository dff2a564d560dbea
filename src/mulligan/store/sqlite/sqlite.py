"""The store in one SQLite file: for one host, any number of processes, no server."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from mulligan.core.deciding.workers.breaker import (
    Guard,
    GuardedOutcome,
    breaker_verdict,
)
from mulligan.core.effects.lease_rules import has_time_for, is_run_due, may_run_on
from mulligan.core.effects.tasks import Task
from mulligan.core.model.reports import Report, TaskStarted, TimerFired
from mulligan.ports import (
    NONE_AHEAD,
    Artifacts,
    AuditRecord,
    Clock,
    Commit,
    CommitResult,
    IdleRuns,
    Lease,
    NewRun,
    Offer,
    Poll,
    Turn,
)
from mulligan.store import refusals
from mulligan.store.artifact_files import ArtifactFiles
from mulligan.store.breaker_transaction import BreakerTransaction
from mulligan.store.clock import PROCESS_CLOCK
from mulligan.store.columns import (
    circuit_from,
    message_from,
    timer_row,
    turn_from,
)
from mulligan.store.encoding import encoded, micros, task_from
from mulligan.store.object_artifacts import WithObjects
from mulligan.store.read_only import is_read_only
from mulligan.store.remaining_capacity import RemainingCapacity
from mulligan.store.sql.sql_arrays import Bigints, Texts
from mulligan.store.sql.sql_rows import audit_row
from mulligan.store.sql.sql_store import SqlStore, TaskReport
from mulligan.store.sqlite.sqlite_commit import Leases, insert_runs, write_batch
from mulligan.store.sqlite.sqlite_file import SQL, SqliteFile, fetch_all
from mulligan.store.sqlite.sqlite_lists import SqliteRunLists
from mulligan.store.sqlite.sqlite_sequence import TaskSequence

Result = TypeVar("Result")

_NONE = timedelta(0)


class SqliteStore(SqlStore):
    """Runs in one file. A heartbeat that is older than `lease_seconds` by `clock` is too old.

    `vfs` names another SQLite file system: with "memdb" the file is in the memory of this process.
    """

    is_shared = False
    _removals = (*SqlStore._removals, "remove_new_words")

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
        self._file = self._open(Path(path), busy_seconds, vfs)
        super().__init__(self._file, SqliteRunLists(self._file), lease_seconds)
        self.artifacts: Artifacts = WithObjects(ArtifactFiles(self._file.path.parent / "artifacts"))
        self._sequence, self._leases = TaskSequence(), Leases()
        self._seen_version = self._file.version()
        self._queued_max = 0

    def _open(self, path: Path, busy_seconds: float, vfs: str) -> SqliteFile:
        if not vfs and is_read_only(str(path)):
            # Imported here, since few homes are read-only.
            from mulligan.store.sqlite.sqlite_read_only import ReadOnlyFile

            file: SqliteFile = ReadOnlyFile(path, busy_seconds)
            return file
        return SqliteFile(path, busy_seconds, vfs)

    @property
    def is_in_place(self) -> bool:
        return self._file.is_in_place

    def _time(self) -> dict[str, int]:
        return {"now": micros(self._clock.now())}

    def _now(self) -> datetime:
        return self._clock.now()

    def _is_registered(self, name: str) -> bool:
        return bool(self._file.execute("is_registered", name))

    def _add_messages(self, messages: Sequence[TaskReport]) -> None:
        rows = [(run_id, encoded(report), place, attempt) for run_id, place, attempt, report in messages]
        self._file.execute_each("insert_message", rows)

    # -- runs

    def create(self, runs: Sequence[NewRun], holder: str = "", *, audit: Sequence[AuditRecord] = ()) -> list[Turn]:
        def work() -> list[Turn]:
            if holder and not self._is_registered(holder):
                raise refusals.unknown_holder(holder)
            if audit:
                self._file.execute_each("insert_audit", map(audit_row, audit))
            return insert_runs(self._file.cursor, runs, holder)

        return self._file.write(work)

    def run_under(self, key: str) -> int | None:
        return next((run_id for (run_id,) in self._db.query("started", key)), None)

    def runs_under(self, ending: str) -> list[tuple[str, int]]:
        return [(key, run_id) for key, run_id in self._db.query("keys_ending_with", ending)]

    def _loaded(self, run_ids: Collection[int]) -> Sequence[list[Any]]:
        """Run by run: it would take longer to read their ids from a list in JSON."""

        def work() -> Sequence[list[Any]]:
            found: tuple[list[Any], list[Any], list[Any]] = [], [], []
            for run_id in run_ids:
                for rows, name in zip(found, ("run", "workflows", "rows"), strict=True):
                    rows += self._file.execute(name, run_id)
            return found

        return self._file.read_snapshot(work)

    def skip_run_ids(self, last: int) -> int:
        ((highest,),) = self._file.query("last_number", "run")
        if last > highest:
            self._file.write(lambda: self._file.execute("skip_numbers", "run", last))
        return int(highest)

    def remove(self, root_run_ids: Collection[int], *, is_forced: bool = False) -> list[int]:
        def work() -> list[int]:
            found = self._remove_runs(root_run_ids, is_forced=is_forced)
            self._file.execute_each("remove_workflow", {row[1:] for row in found})
            return [run_id for run_id, _, _ in found]

        return self._file.write(work)

    # -- inboxes

    def put(self, run_id: int, report: Report, *, is_asking: bool = False) -> int:
        rows = self._file.query("put", run_id, encoded(report), is_asking)
        if not rows:
            raise refusals.unknown_run(run_id)
        message_id: int = rows[0][0]
        return message_id

    def poll(
        self,
        worker: str,
        root_run_id: int | None = None,
        *,
        holder: str = "",
        ahead: Mapping[int, timedelta] = NONE_AHEAD,
    ) -> Poll:
        called = self.runs_with_messages(worker, root_run_id)
        messages = [message_from(row) for row in self._file.query("inboxes_of", worker)]
        due = self.next_due(root_run_id, holder=holder, ahead=ahead)
        return Poll(called, messages, self.stop_requests(worker), due)

    # -- turns

    def take_turns(self, run_ids: Collection[int], holder: str) -> list[Turn]:
        def work() -> list[Turn]:
            if not self._is_registered(holder):
                return []
            rows = self._file.execute("take_turns", holder, Bigints(run_ids))
            return sorted((turn_from(row, holder) for row in rows), key=lambda turn: turn.run_id)

        return self._file.write(work)

    def idle_runs(self, holder: str, after: tuple[int, int], limit: int) -> IdleRuns:
        rows = self._file.query("unfinished_page", *after, limit)
        last = rows[-1] if len(rows) == limit else None
        found = [run_id for _, run_id, held_by in rows if held_by in ("", holder)]
        return IdleRuns(found, (last[0], last[1]) if last else None)

    def runs_with_work(self, run_ids: Collection[int]) -> list[int]:
        rows = self._file.query("runs_with_work", Bigints(run_ids), micros(self._clock.now()))
        return [run_id for (run_id,) in rows]

    def release(self, turns: Iterable[Turn]) -> None:
        void = [(turn.run_id, turn.fence, turn.holder) for turn in turns]
        self._file.write(lambda: self._file.execute_each("release", void))

    def commit(self, commits: Sequence[Commit]) -> list[CommitResult]:
        done = self._write(partial(self._write_commits, commits))
        for commit, one in zip(commits, done, strict=True):
            self._leases.drop(commit.ended)
            self._leases.keep(one.leases)
        return done

    def _write_commits(self, commits: Sequence[Commit]) -> list[CommitResult]:
        done = write_batch(self._file.cursor, commits, self._sequence, self._leases)
        counted: list[GuardedOutcome] = []
        for commit in commits:
            counted += commit.counted
        if counted:
            self._count(counted)
        return done

    def _write(self, work: Callable[[], Result]) -> Result:
        """Run a transaction that takes sequence numbers."""
        try:
            found = self._file.write(work)
        except BaseException:
            self._sequence.forget()
            raise
        self._sequence.written(self._file.connection)
        return found

    # -- tasks

    def lease(
        self, worker: str, offer: Offer, *, root_run_id: int | None = None, is_guarded: bool = False
    ) -> list[Lease]:
        if offer.tasks_max < 1:
            return []
        leases = self._write(lambda: self._lease_fitting(worker, offer, root_run_id, is_guarded=is_guarded))
        self._leases.keep(leases)
        return leases

    def _lease_fitting(
        self, worker: str, offer: Offer, root_run_id: int | None = None, *, is_guarded: bool = False
    ) -> list[Lease]:
        if not self._is_registered(worker):
            return []
        breakers = self._load_breakers()
        tasks = self._fitting(offer, root_run_id, breakers, worker if is_guarded else "")
        tokens = self._sequence.take(self._file.cursor, len(tasks))
        leases = [Lease(task, worker, token) for task, token in zip(tasks, tokens, strict=True)]
        self._hand_out(leases, offer.host)
        breakers.note_leases(leases)
        self._write_breakers(breakers)
        return leases

    def report_and_lease(
        self,
        worker: str,
        ended: Sequence[tuple[int, Report, Guard | None]],
        offer: Offer,
        *,
        root_run_id: int | None = None,
    ) -> tuple[bool, list[Lease]]:
        def work() -> list[Lease]:
            for one in ended:
                self._end_lease(*one)
            return self._lease_fitting(worker, offer, root_run_id) if offer.tasks_max >= 1 else []

        leases = self._write(work)
        self._leases.drop([token for token, _, _ in ended])
        self._leases.keep(leases)
        # A look into a file costs next to nothing.
        return bool(ended), leases

    def _fitting(self, offer: Offer, root_run_id: int | None, breakers: BreakerTransaction, holder: str) -> list[Task]:
        """The oldest free tasks that fit together and that their breakers admit.

        With a holder only guarded tasks of its runs.
        """
        wanted = (offer.cpus, offer.memory, offer.gpus, Texts(offer.labels), offer.host)
        about = (root_run_id, micros(breakers.now))
        statement, of_whom = ("guarded_tasks", (holder,)) if holder else ("free_tasks", (offer.project,))
        capacity, found = RemainingCapacity(offer), []
        for data, *needs in self._file.iterate(statement, *wanted, *about, *of_whom):
            if not capacity.fits(*needs):
                continue
            task = task_from(data)
            is_allowed = has_time_for(task, offer.seconds_left) and may_run_on(
                task, offer.host, breakers.now, offer.lacks
            )
            if is_allowed and is_run_due(task, breakers.now):
                # With a cursor of its own: the other one is in the middle of its rows.
                found_due = fetch_all(
                    self._file.connection.cursor(), SQL["run_has_time_left"], task.run_id, micros(breakers.now)
                )
                is_allowed = bool(found_due)
            if is_allowed and breakers.admits(task):
                capacity.take(*needs)
                found.append(task)
            if capacity.is_full:
                break
        return found

    def _hand_out(self, leases: Sequence[Lease], host: str) -> None:
        at = self._clock.now()
        since = micros(at)
        rows, started = [], []
        for lease in leases:
            task = lease.task
            rows.append((lease.worker, lease.token, since, task.run_id, task.place, task.attempt))
            report = TaskStarted(at, task.place, task.attempt, lease.worker, host, task.turn_number)
            started.append((task.run_id, task.place, task.attempt, report))
        self._file.execute_each("lease_task", rows)
        self._add_messages(started)

    def report(self, token: int, report: Report, *, guard: Guard | None = None) -> None:
        def work() -> None:
            if not self._end_lease(token, report, guard):
                raise refusals.stale_lease(token)

        self._file.write(work)
        self._leases.drop([token])

    def report_all(self, ended: Sequence[tuple[int, Report, Guard | None]]) -> bool:
        self._file.write(lambda: [self._end_lease(*one) for one in ended])
        self._leases.drop([token for token, _, _ in ended])
        # A look into a file costs next to nothing.
        return True

    def _end_lease(self, token: int, report: Report, guard: Guard | None) -> bool:
        """End a lease with its last report. False if it is void."""
        db = self._file.cursor
        task_key = self._leases.find(db, token)
        if task_key is None or not fetch_all(db, SQL["end_lease"], *task_key, token):
            return False
        run_id, place, attempt = task_key
        db.execute(SQL["insert_message"], (run_id, encoded(report), place, attempt))
        if guard is not None:
            self._count([GuardedOutcome(token, guard, breaker_verdict(report, guard))])
        return True

    # -- breakers

    def reset_breaker(self, name: str) -> bool:
        return bool(self._file.query("reset_breaker", name))

    def _load_breakers(self, names: Collection[str] = ()) -> BreakerTransaction:
        rows = self._file.execute("circuits")
        circuits = dict(circuit_from(row[:-2]) for row in rows)
        probing, running = [row[0] for row in rows if row[-2]], {row[0]: row[-1] for row in rows}
        return BreakerTransaction(self._clock.now(), circuits, probing, running)

    # -- time

    def fire_timers(
        self, root_run_id: int | None = None, *, holder: str = "", ahead: Mapping[int, timedelta] = NONE_AHEAD
    ) -> int:
        now = self._clock.now()
        wall = now + self._clock.stepped()

        def due() -> list[tuple[datetime, list[Any]]]:
            """The due timers, each with the time of its run."""
            rows = self._file.execute(*_below("due_timers", root_run_id, micros(now), micros(wall), holder))
            found = [(now + ahead.get(row[0], _NONE), row) for row in rows]
            for run_id, more in ahead.items():
                rows = self._file.execute("due_timers_of", run_id, micros(now + more))
                found += [(now + more, row) for row in rows if (now + more, row) not in found]
            return found

        def work() -> int:
            timers = due()
            self._file.execute_each("delete_timer", [row for _, row in timers])
            fired = [
                (run_id, "", 0, TimerFired(at, kind, place, number, wall if kind == "until" else None))
                for at, row in timers
                for run_id, kind, place, number in [timer_row(row)]
            ]
            self._add_messages(fired)
            return len(timers)

        return self._file.write(work) if self._file.read_snapshot(due) else 0

    def next_due(
        self, root_run_id: int | None = None, *, holder: str = "", ahead: Mapping[int, timedelta] = NONE_AHEAD
    ) -> datetime | None:
        now, stepped = self._clock.now(), self._clock.stepped()
        dues = [self._first("next_retry", root_run_id, micros(now))]
        if not stepped:
            dues.append(self._first(*_below("next_timer", root_run_id, holder, 0)))
        else:
            dues.append(self._first(*_below("next_timer", root_run_id, holder, 1)))
            until = self._first(*_below("next_timer", root_run_id, holder, 2))
            dues.append(None if until is None else until - stepped)
        for run_id, more in ahead.items():
            due = self._first("next_timer_of", run_id)
            dues.append(None if due is None else due - more)
        return min((due for due in dues if due is not None), default=None)

    def now(self) -> datetime | None:
        return None

    def queue_mark(self) -> Hashable:
        ((queued, stopping),) = self._file.query("queue_mark")
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


def _below(name: str, root_run_id: int | None, *params: Any) -> tuple[Any, ...]:
    """The statement for the timers of all runs, or of those below one root, and its parameters."""
    return (name, *params) if root_run_id is None else (f"{name}_below", *params, root_run_id)
