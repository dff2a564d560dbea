"""The store in one SQLite file: for one host, any number of processes, no server."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import apsw
from msgspec.structs import replace

from mulligan.core.deciding.breaker import Guard, GuardedOutcome, breaker_verdict
from mulligan.core.effects.tasks import Task
from mulligan.core.model.codec import decode
from mulligan.core.model.events import Entry
from mulligan.core.model.reports import LeaseExpired, Report, TaskStarted, TimerFired
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.ports import (
    NOBODY_AHEAD,
    Answer,
    Artifacts,
    BreakerRecord,
    Clock,
    Commit,
    Committed,
    Lease,
    Loaded,
    Message,
    NewRun,
    Offer,
    RunLists,
    RunRecord,
    Stopped,
    Turn,
    Waiting,
    WorkerRecord,
)
from mulligan.store import refusals
from mulligan.store.artifact_files import ArtifactFiles
from mulligan.store.clock import PROCESS_CLOCK
from mulligan.store.columns import (
    breaker_from,
    circuit_from,
    kept_row,
    lately_row,
    lease_from,
    message_from,
    queued_row,
    run_from,
    stopped_from,
    tagged_row,
    timer_row,
    turn_from,
    waiting_from,
)
from mulligan.store.encoding import answer_from, encoded, micros, moment_from, task_from, worker_from
from mulligan.store.gate import Gate, breaker_row
from mulligan.store.room import Room
from mulligan.store.sqlite_commit import Leases, insert_runs, write_batch
from mulligan.store.sqlite_file import SqliteFile, each, fetched
from mulligan.store.sqlite_lists import SqliteRunLists
from mulligan.store.sqlite_tickets import SQL, Tickets

Found = TypeVar("Found")

_NO_LIMIT = 2**63 - 1
_NONE = timedelta(0)


class SqliteStore:
    """Runs in one file. `clock` is the store's own; a heartbeat older than `lease_seconds` is too old.

    `vfs` names what SQLite keeps the file in, where that is no disk: with "memdb" it is the memory of this process.
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
        self._tickets, self._leases = Tickets(), Leases()
        self._seen_version = self._file.version()

    def _open(self, path: Path, busy_seconds: float, vfs: str) -> SqliteFile:
        return SqliteFile(path, busy_seconds, vfs)

    def close(self) -> None:
        self._file.close()

    @property
    def is_in_place(self) -> bool:
        return self._file.is_in_place

    def _oldest_beat(self) -> int:
        """A heartbeat before this moment is too old."""
        return micros(self._clock.now() - self._lease)

    # -- workers

    def register(self, worker: WorkerRecord) -> None:
        row = (worker.name, worker.host, encoded(worker), micros(self._clock.now()))
        self._file.read(SQL["register"], *row)

    def beat(self, name: str) -> bool:
        return bool(self._file.read(SQL["beat"], micros(self._clock.now()), name))

    def retire(self, name: str) -> None:
        self.bury(name, is_dead=True)

    def workers(self) -> list[WorkerRecord]:
        rows = self._file.read(SQL["workers"], self._oldest_beat())
        return [_worker(record, bool(is_expired), beat_at) for record, is_expired, beat_at in rows]

    def bury(self, name: str, *, is_dead: bool = False) -> bool:
        def work(db: apsw.Cursor) -> bool:
            if not fetched(db, SQL["remove_worker"], name, is_dead, self._oldest_beat()):
                return False
            db.execute(SQL["void_turns"], (name,))
            lost = fetched(db, SQL["void_leases"], name)
            at = self._clock.now()
            db.executemany(
                SQL["tell"],
                [
                    (run_id, encoded(LeaseExpired(at, place, attempt, name)), place, attempt)
                    for run_id, place, attempt in lost
                ],
            )
            return True

        return self._file.write(work)

    # -- runs

    def create(self, runs: Sequence[NewRun], holder: str = "") -> list[Turn]:
        def work(db: apsw.Cursor) -> list[Turn]:
            if holder and not _is_registered(db, holder):
                raise refusals.unknown_holder(holder)
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

    def load(self, run_id: int) -> Loaded:
        def work(db: apsw.Cursor) -> Loaded:
            record = fetched(db, SQL["run"], run_id)
            if not record:
                raise refusals.unknown_run(run_id)
            body = fetched(db, SQL["workflow"], record[0][2])
            if not body:
                raise refusals.no_workflow(run_id)
            return Loaded(run_from(record[0]), body[0][0], fetched(db, SQL["rows"], run_id))

        return self._file.read_together(work)

    def log(self, run_id: int, after: int = 0, limit: int | None = None) -> list[Entry]:
        rows = self._file.read(SQL["log"], run_id, after, _NO_LIMIT if limit is None else limit)
        return [decode(data) for (data,) in rows]

    def waiting(self) -> list[Waiting]:
        return [waiting_from(row) for row in self._file.read(SQL["waiting"])]

    def kept(self, kind: str) -> list[tuple[int, str, bytes]]:
        return [kept_row(row) for row in self._file.read(SQL["kept"], kind)]

    def lately(self, workflow: str, kind: str, key: str, limit: int) -> list[tuple[int, bytes]]:
        rows = self._file.read(SQL["lately"], workflow, kind, key, limit)
        return [lately_row(row) for row in rows]

    def tagged(self, tag: str, limit: int) -> list[tuple[int, str, str, bytes]]:
        return [tagged_row(row) for row in self._file.read(SQL["tagged"], tag, limit)]

    def mentioning(self, text: str) -> Iterator[tuple[int, bytes]]:
        yield from self._file.read(SQL["mentioning"], text.encode())

    def remove(self, root_run_ids: Collection[int]) -> list[int]:
        def work(db: apsw.Cursor) -> list[int]:
            found = fetched(db, SQL["removable"], _array(root_run_ids))
            gone = [run_id for run_id, _ in found]
            for name in (
                "remove_events",
                "remove_rows",
                "delete_timers",
                "delete_tasks",
                "remove_starts",
                "remove_attributes",
                "remove_run",
            ):
                db.executemany(SQL[name], [(run_id,) for run_id in gone])
            db.executemany(SQL["remove_workflow"], {(version,) for _, version in found})
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

    def called(self, holder: str, root_run_id: int | None = None) -> list[int]:
        return [run_id for (run_id,) in self._file.read(SQL["called"], holder, root_run_id)]

    # -- turns

    def take_turns(self, run_ids: Collection[int], holder: str) -> list[Turn]:
        def work(db: apsw.Cursor) -> list[Turn]:
            if not _is_registered(db, holder):
                return []
            rows = fetched(db, SQL["take_turns"], holder, _array(run_ids))
            return sorted((turn_from(row, holder) for row in rows), key=lambda turn: turn.run_id)

        return self._file.write(work)

    def release(self, turns: Iterable[Turn]) -> None:
        void = [(turn.run_id, turn.fence, turn.holder) for turn in turns]
        self._file.write(lambda db: db.executemany(SQL["release"], void))

    def commit(self, commits: Sequence[Commit]) -> list[Committed]:
        done = self._write(lambda db: self._write_commits(db, commits))
        for commit, one in zip(commits, done, strict=True):
            self._leases.drop(commit.ended)
            self._leases.keep(one.leases)
        return done

    def _write_commits(self, db: apsw.Cursor, commits: Sequence[Commit]) -> list[Committed]:
        done = write_batch(db, commits, self._tickets, self._leases)
        counted = [one for commit in commits for one in commit.counted]
        if counted:
            self._count(db, counted)
        return done

    def _write(self, work: Callable[[apsw.Cursor], Found]) -> Found:
        """One transaction that takes tickets."""
        try:
            found = self._file.write(work)
        except BaseException:
            self._tickets.forget()
            raise
        self._tickets.written(self._file.connection)
        return found

    # -- tasks

    def queued(self, run_id: int) -> list[tuple[str, int]]:
        return [queued_row(row) for row in self._file.read(SQL["queued"], run_id)]

    def held(self, worker: str) -> list[Lease]:
        return [lease_from(row, worker) for row in self._file.read(SQL["held"], worker)]

    def has_leases(self, run_id: int) -> bool:
        return bool(self._file.read(SQL["has_leases"], run_id))

    def lease(
        self, worker: str, offer: Offer, *, root_run_id: int | None = None, is_guarded: bool = False
    ) -> list[Lease]:
        if offer.tasks_max < 1:
            return []

        def work(db: apsw.Cursor) -> list[Lease]:
            if not _is_registered(db, worker):
                return []
            gate = self._gate(db)
            tasks = self._fitting(db, offer, root_run_id, gate, worker if is_guarded else "")
            tokens = self._tickets.take(db, len(tasks))
            leases = [Lease(task, worker, token) for task, token in zip(tasks, tokens, strict=True)]
            self._hand_out(db, leases, offer.host)
            gate.leased(leases)
            self._close_gate(db, gate)
            return leases

        leases = self._write(work)
        self._leases.keep(leases)
        return leases

    def _fitting(self, db: apsw.Cursor, offer: Offer, root_run_id: int | None, gate: Gate, holder: str) -> list[Task]:
        """The oldest free tasks for which there is room, one beside the other, and whose breakers let them pass.

        With a holder: the guarded ones of its runs.
        """
        wanted = (offer.cpus, offer.memory, offer.gpus, _array(offer.labels), offer.host)
        about = (root_run_id, micros(gate.now))
        statement, of_whom = ("guarded_tasks", (holder,)) if holder else ("free_tasks", ())
        room, found = Room(offer), []
        for data, *needs in each(db, SQL[statement], *wanted, *about, *of_whom):
            if room.fits(*needs) and gate.lets_pass(task := task_from(data)):
                room.take(*needs)
                found.append(task)
            if room.is_full:
                break
        return found

    def _hand_out(self, db: apsw.Cursor, leases: Sequence[Lease], host: str) -> None:
        at = self._clock.now()
        for lease in leases:
            task = lease.task
            known_by = (task.run_id, task.place, task.attempt)
            db.execute(SQL["lease_task"], (lease.worker, lease.token, micros(at), *known_by))
            started = TaskStarted(at, task.place, task.attempt, lease.worker, host)
            db.execute(SQL["tell"], (task.run_id, encoded(started), task.place, task.attempt))

    def report(self, token: int, report: Report, *, guard: Guard | None = None) -> None:
        def work(db: apsw.Cursor) -> None:
            known_by = self._leases.find(db, token)
            if known_by is None or not fetched(db, SQL["end_lease"], *known_by, token):
                raise refusals.stale_lease(token)
            run_id, place, attempt = known_by
            db.execute(SQL["tell"], (run_id, encoded(report), place, attempt))
            if guard is not None:
                self._count(db, [GuardedOutcome(token, guard, breaker_verdict(report, guard))])

        self._file.write(work)
        self._leases.drop([token])

    def stops(self, worker: str) -> list[Stopped]:
        return [stopped_from(row) for row in self._file.read(SQL["stops"], worker)]

    # -- breakers

    def breakers(self) -> list[BreakerRecord]:
        return [breaker_from(row) for row in self._file.read(SQL["breakers"])]

    def reset_breaker(self, name: str) -> bool:
        return bool(self._file.read(SQL["reset_breaker"], name))

    def _gate(self, db: apsw.Cursor) -> Gate:
        rows = fetched(db, SQL["circuits"])
        circuits = dict(circuit_from(row[:-1]) for row in rows)
        return Gate(self._clock.now(), circuits, [row[0] for row in rows if row[-1]])

    def _count(self, db: apsw.Cursor, counted: Iterable[GuardedOutcome]) -> None:
        gate = self._gate(db)
        gate.count(counted)
        self._close_gate(db, gate)

    def _close_gate(self, db: apsw.Cursor, gate: Gate) -> None:
        """Write what has become of the breakers, and of the tasks that they sent away."""
        for task, ended in gate.refused:
            known_by = (task.run_id, task.place, task.attempt)
            db.execute(SQL["delete_queued"], known_by)
            db.execute(SQL["tell"], (task.run_id, encoded(ended), task.place, task.attempt))
        db.executemany(SQL["put_breaker"], [breaker_row(*changed) for changed in gate.changed.items()])

    # -- time

    def fire_timers(
        self, root_run_id: int | None = None, *, holder: str = "", ahead: Mapping[int, timedelta] = NOBODY_AHEAD
    ) -> int:
        now = self._clock.now()
        wall = now + self._clock.stepped()

        def due(db: apsw.Cursor) -> list[tuple[datetime, list[Any]]]:
            """The timers that are due, by the time of their runs."""
            rows = fetched(db, *_below("due_timers", root_run_id, micros(now), micros(wall), holder))
            found = [(now + ahead.get(row[0], _NONE), row) for row in rows]
            for run_id, more in ahead.items():
                rows = fetched(db, SQL["due_timers_of"], run_id, micros(now + more))
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
            db.executemany(SQL["tell"], fired)
            return len(timers)

        return self._file.write(work) if self._file.read_together(due) else 0

    def next_due(
        self, root_run_id: int | None = None, *, holder: str = "", ahead: Mapping[int, timedelta] = NOBODY_AHEAD
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

    def has_news(self) -> bool:
        version = self._file.version()
        if version == self._seen_version:
            return False
        self._seen_version = version
        return True

    def fileno(self) -> int | None:
        return None

    def hear_ends(self) -> None:
        """Whatever another process writes is news."""


def _is_registered(db: apsw.Cursor, name: str) -> bool:
    return bool(fetched(db, SQL["is_registered"], name))


def _below(name: str, root_run_id: int | None, *params: Any) -> tuple[Any, ...]:
    """The statement about the timers of all runs, or of those below one root, and what it is given."""
    return (SQL[name], *params) if root_run_id is None else (SQL[f"{name}_below"], *params, root_run_id)


def _array(values: Collection[Any]) -> str:
    return encoded(list(values)).decode()


def _worker(data: bytes, is_expired: bool, beat_at: int) -> WorkerRecord:
    return replace(worker_from(data), is_expired=is_expired, beat_at=moment_from(beat_at))
