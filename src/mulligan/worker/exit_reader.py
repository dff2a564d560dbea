"""Turn the exit of a task's process into the report that the engine gets."""

from __future__ import annotations

import os
from datetime import UTC, datetime

from mulligan.core.effects.tasks import Task
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.reports import LeaseExpired, Report, TaskInterrupted
from mulligan.worker import wall_clock
from mulligan.worker.actions import shell
from mulligan.worker.actions.kinds import SPAWNED
from mulligan.worker.log_limit import LogLimit
from mulligan.worker.own_cgroup import OomKills
from mulligan.worker.programs import Programs
from mulligan.worker.running_task import RunningTask
from mulligan.worker.task_files import TaskFiles
from mulligan.worker.task_reports import ProcessExit, make_report, missing_result_reason

SIGKILL, SIGTERM = 9, 15
KILLED_STATUS = 128 + SIGKILL


class ExitReader:
    """Read how the tasks of one worker ended."""

    def __init__(self, worker: str, task_files: TaskFiles, log_limit: LogLimit, programs: Programs) -> None:
        self._worker = worker
        self._task_files = task_files
        self._log_limit = log_limit
        self._programs = programs
        self._oom_kills = OomKills()

    def report_lost(self, task: Task) -> Report:
        return LeaseExpired(datetime.now(UTC), task.place, task.attempt, self._worker)

    def report_exit(self, running: RunningTask, ended: ProcessExit) -> Report:
        """Return the report of a task whose process has ended."""
        lease = running.resolved
        task = lease.task
        if running.pipes is not None:
            running.pipes.end()
        if ended.stop_reason == "expired":
            return self.report_lost(task)
        if ended.stop_reason == "interrupted":
            return TaskInterrupted(datetime.now(UTC), task.place, task.attempt)
        if ended.stop_reason == "log limit":
            return make_report(task, self._log_limit.make_outcome(running), None, ended)
        if running.child and (reason := missing_result_reason(ended)):
            return make_report(task, Outcome(code="EXCEPTION", exit_code=None, message=reason), None, ended)
        if ended.stop_reason == "memory":
            # The kill in the task's own group is counted for our group too.
            self._oom_kills.settle()
        is_out_of_memory = ended.stop_reason == "memory" or (
            not ended.stop_reason and self._is_out_of_memory(task, ended)
        )
        if running.pipes is not None and running.pipes.loss_reason and _is_output_printed(running, ended):
            message = f"its output cannot be kept: {running.pipes.loss_reason}"
            return make_report(task, Outcome(code="EXCEPTION", exit_code=None, message=message), None, ended)
        read_end = SPAWNED[task.kind].read_end if task.kind in SPAWNED else shell.read_end
        return read_end(
            lease, self._task_files.log_paths(running), running.scratch, ended, is_out_of_memory, self._programs
        )

    def _is_out_of_memory(self, task: Task, ended: ProcessExit) -> bool:
        """Whether the process was killed for its memory: by the measured peak, or by the kernel's count of kills."""
        if ended.signal != SIGKILL and ended.exit_code != KILLED_STATUS:
            return False
        return bool(task.memory and ended.peak_memory >= task.memory) or self._oom_kills.take_new()


def _is_output_printed(running: RunningTask, ended: ProcessExit) -> bool:
    """Whether it succeeded, and its output is what it printed."""
    is_well = ended.status == 0 and ended.stop_reason in ("", "stopped")
    return is_well and not running.child and not os.path.lexists(running.scratch.output)


def exit_before_start(reason: str) -> ProcessExit:
    """Return the exit of a task that was waiting and will not be started."""
    now = wall_clock.now()
    return ProcessExit(SIGTERM, now, now, 0.0, 0, reason)
