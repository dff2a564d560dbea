"""One worker process of a simulated cluster: the real engine, and what `service.driver` does around it.

It does the same, one round of its loop at a time, so that others may act in between. It has its own connection and a
name that is never reused; after it was expired it comes back under another name.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Protocol

from mulligan.core.model.graph import Graph
from mulligan.core.model.scheduler_job import JobEnd, JobEnding, WorkerJob
from mulligan.core.model.workflow import Workflow
from mulligan.core.state.scope import Evaluator
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.engine.engine import Engine
from mulligan.engine.heartbeat import WorkerExpired
from mulligan.engine.observers import NullObserver
from mulligan.engine.worker_expiry import SilentWorkers, expire_dead_workers, other_workers
from mulligan.engine.workflow_cache import WorkflowCache
from mulligan.errors import StoreUnavailable
from mulligan.ports import Lease, LockState, Store, WorkerRecord
from mulligan.testing.databases import LEASE_SECONDS
from mulligan.testing.execution_recorder import ExecutionRecorder, WorkerSearch
from mulligan.testing.fake_tasks import FakeTasks
from mulligan.testing.reuse_checks import ReuseChecks
from mulligan.testing.simulated_results import SimulatedResults
from mulligan.testing.simulated_worktrees import SimulatedWorktrees
from mulligan.testing.timer_checks import CountedClock
from mulligan.testing.workflows import read_workflow

BEATS_PER_LEASE = 6
IDLE_RUNS_SECONDS = 1.0
GRACE_SECONDS = 10.0
# How long workers live that have an end: not longer than many a task.
_LIFE_SECONDS = 40.0
_ENDINGS: tuple[JobEnding, ...] = ("", "free", "time", "memory")


class WorkerHost(Protocol):
    """The environment of a process."""

    evaluator: Evaluator
    # How many first steps a run enters with one turn.
    starts_at_once: int
    # Workflows by version: reading one takes as long as half a history.
    workflows: dict[str, tuple[Workflow, Graph]]
    recorder: ExecutionRecorder
    reuse_checks: ReuseChecks
    worktrees: SimulatedWorktrees

    def connect(self, worker: SimulatedWorker) -> Store: ...

    def wall_clock(self, host: str) -> CountedClock: ...

    def new_name(self, host: str) -> str: ...

    def host_of(self, name: str) -> str: ...

    def is_free(self, lock: str) -> bool:
        """Whether the lock is free: it is held as long as its process is alive."""

    def search(self, worker: SimulatedWorker) -> WorkerSearch:
        """Start a search for dead workers."""

    def report_bug(self, message: str) -> None:
        """Report that an engine found a bug."""

    def note_answer(self, message_id: int) -> None:
        """Record that the answer to this message was fetched."""


class SimulatedWorker:
    """Serve all runs; or, with `root_run_id`, drive one run and those below it until it has ended.

    Without slots it runs nothing: it has sent a message to a run (`message_id`) and takes its turns until that is
    answered.
    """

    def __init__(
        self, around: WorkerHost, host: str, slots: int, root_run_id: int | None = None, message_id: int | None = None
    ) -> None:
        self.around = around
        self.host = host
        self.slots = slots
        self.root_run_id = root_run_id
        self.message_id = message_id
        self.clock = around.wall_clock(host)
        self.store = around.connect(self)
        self.executor: FakeTasks | None = None
        self.engine: Engine | None = None
        self.name = self.lock = ""
        # The store does not answer; Ctrl-C was pressed; the process is done.
        self.is_away = self.is_leaving = self.has_left = False
        # When it began the last round of its loop; when it continues after SIGSTOP.
        self.stepped_at = 0.0
        self.frozen_until = 0.0
        self._is_drained = False
        self._silent_workers = SilentWorkers(self.clock.elapsed, LEASE_SECONDS)
        self._run_ids: list[int] = [] if root_run_id is None else [root_run_id]
        self._beaten_at = self._idle_at = -LEASE_SECONDS

    def time_of(self, run_id: int) -> datetime | None:
        """Return the time of a run that this process drives."""
        drive = None if self.engine is None else self.engine.drivers.get(run_id)
        return None if drive is None else self.clock.now() + drive.ahead

    def step(self) -> None:
        """Run the loop once."""
        self.stepped_at = self.clock.monotonic()
        if self.engine is None:
            self._set_up()
        elif self.is_leaving:
            self._shut_down(self.engine)
        elif self.is_away:
            self._reconnect(self.engine)
        else:
            self._run_once(self.engine)

    def keep_alive(self) -> None:
        """Send a heartbeat and nothing else. It notices that it was expired when it acts."""
        if self.engine is not None:
            with suppress(StoreUnavailable, WorkerExpired):
                self.engine.heartbeats.send()

    # -- one name ----------------------------------------------------------------------------------------------------

    def _set_up(self) -> None:
        """Set everything up, or leave nothing behind but, perhaps, a name in the store."""
        if self.is_leaving:
            self.has_left = True
            return
        self.name = self.around.new_name(self.host)
        self.lock = f"locks/{self.name}"
        self.executor = self._executor() if self.slots else None
        try:
            self.clock.set_by(self.store.now)
            record = WorkerRecord(self.name, self.host, 1, lock=self.lock, cpus=float(self.slots), job=_job(self.name))
            self.store.register(record)
            engine = self._engine()
            self._beaten_at = self.clock.monotonic()
            self._expire_dead_workers(engine)
            engine.take_up(self._below_root(self._run_ids))
        except StoreUnavailable:
            self._kill_everything()
            return
        self.engine, self.is_away = engine, False

    def _engine(self) -> Engine:
        return Engine(
            self.store,
            self.clock,
            self.around.evaluator,
            name=self.name,
            executor=self.executor,
            root_run_id=self.root_run_id,
            observer=_BugListener(self.around),
            lease_seconds=LEASE_SECONDS,
            workflows=_SharedCache(self.around),
        )

    def _executor(self) -> FakeTasks:
        watchdog_seconds = LEASE_SECONDS * 2 / 3 if self.store.is_shared else None
        recorder = self.around.recorder
        executor = FakeTasks(
            self.name,
            self.host,
            self.clock,
            slots=self.slots,
            watchdog_seconds=watchdog_seconds,
            starting=self._on_start,
            life_seconds=_LIFE_SECONDS if _number(self.name) % 2 else None,
            # As if it knew already that tasks are short.
            ahead=2 * self.slots if self.store.is_shared else 0,
            results=SimulatedResults(self.store, self.clock, self.around.reuse_checks.on_reuse),
        )
        recorder.watch(executor)
        return executor

    def _on_start(self, executor: FakeTasks, lease: Lease) -> None:
        self.around.recorder.on_start(executor, lease)
        self.around.worktrees.on_start(lease.task)

    def _kill_everything(self) -> None:
        """Kill everything that it runs, and free its lock."""
        if self.executor is not None:
            self.executor.close()
        self.executor = self.engine = None
        self.lock = ""

    def _restart(self, engine: Engine) -> None:
        """Come back under a new name after it was expired, because others have its work."""
        self._run_ids = list(engine.drivers) or self._run_ids
        self._kill_everything()

    def _tear_down(self, engine: Engine) -> None:
        """Stop everything, then update the store; if that fails, the free lock says it."""
        if self.executor is not None:
            self.executor.close()
        for _ in range(2):
            try:
                engine.release_all()
                self.store.retire(self.name)
                break
            except StoreUnavailable:
                continue
        self._kill_everything()
        self.has_left = True

    def _expire_dead_workers(self, engine: Engine) -> None:
        around, search = self.around, self.around.search(self)
        may_expire_others = engine.heartbeats.may_expire_others
        workers, is_shared = self.store.workers(), self.store.is_shared
        expired = expire_dead_workers(
            self.store,
            self._lock_state,
            self._kill_leftovers,
            workers=workers,
            may_expire_others=may_expire_others,
            silent=None if is_shared else self._silent_workers.look(workers),
            ask_jobs=_ask_jobs,
        )
        if expired:
            engine.request_look()
        around.recorder.note_search(search)
        left = (worker for worker in workers if worker not in expired)
        engine.set_alone(not other_workers(left, self.name, is_shared=is_shared))

    def _lock_state(self, worker: WorkerRecord) -> LockState:
        """Return the lock's state. In a shared store, locks of other hosts cannot be seen."""
        if self.store.is_shared and worker.host != self.host:
            return "unknown"
        return "free" if self.around.is_free(worker.lock) else "held"

    def _kill_leftovers(self, name: str) -> None:
        """Kill what a dead worker left running on this host."""
        if self.around.host_of(name) == self.host:
            self.around.recorder.kill_leftovers(name)

    # -- driving -----------------------------------------------------------------------------------------------------

    def _run_once(self, engine: Engine) -> None:
        try:
            self._send_heartbeat(engine)
            engine.tick(0.0)
            self._look(engine)
        except StoreUnavailable:
            self.is_away = True
        except WorkerExpired:
            self._restart(engine)

    def _reconnect(self, engine: Engine) -> None:
        """Check whether the store is back. Results that arrive meanwhile are kept."""
        if self.executor is not None:
            engine.wait(0.0)
        try:
            engine.recover()
        except StoreUnavailable:
            return
        except WorkerExpired:
            self._restart(engine)
        self.is_away = False

    def _send_heartbeat(self, engine: Engine) -> None:
        """Send a heartbeat, and expire dead workers: something may wait for their work."""
        is_shared = self.store.is_shared
        seconds = LEASE_SECONDS / BEATS_PER_LEASE if is_shared else IDLE_RUNS_SECONDS
        if self.root_run_id is None and not is_shared:
            return
        if self.clock.monotonic() - self._beaten_at < seconds:
            return
        self._beaten_at = self.clock.monotonic()
        if is_shared:
            engine.heartbeats.send()
            self.clock.set_by(self.store.now)
        self._expire_dead_workers(engine)
        if self._has_not_its_run(engine):
            engine.take_up(self._below_root([]))

    def _has_not_its_run(self, engine: Engine) -> bool:
        return self.root_run_id is not None and self.root_run_id not in engine.drivers

    def _below_root(self, run_ids: list[int]) -> list[int]:
        """Return the run to drive and its unfinished children; for a server, the runs it had."""
        if self.root_run_id is None:
            return run_ids
        found = [self.root_run_id]
        for above in found:
            children = self.store.children(above)
            found.extend(child.run_id for child in children if child.status not in RUN_ENDED)
        return found

    def _look(self, engine: Engine) -> None:
        if self.message_id is not None:
            self._leave_when_answered(engine)
        elif self.root_run_id is not None:
            self._leave_when_ended(engine, self.root_run_id)
        elif not self.store.is_shared:
            self._claim_idle_runs(engine)

    def _leave_when_ended(self, engine: Engine, run_id: int) -> None:
        engine.refuse_abandoned(run_id)
        if run_id not in engine.drivers and self.store.run(run_id).status in RUN_ENDED:
            self._tear_down(engine)

    def _leave_when_answered(self, engine: Engine) -> None:
        assert self.message_id is not None
        answer = self.store.answer(self.message_id)
        if answer is not None:
            self.around.note_answer(self.message_id)
        if answer is not None or self.root_run_id not in engine.drivers:
            self._tear_down(engine)

    def _claim_idle_runs(self, engine: Engine) -> None:
        """Claim runs that nothing drives: in a store that is not shared, tasks come with the turn of their run."""
        if self.clock.monotonic() - self._idle_at < IDLE_RUNS_SECONDS:
            return
        self._idle_at = self.clock.monotonic()
        if not engine.runs_held and not self.store.is_shared:
            self.clock.follow_wall()
        self._expire_dead_workers(engine)
        engine.take_up_idle()

    # -- leaving -----------------------------------------------------------------------------------------------------

    def _shut_down(self, engine: Engine) -> None:
        """Start nothing; write the results of what ran, if the store answers; then leave."""
        if not self._is_drained:
            self._is_drained = True
            engine.drain()
            if self.executor is not None:
                self.executor.stop_all(GRACE_SECONDS)
        if self.executor is None or engine.is_settled:
            self._tear_down(engine)
            return
        try:
            engine.tick(0.0)
        except (StoreUnavailable, WorkerExpired):
            # What cannot be written now is void once the lock is free.
            self._tear_down(engine)


