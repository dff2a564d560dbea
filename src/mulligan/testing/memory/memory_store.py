"""The store in memory, for tests and simulations: the same promises while the process is alive."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import islice

from msgspec.structs import replace

from mulligan.core.deciding.workers.breaker import (
    CLOSED,
    OUTSIDE,
    Guard,
    GuardedOutcome,
    Verdict,
    breaker_verdict,
    no_capacity_outcome,
)
from mulligan.core.effects.lease_rules import has_time_for, is_run_due, may_run_on
from mulligan.core.effects.run_lists import QueuedShape, RunFilter
from mulligan.core.effects.snapshot import WAITING_TAGS
from mulligan.core.model import codec
from mulligan.core.model.clusters.scheduler_job import JobEnd
from mulligan.core.model.events import Entry
from mulligan.core.model.reports import LeaseExpired, Report, TaskEnded, TaskStarted, TimerFired
from mulligan.core.model.workflow import Breaker
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.errors import StaleLease
from mulligan.ports import (
    ANSWERS_BEHIND_MAX,
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
from mulligan.store.breaker_transaction import BreakerTransaction
from mulligan.store.clock import PROCESS_CLOCK
from mulligan.store.encoding import encoded, entries_containing
from mulligan.store.object_artifacts import WithObjects
from mulligan.store.remaining_capacity import RemainingCapacity
from mulligan.testing.memory.artifact_memory import ArtifactMemory
from mulligan.testing.memory.memory_lists import MemoryRunLists
from mulligan.testing.memory.memory_tables import MemoryTables, StoredRun, StoredTask, StoredWorker, Timer

_NONE = timedelta(0)


class MemoryStore:
    """Runs in memory. Stores with the same `tables` see the same runs, like connections to one database.

    `is_shared`: workers treat it as a server that several hosts share.
    """

    is_in_place = True

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        lease_seconds: float = 30.0,
        tables: MemoryTables | None = None,
        is_shared: bool = False,
    ) -> None:
        self.is_shared = is_shared
        self.tables = tables or MemoryTables()
        self._clock = clock or PROCESS_CLOCK
        self._lease = timedelta(seconds=lease_seconds)
        self.artifacts: Artifacts = WithObjects(ArtifactMemory(self.tables.artifacts, self._clock))
        self.lists: RunLists = MemoryRunLists(self.tables)
        self._own_writes = 0
        self._seen_writes = self.tables.writes

    @property
    def server_records(self) -> ServerRecords:
        return self.tables.server_records

    def close(self) -> None:
        """The tables stay for other stores."""

    def _wrote(self) -> None:
        self.tables.writes += 1
        self._own_writes += 1

    # -- workers

    def register(self, worker: WorkerRecord) -> None:
        self.tables.workers[worker.name] = StoredWorker(worker, self._clock.now())
        self._wrote()

    def record_heartbeat(self, name: str) -> datetime | None:
        worker = self.tables.workers.get(name)
        if worker is None:
            return None
        worker.beat_at = self._clock.now()
        self._wrote()
        return worker.beat_at

    def set_trouble(self, name: str, trouble: str) -> None:
        if (worker := self.tables.workers.get(name)) is not None:
            worker.record = replace(worker.record, trouble=trouble)
            self._wrote()

    def retire(self, name: str) -> None:
        self.expire(name, is_dead=True)

    def workers(self) -> list[WorkerRecord]:
        found = sorted(self.tables.workers.items())
        return [
            replace(worker.record, is_expired=self._is_expired(worker), beat_at=worker.beat_at) for _, worker in found
        ]

    def _is_expired(self, worker: StoredWorker) -> bool:
        return worker.beat_at < self._clock.now() - self._lease

    def expire(self, name: str, *, is_dead: bool = False, job: JobEnd | None = None) -> bool:
        worker = self.tables.workers.get(name)
        if worker is None or not (is_dead or self._is_expired(worker)):
            return False
        del self.tables.workers[name]
        for run in self.tables.runs.values():
            run.holder = "" if run.holder == name else run.holder
        at = self._clock.now()
        for kept in self._held(name):
            self._end(kept, LeaseExpired(at, kept.task.place, kept.task.attempt, name, job))
        self._wrote()
        return True

    # -- runs

    def create(self, runs: Sequence[NewRun], holder: str = "", *, audit: Sequence[AuditRecord] = ()) -> list[Turn]:
        if holder and holder not in self.tables.workers:
            raise refusals.unknown_holder(holder)
        for run in runs:
            if run.key in self.tables.starts:
                raise refusals.key_used(run.key, self.tables.starts[run.key])
        self._wrote()
        if audit:
            self.server_records.add_audit(audit)
        return [self._create(run, holder) for run in runs]

    def _create(self, new: NewRun, holder: str, parent: StoredRun | None = None) -> Turn:
        run = self.tables.add_run(new, parent)
        run.holder, run.fence = holder, 1 if holder else 0
        self.tables.add_message(run.run_id, replace(new.request, run_id=run.run_id))
        return Turn(run.run_id, holder, run.fence)

    def run(self, run_id: int) -> RunRecord:
        return self.tables.run(run_id).record()

    def runs(self, *, limit: int = 50, before: int | None = None, statuses: Collection[str] = ()) -> list[RunRecord]:
        return self.lists.find(RunFilter(statuses=tuple(statuses), with_children=True), limit=limit, before=before)

    def children(self, run_id: int) -> list[RunRecord]:
        return [run.record() for run in self.tables.children(run_id)]

    def load(self, run_id: int) -> LoadedRun:
        run = self.tables.run(run_id)
        return LoadedRun(run.record(), run.new.workflow, [(*key, *row) for key, row in sorted(run.rows.items())])

    def load_all(self, run_ids: Collection[int]) -> list[LoadedRun]:
        return [self.load(run_id) for run_id in run_ids if run_id in self.tables.runs]

    def log(self, run_id: int, after: int = 0, limit: int | None = None) -> list[Entry]:
        run = self.tables.runs.get(run_id)
        behind = [entry for entry in run.log if entry.seq > after] if run else []
        return behind[:limit]

    def search_log(self, run_id: int, any_of: tuple[str, ...], after: int = 0, *, also: str = "{") -> list[Entry]:
        return entries_containing(self.log(run_id, after), any_of, also)

    def run_under(self, key: str) -> int | None:
        return self.tables.starts.get(key)

    def runs_under(self, ending: str) -> list[tuple[str, int]]:
        return sorted((one for one in self.tables.starts.items() if one[0].endswith(ending)), key=lambda one: one[1])

    def waiting_places(self) -> list[WaitingPlace]:
        return [
            WaitingPlace(run.run_id, key, tag, run.root_run_id)
            for run in self.tables.runs.values()
            if run.status not in RUN_ENDED
            for (_, key), (tag, _) in sorted(run.rows.items(), key=lambda row: row[0][1])
            if tag in WAITING_TAGS
        ]

    def tallies(
        self, workflow: str | None = None, since: datetime | None = None, project: str | None = None
    ) -> list[tuple[int, str, str, str, bytes]]:
        return [
            (run.run_id, run.new.name, run.new.version, key, data)
            for run in reversed(self.tables.runs.values())
            if workflow in (None, run.new.name) and project in (None, run.new.project)
            if since is None or run.new.request.at >= since
            for (kind, key), (_, data) in sorted(run.rows.items())
            if kind == "tallies"
        ]

    def recent_rows(self, workflow: str, kind: str, key: str, limit: int) -> list[tuple[int, bytes]]:
        runs = (run for run in reversed(self.tables.runs.values()) if run.new.name == workflow)
        rows = ((run.run_id, *run.rows[kind, key]) for run in runs if (kind, key) in run.rows)
        return list(islice(((run_id, data) for run_id, tag, data in rows if tag not in WAITING_TAGS), limit))

    def tagged_rows(self, tag: str, limit: int, beside: int | None = None) -> list[tuple[int, str, str, bytes]]:
        runs = self.tables.runs
        projects = {run.new.project for run in runs.values() if beside in (None, run.run_id)}
        rows = (
            (run.run_id, run.status, key, data)
            for run in reversed(runs.values())
            for (_, key), (tag_, data) in sorted(run.rows.items())
            if tag and tag_ == tag and run.new.project in projects
        )
        return list(islice(rows, limit))

    def records_containing(self, text: str) -> Iterator[tuple[int, bytes]]:
        entries = ((run.run_id, codec.encode(entry)) for run in self.tables.runs.values() for entry in run.log)
        messages = ((kept.message.run_id, encoded(kept.message.report)) for kept in self.tables.messages.values())
        tasks = ((kept.task.run_id, encoded(kept.task)) for kept in self.tables.tasks.values())
        return (record for record in (*entries, *messages, *tasks) if text.encode() in record[1])

    def check_schema(self) -> None:
        """Nobody migrates what is in memory."""

    def skip_run_ids(self, last: int) -> int:
        highest = self.tables.last_run_id
        self.tables.last_run_id = max(highest, last)
        return highest

    def remove(self, root_run_ids: Collection[int], *, is_forced: bool = False) -> list[int]:
        with_messages = {kept.message.run_id for kept in self.tables.messages.values()}
        runs = [run for run in self.tables.runs.values() if run.root_run_id in set(root_run_ids)]
        in_use = (run for run in runs if run.status not in RUN_ENDED or run.holder or run.run_id in with_messages)
        busy = set() if is_forced else {run.root_run_id for run in in_use}
        gone = [run for run in runs if run.root_run_id not in busy]
        for run in gone:
            self._end_round(run)
            for kept in self._tasks_of(run):
                self.tables.remove_task(kept)
            for message_id in [key for key, kept in self.tables.messages.items() if kept.message.run_id == run.run_id]:
                del self.tables.messages[message_id]
            self.tables.starts.pop(run.new.key, None)
            del self.tables.runs[run.run_id]
        run_ids = [run.run_id for run in gone]
        if self.tables.kept_server_records is not None:
            self.tables.kept_server_records.remove_with_runs(run_ids)
        self._wrote()
        return run_ids

    # -- inboxes

    def put(self, run_id: int, report: Report, *, is_asking: bool = False) -> int:
        self.tables.run(run_id)
        self._wrote()
        return self.tables.add_message(run_id, report, is_asking=is_asking)

    def answer(self, message_id: int) -> Answer | None:
        return self.tables.answers.pop(message_id, None)

    def inbox(self, run_ids: Collection[int]) -> list[Message]:
        wanted = set(run_ids)
        return [kept.message for kept in self.tables.messages.values() if kept.message.run_id in wanted]

    def runs_with_messages(self, holder: str, root_run_id: int | None = None) -> list[int]:
        run_ids = sorted({kept.message.run_id for kept in self.tables.messages.values()})
        runs = (self.tables.runs[run_id] for run_id in run_ids)
        return [run.run_id for run in runs if run.holder in ("", holder) and _is_below(run, root_run_id)]

    # -- turns

    def take_turns(self, run_ids: Collection[int], holder: str) -> list[Turn]:
        if holder not in self.tables.workers:
            return []
        self._wrote()
        runs = (self.tables.runs[run_id] for run_id in sorted(set(run_ids)) if run_id in self.tables.runs)
        return [_take_turn(run, holder) for run in runs if run.holder in ("", holder)]

    def idle_runs(self, holder: str, after: tuple[int, int], limit: int) -> IdleRuns:
        keys = ((run.root_run_id, run.run_id) for run in self.tables.runs.values() if run.status not in RUN_ENDED)
        page = sorted(key for key in keys if key > after)[:limit] if not self.is_shared else []
        idle = [run_id for _, run_id in page if self.tables.runs[run_id].holder in ("", holder)]
        return IdleRuns(idle, page[-1] if len(page) == limit else None)

    def runs_with_work(self, run_ids: Collection[int]) -> list[int]:
        return [run_id for run_id in sorted(run_ids) if self._has_work(self.tables.runs[run_id])]

    def _has_work(self, run: StoredRun) -> bool:
        tables, run_id = self.tables, run.run_id
        if run.updated_at > self._clock.now() or any(
            kept.message.run_id == run_id for kept in tables.messages.values()
        ):
            return True
        if run.status == "paused":
            return False
        tasks = [kept for kept in tables.tasks.values() if kept.task.run_id == run_id]
        if any(not kept.worker for kept in tasks):
            return True
        has_timer = any(timer[0] == run_id for timer in tables.timers)
        has_child = any(child.status not in RUN_ENDED for child in tables.children(run_id))
        return not (tasks or has_timer or has_child or any(tag in WAITING_TAGS for tag, _ in run.rows.values()))

    def release(self, turns: Iterable[Turn]) -> None:
        for turn in turns:
            run = self.tables.runs.get(turn.run_id)
            if run is not None and (run.holder, run.fence) == (turn.holder, turn.fence):
                run.holder = ""
        self._wrote()

    def commit(self, commits: Sequence[Commit]) -> list[CommitResult]:
        refusals.check_batch(commits)
        for commit in commits:
            self._check(commit)
        self._wrote()
        done = [self._write(commit) for commit in commits]
        counted = [one for commit in commits for one in commit.counted]
        if counted:
            self._count(counted)
        return done

    def _check(self, commit: Commit) -> None:
        turn = commit.turn
        run = self.tables.runs.get(turn.run_id)
        if run is None or (run.holder, run.fence, run.seq) != (turn.holder, turn.fence, commit.after):
            raise refusals.void_turn(commit)
        held = {kept.number for kept in self._held(turn.holder) if kept.task.run_id == turn.run_id}
        if len(set(commit.ended) & held) != len(commit.ended):
            raise refusals.void_lease(commit)
        for task in commit.taken:
            if not self._is_free(commit, task.place, task.attempt):
                raise refusals.not_free(task)

    def _is_free(self, commit: Commit, place: str, attempt: int) -> bool:
        """Whether no worker has the task, and the run has processed the report of an earlier lease."""
        task_key = (commit.turn.run_id, place, attempt)
        kept = self.tables.tasks.get(task_key)
        if kept is not None and kept.worker and kept.number not in commit.ended:
            return False
        drained = {message_id for message_id, _ in commit.drained}
        return not any(kept.about == task_key for id_, kept in self.tables.messages.items() if id_ not in drained)

    # -- what a commit writes: nothing is refused here

    def _write(self, commit: Commit) -> CommitResult:
        run = self.tables.run(commit.turn.run_id)
        run.advance(commit)
        self._drain(commit)
        for token in commit.ended:
            self.tables.remove_task(self._leased(token))
        leases = [self._take(commit, kept) for kept in map(self.tables.add_task, commit.taken)]
        for task in commit.queued:
            self.tables.add_task(task)
        for stop in commit.stopped:
            self._stop((run.run_id, stop.place, stop.attempt), stop.grace_seconds)
        if commit.notices:
            self.server_records.put_notices(commit.notices)
        for timer in commit.timers:
            self.tables.timers[run.run_id, timer.kind, timer.place, timer.number] = timer.due
        children = [self._create(new, commit.turn.holder, run) for new in commit.children]
        self._notify_others(commit)
        if commit.is_last:
            self._end_round(run)
        return CommitResult(leases, children)

    def _drain(self, commit: Commit) -> None:
        for message_id, answer in commit.drained:
            self.tables.messages.pop(message_id, None)
            if answer is not None:
                self.tables.answers[message_id] = answer
                for old in [one for one in self.tables.answers if one < message_id - ANSWERS_BEHIND_MAX]:
                    del self.tables.answers[old]

    def _take(self, commit: Commit, kept: StoredTask) -> Lease:
        kept.worker, kept.number, kept.leased_at = commit.turn.holder, self.tables.next_number(), commit.at
        return Lease(kept.task, kept.worker, kept.number)

    def _stop(self, task_key: tuple[int, str, int], grace_seconds: float | None) -> None:
        kept = self.tables.tasks.get(task_key)
        if kept is None:
            return
        if kept.worker:
            kept.is_stopping, kept.grace_seconds = True, grace_seconds
        else:
            self.tables.remove_task(kept)

    def _notify_others(self, commit: Commit) -> None:
        for run_id, report in commit.outgoing:
            if run_id in self.tables.runs:
                self.tables.add_message(run_id, report)
        for sent in commit.child_reports:
            for child in self.tables.children(commit.turn.run_id):
                is_meant = sent.place in ("", child.new.parent_place)
                is_meant = is_meant and (not sent.place or sent.attempt == child.new.parent_attempt)
                if is_meant and child.status not in RUN_ENDED:
                    self.tables.add_message(child.run_id, sent.report)

    def _end_round(self, run: StoredRun) -> None:
        run.holder = ""
        for timer in [timer for timer in self.tables.timers if timer[0] == run.run_id]:
            del self.tables.timers[timer]
        # A task that was leased while the turn was decided stays: its worker is asked to stop it, and reports.
        for kept in self._tasks_of(run):
            if not kept.is_stopping:
                self.tables.remove_task(kept)

    def _tasks_of(self, run: StoredRun) -> list[StoredTask]:
        return [kept for kept in self.tables.tasks.values() if kept.task.run_id == run.run_id]

    # -- tasks

    def queued_tasks(self, run_id: int) -> list[tuple[str, int]]:
        free = (kept.task for kept in self._free() if kept.task.run_id == run_id)
        return [(task.place, task.attempt) for task in free]

    def queued_shapes(self, project: str | None = None) -> list[QueuedShape]:
        found = Counter(kept.shape for kept in self._demanded(project, self._load_breakers()))
        return [replace(shape, count=count) for shape, count in found.items()]

    def refuse_queued(self, shape: QueuedShape, message: str, project: str | None = None) -> int:
        asked, now = replace(shape, count=1), self._clock.now()
        found = [kept for kept in self._demanded(project) if kept.shape == asked]
        for kept in found:
            self._end(kept, TaskEnded(now, kept.task.place, kept.task.attempt, no_capacity_outcome(message)))
        if found:
            self._wrote()
        return len(found)

    def _demanded(self, project: str | None, breakers: BreakerTransaction | None = None) -> list[StoredTask]:
        """The free tasks that any new worker may take, if their breakers let them."""
        hosts = {kept.record.host for kept in self.tables.workers.values()}
        found = []
        for kept in self._free():
            run, guard = self.tables.run(kept.task.run_id), kept.task.guard
            is_ours = project is None or run.new.project == project
            is_held = breakers is not None and guard is not None and breakers.holds(guard)
            if is_ours and run.status != "paused" and kept.task.host not in hosts and not is_held:
                found.append(kept)
        return found

    def leases_of(self, worker: str) -> list[Lease]:
        return [Lease(kept.task, worker, kept.number) for kept in self._held(worker)]

    def has_leases(self, run_id: int) -> bool:
        return any(kept.worker for kept in self.tables.tasks.values() if kept.task.run_id == run_id)

    def lease(
        self, worker: str, offer: Offer, *, root_run_id: int | None = None, is_guarded: bool = False
    ) -> list[Lease]:
        if worker not in self.tables.workers:
            return []
        capacity, breakers, found = RemainingCapacity(offer), self._load_breakers(), []
        if self.is_shared:
            capacity.allow_ahead(len(self._free()))
        for kept in self._open_to(offer, root_run_id):
            is_own = self.tables.run(kept.task.run_id).holder == worker
            is_meant = not is_guarded or (kept.task.guard is not None and is_own)
            is_meant = is_meant and has_time_for(kept.task, offer.seconds_left)
            is_meant = is_meant and may_run_on(kept.task, offer.host, breakers.now, offer.lacks)
            is_meant = is_meant and not (
                is_run_due(kept.task, breakers.now) and not self._has_time_left(kept.task.run_id)
            )
            if is_meant and capacity.fits(*kept.needs) and breakers.admits(kept.task):
                capacity.take(*kept.needs)
                found.append(kept)
            elif is_meant and capacity.may_hold(kept.task):
                capacity.hold()
                found.append(kept)
        leases = [self._hand_out(kept, worker, offer.host) for kept in found]
        breakers.note_leases(leases)
        if self._write_breakers(breakers) or found:
            self._wrote()
        return leases

    def _has_time_left(self, run_id: int) -> bool:
        """Whether the timer of a run is due later than it was when a task was queued: a pause has moved it."""
        now = self._clock.now()
        return any(timer[:2] == (run_id, "run") and due > now for timer, due in self.tables.timers.items())

    def _open_to(self, offer: Offer, root_run_id: int | None) -> Iterator[StoredTask]:
        """The free tasks that may run on the host of the offer, oldest first."""
        hosts = {kept.record.host for kept in self.tables.workers.values()}
        for kept in self._free():
            task, run = kept.task, self.tables.run(kept.task.run_id)
            is_elsewhere = task.host not in ("", offer.host) and task.host in hosts
            is_ours = offer.project is None or run.new.project == offer.project
            is_open = is_ours and run.status != "paused" and _is_below(run, root_run_id)
            if is_open and not is_elsewhere and set(task.labels) <= set(offer.labels):
                yield kept

    def _hand_out(self, kept: StoredTask, worker: str, host: str) -> Lease:
        task = kept.task
        kept.worker, kept.number, kept.leased_at = worker, self.tables.next_number(), self._clock.now()
        started = TaskStarted(kept.leased_at, task.place, task.attempt, worker, host, task.turn_number)
        self.tables.add_message(task.run_id, started, about=kept.task_key)
        return Lease(task, worker, kept.number)

    def report(self, token: int, report: Report, *, guard: Guard | None = None) -> None:
        self._end(self._leased(token), report)
        if guard is not None:
            self._count([GuardedOutcome(token, guard, breaker_verdict(report, guard))])
        self._wrote()

    def report_all(self, ended: Sequence[tuple[int, Report, Guard | None]]) -> bool:
        is_free = False
        for token, report, guard in ended:
            with suppress(StaleLease):
                run = self.tables.run(self._leased(token).task.run_id)
                self.report(token, report, guard=guard)
                is_free = is_free or not run.holder
        return is_free

    def report_and_lease(
        self,
        worker: str,
        ended: Sequence[tuple[int, Report, Guard | None]],
        offer: Offer,
        *,
        root_run_id: int | None = None,
    ) -> tuple[bool, list[Lease]]:
        is_free = bool(ended) and self.report_all(ended)
        return is_free, self.lease(worker, offer, root_run_id=root_run_id)

    def stop_requests(self, worker: str) -> list[StopRequest]:
        return [StopRequest(kept.number, kept.grace_seconds) for kept in self._held(worker) if kept.is_stopping]

    def _end(self, kept: StoredTask, report: Report) -> None:
        self.tables.remove_task(kept)
        self.tables.add_message(kept.task.run_id, report, about=kept.task_key)

    def _free(self) -> list[StoredTask]:
        return [kept for kept in self.tables.tasks.values() if not kept.worker]

    def _held(self, worker: str) -> list[StoredTask]:
        held = (kept for kept in self.tables.tasks.values() if kept.worker == worker)
        return sorted(held, key=lambda kept: kept.number)

    def _leased(self, token: int) -> StoredTask:
        for kept in self.tables.tasks.values():
            if kept.worker and kept.number == token:
                return kept
        raise refusals.stale_lease(token)

    # -- breakers

    def breakers(self) -> list[BreakerRecord]:
        waiting = Counter(kept.task.guard.name for kept in self._free() if kept.task.guard is not None)
        running = self._running_behind()
        return [
            BreakerRecord(
                name,
                circuit.status,
                circuit.failures,
                circuit.retry_at,
                waiting[name],
                running[name],
                circuit.max_running,
            )
            for name, circuit in sorted(self.tables.breakers.items())
        ]

    def count_outcome(self, name: str, rules: Breaker, verdict: Verdict) -> None:
        breakers = self._load_breakers()
        breakers.count_from_outside(GuardedOutcome(OUTSIDE, Guard(name, rules), verdict))
        if self._write_breakers(breakers):
            self._wrote()

    def reset_breaker(self, name: str) -> bool:
        if name not in self.tables.breakers:
            return False
        self.tables.breakers[name] = CLOSED
        self._wrote()
        return True

    def _load_breakers(self) -> BreakerTransaction:
        tokens = {kept.number for kept in self.tables.tasks.values() if kept.worker}
        probing = [name for name, circuit in self.tables.breakers.items() if circuit.probe in tokens]
        return BreakerTransaction(self._clock.now(), self.tables.breakers, probing, self._running_behind())

    def _running_behind(self) -> Counter[str]:
        held = (kept for kept in self.tables.tasks.values() if kept.worker)
        return Counter(kept.task.guard.name for kept in held if kept.task.guard is not None)

    def _count(self, counted: Sequence[GuardedOutcome]) -> None:
        breakers = self._load_breakers()
        breakers.count_outcomes(counted)
        self._write_breakers(breakers)

    def _write_breakers(self, breakers: BreakerTransaction) -> bool:
        """Store the changed breakers, and end the tasks that they refused. False if nothing has changed."""
        for task, ended in breakers.refused:
            self._end(self.tables.tasks[task.run_id, task.place, task.attempt], ended)
        changed = breakers.changed
        self.tables.breakers.update(changed)
        return bool(changed or breakers.refused)

    # -- time

    def fire_timers(
        self, root_run_id: int | None = None, *, holder: str = "", ahead: Mapping[int, timedelta] = NONE_AHEAD
    ) -> int:
        now, due = self._clock.now(), self._dues(root_run_id, holder, ahead)
        timers = [timer for timer in due if due[timer] <= now]
        for timer in timers:
            del self.tables.timers[timer]
            run_id, kind, place, number = timer
            wall = now + self._clock.stepped() if kind == "until" and not self.is_shared else None
            at = now if self.is_shared else now + ahead.get(run_id, _NONE)
            self.tables.add_message(run_id, TimerFired(at, kind, place, number, wall))
        if timers:
            self._wrote()
        return len(timers)

    def next_due(
        self, root_run_id: int | None = None, *, holder: str = "", ahead: Mapping[int, timedelta] = NONE_AHEAD
    ) -> datetime | None:
        timers = self._dues(root_run_id, holder, ahead).values()
        return min([*timers, *self._retries(root_run_id)], default=None)

    def poll(
        self,
        worker: str,
        root_run_id: int | None = None,
        *,
        holder: str = "",
        ahead: Mapping[int, timedelta] = NONE_AHEAD,
    ) -> Poll:
        held = [run.run_id for run in self.tables.runs.values() if run.holder == worker]
        due = self.next_due(root_run_id, holder=holder, ahead=ahead)
        called = self.runs_with_messages(worker, root_run_id)
        return Poll(called, self.inbox(held), self.stop_requests(worker), due)

    def now(self) -> datetime | None:
        return self._clock.now() if self.is_shared else None

    def _dues(self, root_run_id: int | None, holder: str, ahead: Mapping[int, timedelta]) -> dict[Timer, datetime]:
        """When the timers are due by our clock, in this order."""
        timers = self._timers(root_run_id)
        if self.is_shared:
            return {timer: self.tables.timers[timer] for timer in timers}
        until = -self._clock.stepped()
        dues = {
            timer: self.tables.timers[timer] + (until if timer[1] == "until" else -ahead.get(timer[0], _NONE))
            for timer in timers
            if not holder or self.tables.run(timer[0]).holder == holder
        }
        return dict(sorted(dues.items(), key=lambda item: item[1]))

    def _retries(self, root_run_id: int | None) -> Iterator[datetime]:
        """The times at which breakers that tasks wait for may be probed."""
        now = self._clock.now()
        for kept in self._free():
            run = self.tables.run(kept.task.run_id)
            if kept.task.guard is None or run.status == "paused" or not _is_below(run, root_run_id):
                continue
            circuit = self.tables.breakers.get(kept.task.guard.name, CLOSED)
            if circuit.status == "open" and circuit.retry_at is not None and circuit.retry_at > now:
                yield circuit.retry_at

    def _timers(self, root_run_id: int | None) -> list[Timer]:
        found = [timer for timer in self.tables.timers if _is_below(self.tables.run(timer[0]), root_run_id)]
        return sorted(found, key=self.tables.timers.__getitem__)

    def queue_mark(self) -> Hashable:
        # Each change may be about the queue.
        return object()

    def has_changes(self) -> bool:
        by_others = self.tables.writes - self._own_writes
        has_any, self._seen_writes = by_others != self._seen_writes, by_others
        return has_any

    def version(self) -> str | None:
        return None

    def fileno(self) -> int | None:
        return None

    def watch_run_ends(self) -> None:
        """Nothing to do: every write of another process counts as a change."""


def _is_below(run: StoredRun, root_run_id: int | None) -> bool:
    return root_run_id is None or run.root_run_id == root_run_id


def _take_turn(run: StoredRun, holder: str) -> Turn:
    if not run.holder:
        run.holder, run.fence = holder, run.fence + 1
    return Turn(run.run_id, holder, run.fence)
