"""The store on a PostgreSQL server: for any number of hosts. Its clock is the server's."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import Any

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
    BreakerRecord,
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
from mulligan.store.artifact_rows import ArtifactRows
from mulligan.store.columns import breaker_from, circuit_from, run_from, waiting_from
from mulligan.store.encoding import answer_from, encoded, moment_from, report_from, task_from, worker_from
from mulligan.store.gate import Gate, breaker_row
from mulligan.store.postgres_arrays import Bigints, Texts
from mulligan.store.postgres_commit import KNOWN_BY, TOLD, arrays, committed, inserted, written
from mulligan.store.postgres_link import PostgresLink, Statement, Unexpected
from mulligan.store.postgres_lists import PostgresRunLists
from mulligan.store.room import Room

_NO_LIMIT = 2**63 - 1
# Nothing at the gate asks for the time.
_NO_MATTER_WHEN = moment_from(0)


class PostgresStore:
    """Runs on a server, in the first schema of the URL's search path. Heartbeats count by the server's clock."""

    is_shared = True
    is_in_place = True

    def __init__(self, url: str, *, lease_seconds: float = 30.0) -> None:
        self._lease = int(lease_seconds * 1_000_000)
        self._link = PostgresLink(url, lease_seconds)
        self.artifacts = ArtifactRows(self._link)
        self.lists: RunLists = PostgresRunLists(self._link)

    def close(self) -> None:
        self._link.close()

    # -- workers

    def register(self, worker: WorkerRecord) -> None:
        self._link.read("register", worker.name, worker.host, encoded(worker))

    def beat(self, name: str) -> bool:
        return bool(self._link.read("beat", name))

    def retire(self, name: str) -> None:
        self.bury(name, is_dead=True)

    def workers(self) -> list[WorkerRecord]:
        rows = self._link.read("workers", self._lease)
        return [
            replace(worker_from(record), is_expired=is_expired, beat_at=moment_from(beat_at))
            for record, is_expired, beat_at in rows
        ]

    def bury(self, name: str, *, is_dead: bool = False) -> bool:
        def work() -> bool:
            gone = self._link.ask("remove_worker", name, is_dead, self._lease)
            if not gone:
                return False
            at = moment_from(gone[0][0])
            self._link.ask("void_turns", name)
            lost = self._link.ask("void_leases", name)
            self._tell([(run, place, number, LeaseExpired(at, place, number, name)) for run, place, number in lost])
            return True

        return self._link.write(work)

    def _tell(self, told: Sequence[tuple[int, str, int, Report]]) -> None:
        """Put reports about tasks into the inboxes of their runs, and wake whoever holds those."""
        if not told:
            return
        rows = [(run_id, encoded(report), place, attempt) for run_id, place, attempt, report in told]
        self._link.ask("tell", *arrays(TOLD, rows))
        self._link.ask("notify", self._link.channel, Texts(sorted({str(row[0]) for row in rows})))

    # -- runs

    def create(self, runs: Sequence[NewRun], holder: str = "") -> list[Turn]:
        if not runs:
            return []
        turns = self._new_turns(len(runs), holder)
        asked: list[Statement] = [("expect_worker", [holder])] if holder else []
        asked += inserted(runs, turns, [None] * len(runs))
        if not holder:
            asked.append(("notify", [self._link.channel, Texts(str(turn.run_id) for turn in turns)]))
        try:
            self._link.together(asked)
        except Unexpected as error:
            if error.what == "key":
                self._refuse_used([run.key for run in runs])
            raise refusals.unknown_holder(holder) from error
        return turns

    def _refuse_used(self, keys: Sequence[str]) -> None:
        rows = self._link.read("started", Texts(key for key in keys if key))
        raise refusals.key_used(*rows[0]) if rows else refusals.key_forgotten()

    def _new_turns(self, count: int, holder: str) -> list[Turn]:
        rows = self._link.read("new_run_ids", count) if count else []
        return [Turn(run_id, holder, 1 if holder else 0) for (run_id,) in rows]

    def run(self, run_id: int) -> RunRecord:
        rows = self._link.read("run", run_id)
        if not rows:
            raise refusals.unknown_run(run_id)
        return run_from(rows[0])

    def runs(self, *, limit: int = 50, before: int | None = None, statuses: Collection[str] = ()) -> list[RunRecord]:
        behind = _NO_LIMIT if before is None else before
        wanted = Texts(statuses)
        if statuses and RUN_ENDED.isdisjoint(statuses):
            return [run_from(row) for row in self._link.read("unfinished_runs", behind, wanted, limit)]
        return [run_from(row) for row in self._link.read("runs", behind, wanted, wanted, limit)]

    def children(self, run_id: int) -> list[RunRecord]:
        return [run_from(row) for row in self._link.read("children", run_id)]

    def load(self, run_id: int) -> Loaded:
        def work() -> Loaded:
            # The run's line is locked, so that nobody commits between the three.
            record = self._link.ask("lock_run", run_id)
            if not record:
                raise refusals.unknown_run(run_id)
            body = self._link.ask("workflow", record[0][2])
            if not body:
                raise refusals.no_workflow(run_id)
            return Loaded(run_from(record[0]), body[0][0], self._link.ask("rows", run_id))

        return self._link.write(work)

    def log(self, run_id: int, after: int = 0, limit: int | None = None) -> list[Entry]:
        rows = self._link.read("log", run_id, after, _NO_LIMIT if limit is None else limit)
        return [decode(data) for (data,) in rows]

    def waiting(self) -> list[Waiting]:
        return [waiting_from(row) for row in self._link.read("waiting")]

    def kept(self, kind: str) -> list[tuple[int, str, bytes]]:
        return self._link.read("kept", kind)

    def lately(self, workflow: str, kind: str, key: str, limit: int) -> list[tuple[int, bytes]]:
        return self._link.read("lately", kind, key, workflow, limit)

    def tagged(self, tag: str, limit: int) -> list[tuple[int, str, str, bytes]]:
        return self._link.read("tagged", tag, limit)

    def mentioning(self, text: str) -> Iterator[tuple[int, bytes]]:
        for run_id, data in self._link.read("mentioning", text=text.encode()):
            yield run_id, bytes(data)

    def remove(self, root_run_ids: Collection[int]) -> list[int]:
        wanted = Bigints(root_run_ids)

        def work() -> list[tuple[int, str]]:
            self._link.ask("lock_trees", wanted)
            found: list[tuple[int, str]] = self._link.ask("removable", wanted)
            gone = [run_id for run_id, _ in found]
            for name in (
                "remove_events",
                "remove_rows",
                "remove_tasks",
                "remove_timers",
                "remove_starts",
                "remove_attributes",
                "remove_runs",
            ):
                self._link.ask(name, Bigints(gone))
            return found

        def forget_workflows(versions: Texts) -> None:
            self._link.ask("lock_workflows")
            self._link.ask("remove_workflows", versions)

        found = self._link.write(work)
        if found:
            self._link.write(partial(forget_workflows, Texts({version for _, version in found})))
        return [run_id for run_id, _ in found]

    # -- inboxes

    def put(self, run_id: int, report: Report, *, is_asking: bool = False) -> int:
        rows = self._link.read("put", encoded(report), is_asking, run_id, self._link.channel)
        if not rows:
            raise refusals.unknown_run(run_id)
        message_id: int = rows[0][0]
        return message_id

    def answer(self, message_id: int) -> Answer | None:
        rows = self._link.read("answer", message_id)
        return answer_from(rows[0][0]) if rows else None

    def inbox(self, run_ids: Collection[int]) -> list[Message]:
        rows = self._link.read("inbox", Bigints(run_ids))
        return [Message(id_, run_id, report_from(data), asks) for id_, run_id, data, asks in rows]

    def called(self, holder: str, root_run_id: int | None = None) -> list[int]:
        return [run_id for (run_id,) in self._link.read("called", holder=holder, root=root_run_id)]

    # -- turns

    def take_turns(self, run_ids: Collection[int], holder: str) -> list[Turn]:
        (rows,) = self._link.together([("take_turns", [holder, Bigints(run_ids)])])
        return [Turn(run_id, holder, fence) for run_id, fence in sorted(rows)]

    def release(self, turns: Iterable[Turn]) -> None:
        rows = [(turn.run_id, turn.fence, turn.holder) for turn in turns]
        self._link.together([("release", arrays((Bigints, Bigints, Texts), rows))])

    def commit(self, commits: Sequence[Commit]) -> list[Committed]:
        if not commits:
            return []
        refusals.check_batch(commits)
        children = [turn for commit in commits for turn in self._new_turns(len(commit.children), commit.turn.holder)]
        asked = list(written(commits, children, self._link.channel, self._link.ends_channel))
        counted = [one for commit in commits for one in commit.counted]
        with _refused(commits):
            found = (
                self._link.write(lambda: self._ask_and_count(asked, counted)) if counted else self._link.together(asked)
            )
        names = [name for name, _ in asked]
        tickets = found[names.index("take_tasks")] if "take_tasks" in names else []
        return committed(commits, tickets, children)

    def _ask_and_count(self, asked: Sequence[Statement], counted: Sequence[GuardedOutcome]) -> list[list[Any]]:
        """The breakers last, here as everywhere: nobody waits for a run or a task while it has one locked."""
        found = self._link.ask_all(asked)
        self._count(counted)
        return found

    # -- tasks

    def queued(self, run_id: int) -> list[tuple[str, int]]:
        return self._link.read("queued", run_id)

    def held(self, worker: str) -> list[Lease]:
        return [Lease(task_from(data), worker, token) for data, token in self._link.read("held", worker)]

    def has_leases(self, run_id: int) -> bool:
        return bool(self._link.read("has_leases", run_id))

    def lease(
        self, worker: str, offer: Offer, *, root_run_id: int | None = None, is_guarded: bool = False
    ) -> list[Lease]:
        if offer.tasks_max < 1:
            return []
        return self._link.write(lambda: self._hand_out(worker, offer, root_run_id, is_guarded))

    def _hand_out(self, worker: str, offer: Offer, root_run_id: int | None, is_guarded: bool) -> list[Lease]:
        found = self._free_tasks(worker, offer, root_run_id, is_guarded)
        gate = self._gate({task.guard.name for task, _ in found if task.guard is not None})
        room, tasks = Room(offer), []
        for task, needs in found:
            if room.fits(*needs) and gate.lets_pass(task):
                room.take(*needs)
                tasks.append(task)
        leases = self._leased(worker, tasks, offer.host)
        gate.leased(leases)
        self._close_gate(gate)
        if gate.turned_away and not room.is_full:
            # They stood in the place of others, and are no longer found.
            leases += self._hand_out(worker, room.rest, root_run_id, is_guarded)
        return leases

    def _free_tasks(
        self, worker: str, offer: Offer, root_run_id: int | None, is_guarded: bool
    ) -> list[tuple[Task, Sequence[Any]]]:
        """The oldest that fit, each alone, with what each needs."""
        rows = self._link.ask(
            "free_tasks",
            worker=worker,
            cpus=offer.cpus,
            memory=offer.memory,
            gpus=offer.gpus,
            labels=encoded(offer.labels).decode(),
            host=offer.host,
            root=root_run_id,
            tasks_max=offer.tasks_max,
            is_guarded=is_guarded,
        )
        return [(task_from(data), needs) for data, *needs in rows]

    def _leased(self, worker: str, tasks: Sequence[Task], host: str) -> list[Lease]:
        if not tasks:
            return []
        known_by = [(task.run_id, task.place, task.attempt) for task in tasks]
        rows = self._link.ask("lease_tasks", worker, *arrays(KNOWN_BY, known_by))
        at, tokens = moment_from(rows[0][4]), {tuple(row[:3]): row[3] for row in rows}
        self._tell([(*key, TaskStarted(at, *key[1:], worker, host)) for key in known_by])
        return [Lease(task, worker, tokens[key]) for task, key in zip(tasks, known_by, strict=True)]

    def report(self, token: int, report: Report, *, guard: Guard | None = None) -> None:
        if guard is None:
            self._accept(token, report, self._link.read)
        else:
            counted = GuardedOutcome(token, guard, breaker_verdict(report, guard))
            self._link.write(lambda: self._accept_and_count(report, counted))

    def _accept(self, token: int, report: Report, ask: Callable[..., list[Any]]) -> None:
        if not ask("report", token, encoded(report), self._link.channel):
            raise refusals.stale_lease(token)

    def _accept_and_count(self, report: Report, counted: GuardedOutcome) -> None:
        self._accept(counted.token, report, self._link.ask)
        self._count([counted])

    def stops(self, worker: str) -> list[Stopped]:
        return [Stopped(token, grace) for token, grace in self._link.read("stops", worker)]

    # -- breakers

    def breakers(self) -> list[BreakerRecord]:
        return [breaker_from(row) for row in self._link.read("breakers")]

    def reset_breaker(self, name: str) -> bool:
        return bool(self._link.read("reset_breaker", name, self._link.channel))

    def _gate(self, names: Collection[str]) -> Gate:
        """These breakers, locked: nobody else lets anything pass, or counts, until this transaction has ended."""
        if not names:
            return Gate(_NO_MATTER_WHEN, {})
        wanted = Texts(sorted(names))
        self._link.ask("know_breakers", wanted)
        circuits = dict(circuit_from(row) for row in self._link.ask("lock_breakers", wanted))
        probing = [name for (name,) in self._link.ask("probing", wanted)]
        ((now,),) = self._link.ask("now")
        return Gate(moment_from(now), circuits, probing)

    def _count(self, counted: Sequence[GuardedOutcome]) -> None:
        gate = self._gate({one.guard.name for one in counted})
        gate.count(counted)
        self._close_gate(gate)

    def _close_gate(self, gate: Gate) -> None:
        """Write what has become of the breakers, and of the tasks that they sent away; wake who waits for that."""
        refused = [(task.run_id, task.place, task.attempt) for task, _ in gate.refused]
        if refused:
            self._link.ask("delete_queued", *arrays(KNOWN_BY, refused))
            self._tell([(*key, ended) for key, (_, ended) in zip(refused, gate.refused, strict=True)])
        changed = [breaker_row(*one) for one in gate.changed.items()]
        if changed:
            self._link.ask("put_breakers", *arrays((Texts, Texts, Bigints, Bigints, Bigints), changed))
        if gate.is_news:
            self._link.ask("notify", self._link.channel, Texts(["breakers"]))

    # -- time

    def fire_timers(
        self, root_run_id: int | None = None, *, holder: str = "", ahead: Mapping[int, timedelta] = NOBODY_AHEAD
    ) -> int:
        first = self._link.read("next_timer", root=root_run_id)
        if not first or not first[0][0]:
            return 0

        def work() -> int:
            rows = sorted(self._link.ask("due_timers", root=root_run_id), key=lambda row: row[1:])
            self._tell([(run_id, "", 0, TimerFired(moment_from(now), *timer)) for now, _, run_id, *timer in rows])
            return len(rows)

        return self._link.write(work)

    def next_due(
        self, root_run_id: int | None = None, *, holder: str = "", ahead: Mapping[int, timedelta] = NOBODY_AHEAD
    ) -> datetime | None:
        rows = self._link.read("next_due", root=root_run_id)
        return moment_from(rows[0][0]) if rows else None

    def now(self) -> datetime | None:
        return moment_from(self._link.read("now")[0][0])

    def has_news(self) -> bool:
        return self._link.has_news()

    def fileno(self) -> int | None:
        return self._link.fileno()

    def hear_ends(self) -> None:
        self._link.hear_ends()


@contextmanager
def _refused(commits: Sequence[Commit]) -> Iterator[None]:
    """What the database did not find as expected, told of the one commit, or of the batch."""
    try:
        yield
    except Unexpected as error:
        raise refusals.unexpected(commits, error.what) from error