class _SharedCache(WorkflowCache):
    """A cache that all engines share, so that a workflow is read once. First steps are entered in pieces."""

    def __init__(self, around: WorkerHost) -> None:
        super().__init__()
        self._around = around

    def get(self, version: str, data: bytes) -> tuple[Workflow, Graph]:
        found = self._around.workflows.get(version)
        if found is None:
            self.remember(data, read_workflow(data))
            found = self._around.workflows[version] = super().get(version, data)
            found[1].starts_at_once = self._around.starts_at_once
        self.has_breakers = self.has_breakers or bool(found[0].breakers)
        return found


def _number(name: str) -> int:
    """A number of this worker: what it decides is the same in every simulation, and takes nothing from its seed."""
    return zlib.crc32(name.encode())


def _job(name: str) -> WorkerJob | None:
    """Every second worker runs in a job of a scheduler, and every fourth takes one task in its life."""
    number = _number(name)
    return WorkerJob(name, "node", is_one_task=number % 4 == 0, life_seconds=_LIFE_SECONDS) if number % 2 == 0 else None


def _ask_jobs(jobs: Mapping[WorkerJob, bool]) -> dict[WorkerJob, JobEnd]:
    """Some jobs have ended in each way that means something; of the others the scheduler knows nothing."""
    return {job: JobEnd(job, ending=_ENDINGS[_number(job.id) // 4 % len(_ENDINGS)]) for job in jobs}


class _BugListener(NullObserver):
    """Report bugs that an engine finds."""

    def __init__(self, around: WorkerHost) -> None:
        self._around = around

    def trouble(self, message: str) -> None:
        self._around.report_bug(message)
