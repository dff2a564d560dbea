"""Turn the exit of a task's process into the report that the engine gets."""

from __future__ import annotations

import os
from datetime import UTC, datetime

from mulligan.core.deciding.classify import IMPORT, LIMIT, LIMIT_SECONDS
from mulligan.core.effects.tasks import Task
from mulligan.core.model.actions import traits
from mulligan.core.model.clusters.scheduler_job import JobEnd, WorkerJob
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.reports import LeaseExpired, Report, TaskInterrupted
from mulligan.worker.actions import shell
from mulligan.worker.actions.action_registry import SPAWNED, spawned_action
from mulligan.worker.child.warm_child import IMPORT_SECONDS_MAX, importing_words
from mulligan.worker.logs.log_limit import LogLimit
from mulligan.worker.programs import Programs
from mulligan.worker.running_task import RunningTask
from mulligan.worker.slots.task_limits import TaskLimits
from mulligan.worker.supervisor import wall_clock
from mulligan.worker.supervisor.own_cgroup import OomKills
from mulligan.worker.task_files import TaskFiles
from mulligan.worker.task_reports import ExitedTask, ProcessExit, make_report, missing_result_reason

SIGKILL, SIGTERM = 9, 15
# What a child dies of if an expression of its step does not end: see `formats.noetl.runtime.render_limits`.
SIGVTALRM = 26
ENDLESS = "a template of the step needs too much processor time: do this work in the code of a step"
KILLED_STATUS = 128 + SIGKILL


class ExitReader:
    """Read how the tasks of one worker ended."""

    def __init__(
        self,
        worker: str,
        task_files: TaskFiles,
        log_limit: LogLimit,
        programs: Programs,
        limits: TaskLimits,
        job: WorkerJob | None = None,
    ) -> None:
        self._worker = worker
        self._limits = limits
        self._job = job
        self._task_files = task_files
        self._log_limit = log_limit
        self._programs = programs
        self._oom_kills = OomKills()

    def report_lost(self, task: Task) -> Report:
        job = JobEnd(self._job) if self._job is not None else None
        return LeaseExpired(datetime.now(UTC), task.place, task.attempt, self._worker, job)

    def _report_interrupted(self, task: Task, process_exit: ProcessExit) -> TaskInterrupted:
        """Report a task that ended with its worker. It matters how long it ran if the time of the worker was over."""
        ran = max(0.0, process_exit.ended - process_exit.started)
        is_over = self._limits.ends_life
        return TaskInterrupted(
            datetime.now(UTC),
            task.place,
            task.attempt,
            ran_seconds=round(ran, 3) if is_over else None,
            life_seconds=self._limits.life_seconds if is_over else None,
            job=self._job,
        )

    def report_exit(self, running: RunningTask, process_exit: ProcessExit) -> Report:
        """Return the report of a task whose process has ended."""
        task = running.resolved.task
        if running.pipes is not None:
            running.pipes.end()
        if process_exit.stop_reason == "expired":
            return self.report_lost(task)
        if process_exit.stop_reason == "interrupted":
            return self._report_interrupted(task, process_exit)
        if process_exit.stop_reason == "log limit":
            return make_report(task, self._log_limit.make_outcome(running), None, process_exit)
        if process_exit.stop_reason == "timeout" and process_exit.importing is not None:
            return make_report(task, _import_outcome(task, process_exit, process_exit.importing), None, process_exit)
        returns = "" if task.turn is None else "the program"
        if (running.child or returns) and (reason := missing_result_reason(process_exit, returns or "'main'")):
            return make_report(task, Outcome(code="EXCEPTION", exit_code=None, message=reason), None, process_exit)
        if running.child and process_exit.signal == SIGVTALRM and not traits(task.kind, task.params).runs_python:
            outcome = Outcome(code="EXPRESSION_FAILED", exit_code=None, message=ENDLESS)
            return make_report(task, outcome, None, process_exit)
        if process_exit.stop_reason == "memory":
            # The kill in the task's own group is counted for our group too.
            self._oom_kills.settle()
        is_out_of_memory = process_exit.stop_reason == "memory" or (
            not process_exit.stop_reason and self._is_out_of_memory(task, process_exit)
        )
        if running.pipes is not None and running.pipes.loss_reason and _is_output_printed(running, process_exit):
            message = f"its output cannot be stored: {running.pipes.loss_reason}"
            return make_report(task, Outcome(code="EXCEPTION", exit_code=None, message=message), None, process_exit)
        read_exit = spawned_action(task.kind).read_exit if task.kind in SPAWNED else shell.read_exit
        logs = self._task_files.log_paths(running)
        return read_exit(ExitedTask(task, logs, running.scratch, process_exit, is_out_of_memory, self._programs))

    def _is_out_of_memory(self, task: Task, process_exit: ProcessExit) -> bool:
        """Whether the process was killed for its memory: by the measured peak, or by the kernel's count of kills."""
        if process_exit.signal != SIGKILL and process_exit.exit_code != KILLED_STATUS:
            return False
        return bool(task.memory and process_exit.peak_memory >= task.memory) or self._oom_kills.take_new()


def _import_outcome(task: Task, process_exit: ProcessExit, module: str) -> Outcome:
    """The outcome of a task whose module was still being imported when its time, or that of its visit, was over."""
    limit = max(IMPORT_SECONDS_MAX, task.timeout or 0.0)
    if task.deadline is not None and task.deadline.timestamp() < process_exit.started + limit:
        return Outcome(exit_code=None, is_timed_out=True, is_past_deadline=True)
    return Outcome(
        code="TIMEOUT",
        exit_code=None,
        message=f"it was still importing {importing_words(module)}",
        details={LIMIT: IMPORT, LIMIT_SECONDS: limit},
    )


def _is_output_printed(running: RunningTask, process_exit: ProcessExit) -> bool:
    """Whether it succeeded, and its output is what it printed."""
    has_succeeded = process_exit.status == 0 and process_exit.stop_reason in ("", "stopped")
    return has_succeeded and not running.child and not os.path.lexists(running.scratch.output)


def exit_before_start(reason: str) -> ProcessExit:
    """Return the exit of a task that was waiting and will not be started."""
    now = wall_clock.now()
    return ProcessExit(SIGTERM, started=now, ended=now, cpu_seconds=0.0, peak_memory=0, stop_reason=reason)
