"""A worker process: an engine and its executor under one name, from registration to retirement.

Drives one run to its end (`mulligan run`), or serves all runs (`mulligan worker`). Survives outages of the store, and
handles Ctrl-C.
"""

from __future__ import annotations

import os
import shlex
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Literal, cast

import msgspec

from mulligan import __version__
from mulligan.core.model.clusters.scheduler_job import JobEnd, WorkerJob
from mulligan.core.model.event_types import HostCapacity
from mulligan.core.model.reports import CancelRequested
from mulligan.core.model.workflow import CANCEL_GRACE_SECONDS
from mulligan.core.state.state import State
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.engine.crash_answers import to_children, to_parent
from mulligan.engine.engine import Engine
from mulligan.engine.heartbeat import WorkerExpired
from mulligan.engine.observers import NullObserver, Observer
from mulligan.engine.run_driver import RunDriver
from mulligan.engine.worker_expiry import SilentWorkers, expire_dead_workers, other_workers
from mulligan.errors import Conflict, HomeMoved, MulliganError, StoreRefused, StoreUnavailable
from mulligan.history.views import waits_for_outside
from mulligan.language.expressions import Cel
from mulligan.ports import Answer, Commit, Executor, Store, WorkerRecord
from mulligan.service.driving.locks import Locks
from mulligan.service.home import Home
from mulligan.service.host.breakers import find_breaker_waits
from mulligan.service.host.lost_runs import keep_lost_numbers
from mulligan.service.server.remote_run_folders import LOOK_SECONDS, NEXT_SECONDS, EndedRunFolders
from mulligan.store.clock import ProcessClock
from mulligan.worker import lock
from mulligan.worker.child.warm_child import Debugging
from mulligan.worker.folders import Folders, remove_folder
from mulligan.worker.slots.allocation import slurm_allocation
from mulligan.worker.slots.resource_pool import VISIBLE_GPUS, visible_gpus
from mulligan.worker.slots.task_limits import TaskLimits
from mulligan.worker.supervisor.own_cgroup import cpu_limit, memory_limit
from mulligan.worker.supervisor.processes import kill_worker_processes

if TYPE_CHECKING:
    from mulligan.service.host.slurm import job_ends
    from mulligan.store.http.http_store import HttpStore

# "detached": it goes on, and is not shown any more.
Ending = Literal["ended", "waiting", "interrupted", "detached"]

LEASE_SECONDS = 30.0
# Two lost heartbeats must not cost the running tasks: their supervisor kills them at two thirds of the lease.
BEATS_PER_LEASE = 6
# How often a worker looks for runs without a driver, in a store without heartbeats.
IDLE_RUNS_SECONDS = 1.0
# How often a run with breakers is checked for waiting only for people and breakers.
HELD_UP_SECONDS = 1.0
KILL_SECONDS = 5.0
# How long one round of the loop may wait: a signal is noticed by then.
TICK_SECONDS = 0.1
# How often at least it is checked that the home is in its place. It is also checked before anything is written.
HOME_SECONDS = 0.05
# The pause before asking an unavailable store again: first, at most, and at most this share of the lease. A worker that
# is back gives the others one lease to come back too.
STORE_SECONDS, STORE_SECONDS_MAX, STORE_LEASE_SHARE_MAX = 0.1, 2.0, 1 / 6

# How long to go on after the last task has ended, until all is written. No run may keep this process from ending.
WIND_UP_SECONDS = 5.0

# The variable that says which GPUs a worker may use.
GPUS_VARIABLE = VISIBLE_GPUS


class WorkerLimits(msgspec.Struct, frozen=True):
    """When a worker ends by itself; None for never."""

    # It is gone by then: what has to be stopped for that gets its grace before.
    until: datetime | None = None
    # How long it waits for a task.
    idle_seconds: float | None = None
    tasks_max: int | None = None


