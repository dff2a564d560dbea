"""The store on a PostgreSQL server: for any number of hosts. Its clock is the server's."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, cast

from mulligan.core.deciding.workers.breaker import (
    Guard,
    GuardedOutcome,
    breaker_verdict,
)
from mulligan.core.effects.lease_rules import has_time_for, is_run_due
from mulligan.core.effects.tasks import Task
from mulligan.core.model.reports import Report, TaskStarted, TimerFired
from mulligan.ports import (
    NONE_AHEAD,
    AuditRecord,
    Commit,
    CommitResult,
    IdleRuns,
    Lease,
    NewRun,
    Offer,
    Poll,
    Turn,
    WorkerRecord,
)
from mulligan.store import refusals
from mulligan.store.breaker_transaction import BreakerTransaction
from mulligan.store.columns import circuit_from, message_from, stopped_from
from mulligan.store.encoding import encoded, moment_from, task_from
from mulligan.store.object_artifacts import WithObjects
from mulligan.store.postgres import postgres_commit
from mulligan.store.postgres.postgres_arrays import arrays, without_nul
from mulligan.store.postgres.postgres_artifacts import ArtifactRows
from mulligan.store.postgres.postgres_client import PostgresClient, Unexpected
from mulligan.store.postgres.postgres_commit import (
    commit_notices,
    commit_results,
    commit_statements,
    insert_run_statements,
)
from mulligan.store.postgres.postgres_lists import PostgresRunLists
from mulligan.store.remaining_capacity import RemainingCapacity
from mulligan.store.sql.sql_arrays import Bigints, Blobs, Floats, Texts
from mulligan.store.sql.sql_database import SqlDatabase, Statement
from mulligan.store.sql.sql_rows import AUDIT, MESSAGE, TASK_KEY, audit_row
from mulligan.store.sql.sql_store import SqlStore, TaskReport

# For transactions without breakers, which never need the time.
_ANY_TIME = moment_from(0)


class PostgresStore(SqlStore):
    """Runs on a server, in the first schema of the URL's search path. Heartbeats count by the server's clock."""

    is_shared = True
    is_in_place = True

    def __init__(self, url: str, *, lease_seconds: float = 30.0) -> None:
        self._client = PostgresClient(url, lease_seconds)
        super().__init__(self._client, PostgresRunLists(self._client), lease_seconds)
        self.artifacts = WithObjects(ArtifactRows(self._client))

    def _database_of_records(self) -> SqlDatabase:
        return cast(SqlDatabase, _WithoutNul(self._client))

    def _time(self) -> dict[str, int]:
        return {}

    def _now(self) -> datetime:
        return moment_from(self._client.execute("now")[0][0])

    # -- workers

    def register(self, worker: WorkerRecord) -> None:
        super().register(worker)
        self._client.listen_as(worker.name)

    def retire(self, name: str) -> None:
        self._client.stop_listening_as(name)
        super().retire(name)

    def _message_statement(self, messages: Sequence[TaskReport], sender: str = "") -> Statement:
        """Put reports about tasks into the inboxes of their runs, and then notify the holders, except the sender."""
        rows = [(run_id, encoded(report), place, attempt) for run_id, place, attempt, report in messages]
        self._client.notify(self._notify_holders({row[0] for row in rows}, sender))
        return "insert_messages", arrays(MESSAGE, rows)

    def _notify_holders(self, run_ids: Collection[int], sender: str = "") -> Statement:
        return "notify_holders", [*self._client.channels, Bigints(run_ids), sender]

    def _add_messages(self, messages: Sequence[TaskReport]) -> None:
        if messages:
            self._client.execute_in_pipeline([self._message_statement(messages)])

    # -- runs

    def create(self, runs: Sequence[NewRun], holder: str = "", *, audit: Sequence[AuditRecord] = ()) -> list[Turn]:
        if not runs:
            return []
        turns = self._new_turns(len(runs), holder)
        asked: list[Statement] = [("expect_worker", [holder])] if holder else []
        asked += insert_run_statements(runs, turns, [None] * len(runs))
        if audit:
            asked.append(("insert_audit", arrays(AUDIT, map(audit_row, audit))))
        created = Texts(str(turn.run_id) for turn in turns)
        notices: list[Statement] = [] if holder else [("notify", [self._client.channel, created])]
        try:
            self._client.execute_batch(asked, notices)
        except Unexpected as error:
            if error.what == "key":
                self._refuse_used([run.key for run in runs])
            raise refusals.unknown_holder(holder) from error
        return turns

    def run_under(self, key: str) -> int | None:
        return next((run_id for _, run_id in self._client.query("started", Texts([key]))), None)

    def runs_under(self, ending: str) -> list[tuple[str, int]]:
        return [(key, run_id) for key, run_id in self._client.query("keys_ending_with", ending=ending)]

    def _refuse_used(self, keys: Sequence[str]) -> None:
        rows = self._client.query("started", Texts(key for key in keys if key))
        raise refusals.key_used(*rows[0]) if rows else refusals.key_forgotten()

    def _new_turns(self, count: int, holder: str) -> list[Turn]:
        rows = self._client.query("new_run_ids", count) if count else []
        return [Turn(run_id, holder, 1 if holder else 0) for (run_id,) in rows]

    def _loaded(self, run_ids: Collection[int]) -> Sequence[list[Any]]:
        wanted = [Bigints(run_ids)]
        return self._client.read_together([("runs_with_ids", wanted), ("workflows", wanted), ("rows", wanted)])

    def skip_run_ids(self, last: int) -> int:
        ((highest,),) = self._client.query("highest_run_id")
        if last > highest:
            # Taken, not set: other processes take ids at the same time.
            self._client.query("new_run_ids", last - highest)
        return int(highest)

    def remove(self, root_run_ids: Collection[int], *, is_forced: bool = False) -> list[int]:
        def work() -> list[tuple[int, str, str]]:
            self._client.execute("lock_trees", Bigints(root_run_ids))
            return self._remove_runs(root_run_ids, is_forced=is_forced)

        def forget_workflows() -> None:
            self._client.execute("lock_workflows")
            self._client.execute("remove_workflows", *arrays((Texts, Texts), {row[1:] for row in found}))

        found = self._client.write(work)
        if found:
            self._client.write(forget_workflows)
        return [run_id for run_id, _, _ in found]

    # -- inboxes

    def put(self, run_id: int, report: Report, *, is_asking: bool = False) -> int:
        notices: list[Statement] = [("notify", [self._client.channel, Texts([str(run_id)])])]
        (rows,) = self._client.execute_batch([("put", [encoded(report), is_asking, run_id])], notices)
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
        called, messages, stops, due = self._client.execute_batch(
            [
                ("runs_with_messages", {"holder": worker, "root": root_run_id}),
                ("inboxes_of", [worker]),
                ("stop_requests", [worker]),
                ("next_due", {"root": root_run_id}),
            ]
        )
        return Poll(
            [run_id for (run_id,) in called],
            [message_from(row) for row in messages],
            [stopped_from(row) for row in stops],
            moment_from(due[0][0]) if due else None,
        )

    # -- turns

    def take_turns(self, run_ids: Collection[int], holder: str) -> list[Turn]:
        (rows,) = self._client.execute_batch([("take_turns", [holder, Bigints(run_ids)])])
        return [Turn(run_id, holder, fence) for run_id, fence in sorted(rows)]

    def idle_runs(self, holder: str, after: tuple[int, int], limit: int) -> IdleRuns:
        return IdleRuns([], None)

    def runs_with_work(self, run_ids: Collection[int]) -> list[int]:
        return []

    def release(self, turns: Iterable[Turn]) -> None:
        rows = [(turn.run_id, turn.fence, turn.holder) for turn in turns]
        self._client.execute_batch([("release", arrays((Bigints, Bigints, Texts), rows))])

    def commit(self, commits: Sequence[Commit]) -> list[CommitResult]:
        if not commits:
            return []
        if len(commits) == 1 and commits[0].is_ordinary:
            return [self._commit_ordinary(commits[0])]
        refusals.check_batch(commits)
        children = [turn for commit in commits for turn in self._new_turns(len(commit.children), commit.turn.holder)]
        asked = list(commit_statements(commits, children, self._client.channel))
        notices = list(commit_notices(commits, self._client.channel, self._client.ends_channel))
        counted = [one for commit in commits for one in commit.counted]
        with _translate_conflicts(commits):
            found = (
                self._client.write(lambda: self._ask_and_count(asked, counted, notices))
                if counted
                else self._client.execute_batch(asked, notices)
            )
        numbers = [
            row for (name, _), rows in zip(asked, found, strict=True) if name.startswith("take_tasks") for row in rows
        ]
        return commit_results(commits, numbers, children)

    def _commit_ordinary(self, commit: Commit) -> CommitResult:
        asked = postgres_commit.ordinary_statements(commit)
        with _translate_conflicts([commit]):
            found = self._client.execute_batch(asked)
        if not commit.taken:
            return CommitResult()
        tokens = {(place, attempt): number for _, place, attempt, number in found[-1]}
        return CommitResult([Lease(t, commit.turn.holder, tokens[t.place, t.attempt]) for t in commit.taken])

    def _ask_and_count(
        self, asked: Sequence[Statement], counted: Sequence[GuardedOutcome], notices: Sequence[Statement]
    ) -> list[list[Any]]:
        """Lock breakers last, as everywhere: no transaction waits for a run or a task while it holds a breaker."""
        for notice in notices:
            self._client.notify(notice)
        found = self._client.execute_in_pipeline(asked)
        self._count(counted)
        return found

    # -- tasks

    def lease(
        self, worker: str, offer: Offer, *, root_run_id: int | None = None, is_guarded: bool = False
    ) -> list[Lease]:
        if offer.tasks_max < 1 and offer.ahead < 1:
            return []
        return self._client.write(lambda: self._hand_out(worker, offer, root_run_id, is_guarded))

    def _hand_out(self, worker: str, offer: Offer, root_run_id: int | None, is_guarded: bool) -> list[Lease]:
        _, rows = self._client.execute_in_pipeline(self._free_tasks(worker, offer, root_run_id, is_guarded))
        return self._lease_found(rows, worker, offer, root_run_id, is_guarded)

    def _lease_found(
        self, rows: Sequence[Sequence[Any]], worker: str, offer: Offer, root_run_id: int | None, is_guarded: bool
    ) -> list[Lease]:
        """Lease those of the found tasks that fit together and that their breakers admit."""
        found = [(task_from(data), needs) for data, _, _, *needs in rows]
        queued, at = (rows[0][1], moment_from(rows[0][2])) if rows else (0, _ANY_TIME)
        if late := {task.run_id for task, _ in found if is_run_due(task, at)}:
            late -= {run_id for (run_id,) in self._client.execute("runs_with_time_left", Bigints(late))}
            found = [(task, needs) for task, needs in found if not is_run_due(task, at) or task.run_id not in late]
        breakers = self._load_breakers({task.guard.name for task, _ in found if task.guard is not None})
        capacity, tasks = RemainingCapacity(offer), []
        capacity.allow_ahead(queued)
        for task, needs in found:
            # The statement has looked as well: a task that is left here would take the place of others.
            has_time = has_time_for(task, offer.seconds_left)
            if has_time and capacity.fits(*needs) and breakers.admits(task):
                capacity.take(*needs)
                tasks.append(task)
            elif has_time and capacity.may_hold(task):
                capacity.hold()
                tasks.append(task)
        if tasks and not breakers.circuits:
            return self._leased(worker, tasks, offer.host, at, self._client.execute_last)
        leases = self._leased(worker, tasks, offer.host, at, self._client.execute_in_pipeline)
        breakers.note_leases(leases)
        self._write_breakers(breakers)
        if breakers.rejected and not capacity.is_full:
            # They took the place of other tasks, and will not be found again.
            leases += self._hand_out(worker, capacity.rest, root_run_id, is_guarded)
        return leases

    def _free_tasks(
        self, worker: str, offer: Offer, root_run_id: int | None, is_guarded: bool
    ) -> tuple[Statement, Statement]:
        """The second finds the oldest tasks that fit, each on its own, with what it needs.

        And, if there are any, how many wait in the store, as far as it matters, and the time.
        """
        asked = {
            "worker": worker,
            # What is leased ahead asks for one processor.
            "cpus": max(offer.cpus, 1.0) if offer.ahead else offer.cpus,
            "refused_cpus": Floats(offer.refused_cpus),
            "memory": offer.memory,
            "gpus": offer.gpus,
            "labels": encoded(offer.labels).decode(),
            "host": offer.host,
            "root": root_run_id,
            "project": offer.project,
            "seconds_left": offer.seconds_left,
            "nodes": offer.nodes,
            "nodes_min": offer.nodes_min,
            "tasks_max": offer.tasks_max,
            "ahead": offer.ahead,
            "is_guarded": is_guarded,
            # As a task has it: reading all of its JSON would take longer.
            "lacks": Blobs([b'"home":' + encoded(folder) for folder in offer.lacks]),
        }
        return ("read_by_index", ()), ("free_tasks", asked)

    def _leased(
        self,
        worker: str,
        tasks: Sequence[Task],
        host: str,
        at: datetime,
        execute: Callable[[Sequence[Statement]], list[list[Any]]],
    ) -> list[Lease]:
        if not tasks:
            return []
        task_key = [(task.run_id, task.place, task.attempt) for task in tasks]
        started = [
            (*key, TaskStarted(at, *key[1:], worker, host, task.turn_number))
            for key, task in zip(task_key, tasks, strict=True)
        ]
        asked: Statement = ("lease_tasks", [worker, *arrays(TASK_KEY, task_key)])
        rows = execute([asked, self._message_statement(started, worker)])[0]
        tokens = {tuple(row[:3]): row[3] for row in rows}
        return [Lease(task, worker, tokens[key]) for task, key in zip(tasks, task_key, strict=True)]

    def report(self, token: int, report: Report, *, guard: Guard | None = None) -> None:
        if not self._reported([(token, report, guard)]):
            raise refusals.stale_lease(token)

    def report_all(self, ended: Sequence[tuple[int, Report, Guard | None]]) -> bool:
        return any(is_free for _, is_free, _ in self._reported(ended))

    def _reported(self, ended: Sequence[tuple[int, Report, Guard | None]]) -> list[tuple[int, bool, int]]:
        """End the leases that are not void. For each: token, whether the turn of its run is free, run."""
        asked = _report_statement(ended)
        guards = {token: (guard, report) for token, report, guard in ended if guard is not None}
        if guards:
            return self._client.write(lambda: self._accept_and_count(asked, guards))
        (taken,) = self._client.execute_batch([asked])
        if taken:
            self._client.execute_batch([self._notify_holders({run_id for _, _, run_id in taken})])
        return taken

    def _accept_and_count(
        self, asked: Statement, guards: Mapping[int, tuple[Guard, Report]]
    ) -> list[tuple[int, bool, int]]:
        (taken,) = self._client.execute_in_pipeline([asked])
        self._client.notify(self._notify_holders({run_id for _, _, run_id in taken}))
        counted = [
            GuardedOutcome(token, guards[token][0], breaker_verdict(guards[token][1], guards[token][0]))
            for token, _, _ in taken
            if token in guards
        ]
        if counted:
            self._count(counted)
        return taken

    def report_and_lease(
        self,
        worker: str,
        ended: Sequence[tuple[int, Report, Guard | None]],
        offer: Offer,
        *,
        root_run_id: int | None = None,
    ) -> tuple[bool, list[Lease]]:
        has_guards = any(guard is not None for _, _, guard in ended)
        if not ended or has_guards or (offer.tasks_max < 1 and offer.ahead < 1):
            # Breakers are locked last: not before tasks are looked for.
            is_free = bool(ended) and self.report_all(ended)
            return is_free, self.lease(worker, offer, root_run_id=root_run_id)

        def work() -> tuple[bool, list[Lease]]:
            asked = [_report_statement(ended), *self._free_tasks(worker, offer, root_run_id, is_guarded=False)]
            taken, _, found = self._client.execute_in_pipeline(asked)
            if taken:
                self._client.notify(self._notify_holders({run_id for _, _, run_id in taken}))
            leases = self._lease_found(found, worker, offer, root_run_id, is_guarded=False)
            return any(is_free for _, is_free, _ in taken), leases

        return self._client.write(work)

    # -- breakers

    def reset_breaker(self, name: str) -> bool:
        return bool(self._client.query("reset_breaker", name, self._client.channel))

    def _load_breakers(self, names: Collection[str]) -> BreakerTransaction:
        """Lock these breakers: no other transaction admits tasks or counts outcomes until this one has ended."""
        if not names:
            return BreakerTransaction(_ANY_TIME, {})
        wanted = Texts(sorted(names))
        self._client.execute("ensure_breakers", wanted)
        circuits = dict(circuit_from(row) for row in self._client.execute("lock_breakers", wanted))
        behind = self._client.execute("behind_breakers", wanted)
        now = self._now()
        probing = [name for name, is_probing, _ in behind if is_probing]
        return BreakerTransaction(now, circuits, probing, {name: tasks for name, _, tasks in behind})

    def _write_breakers(self, breakers: BreakerTransaction) -> None:
        super()._write_breakers(breakers)
        if breakers.may_admit_others:
            self._client.notify(("notify", [self._client.channel, Texts(["breakers"])]))

    # -- time

    def fire_timers(
        self, root_run_id: int | None = None, *, holder: str = "", ahead: Mapping[int, timedelta] = NONE_AHEAD
    ) -> int:
        first = self._client.query("next_timer", root=root_run_id)
        if not first or not first[0][0]:
            return 0

        def work() -> int:
            rows = sorted(self._client.execute("due_timers", root=root_run_id), key=lambda row: row[1:])
            self._add_messages(
                [(run_id, "", 0, TimerFired(moment_from(now), *timer)) for now, _, run_id, *timer in rows]
            )
            return len(rows)

        return self._client.write(work)

    def next_due(
        self, root_run_id: int | None = None, *, holder: str = "", ahead: Mapping[int, timedelta] = NONE_AHEAD
    ) -> datetime | None:
        return self._first("next_due", root=root_run_id)

    def now(self) -> datetime | None:
        return self._first("now")

    def queue_mark(self) -> Hashable:
        # Each change may be about the queue.
        return object()

    def has_changes(self) -> bool:
        return self._client.has_changes()

    def version(self) -> str | None:
        """The transactions that a statement sees now: each commit changes that."""
        found: str = self._client.query("store_version")[0][0]
        return found

    def fileno(self) -> int | None:
        return self._client.fileno()

    def watch_run_ends(self) -> None:
        self._client.watch_run_ends()


class _WithoutNul:
    """A client that replaces NUL in texts, which the server refuses."""

    def __init__(self, client: PostgresClient) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def query(self, name: str, /, *params: Any, **named: Any) -> list[Any]:
        return self.execute_batch([(name, named or params)])[0]

    def execute(self, name: str, /, *params: Any, **named: Any) -> list[Any]:
        return self._client.execute_in_pipeline([_accepted((name, named or params))])[0]

    def execute_batch(self, asked: Sequence[Statement]) -> list[list[Any]]:
        return self._client.execute_batch([*map(_accepted, asked)])


def _accepted(asked: Statement) -> Statement:
    name, given = asked
    if isinstance(given, dict):
        return name, {key: without_nul(value) if isinstance(value, str) else value for key, value in given.items()}
    return name, [without_nul(value) if isinstance(value, str) else value for value in given]


def _report_statement(ended: Sequence[tuple[int, Report, Guard | None]]) -> Statement:
    return "report", arrays((Bigints, Blobs), [(token, encoded(report)) for token, report, _ in ended])


@contextmanager
def _translate_conflicts(commits: Sequence[Commit]) -> Iterator[None]:
    """Translate a failed expectation of the database into a Conflict about the one commit, or the batch."""
    try:
        yield
    except Unexpected as error:
        raise refusals.unexpected(commits, error.what) from error
