"""What is told of a task whose process has ended, or never will."""

from __future__ import annotations

import os
from datetime import UTC, datetime

from mulligan.core.effects.tasks import Task
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.reports import LeaseExpired, Report, TaskInterrupted
from mulligan.worker import wall
from mulligan.worker.actions import shell
from mulligan.worker.actions.kinds import SPAWNED
from mulligan.worker.cgroups import OomKills
from mulligan.worker.ended import Ended, report, untold
from mulligan.worker.flood import Flood
from mulligan.worker.programs import Programs
from mulligan.worker.running import Running
from mulligan.worker.task_files import TaskFiles

SIGKILL, SIGTERM = 9, 15
KILLED_STATUS = 128 + SIGKILL


class Endings:
    """Reads how the tasks of one worker have ended."""

    def __init__(self, worker: str, task_files: TaskFiles, flood: Flood, programs: Programs) -> None:
        self._worker = worker
        self._task_files = task_files
        self._flood = flood
        self._programs = programs
        self._oom_kills = OomKills()

    def lost(self, task: Task) -> Report:
        return LeaseExpired(datetime.now(UTC), task.place, task.attempt, self._worker)

    def told(self, running: Running, ended: Ended) -> Report:
        """The report of a task whose process has ended."""
        lease = running.own
        task = lease.task
        if running.pipes is not None:
            running.pipes.end()
        if ended.why == "expired":
            return self.lost(task)
        if ended.why == "interrupted":
            return TaskInterrupted(datetime.now(UTC), task.place, task.attempt)
        if ended.why == "flood":
            return report(task, self._flood.outcome(running), None, ended)
        if running.child and (reason := untold(ended)):
            return report(task, Outcome(code="EXCEPTION", exit_code=None, message=reason), None, ended)
        if ended.why == "memory":
            # The kernel may have done it in a group below ours, and counts it for ours too.
            self._oom_kills.settle()
        is_out_of_memory = ended.why == "memory" or (not ended.why and self._is_out_of_memory(task, ended))
        if running.pipes is not None and running.pipes.lost and _is_given_by_printing(running, ended):
            message = f"its output cannot be kept: {running.pipes.lost}"
            return report(task, Outcome(code="EXCEPTION", exit_code=None, message=message), None, ended)
        read_end = SPAWNED[task.kind].read_end if task.kind in SPAWNED else shell.read_end
        return read_end(
            lease, self._task_files.written(running), running.sides, ended, is_out_of_memory, self._programs
        )

    def _is_out_of_memory(self, task: Task, ended: Ended) -> bool:
        """A kill that nobody here asked for: with too much memory measured, or for that, as the kernel says."""
        if ended.signal != SIGKILL and ended.exit_code != KILLED_STATUS:
            return False
        return bool(task.memory and ended.peak_memory >= task.memory) or self._oom_kills.take_new()


def _is_given_by_printing(running: Running, ended: Ended) -> bool:
    """Whether it ended well, and what it printed is what it gave."""
    is_well = ended.status == 0 and ended.why in ("", "stopped")
    return is_well and not running.child and not os.path.lexists(running.sides.output)


def never_started(why: str) -> Ended:
    """The end of a task that waited for something and is not to start any more."""
    now = wall.seconds()
    return Ended(SIGTERM, now, now, 0.0, 0, why)
