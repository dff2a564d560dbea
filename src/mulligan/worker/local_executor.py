"""Run the tasks that an engine leases as processes of this host, and report how they end.

One thread, one loop: `collect` waits for the supervisor, the warm children and the descriptor that the engine watches.
"""

from __future__ import annotations

import math
import os
import selectors
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from mulligan.core.deciding.workers.worker_health import HEALTHY
from mulligan.core.effects.lease_rules import HELD_SECONDS_MAX
from mulligan.core.effects.tasks import Task
from mulligan.core.model.clusters.scheduler_job import WorkerJob
from mulligan.core.model.program_calls import Delivery
from mulligan.core.model.reports import Report, TaskEnded
from mulligan.errors import InputInvalid, StoreUnavailable
from mulligan.ports import Artifacts, Clock, FindResults, Lease, Offer
from mulligan.worker.actions import python
from mulligan.worker.actions.action_registry import SPAWNED, as_model_task, spawned_action, with_usage
from mulligan.worker.actions.plain_tasks import is_plain
from mulligan.worker.child.background_jobs import BackgroundJobs
from mulligan.worker.child.called_tasks import CalledTasks
from mulligan.worker.child.child_pool import ChildPool
from mulligan.worker.child.warm_child import Debugging
from mulligan.worker.ended_tasks import EndedTasks
from mulligan.worker.environment import worker_environment
from mulligan.worker.environments.python_environments import SEARCHES_MAX, PythonEnvironments, Request, requirements_of
from mulligan.worker.exit_reader import ExitReader, exit_before_start
from mulligan.worker.folders import Folders, remove_folder
from mulligan.worker.logs.log_limit import LOG_BYTES_MAX, LogLimit
from mulligan.worker.logs.log_shipping import LogShipping, ShippedLogs
from mulligan.worker.logs.progress_files import ProgressFiles
from mulligan.worker.outputs.kept_files import KeptFiles
from mulligan.worker.outputs.large_values import LargeValues
from mulligan.worker.outputs.object_files import NO_OBJECTS, ObjectFiles, ObjectStorage
from mulligan.worker.outputs.path_containment import check_paths
from mulligan.worker.outputs.result_cache import ResultCache
from mulligan.worker.programs import Programs, find_program
from mulligan.worker.run_data import with_data
from mulligan.worker.running_task import RunningTask
from mulligan.worker.secrets.redactor import Redactor
from mulligan.worker.secrets.secret_commands import NotReady
from mulligan.worker.secrets.secrets import Secrets
from mulligan.worker.slots.deadlines import seconds_left, with_local_deadline, with_local_time, without_limits
from mulligan.worker.slots.machine_trouble import MachineHealth, with_machine_trouble
from mulligan.worker.slots.resource_pool import Prefetch, ResourcePool
from mulligan.worker.slots.task_limits import TaskLimits
from mulligan.worker.slots.wake_up import WakeUp
from mulligan.worker.supervisor.fd_events import unwatch, watch_reads
from mulligan.worker.supervisor.fd_limit import raise_fd_limit
from mulligan.worker.supervisor.processes import kill_worker_processes
from mulligan.worker.supervisor.shared_signal import SharedSignal
from mulligan.worker.supervisor.supervisor_client import SupervisorClient, SupervisorExited
from mulligan.worker.task_boundary import TaskBoundary
from mulligan.worker.task_files import PROGRAM, TaskFiles
from mulligan.worker.task_reports import (
    START_ERRORS,
    ProcessExit,
    report_missing_folder,
    report_spawn_error,
    report_start_error,
    with_log_warning,
)
from mulligan.worker.work_folders import MissingFolders, in_own_folder

if TYPE_CHECKING:
    from mulligan.worker.program_turns import ProgramTurns, ReadHistory

# A python step that runs longer than this has its log under the name of its attempt while it runs.
LOGS_NAMED_AFTER_SECONDS = 0.2
DROP_SECONDS_MAX = 10.0
# Renew a heartbeat older than this share of the lease before starting anything. The supervisor kills everything at two
# thirds; in quiet times no heartbeat gets this old.
FRESH_SHARE = 1 / 3


