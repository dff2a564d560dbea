"""The store in memory: the same promises for tests and simulations, as long as the process lives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice

from msgspec.structs import replace

from mulligan.core.deciding.breaker import CLOSED, Guard, GuardedOutcome, breaker_verdict
from mulligan.core.effects.snapshot import PERSON_TAGS
from mulligan.core.model import codec
from mulligan.core.model.events import Entry
from mulligan.core.model.reports import LeaseExpired, Report, TaskStarted, TimerFired
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.ports import (
    ANSWERS_BEHIND_MAX,
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
from mulligan.store.artifact_memory import ArtifactMemory
from mulligan.store.clock import PROCESS_CLOCK
from mulligan.store.encoding import encoded
from mulligan.store.gate import Gate
from mulligan.store.memory_lists import MemoryRunLists
from mulligan.store.memory_shelf import KeptRun, KeptTask, KeptWorker, Shelf, Timer
from mulligan.store.room import Room

_NONE = timedelta(0)


class MemoryStore:
    """Runs in memory. Stores on one `shelf` see the same runs, as connections to one database do.

    `is_shared`: its workers behave as on a server that several hosts share.
    """

    is_in_place = True

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        lease_seconds: float = 30.0,
        shelf: Shelf | None = None,
        is_shared: bool = False,
    ) -> None:
        self.is_shared = is_shared
        self.shelf = shelf or Shelf()
        self._clock = clock or PROCESS_CLOCK
        self._lease = timedelta(seconds=lease_seconds)
        self.artifacts: Artifacts = ArtifactMemory(self.shelf.artifacts, self._clock)
        self.lists: RunLists = MemoryRunLists(self.shelf)
        self._own_writes = 0
        self._seen_writes = self.shelf.writes

    def close(self) -> None:
        """What is on the shelf stays there for the others."""

    def _wrote(self) -> None:
        self.shelf.writes += 1
        self._own_writes += 1

    # -- workers

    def register(self, worker: WorkerRecord) -> None:
        self.shelf.workers[worker.name] = KeptWorker(worker, self._clock.now())
        self._wrote()

    def beat(self, name: str) -> bool:
        worker = self.shelf.workers.get(name)
        if worker is None:
            return False
        worker.beat_at = self._clock.now()
        self._wrote()
        return True

    def retire(self, name: str) -> None:
        self.bury(name, is_dead=True)

    def workers(self) -> list[WorkerRecord]:
        found = sorted(self.shelf.workers.items())
        return [
            replace(worker.record, is_expired=self._is_expired(worker), beat_at=worker.beat_at) for _, worker in found
        ]

    def _is_expired(self, worker: KeptWorker) -> bool:
        return worker.beat_at < self._clock.now() - self._lease

    def bury(self, name: str, *, is_dead: bool = False) -> bool:
        worker = self.shelf.workers.get(name)
        if worker is None or not (is_dead or self._is_expired(worker)):
            return False
        del self.shelf.workers[name]
        for run in self.shelf.runs.values():
            run.holder = "" if run.holder == name else run.holder
        at = self._clock.now()
        for kept in self._held(name):
            self._end(kept, LeaseExpired(at, kept.task.place, kept.task.attempt, name))
        self._wrote()
        return True

    # -- runs

    def create(self, runs: Sequence[NewRun], holder: str = "") -> list[Turn]:
        if holder and holder not in self.shelf.workers:
            raise refusals.unknown_holder(holder)
        for run in runs:
            if run.key in self.shelf.starts:
                raise refusals.key_used(run.key, self.shelf.starts[run.key])
        self._wrote()
        return [self._create(run, holder) for run in runs]

    def _create(self, new: NewRun, holder: str, parent: KeptRun | None = None) -> Turn:
        run = self.shelf.add_run(new, parent)
        run.holder, run.fence = holder, 1 if holder else 0
        self.shelf.tell(run.run_id, replace(new.request, run_id=run.run_id))
        return Turn(run.run_id, holder, run.fence)

    def run(self, run_id: int) -> RunRecord:
        return self.shelf.run(run_id).record()

    def runs(self, *, limit: int = 50, before: int | None = None, statuses: Collection[str] = ()) -> list[RunRecord]:
        found = [
            run.record()
            for run in reversed(self.shelf.runs.values())
            if (before is None or run.run_id < before) and (not statuses or run.status in statuses)
        ]
        return found[:limit]

    def children(self, run_id: int) -> list[RunRecord]:
        return [run.record() for run in self.shelf.children(run_id)]

    def load(self, run_id: int) -> Loaded:
        run = self.shelf.run(run_id)
        return Loaded(run.record(), run.new.workflow, [(*key, *row) for key, row in sorted(run.rows.items())])

    def log(self, run_id: int, after: int = 0, limit: int | None = None) -> list[Entry]:
        run = self.shelf.runs.get(run_id)
        behind = [entry for entry in run.log if entry.seq > after] if run else []
        return behind[:limit]

    def waiting(self) -> list[Waiting]:
        return [
            Waiting(run.run_id, key, tag, run.root_run_id)
            for run in self.shelf.runs.values()
            if run.status not in RUN_ENDED
            for (_, key), (tag, _) in sorted(run.rows.items(), key=lambda row: row[0][1])
            if tag in PERSON_TAGS
        ]

    def kept(self, kind: str) -> list[tuple[int, str, bytes]]:
        return [
            (run.run_id, key, data)
            for run in self.shelf.runs.values()
            for (kind_, key), (_, data) in sorted(run.rows.items())
            if kind_ == kind
        ]

    def lately(self, workflow: str, kind: str, key: str, limit: int) -> list[tuple[int, bytes]]:
        runs = (run for run in reversed(self.shelf.runs.values()) if run.new.name == workflow)
        rows = ((run.run_id, *run.rows[kind, key]) for run in runs if (kind, key) in run.rows)
        return list(islice(((run_id, data) for run_id, tag, data in rows if tag not in PERSON_TAGS), limit))

    def tagged(self, tag: str, limit: int) -> list[tuple[int, str, str, bytes]]:
        rows = (
            (run.run_id, run.status, key, data)
            for run in reversed(self.shelf.runs.values())
            for (_, key), (tag_, data) in sorted(run.rows.items())
            if tag and tag_ == tag
        )
        return list(islice(rows, limit))

    def mentioning(self, text: str) -> Iterator[tuple[int, bytes]]:
        entries = ((run.run_id, codec.encode(entry)) for run in self.shelf.runs.values() for entry in run.log)
        told = ((kept.message.run_id, encoded(kept.message.report)) for kept in self.shelf.messages.values())
        tasks = ((kept.task.run_id, encoded(kept.task)) for kept in self.shelf.tasks.values())
        return (found for found in (*entries, *told, *tasks) if text.encode() in found[1])

    def remove(self, root_run_ids: Collection[int]) -> list[int]:
        told = {kept.message.run_id for kept in self.shelf.messages.values()}
        runs = [run for run in self.shelf.runs.values() if run.root_run_id in set(root_run_ids)]
        busy = {run.root_run_id for run in runs if run.status not in RUN_ENDED or run.holder or run.run_id in told}
        gone = [run for run in runs if run.root_run_id not in busy]
        for run in gone:
            self._end_round(run)
            for kept in self._tasks_of(run):
                self.shelf.remove_task(kept)
            self.shelf.starts.pop(run.new.key, None)
            del self.shelf.runs[run.run_id]
        self._wrote()
        return [run.run_id for run in gone]

    # -- inboxes

    def put(self, run_id: int, report: Report, *, is_asking: bool = False) -> int:
        self.shelf.run(run_id)
        self._wrote()
        return self.shelf.tell(run_id, report, is_asking=is_asking)

    def answer(self, message_id: int) -> Answer | None:
        return self.shelf.answers.pop(message_id, None)

    def inbox(self, run_ids: Collection[int]) -> list[Message]:
        wanted = set(run_ids)
        return [kept.message for kept in self.shelf.messages.values() if kept.message.run_id in wanted]

    def called(self, holder: str, root_run_id: int | None = None) -> list[int]:
        told = sorted({kept.message.run_id for kept in self.shelf.messages.values()})
        runs = (self.shelf.runs[run_id] for run_id in told)
        return [run.run_id for run in runs if run.holder in ("", holder) and _is_below(run, root_run_id)]

    # -- turns

    def take_turns(self, run_ids: Collection[int], holder: str) -> list[Turn]:
        if holder not in self.shelf.workers:
            return []
        self._wrote()
        runs = (self.shelf.runs[run_id] for run_id in sorted(set(run_ids)) if run_id in self.shelf.runs)
        return [_take_turn(run, holder) for run in runs if run.holder in ("", holder)]

    def release(self, turns: Iterable[Turn]) -> None:
        for turn in turns:
            run = self.shelf.runs.get(turn.run_id)
            if run is not None and (run.holder, run.fence) == (turn.holder, turn.fence):
                run.holder = ""
        self._wrote()

    def commit(self, commits: Sequence[Commit]) -> list[Committed]:
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
        run = self.shelf.runs.get(turn.run_id)
        if run is None or (run.holder, run.fence, run.seq) != (turn.holder, turn.fence, commit.after):
            raise refusals.void_turn(commit)
        held = {kept.ticket for kept in self._held(turn.holder) if kept.task.run_id == turn.run_id}
        if len(set(commit.ended) & held) != len(commit.ended):
            raise refusals.void_lease(commit)
        for task in commit.taken:
            if not self._is_free(commit, task.place, task.attempt):
                raise refusals.not_free(task)

    def _is_free(self, commit: Commit, place: str, attempt: int) -> bool:
        """Nobody has it, and the run was told what became of it if somebody had."""
        known_by = (commit.turn.run_id, place, attempt)
        kept = self.shelf.tasks.get(known_by)
        if kept is not None and kept.worker and kept.ticket not in commit.ended:
            return False
        drained = {message_id for message_id, _ in commit.drained}
        return not any(told.about == known_by for id_, told in self.shelf.messages.items() if id_ not in drained)

    # -- what a commit writes: nothing here says no

    def _write(self, commit: Commit) -> Committed:
        run = self.shelf.run(commit.turn.run_id)
        run.advance(commit)
        self._drain(commit)
        for token in commit.ended:
            self.shelf.remove_task(self._leased(token))
        leases = [self._take(commit, kept) for kept in map(self.shelf.add_task, commit.taken)]
        for task in commit.queued:
            self.shelf.add_task(task)
        for stop in commit.stopped:
            self._stop((run.run_id, stop.place, stop.attempt), stop.grace_seconds)
        for timer in commit.timers:
            self.shelf.timers[run.run_id, timer.kind, timer.place, timer.number] = timer.due
        children = [self._create(new, commit.turn.holder, run) for new in commit.children]
        self._tell_others(commit)
        if commit.is_last:
            self._end_round(run)
        return Committed(leases, children)

    def _drain(self, commit: Commit) -> None:
        for message_id, answer in commit.drained:
            self.shelf.messages.pop(message_id, None)
            if answer is not None:
                self.shelf.answers[message_id] = answer
                for old in [one for one in self.shelf.answers if one < message_id - ANSWERS_BEHIND_MAX]:
                    del self.shelf.answers[old]

    def _take(self, commit: Commit, kept: KeptTask) -> Lease:
        kept.worker, kept.ticket, kept.leased_at = commit.turn.holder, self.shelf.next_ticket(), commit.at
        return Lease(kept.task, kept.worker, kept.ticket)

    def _stop(self, known_by: tuple[int, str, int], grace_seconds: float | None) -> None:
        kept = self.shelf.tasks.get(known_by)
        if kept is None:
            return
        if kept.worker:
            kept.is_stopping, kept.grace_seconds = True, grace_seconds
        else:
            self.shelf.remove_task(kept)

    def _tell_others(self, commit: Commit) -> None:
        for run_id, report in commit.told:
            if run_id in self.shelf.runs:
                self.shelf.tell(run_id, report)
        for told in commit.told_children:
            for child in self.shelf.children(commit.turn.run_id):
                is_meant = told.place in ("", child.new.parent_place)
                is_meant = is_meant and (not told.place or told.attempt == child.new.parent_attempt)
                if is_meant and child.status not in RUN_ENDED:
                    self.shelf.tell(child.run_id, told.report)

    def _end_round(self, run: KeptRun) -> None:
        run.holder = ""
        for timer in [timer for timer in self.shelf.timers if timer[0] == run.run_id]:
            del self.shelf.timers[timer]
        # Not what a worker was given while the turn was decided: it is told to end, and reports to a run that is over.
        for kept in self._tasks_of(run):
            if not kept.is_stopping:
                self.shelf.remove_task(kept)

    def _tasks_of(self, run: KeptRun) -> list[KeptTask]:
        return [kept for kept in self.shelf.tasks.values() if kept.task.run_id == run.run_id]

    # -- tasks

    def queued(self, run_id: int) -> list[tuple[str, int]]:
        free = (kept.task for kept in self._free() if kept.task.run_id == run_id)
        return [(task.place, task.attempt) for task in free]

    def held(self, worker: str) -> list[Lease]:
        return [Lease(kept.task, worker, kept.ticket) for kept in self._held(worker)]

    def has_leases(self, run_id: int) -> bool:
        return any(kept.worker for kept in self.shelf.tasks.values() if kept.task.run_id == run_id)

    def lease(
        self, worker: str, offer: Offer, *, root_run_id: int | None = None, is_guarded: bool = False
    ) -> list[Lease]:
        if worker not in self.shelf.workers:
            return []
        room, gate, found = Room(offer), self._gate(), []
        for kept in self._open_to(offer, root_run_id):
            is_own = self.shelf.run(kept.task.run_id).holder == worker
            is_meant = not is_guarded or (kept.task.guard is not None and is_own)
            if is_meant and room.fits(*kept.needs) and gate.lets_pass(kept.task):
                room.take(*kept.needs)
                found.append(kept)
        leases = [self._hand_out(kept, worker, offer.host) for kept in found]
        gate.leased(leases)
        if self._close_gate(gate) or found:
            self._wrote()
        return leases

    def _open_to(self, offer: Offer, root_run_id: int | None) -> Iterator[KeptTask]:
        """The free tasks that may run where the offer comes from, oldest first."""
        hosts = {kept.record.host for kept in self.shelf.workers.values()}
        for kept in self._free():
            task, run = kept.task, self.shelf.run(kept.task.run_id)
            is_elsewhere = task.host not in ("", offer.host) and task.host in hosts
            is_open = run.status != "paused" and _is_below(run, root_run_id)
            if is_open and not is_elsewhere and set(task.labels) <= set(offer.labels):
                yield kept

    def _hand_out(self, kept: KeptTask, worker: str, host: str) -> Lease:
        task = kept.task
        kept.worker, kept.ticket, kept.leased_at = worker, self.shelf.next_ticket(), self._clock.now()
        started = TaskStarted(kept.leased_at, task.place, task.attempt, worker, host)
        self.shelf.tell(task.run_id, started, about=kept.known_by)
        return Lease(task, worker, kept.ticket)

    def report(self, token: int, report: Report, *, guard: Guard | None = None) -> None:
        self._end(self._leased(token), report)
        if guard is not None:
            self._count([GuardedOutcome(token, guard, breaker_verdict(report, guard))])
        self._wrote()

    def stops(self, worker: str) -> list[Stopped]:
        return [Stopped(kept.ticket, kept.grace_seconds) for kept in self._held(worker) if kept.is_stopping]

    def _end(self, kept: KeptTask, report: Report) -> None:
        self.shelf.remove_task(kept)
        self.shelf.tell(kept.task.run_id, report, about=kept.known_by)

    def _free(self) -> list[KeptTask]:
        return [kept for kept in self.shelf.tasks.values() if not kept.worker]

    def _held(self, worker: str) -> list[KeptTask]:
        held = (kept for kept in self.shelf.tasks.values() if kept.worker == worker)
        return sorted(held, key=lambda kept: kept.ticket)

    def _leased(self, token: int) -> KeptTask:
        for kept in self.shelf.tasks.values():
            if kept.worker and kept.ticket == token:
                return kept
        raise refusals.stale_lease(token)

    # -- breakers

    def breakers(self) -> list[BreakerRecord]:
        waiting = Counter(kept.task.guard.name for kept in self._free() if kept.task.guard is not None)
        return [
            BreakerRecord(name, circuit.status, circuit.failures, circuit.retry_at, waiting[name])
            for name, circuit in sorted(self.shelf.breakers.items())
        ]

    def reset_breaker(self, name: str) -> bool:
        if name not in self.shelf.breakers:
            return False
        self.shelf.breakers[name] = CLOSED
        self._wrote()
        return True

    def _gate(self) -> Gate:
        tokens = {kept.ticket for kept in self.shelf.tasks.values() if kept.worker}
        probing = [name for name, circuit in self.shelf.breakers.items() if circuit.probe in tokens]
        return Gate(self._clock.now(), self.shelf.breakers, probing)

    def _count(self, counted: Sequence[GuardedOutcome]) -> None:
        gate = self._gate()
        gate.count(counted)
        self._close_gate(gate)

    def _close_gate(self, gate: Gate) -> bool:
        """Keep what has become of the breakers, and of the tasks that they sent away; whether that is anything."""
        for task, ended in gate.refused:
            self._end(self.shelf.tasks[task.run_id, task.place, task.attempt], ended)
        changed = gate.changed
        self.shelf.breakers.update(changed)
        return bool(changed or gate.refused)

    # -- time

    def fire_timers(
        self, root_run_id: int | None = None, *, holder: str = "", ahead: Mapping[int, timedelta] = NOBODY_AHEAD
    ) -> int:
        now, due = self._clock.now(), self._dues(root_run_id, holder, ahead)
        timers = [timer for timer in due if due[timer] <= now]
        for timer in timers:
            del self.shelf.timers[timer]
            run_id, kind, place, number = timer
            wall = now + self._clock.stepped() if kind == "until" and not self.is_shared else None
            at = now if self.is_shared else now + ahead.get(run_id, _NONE)
            self.shelf.tell(run_id, TimerFired(at, kind, place, number, wall))
        if timers:
            self._wrote()
        return len(timers)

    def next_due(
        self, root_run_id: int | None = None, *, holder: str = "", ahead: Mapping[int, timedelta] = NOBODY_AHEAD
    ) -> datetime | None:
        timers = self._dues(root_run_id, holder, ahead).values()
        return min([*timers, *self._retries(root_run_id)], default=None)

    def now(self) -> datetime | None:
        return self._clock.now() if self.is_shared else None

    def _dues(self, root_run_id: int | None, holder: str, ahead: Mapping[int, timedelta]) -> dict[Timer, datetime]:
        """When the timers are due by our clock, the first one first."""
        timers = self._timers(root_run_id)
        if self.is_shared:
            return {timer: self.shelf.timers[timer] for timer in timers}
        until = -self._clock.stepped()
        dues = {
            timer: self.shelf.timers[timer] + (until if timer[1] == "until" else -ahead.get(timer[0], _NONE))
            for timer in timers
            if not holder or self.shelf.run(timer[0]).holder == holder
        }
        return dict(sorted(dues.items(), key=lambda item: item[1]))

    def _retries(self, root_run_id: int | None) -> Iterator[datetime]:
        """When the breakers that tasks wait for may be probed."""
        now = self._clock.now()
        for kept in self._free():
            run = self.shelf.run(kept.task.run_id)
            if kept.task.guard is None or run.status == "paused" or not _is_below(run, root_run_id):
                continue
            circuit = self.shelf.breakers.get(kept.task.guard.name, CLOSED)
            if circuit.status == "open" and circuit.retry_at is not None and circuit.retry_at > now:
                yield circuit.retry_at

    def _timers(self, root_run_id: int | None) -> list[Timer]:
        found = [timer for timer in self.shelf.timers if _is_below(self.shelf.run(timer[0]), root_run_id)]
        return sorted(found, key=self.shelf.timers.__getitem__)

    def has_news(self) -> bool:
        by_others = self.shelf.writes - self._own_writes
        has_any, self._seen_writes = by_others != self._seen_writes, by_others
        return has_any

    def fileno(self) -> int | None:
        return None

    def hear_ends(self) -> None:
        """Whatever another process writes is news."""


def _is_below(run: KeptRun, root_run_id: int | None) -> bool:
    return root_run_id is None or run.root_run_id == root_run_id


def _take_turn(run: KeptRun, holder: str) -> Turn:
    if not run.holder:
        run.holder, run.fence = holder, run.fence + 1
    return Turn(run.run_id, holder, run.fence)