class Capacity(msgspec.Struct, frozen=True):
    """The resources that a worker may use."""

    cpus: float
    memory: int
    gpus: int = 0
    labels: tuple[str, ...] = ()
    # The user has said how many tasks run at once, so those that only wait count as well.
    counts_waiting: bool = False
    limits: WorkerLimits = WorkerLimits()
    # The nodes of its allocation, for tasks that ask for several; and how many a task has to ask for.
    nodes: int = 1
    nodes_min: int = 1
    # The cluster whose workers have the resources, like `dask://HOST:PORT`; "" for this machine.
    on: str = ""
    # How the steps in Python are run for somebody who looks for a mistake in them.
    debugging: Debugging | None = None

    def with_labels(self, labels: tuple[str, ...]) -> Capacity:
        return msgspec.structs.replace(self, labels=labels)

    def only_for_nodes(self, nodes: int) -> Capacity:
        """For tasks that ask for 2 to so many nodes, and no others."""
        return msgspec.structs.replace(self, nodes=nodes, nodes_min=min(2, nodes))

    def with_limits(self, limits: WorkerLimits) -> Capacity:
        return msgspec.structs.replace(self, limits=limits)


NO_CAPACITY = Capacity(0.0, 0)


def machine(parallel: int | None = None, memory: int | None = None, gpus: int | None = None) -> Capacity:
    """The capacity of this machine, or the part of it that this process was given. What is given replaces it.

    The lowest of what the kernel allows and what a scheduler says counts.
    """
    allocation = slurm_allocation(os.environ)
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    cpus = min(cpus, cpu_limit() or cpus, allocation.cpus or cpus)
    if memory is None:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        memory = min(memory, memory_limit() or memory, allocation.memory or memory)
    if gpus is None:
        gpus = visible_gpus(os.environ)
        gpus = gpus if allocation.gpus is None else min(gpus, allocation.gpus)
    nodes = allocation.nodes or 1
    return Capacity(
        float(cpus if parallel is None else parallel), memory, gpus, counts_waiting=parallel is not None, nodes=nodes
    )


def capacity_for(given: HostCapacity | None, recorded: HostCapacity | None = None) -> Capacity:
    """The capacity of this machine, replaced by what is given now, and otherwise by what was recorded for a run."""
    chosen, before = given or HostCapacity(), recorded or HostCapacity()
    gpus = before.gpus if chosen.gpus is None else chosen.gpus
    if chosen.gpus is None and gpus is not None and GPUS_VARIABLE in os.environ:
        # The GPUs that are named now are those that there are.
        gpus = min(gpus, visible_gpus(os.environ))
    memory = before.memory if chosen.memory is None else chosen.memory
    found = machine(before.cpus if chosen.cpus is None else chosen.cpus, memory, gpus)
    on = chosen.on or before.on
    return msgspec.structs.replace(found, on=on) if on else found


class WorkerIdentity(msgspec.Struct, frozen=True):
    """What an executor needs to know about the worker that it runs tasks for."""

    name: str
    host: str
    # The worker's lock: processes that inherit the descriptor keep the worker alive for others.
    lock_fd: int
    # Whether the worker has got a signal to end.
    was_signalled: Callable[[], bool] = lambda: False