class LocalExecutor:
    """Run tasks as processes of this host. `mulligan.ports.Executor` documents the methods."""

    def __init__(
        self,
        name: str,
        host: str,
        home: Path,
        *,
        cpus: float,
        memory: int,
        read_history: ReadHistory,
        gpus: int = 0,
        labels: tuple[str, ...] = (),
        lock_fd: int | None = None,
        lease_seconds: float | None = None,
        grace_seconds: float = 10.0,
        prefetch: int | None = None,
        leases_ahead: bool = False,
        artifacts: Artifacts | None = None,
        objects: ObjectStorage = NO_OBJECTS,
        results: FindResults | None = None,
        clock: Clock | None = None,
        is_direct: bool = True,
        log_bytes_max: int = LOG_BYTES_MAX,
        counts_waiting: bool = False,
        shipped_logs: Callable[[], ShippedLogs] | None = None,
        was_signalled: Callable[[], bool] = lambda: False,
        limits: TaskLimits | None = None,
        job: WorkerJob | None = None,
        more_labels: Callable[[], tuple[str, ...]] = tuple,
        nodes: int = 1,
        nodes_min: int = 1,
        debugging: Debugging | None = None,
    ) -> None:
        raise_fd_limit()
        self.name = name
        self.host = host
        # Deadlines of tasks and times of reports use this clock.
        self._clock = clock
        self._debugging = debugging or Debugging()
        self._with_time = without_limits if self._debugging.is_interactive else (lambda lease: lease)
        self._folders = Folders(home)
        self._folder = self._folders.worker(name)
        self._missing_folders = MissingFolders()
        self._health = MachineHealth(self._folders.home)
        # A step calls `mulligan data`, also if our program is not on the PATH.
        has_program = find_program(PROGRAM, os.environ.get("PATH", os.defpath)) is None
        self._task_files = TaskFiles(self._folders, name, has_program=has_program)
        self._log_limit = LogLimit(self._task_files, log_bytes_max)
        self._environment = worker_environment(name, dict(os.environ), self._folder if has_program else "")
        self._selector = selectors.DefaultSelector()
        self._secrets = Secrets(self._environment, self._selector, self._retry_starts)
        self._boundary = TaskBoundary(self._secrets, artifacts, job)
        self._progress_files = ProgressFiles(self._folders, self._boundary.redactor)
        self._log_shipping = LogShipping(self._folders, name, shipped_logs) if shipped_logs is not None else None
        self._resources = ResourcePool(
            cpus,
            memory,
            gpus,
            labels,
            environ=self._environment,
            counts_waiting=counts_waiting,
            more_labels=more_labels,
            nodes=nodes,
            nodes_min=nodes_min,
            is_for_one=self._debugging.is_interactive,
        )
        self._programs = Programs(self._environment, is_direct=is_direct)
        self._environments = PythonEnvironments(self._environment, self._folders.home)
        self._limits = limits or TaskLimits()
        self._exit_reader = ExitReader(
            name, self._task_files, self._log_limit, self._programs, limits=self._limits, job=job
        )
        self._shared_signal = SharedSignal(was_signalled)
        self._prefetch = Prefetch(int(cpus), prefetch, is_ahead=leases_ahead)
        self._leases_ahead = leases_ahead
        # Taken beyond the free resources, oldest first: the supervisor starts a shell task when another one ends.
        self._prefetched: dict[int, Task] = {}
        # When those were taken that go back to the store if they wait for long.
        self._held_since: dict[int, float] = {}
        # Taken, but waiting for a secret or for the store to return an artifact.
        self._not_ready: set[int] = set()
        self._ended = EndedTasks(self._boundary, self._log_shipping, self._health.judge)
        self._launch_supervisor: Callable[[], SupervisorClient] = lambda: SupervisorClient(
            name,
            self._environment,
            self._selector,
            self._on_supervisor_ready,
            lock_fd=lock_fd,
            lease_seconds=lease_seconds,
            grace_seconds=grace_seconds,
        )
        self._fresh_seconds = math.inf if lease_seconds is None else lease_seconds * FRESH_SHARE
        self._renewed_at = time.monotonic()
        self._grace_seconds = grace_seconds
        self._running: dict[int, RunningTask] = {}
        self._wake_up = WakeUp()
        self._watched: int | None = None
        self._children = ChildPool(
            cpus,
            self._selector,
            lambda child: child.launch(self._supervisor, debugging),
            lambda child: self._called.on_child_ready(child),
        )
        self._background = BackgroundJobs(self._children, self._folder, concurrency_max=max(1, int(cpus)))
        self._large = LargeValues(
            self._background,
            self._boundary,
            self._task_files,
            after_preparing=self._on_prepared,
            report_end=self._report,
        )
        self._kept_files = KeptFiles(self._background, self._boundary, report_end=self._report)
        self._objects = ObjectFiles(
            self._background, self._boundary, objects, after_preparing=self._on_prepared, report_end=self._ended.finish
        )
        self._result_cache = ResultCache(
            self._background, results, artifacts, on_ready=self._retry_starts, report_end=self._report
        )
        self._called = CalledTasks(
            running=self._running,
            children=self._children,
            background=self._background,
            boundary=self._boundary,
            task_files=self._task_files,
            folders=self._folders,
            folder=self._folder,
            programs=self._programs,
            environments=self._environments,
            exit_reader=self._exit_reader,
            wake_up=self._wake_up,
            grace_seconds=grace_seconds,
            send=lambda order: self._supervisor.send(order),
            end=self._end,
            end_plain=self._end_plain,
            end_process=self._end_process,
            name_logs_later=self._schedule_log_naming,
            note_seconds=self._prefetch.record_duration if leases_ahead else None,
        )
        self._storing = (self._result_cache, self._large, self._kept_files, self._objects)
        self._program_turns: ProgramTurns | None = None  # from the first program on
        self._read_history = read_history
        self._supervisor = self._launch_supervisor()
        self._is_dropped = True
        if self._log_shipping is not None:
            self._log_shipping.ship_left()

    # -- resources

    def fits(self, task: Task) -> bool:
        may_start = not (self._health.known.cause and self._tasks_allowed == 0) and self._limits.admits(task)
        return may_start and (self._resources.fits(task) or self._prefetch.fits(task))

    def may_hold(self, task: Task) -> bool:
        is_ahead = self._leases_ahead and not self._health.known.cause
        return is_ahead and self._limits.admits(task) and self._prefetch.has_room(task)

    def can_ever_fit(self, task: Task) -> bool:
        return self._resources.can_ever_fit(task)

    def missing_resources(self, task: Task) -> str:
        return self._resources.missing_resources(task)

    def host_of(self, task: Task) -> str:
        return self.host

    def offer(self) -> Offer:
        offer = self._resources.offer(self.host)
        # Between no slot and one there is no room for what would wait for a slot.
        if self._leases_ahead and (ahead := self._prefetch.room_ahead) and not 0 < offer.cpus < 1:
            offer = replace(offer, ahead=ahead)
        if lacks := self._missing_folders.found:
            offer = replace(offer, lacks=lacks)
        if (allowed := self._tasks_allowed) is not None:
            offer = replace(offer, tasks_max=min(offer.tasks_max, allowed), ahead=0)
        return self._limits.narrow(offer)

    @property
    def trouble(self) -> str:
        return self._health.known.trouble

    @property
    def _tasks_allowed(self) -> int | None:
        return self._health.tasks_allowed(self._resources.tasks_reserved)

    def reserve(self, task: Task) -> None:
        self._limits.take()
        if not self._resources.fits(task) and self._prefetch.has_room(task):
            self._prefetch.reserve(task)
        else:
            self._resources.reserve(task)

    def unreserve(self, task: Task) -> None:
        self._limits.give_back()
        self._release(task)

    def _release(self, task: Task) -> None:
        if not self._prefetch.reserved or not self._prefetch.release(task):
            self._resources.release(task)

    @property
    def running(self) -> Collection[Lease]:
        ended = (running for part in self._storing for running in part.storing)
        return [*(running.lease for running in (*self._running.values(), *ended)), *self._ended.waiting]

    @property
    def is_busy(self) -> bool:
        return bool(self._running)

    # -- starting

    def start(self, leases: Iterable[Lease]) -> None:
        orders = []
        for lease in map(self._with_time, leases):
            if (order := self._start(in_own_folder(lease, self._folders.work))) is not None:
                orders.append(order)
        if orders:
            self._supervisor.send(*orders)

    def _start(self, lease: Lease) -> tuple[Any, ...] | None:
        """Return what to send to the supervisor, or None if a child runs the task or it has ended already."""
        task = lease.task
        running = self._running.get(lease.token)
        if running is None:
            running = self._running[lease.token] = RunningTask(lease, lease, self._task_files.take_scratch())
        if self._prefetch.reserved and task.kind not in SPAWNED and self._prefetch.contains(task):
            self._hold(lease.token, task)
            return None
        try:
            if not self._task_files.is_ready:
                self._task_files.make_folder()
            if task.started_in == self._folders.work:
                self._folders.make_work()
            if self._missing_folders.lacks(task.home):
                self._end(lease.token, report_missing_folder(task, self.host))
                return None
            if task.turn is not None:
                running.resolved = with_local_deadline(lease, self._clock)
                self._turns_of_programs().start(running)
                self._schedule_log_naming(running, time.monotonic())
                return None
            if is_plain(task) and self._secrets.redactor(task) is None:
                # The stages below would all find nothing to do.
                running.is_plain, running.has_references = True, False
                self._called.start(running, None)
                return None
            self._objects.inputs.running = running
            # Only here is it known which agents are models, and which are commands.
            taken = as_model_task(lease, self._programs)
            task = taken.task
            inward, running.has_references = self._boundary.prepare(
                taken, is_called=task.kind not in SPAWNED, spool=partial(self._large.spool, running)
            )
            running.resolved = with_local_deadline(self._resources.assign_gpus(inward), self._clock)
            if running.resolved.task.folders:
                check_paths(running.resolved.task, self._folders)
            if (reused := self._result_cache.find(running)) is not None:
                self._end(lease.token, reused)
                return None
            self._task_files.prepare(running)
            if running.has_references:
                self._large.prepare_input(running)
            redactor = self._boundary.redactor(lease)
            if task.kind in SPAWNED:
                self._folders.make_run(task.run_id)
                if redactor is not None:
                    self._task_files.open_pipes(running, redactor, self._selector)
                return self._command_for(running)
            if requirements_of(task) and (order := self._find_environment(running, redactor)) is not None:
                return order
            self._called.start(running, redactor)
        except NotReady:
            self._not_ready.add(lease.token)
            self._wake_up.at(self._secrets.run_due(time.monotonic()))
        except StoreUnavailable as error:
            self._not_ready.add(lease.token)
            self._ended.store_error = error
        except START_ERRORS as error:
            if isinstance(error, FileNotFoundError) and self._task_files.restore_folder(self._running.values()):
                return self._start(self._running.pop(lease.token).lease)
            self._end(lease.token, report_start_error(task, error))
        finally:
            self._objects.inputs.running = None
        return None

    def _on_prepared(self, running: RunningTask, refusal: TaskEnded | None) -> None:
        """Start the process whose input files are written, or end the task if they could not be."""
        self._retry_starts() if refusal is None else self._end(running.lease.token, refusal)

    def _retry_starts(self) -> None:
        """Try again to start the tasks that wait for a secret, for the store or for a child."""
        tokens, self._not_ready = self._not_ready, set()
        self.start([self._running[token].lease for token in sorted(tokens)])

    def _command_for(self, running: RunningTask) -> tuple[Any, ...]:
        lease = running.resolved
        action = spawned_action(lease.task.kind)
        order, running.is_direct = action.build_command(lease, running.scratch, self._folders, self._programs)
        if not self._prefetch.contains(lease.task):
            self._schedule_log_naming(running, time.monotonic())
            return ("run" if lease.task.cpus >= 1.0 else "run_fractional", lease.token, *order)
        self._hold(lease.token, lease.task)
        return ("queue", lease.token, *order)

    def _find_environment(self, running: RunningTask, redactor: Redactor | None) -> tuple[Any, ...] | None:
        """Return the process that finds or builds the environment of a python task; None if that is known.

        It is the first part of the attempt: it is stopped with the attempt, and writes to its log. The timeout of the
        step begins later.
        """
        task = running.resolved.task
        request: Request = (python.interpreter_of(task, self._programs), requirements_of(task))
        running.environment = self._environments.find(request)
        if running.environment is not None:
            return None
        if running.environment_searches >= SEARCHES_MAX:
            raise InputInvalid("the environment for its requirements disappears before it can be used")
        running.environment_searches += 1
        running.awaited_environment = request
        self._folders.make_run(task.run_id)
        if redactor is not None:
            self._task_files.open_pipes(running, redactor, self._selector)
        self._schedule_log_naming(running, time.monotonic())
        left = seconds_left(replace(task, timeout=None))
        token = running.lease.token  # its end frees no slot: the task goes on
        return ("run_fractional", token, *self._environments.build_command(request, token, running.scratch, left))

    def _on_environment(self, running: RunningTask, request: Request, process_exit: ProcessExit) -> None:
        """Start the task whose environment is ready, or report why there is none."""
        running.awaited_environment = None
        if process_exit.status == 0 and not process_exit.stop_reason:
            self._environments.adopt(request, running.scratch)
            self._task_files.clear_build(running)
            self.start([running.lease])
            return
        # It was not the timeout of the step that ended it.
        lease = running.resolved
        running.resolved = replace(lease, task=replace(lease.task, timeout=None))
        self._end_process(lease.token, process_exit)

    # -- stopping

    def stop(self, token: int, grace_seconds: float | None) -> None:
        if grace_seconds is not None and token in self._running:
            self._stop(self._running[token], grace_seconds, "stopped")

    def stop_all(self, grace_seconds: float) -> None:
        # Stop prefetched tasks first: the end of another task would start them.
        for running in sorted(self._running.values(), key=lambda running: running.lease.token not in self._prefetched):
            self._stop(running, grace_seconds, "interrupted")

    def _stop(self, running: RunningTask, grace_seconds: float, why: str) -> None:
        token = running.lease.token
        if token in self._not_ready or self._is_held(token) or self._called.is_awaiting_child(token):
            self._end(running.lease.token, self._exit_reader.report_exit(running, exit_before_start(why)))
            return
        if running.lease.task.turn is not None:
            self._turns_of_programs().stop(token, why)
            return
        if running.child in self._children:
            self._children[running.child].is_leaving = True
        self._supervisor.send(("stop", running.child or running.lease.token, grace_seconds, why))

    def drop_all(self) -> None:
        dropped = list(self._running.values())
        for running in dropped:
            self._release(running.lease.task)
        self._running.clear()
        self._prefetched.clear()
        self._held_since.clear()
        self._not_ready.clear()
        for part in (self._called, self._ended, self._background, self._shared_signal, *self._storing):
            part.clear()
        self._children.retire_all()
        if self._program_turns is not None:
            self._program_turns.drop_all()
        self._wake_up.due = math.inf
        self._is_dropped = False
        self._supervisor.send(("drop",))
        until = time.monotonic() + DROP_SECONDS_MAX
        while not self._is_dropped and time.monotonic() < until:
            self._wait(until - time.monotonic())
        for running in dropped:
            self._progress_files.copy(running)
            self._kept_files.take(running, is_reported=False)
            self._task_files.clear(running)
        if self._log_shipping is not None:
            # What the store does not take now, the next worker of this home ships.
            with suppress(StoreUnavailable):
                self._log_shipping.ship_ended(running.lease.task for running in dropped)

    def renew(self, at: float) -> None:
        self._renewed_at = at
        self._supervisor.send(("renew", at))
        if self._log_shipping is not None:
            # With a heartbeat, so that it is not asked more often than needed.
            self._log_shipping.poll(is_running=bool(self._running))

    @property
    def must_renew(self) -> bool:
        return time.monotonic() - self._renewed_at > self._fresh_seconds

    def close(self) -> None:
        if self._program_turns is not None:
            self._program_turns.drop_all()
        self._supervisor.close()
        self._children.forget_all()
        self._secrets.close()
        self._environments.close()
        self._selector.close()
        remove_folder(self._folder)

    # -- messages

    def watch(self, fd: int | None) -> None:
        if self._watched is not None:
            unwatch(self._selector, self._watched)
        if fd is not None:
            watch_reads(self._selector, fd, None)
        self._watched = fd

    def collect(self, timeout: float | None) -> list[tuple[Lease, Report]]:
        if not self._ended.done:
            self._wait(timeout)
        self._run_due()
        if self._shared_signal.held:
            self._end_judged()
        if self._prefetched or self._held_since:
            self._start_prefetched()
        if self._ended.store_error is not None:
            self._retry_store()
        return self._ended.take()

    def _retry_store(self) -> None:
        """Retry what the store was unavailable for. Raise its error only if there is nothing to return."""
        self._ended.store_error = None
        for running, report in self._ended.take_unstored():
            self._report(running, report)
        self._retry_starts()
        if self._ended.store_error is not None and not self._ended.done:
            raise self._ended.store_error

    def _wait(self, timeout: float | None) -> None:
        if self._wake_up.due < math.inf:
            patience = max(0.0, self._wake_up.due - time.monotonic())
            timeout = patience if timeout is None else min(timeout, patience)
        for key, _ in self._selector.select(timeout):
            if key.data is not None:
                key.data()

    def _turns_of_programs(self) -> ProgramTurns:
        if self._program_turns is None:
            from mulligan.worker.program_turns import ProgramTurns

            self._program_turns = ProgramTurns(
                running=self._running,
                selector=self._selector,
                folders=self._folders,
                folder=self._folder,
                exit_reader=self._exit_reader,
                wake_up=self._wake_up,
                read_history=self._read_history,
                locate=self._boundary.locate_artifacts,
                supervisor=lambda: self._supervisor,
                end=self._end,
                end_waiting=self._end_waiting,
                say=lambda token, report: self._ended.add(self._running[token].lease, report),
                clock=self._clock,
                bring_logs=None if self._log_shipping is None else self._log_shipping.bring,
                debugging=self._debugging,
            )
        return self._program_turns

    def go_on(self, token: int, ends: Sequence[Delivery]) -> None:
        self._turns_of_programs().go_on(token, ends)

    def end_turn(self, token: int) -> None:
        if self._turns_of_programs().end_turn(token):
            self._task_files.clear(self._part_with(token))

    def _end_waiting(self, token: int, report: Report) -> None:
        """`_end` for a program that waits: it has no result yet, and no files."""
        running = self._part_with(token)
        self._task_files.clear_turn(running)
        self._ended.add(running.lease, with_local_time(report, self._clock))

    def _part_with(self, token: int) -> RunningTask:
        """Release the resources of a task that has ended."""
        running = self._running.pop(token)
        self._prefetched.pop(token, None)
        self._held_since.pop(token, None)
        self._not_ready.discard(token)
        self._called.forget(token)
        self._release(running.lease.task)
        for part in (self._large, self._objects, self._result_cache):
            part.forget(running)
        return running

    def _end(self, token: int, report: Report) -> None:
        """Release the task's resources and queue its report for the engine."""
        report, running = with_local_time(report, self._clock), self._part_with(token)
        if isinstance(report, TaskEnded):
            report = with_machine_trouble(
                report, self._folders.home, running.resolved.task.home, broken_program=running.broken_program
            )
            report = self._large.detach_output(running, report)
            if running.may_have_files:
                report = with_data(report, running.scratch.data_set)
                report = with_usage(running.resolved.task, report, running.scratch)
        if running.may_have_files:
            self._progress_files.copy(running)
            self._kept_files.take(running, is_reported=isinstance(report, TaskEnded) and not report.reused_run_id)
        self._task_files.clear(running)
        # A reused result was checked when it was stored, and may refer to an artifact of another run.
        if isinstance(report, TaskEnded) and not report.reused_run_id:
            if running.log_warning:
                report = with_log_warning(report, running.log_warning)
            recorded = self._result_cache.record(running, report)
            if recorded is not None:
                self._report(running, recorded)
        else:
            self._ended.add(running.lease, report)

    def _end_plain(self, token: int, output: Any, usage: dict[str, Any]) -> None:
        """`_end` for a plain task that has returned, wrote no file, and has nothing that was to be done at its end."""
        running = self._running.pop(token)
        task = running.lease.task
        self._release(task)
        at = datetime.now(UTC) if self._clock is None else self._clock.now()
        report = TaskEnded(at, task.place, task.attempt, output=output, usage=usage)
        self._task_files.give_back(running.scratch)
        self._health.known = HEALTHY
        if output is None:  # nothing to redact, or to store elsewhere
            self._ended.add(running.lease, report)
        else:
            self._ended.report_plain(running, report, self._objects)

    def _report(self, running: RunningTask, report: TaskEnded) -> None:
        self._ended.report(running, report, self._large, self._kept_files, self._objects)

    def _on_supervisor_ready(self) -> None:
        try:
            messages = self._supervisor.receive()
        except SupervisorExited:
            self._replace_supervisor()
            return
        for kind, *rest in messages:
            _MESSAGE_HANDLERS[kind](self, *rest)

    def _replace_supervisor(self) -> None:
        """Kill what the dead supervisor left running, report its tasks as lost, and launch a new one."""
        self._supervisor.close()
        jobs = self._children.running_jobs()
        self._children.forget_all()
        if self._program_turns is not None:
            self._program_turns.drop_all()
        kill_worker_processes(self.name)
        for token in list(self._running):
            self._end(token, self._exit_reader.report_lost(self._running[token].lease.task))
        self._supervisor = self._launch_supervisor()
        self._supervisor.send(("renew", self._renewed_at))
        self._is_dropped = True
        for job in jobs:
            self._background.submit(job)

    def _on_ended(self, key: int, promoted: int, *measured: Any) -> None:
        process_exit = ProcessExit(*measured)
        if key in self._children:
            self._called.on_child_ended(self._children[key], process_exit)
        elif key in self._running and (awaited := self._running[key].awaited_environment) is not None:
            self._on_environment(self._running[key], awaited, process_exit)
        elif key in self._running:
            if key not in self._prefetched:
                self._prefetch.record_duration(process_exit.ended - process_exit.started)
            self._end_process(key, process_exit)
        if promoted in self._prefetched:
            self._promote(promoted)

    def _end_process(self, token: int, process_exit: ProcessExit) -> None:
        """Report the end of a task's process, unless it is not clear yet whether the task was interrupted."""
        self._shared_signal.add(token, process_exit)
        self._end_judged()

    def _end_judged(self) -> None:
        for token, process_exit in self._shared_signal.take():
            if token in self._running:
                self._end(token, self._exit_reader.report_exit(self._running[token], process_exit))
        self._wake_up.at(self._shared_signal.next_due)

    def _hold(self, token: int, task: Task) -> None:
        self._prefetched[token] = task
        if self._leases_ahead:
            self._held_since[token] = time.monotonic()

    def _is_held(self, token: int) -> bool:
        """Whether it waits here for a slot: not with the supervisor, as a shell task does."""
        return token in self._prefetched and self._prefetched[token].kind not in SPAWNED

    def _promote(self, token: int) -> None:
        """Move a prefetched task to the reserved resources."""
        task = self._prefetched.pop(token)
        self._held_since.pop(token, None)
        self._prefetch.release(task)
        self._resources.reserve(task)
        if task.kind in SPAWNED:
            self._schedule_log_naming(self._running[token], time.monotonic())

    def _start_prefetched(self) -> None:
        """Start prefetched tasks while resources are free: not only the end of a shell task frees some."""
        while self._prefetched:
            token, task = next(iter(self._prefetched.items()))
            if not self._resources.fits(task):
                break
            if not self._is_held(token):
                self._promote(token)
                self._supervisor.send(("start_queued", token))
            elif self.must_renew:
                break  # the lease may be void by now
            else:
                self._promote(token)
                self.start([self._running[token].lease])
        self._give_back_held(time.monotonic())

    def _give_back_held(self, now: float) -> None:
        """Give tasks back that have waited too long for a slot: others take longer than expected."""
        for token, since in list(self._held_since.items()):
            if now < since + HELD_SECONDS_MAX:
                self._wake_up.at(since + HELD_SECONDS_MAX)
                return
            self._prefetch.record_overdue(now - since)
            if self._is_held(token):
                self._end(token, self._exit_reader.report_exit(self._running[token], exit_before_start("interrupted")))
            else:
                del self._held_since[token]
                self._supervisor.send(("withdraw", token))

    def _on_start_failed(self, key: int, what: str, number: int, text: str) -> None:
        """Handle a process that could not be started."""
        token = key
        if key in self._children:
            child = self._children[key]
            token = child.task.lease.token if child.task else 0
            self._children.forget(child)
            if child.job is not None:
                self._task_files.restore_folder(self._running.values())
                self._background.restart(child)
        if token not in self._running:
            return
        running = self._running[token]
        if not what and self._task_files.restore_folder(self._running.values()):
            if running.pipes is not None:
                running.pipes.close()
            self.start([self._running.pop(token).lease])
            return
        if running.is_direct and not what:
            self._programs.require_bash(running.resolved.task.params["text"])
            self._supervisor.send(self._command_for(running))
            return
        self._end(token, report_spawn_error(running.lease.task, what, number, text))

    # -- time

    def _schedule_log_naming(self, running: RunningTask, now: float) -> None:
        running.name_logs_at = now + LOGS_NAMED_AFTER_SECONDS
        self._wake_up.at(running.name_logs_at)

    def _run_due(self) -> None:
        """Do what is due. Timers of tasks that have ended are not cancelled: they cause one useless wake-up each."""
        now = time.monotonic()
        if now < self._wake_up.due:
            return
        self._wake_up.due = self._secrets.run_due(now)
        self._called.start_awaiting()
        self._wake_up.at(self._children.retire_surplus(now))
        written: list[Task] = []
        for running in self._running.values():
            if running.name_logs_at is not None and running.name_logs_at <= now:
                self._name_logs(running, now)
            self._wake_up.at(running.name_logs_at)
            if running.check_logs_at is not None and running.check_logs_at <= now:
                self._progress_files.copy(running)
                # The log of a search for an environment is removed when that is found.
                if running.awaited_environment is None:
                    written.append(running.lease.task)
                if self._log_limit.is_exceeded(running, now):
                    self._stop(running, 0.0, "log limit")
            self._wake_up.at(running.check_logs_at)
        if self._log_shipping is not None:
            watched = self._log_shipping.watched_runs
            self._log_shipping.ship_live(task for task in written if task.run_id in watched)
        self._called.stop_overdue(now)
        if self._program_turns is not None:
            self._program_turns.run_due(now)

    def _name_logs(self, running: RunningTask, now: float) -> None:
        """Give the logs of a task that has run for a while the name of its attempt."""
        running.name_logs_at, running.check_logs_at = None, self._log_limit.next_check(now)
        if not self._task_files.name_logs(running, self._children.find(running.child)):
            self._schedule_log_naming(running, now)
        self._task_files.link_logs(running)
        self._progress_files.copy(running)
        if self._log_shipping is not None:
            self._log_shipping.begin(running.lease.task)


_MESSAGE_HANDLERS: dict[str, Callable[..., None]] = {
    "ended": LocalExecutor._on_ended,
    "start_failed": LocalExecutor._on_start_failed,
    "swept": lambda executor, key: executor._called.on_swept(key),
    "dropped": lambda executor: setattr(executor, "_is_dropped", True),
}