class Driver:
    """One worker, alive while the context lasts. If `make_executor` returns None it takes turns and runs no tasks."""

    def __init__(
        self,
        *,
        home: Home,
        store: Store,
        clock: ProcessClock,
        make_executor: Callable[[WorkerIdentity], Executor | None],
        observer: Observer | None,
        lease_seconds: float,
        host: str,
        idle_seconds: float | None = None,
        limits: TaskLimits | None = None,
        job: WorkerJob | None = None,
        serves: bool = False,
    ) -> None:
        self.home = home
        self.store = store
        self.clock = clock
        # Called again for each new name of the worker.
        self._make_executor = make_executor
        self.observer = observer or NullObserver()
        self.lease_seconds = lease_seconds
        # The host name under which the store knows its tasks.
        self.host = host
        self._idle_seconds_max = idle_seconds
        self._limits = limits or TaskLimits()
        # The job of a scheduler in which it runs.
        self._job = job
        # Whether it takes up runs that nothing drives.
        self._serves = serves
        self._busy_at = time.monotonic()
        # Why it has ended by itself: "" if it has not.
        self.end_reason = ""
        self.interrupts = 0
        # How long the loop may take after a second signal, in which it kills its tasks.
        self.kill_seconds = KILL_SECONDS
        # The first signal that interrupted us: 0 if none did.
        self.interrupted_by = 0
        self.executor: Executor | None = None
        self.lock: lock.Lock | None = None
        self._locks = Locks(home, is_shared=store.is_shared)
        self._silent_workers = SilentWorkers(clock.elapsed, lease_seconds)
        self._job_ends: job_ends.JobEnds | None = None
        self._was_unproven = False
        self._heartbeat_at = 0.0
        self._idle_at = -IDLE_RUNS_SECONDS
        self._held_at = -HELD_UP_SECONDS
        self._home_checked_at = 0.0
        # When a remote worker has last removed the files of ended runs.
        self._ended_folders, self._ended_removed_next = EndedRunFolders(home.folder), 0.0
        # What the store knows about the trouble of this machine.
        self._trouble = ""

    def _ask_jobs(self, jobs: Mapping[WorkerJob, bool]) -> Mapping[WorkerJob, JobEnd]:
        """How the Slurm jobs of dead workers have ended."""
        from mulligan.service.host.slurm import job_ends

        self._job_ends = self._job_ends or job_ends.JobEnds()
        return self._job_ends.ask(jobs)

    def __enter__(self) -> Driver:
        self._set_up()
        return self

    def __exit__(self, *_: object) -> None:
        self._tear_down()

    # -- from registration to retirement -----------------------------------------------------------------------------

    def _set_up(self, root_run_id: int | None = None) -> None:
        """Register under a new name and start the engine. If that fails, nothing is left behind."""
        self.name = f"{self.host}.{os.getpid()}.{os.urandom(3).hex()}"
        self._trouble = ""
        self.home.refuse_network_files()
        self.home.refuse_read_only()
        self.home.make()
        self.lock = lock.acquire(self.home.locks, self.name)
        self._home_stat = os.stat(self.home.folder)
        may_be_known = False
        try:
            identity = WorkerIdentity(self.name, self.host, self.lock.fd, self._was_signalled)
            self.executor = self._make_executor(identity)
            self.clock.set_by(self.store.now)
            keep_lost_numbers(self.home, self.store)
            may_be_known = True
            # Right before the engine, whose heartbeats count from here.
            try:
                self.store.register(self._record(self.lock.path))
            except StoreUnavailable as error:
                may_be_known = not error.is_locked
                raise
            self.engine = Engine(
                self.store,
                self.clock,
                Cel(os.environ, self.store.artifacts.fetch, self.store.artifacts.keep),
                self.name,
                self.executor,
                root_run_id=root_run_id,
                observer=self.observer,
                check=self._refuse_moved_home,
                lease_seconds=self.lease_seconds,
                expects_others=self._expects_others,
            )
            self.engine.was_signalled = self._was_signalled
            self._heartbeat_at = time.monotonic()
            self.expire_dead_workers()
        except BaseException:
            self._close_executor()
            # An answer of the store may be lost. If it may still know us, others see by our lock that we are gone.
            self._shut_down(is_recorded=not may_be_known or self._is_removed() or self._is_removed())
            raise

    def _expects_others(self) -> bool:
        """Whether workers of other hosts may join: there is a token for them. Who drives one run waits for nobody."""
        if self.engine.root_run_id is not None:
            return False
        now = self.clock.now()
        return any("worker" in token.scopes and token.is_valid(now) for token in self.store.server_records.tokens())

    @property
    def profile_labels(self) -> tuple[str, ...]:
        """The labels of the Slurm profiles of the workflows that it drives."""
        # The worker is recorded before it drives anything.
        return self.engine.workflows.profile_labels if hasattr(self, "engine") else ()

    def _record(self, lock_path: str) -> WorkerRecord:
        # Nothing runs yet: the free capacity is all of it.
        capacity = self.executor.offer() if self.executor is not None else NO_CAPACITY
        now, left = self.clock.now(), self._limits.seconds_left
        return WorkerRecord(
            name=self.name,
            host=self.host,
            pid=os.getpid(),
            lock=lock_path,
            cpus=capacity.cpus,
            memory=capacity.memory,
            gpus=capacity.gpus,
            nodes=capacity.nodes,
            nodes_min=capacity.nodes_min,
            labels=capacity.labels,
            version=__version__,
            started_at=now,
            ends_at=None if left is None else now + timedelta(seconds=left),
            job=None if self._job is None else msgspec.structs.replace(self._job, memory=capacity.memory),
            serves=self._serves,
        )

    def _tear_down(self) -> None:
        """Stop all tasks, then retire: nothing may run any more when the store removes this worker."""
        self._close_executor()
        # If the store cannot be reached, the next worker finds our lock free and expires us.
        self._shut_down(is_recorded=self._retire() or self._retire())

    def _retire(self) -> bool:
        """Retire. False if the store is unavailable; a second try may succeed with a new connection."""
        try:
            # A result whose files have moved with the home is not written. To retire gives the turns back as well.
            with suppress(HomeMoved):
                self.engine.release_all()
        except (StoreUnavailable, StoreRefused):
            return False
        return self._is_removed()

    def _is_removed(self) -> bool:
        """Remove this worker from the store, if it is there. False if the store cannot be asked."""
        try:
            self.store.retire(self.name)
        except (StoreUnavailable, StoreRefused):
            return False
        return True

    def _close_executor(self) -> None:
        if self.executor is not None:
            self.executor.close()
        self.executor = None

    def _shut_down(self, *, is_recorded: bool = True) -> None:
        """Stop all tasks and free the lock."""
        self._close_executor()
        if self.lock is not None:
            self.lock.release(is_recorded=is_recorded)
        self.lock = None

    def expire_dead_workers(self) -> None:
        """Expire dead workers, kill the processes and remove the files that they left on this machine.

        Over HTTP the server expires them, which has the clock by which heartbeats count.
        """
        if self.home.is_remote:
            self._remove_dead_files()
            return
        may_expire_others = self.engine.heartbeats.may_expire_others
        workers = self.store.workers()
        expired = expire_dead_workers(
            self.store,
            self._locks.confirmed_state,
            kill_worker_processes,
            workers=workers,
            may_expire_others=may_expire_others,
            silent=None if self.store.is_shared else self._silent_workers.look(workers),
            ask_jobs=self._ask_jobs,
        )
        for worker in expired:
            # We may be waiting for something that it had: a run of ours, the probe of a breaker.
            self.engine.request_poll()
            if worker.lock:
                Path(self._locks.path(worker)).unlink(missing_ok=True)
            remove_folder(self.home.folders.worker(worker.name))
        left = (worker for worker in workers if worker not in expired)
        self.engine.set_alone(not other_workers(left, self.name, is_shared=self.store.is_shared))

    def _remove_dead_files(self) -> None:
        """Remove what killed workers of this home have left on this host: the server cannot see it."""
        for name in lock.free_locks(self.home.locks):
            kill_worker_processes(name)
            (self.home.locks / f"{name}.lock").unlink(missing_ok=True)
            remove_folder(self.home.folders.worker(name))
        if time.monotonic() >= self._ended_removed_next:
            self._ended_removed_next = time.monotonic() + LOOK_SECONDS
            # A server of an older version cannot say which have ended.
            with suppress(MulliganError, OSError):
                running = {lease.task.run_id for lease in self.executor.running} if self.executor is not None else ()
                ended = cast("HttpStore", self.store).ended_runs
                if self._ended_folders.remove(ended, running=running)[1]:
                    self._ended_removed_next = time.monotonic() + NEXT_SECONDS

    @property
    def states(self) -> dict[int, State]:
        """The states of the runs that it drives."""
        return {run_id: drive.state for run_id, drive in self.engine.drivers.items()}

    # -- driving -----------------------------------------------------------------------------------------------------

    def drive(self, run_id: int, wait_seconds: float = 0.0) -> Ending:
        """Drive a run and its descendants until it has ended, waits for a person, or we are interrupted."""
        self.engine.root_run_id = run_id
        if run_id not in self.engine.drivers:
            if self.store.run(run_id).status in RUN_ENDED:
                # The last turn of the run was the verb that we follow.
                return "ended"
            self.engine.take_up(self._tree(run_id))
        look = partial(self._ending, run_id, wait_seconds)
        with self._signals():
            while not self.interrupts:
                ending = self._once(look)
                if ending is not None:
                    return ending
            self._wind_up()
        return self._ending_after_interrupt(run_id)

    def _tree(self, run_id: int) -> list[int]:
        """The run and its unfinished descendants: a run without messages may still have tasks to run."""
        run_ids = [run_id]
        for parent in run_ids:
            children = self.store.children(parent)
            run_ids.extend(child.run_id for child in children if child.status not in RUN_ENDED)
        return run_ids

    def serve(self, until: Callable[[], bool] = lambda: False) -> None:
        """Take turns and tasks of all runs until we are interrupted, or have finished our tasks after SIGUSR1."""
        with self._signals(), self._finishing():
            self._busy_at = time.monotonic()
            while not self.interrupts and not until() and not self._is_over():
                self._once(self._take_up_idle)
            self._wind_up()

    def _is_over(self) -> bool:
        """Whether it ends by itself now: its time is over, it has run its tasks, or it had none for long."""
        now, is_settled = time.monotonic(), self.engine.is_settled
        if not is_settled:
            self._busy_at = now
        if self._limits.is_over:
            self.end_reason = "its time is over"
        elif self._limits.is_used_up and is_settled:
            is_asked = self._limits.is_finishing
            self.end_reason = "it was asked to finish" if is_asked else "it has run as many tasks as it may"
        elif self._idle_seconds_max is not None and now - self._busy_at >= self._idle_seconds_max:
            self.end_reason = f"it had nothing to run for {self._idle_seconds_max:g}s"
        return bool(self.end_reason)

    def _take_up_idle(self) -> None:
        """Take up runs that nobody holds, in a store that is not shared: their tasks come only with their turns."""
        if self.store.is_shared or time.monotonic() - self._idle_at < IDLE_RUNS_SECONDS:
            return
        self._idle_at = time.monotonic()
        if not self.engine.runs_held:
            # No run depends on our clock now, so it may follow changes of the wall clock.
            self.clock.follow_wall()
        self.expire_dead_workers()
        self.engine.take_up_idle()

    def turn(self, run_id: int, until: Callable[[], bool]) -> None:
        """Take the turns of the run, and run no tasks, until the condition holds."""
        self.engine.root_run_id = run_id
        self.engine.take_up([run_id])
        while not until():
            self.engine.refuse_abandoned(run_id)
            self._once()

    def end_unreadable(self, run_id: int, report: CancelRequested) -> None:
        """End a run that cannot be read, in its row alone: nothing else of it can be written. Its parent hears of it.

        `Conflict` if another worker has written it meanwhile.
        """
        self.engine.release_all()
        record, messages = self.store.run(run_id), self.store.inbox([run_id])
        if record.holder and all(worker.name != record.holder for worker in self.store.workers()):
            # Nobody holds it: a turn ends with its worker.
            self.store.register(WorkerRecord(record.holder, host="", pid=0))
            self.store.expire(record.holder, is_dead=True)
        turns = self.store.take_turns([run_id], self.name)
        if not turns:
            raise Conflict(f"run {run_id} was taken by another worker", hint="cancel it again")
        said = f": {report.reason}" if report.reason else ""
        reason = f"it cannot be read and was ended by {report.by}{said}"
        commit = Commit(
            turn=turns[0],
            after=record.seq,
            entries=(),
            rows=(),
            status="cancelled",
            round=record.round,
            at=max(report.at, record.updated_at),
            degraded=record.degraded,
            reason=reason,
            drained=[(one.id, Answer() if one.is_asking else None) for one in messages],
            outgoing=to_parent(record, None, reason, report.at),
            child_reports=[to_children(record, report.at)],
            is_last=True,
        )
        self.store.commit([commit])

    def _ending(self, run_id: int, wait_seconds: float) -> Ending | None:
        if run_id in self.engine.drivers and not self.engine.is_idle:
            # Nearly every round: it goes on.
            return None
        self.engine.refuse_abandoned(run_id)
        if self._has_ended(run_id):
            return "ended"
        return "waiting" if self._waits(run_id, wait_seconds) else None

    def _ending_after_interrupt(self, run_id: int) -> Ending:
        try:
            return "ended" if self._has_ended(run_id) else "interrupted"
        except StoreUnavailable:
            return "interrupted"

    def _has_ended(self, run_id: int) -> bool:
        return run_id not in self.engine.drivers and self.store.run(run_id).status in RUN_ENDED

    def _waits(self, run_id: int, wait_seconds: float) -> bool:
        """Whether only a person can continue the run: nothing runs, and no timer is due soon."""
        if not self.engine.is_idle or not self._is_time_to_look():
            return False
        drives = self.engine.drivers.values()
        if not any(self._waits_for_outside(drive) for drive in drives):
            return False
        if all(drive.is_paused for drive in drives):
            # Timers take effect when the pause is lifted: there is nothing to wait for.
            return True
        due = self.engine.next_due()
        return due is None or (due - self.clock.now()).total_seconds() > wait_seconds

    def _waits_for_outside(self, drive: RunDriver) -> bool:
        return drive.is_paused_after_crash or waits_for_outside(
            drive.state, find_breaker_waits(self.store, drive.state, self.clock.now())
        )

    def _is_time_to_look(self) -> bool:
        """Whether to count the waiting tasks: not in every round, since ten thousand may wait for a breaker."""
        if self.engine.workflows.has_breakers and time.monotonic() - self._held_at < HELD_UP_SECONDS:
            return False
        self._held_at = time.monotonic()
        return True

    def _once(self, look: Callable[[], Ending | None] = lambda: None) -> Ending | None:
        """Run the loop once, then `look`. Return None if the store was unavailable."""
        if time.monotonic() - self._home_checked_at >= HOME_SECONDS:
            self._refuse_moved_home()
        try:
            self._maintain()
            self.engine.tick(TICK_SECONDS)
            if self.executor is not None and self.executor.trouble != self._trouble:
                self._report_trouble(self.executor.trouble)
            self.observer.tick()
            return look()
        except StoreUnavailable as error:
            self._wait_for_store(error)
        except WorkerExpired:
            self._start_over()
        return None

    def _report_trouble(self, trouble: str) -> None:
        """Say what is wrong with this machine, or that nothing is any more: here, and to whoever lists the workers."""
        try:
            self.store.set_trouble(self.name, trouble)
        except StoreUnavailable:
            raise
        except MulliganError:
            pass  # a server of an older version does not list it
        self._trouble = trouble
        self.observer.trouble(f"{trouble}; no more tasks are started until a try succeeds" if trouble else "")

    def _maintain(self) -> None:
        """Send a heartbeat if the store is shared, and expire dead workers: we may wait for a run, a task or a probe.

        Who serves all runs of a store of one machine does that in `_take_up_idle`.
        """
        is_shared = self.store.is_shared
        if (self.engine.root_run_id is None and not is_shared) or not self._is_heartbeat_due():
            return
        if is_shared:
            self.clock.set_by(self.engine.heartbeats.send)
        self.expire_dead_workers()
        if self._lacks_its_run():
            self._report_unknown_locks()
            self.engine.take_up(self._tree(self.engine.root_run_id or 0))

    def _report_unknown_locks(self) -> None:
        unproven = self._locks.unproven
        if unproven:
            message = f"the lock file of worker '{unproven[0]}' is not in this home"
            self.observer.trouble(f"{message}; waiting {self.home.lease_seconds:g}s to be sure that it has ended")
        elif self._was_unproven:
            self.observer.trouble("")
        self._was_unproven = bool(unproven)

    def _keep_lease(self) -> None:
        """Send a heartbeat: tasks that have their grace still need their leases."""
        if self.store.is_shared and self._is_heartbeat_due():
            self.engine.heartbeats.send()

    def _is_heartbeat_due(self) -> bool:
        """Whether the last heartbeat is old enough. If so, this moment counts as the next one."""
        seconds = self.lease_seconds / BEATS_PER_LEASE
        seconds = seconds if self.store.is_shared else min(seconds, IDLE_RUNS_SECONDS)
        now = time.monotonic()
        if now - self._heartbeat_at < seconds:
            return False
        self._heartbeat_at = now
        return True

    def _lacks_its_run(self) -> bool:
        """Whether another process has the run that this one is to drive: that process may die."""
        root = self.engine.root_run_id
        return root is not None and root not in self.engine.drivers

    def _refuse_moved_home(self) -> None:
        """Kill all tasks and raise if the home was moved: another process may continue our runs in its new place.

        Called again and again, so that nothing runs any more by then; and before anything is written, since a task
        that has lost its files fails for no reason in the workflow.
        """
        self._home_checked_at = time.monotonic()
        if self.lock is None or self._is_home_in_place(self.lock):
            return
        if self.executor is not None:
            self.executor.drop_all()
        home, lock_path = self.home.folder, self.lock.moved_to
        found = home if lock_path is None else lock_path.parent.parent
        if found == home:
            raise HomeMoved(
                f"the home '{home}', or the database in it, was moved, replaced or removed while this process used it; "
                "all running tasks were stopped",
                hint="if it is at another place now, continue there: mulligan resume --home DIR",
            )
        remove_folder(Folders(found).worker(self.name))
        raise HomeMoved(
            f"the home '{home}' was moved to '{found}' while this process used it; all running tasks were stopped",
            hint=f"to continue there: mulligan resume --home {shlex.quote(str(found))}",
            moved_to=str(found),
        )

    def _is_home_in_place(self, held: lock.Lock) -> bool:
        """In a shared store a worker that expires us removes our lock: a missing lock does not prove a moved home."""
        if not self.store.is_shared:
            return held.is_in_place and self.store.is_in_place
        try:
            return held.is_in_place or os.path.samestat(os.stat(self.home.folder), self._home_stat)
        except OSError:
            return False

    def _wait_for_store(self, error: MulliganError) -> None:
        """Ask an unavailable store again until it answers. Tasks keep running, and nothing is lost."""
        self.observer.trouble(f"{error.message}; waiting for it")
        for seconds in pauses(self.lease_seconds):
            if self.interrupts:
                return
            self._refuse_moved_home()
            self.engine.wait(seconds)
            self.observer.tick()
            try:
                self.engine.recover()
            except StoreUnavailable:
                continue
            except WorkerExpired:
                self._start_over()
            self.observer.trouble("")
            return

    def _start_over(self) -> None:
        """Kill all tasks and register under a new name: this worker has expired, and others have its work."""
        self.observer.trouble("this worker sent no heartbeat in time and has expired; it starts again under a new name")
        root, run_ids = self.engine.root_run_id, self.engine.run_ids
        if self.executor is not None:
            self.executor.drop_all()
        self._shut_down()
        for seconds in pauses(self.lease_seconds):
            try:
                self._set_up(root)
                self.engine.take_up(run_ids)
            except StoreUnavailable as error:
                if self.interrupts:
                    raise
                self._shut_down(is_recorded=False)
                self.observer.trouble(f"{error.message}; waiting for it")
                time.sleep(seconds)
            else:
                self.observer.trouble("")
                return

    # -- signals -----------------------------------------------------------------------------------------------------

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Count Ctrl-C and SIGTERM. The loop acts on them between two rounds.

        A run that another thread than the main one drives is not interrupted.
        """
        signals = (signal.SIGINT, signal.SIGTERM)
        try:
            before = {number: signal.signal(number, self._note) for number in signals}
        except ValueError:
            # Only the main thread may handle signals.
            before = {}
        try:
            yield
        finally:
            if self.interrupts > 1 and before:
                signal.setitimer(signal.ITIMER_REAL, 0)
            for number, handler in before.items():
                # None: it was not set from Python, which cannot set it again.
                signal.signal(number, signal.SIG_DFL if handler is None else handler)

    @contextmanager
    def _finishing(self) -> Iterator[None]:
        """SIGUSR1 asks a worker to take no more tasks and to end after those that it has."""

        def finish(number: int, frame: FrameType | None) -> None:
            self._limits.is_finishing = True

        try:
            before = signal.signal(signal.SIGUSR1, finish)
        except ValueError:
            # Only the main thread may handle signals.
            yield
            return
        try:
            yield
        finally:
            signal.signal(signal.SIGUSR1, signal.SIG_DFL if before is None else before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.interrupts += 1
        self.interrupted_by = self.interrupted_by or number
        if self.interrupts == 2:
            # The kernel ends us if the loop does not, whatever it waits for or computes.
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, self.kill_seconds)

    def _was_signalled(self) -> bool:
        return self.interrupts > 0

    def _wind_up(self) -> None:
        """Start nothing more, stop all tasks with their grace (none after a second Ctrl-C), and write their results."""
        self.engine.drain()
        if self.executor is None:
            return
        if self.interrupts or not self.engine.is_settled:
            reason = self.end_reason or "interrupted"
            self.observer.trouble(f"{reason}: waiting for running tasks to end (press Ctrl-C again to kill them)")
        self.executor.stop_all(CANCEL_GRACE_SECONDS)
        is_killing, idle_at = False, time.monotonic()
        while not self.engine.is_settled:
            if self.executor.is_busy:
                idle_at = time.monotonic()
            elif time.monotonic() - idle_at > WIND_UP_SECONDS:
                # Whatever is left to write, the next worker writes.
                break
            self._refuse_moved_home()
            if self.interrupts > 1 and not is_killing:
                self.executor.stop_all(0.0)
                is_killing = True
            try:
                self._keep_lease()
                self.engine.tick(TICK_SECONDS)
                self.observer.tick()
            except (StoreUnavailable, WorkerExpired):
                # Results that cannot be written now are lost with our lock: the tasks run again after a resume.
                if not self.executor.is_busy:
                    return
                self.engine.wait(TICK_SECONDS)
        self.observer.trouble("")


def pauses(lease_seconds: float) -> Iterator[float]:
    """The growing pauses before an unavailable store is asked again."""
    seconds, seconds_max = STORE_SECONDS, min(STORE_SECONDS_MAX, lease_seconds * STORE_LEASE_SHARE_MAX)
    while True:
        yield min(seconds, seconds_max)
        seconds *= 2
