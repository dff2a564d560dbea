"""What of a worker's tasks is too large for its loop: children write what a task reads, and keep what it gave."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from functools import partial

import msgspec

from mulligan.core.model.reports import TaskEnded
from mulligan.worker import outputs
from mulligan.worker.actions.kinds import SPAWNED
from mulligan.worker.children import Answer
from mulligan.worker.fetching import is_large, values_of
from mulligan.worker.jobs import Jobs
from mulligan.worker.large_outputs import MAKE_READY, order_arguments, read_answer, with_value
from mulligan.worker.lookups import NotYet
from mulligan.worker.outputs import Large
from mulligan.worker.preparation import Preparation, refusal
from mulligan.worker.running import Running
from mulligan.worker.task_boundary import TaskBoundary
from mulligan.worker.task_files import TaskFiles


class LargeValues:
    """`on_prepared` is told when the files of a task are there, or why they are not; `tell` what is told of its end."""

    def __init__(
        self,
        jobs: Jobs,
        boundary: TaskBoundary,
        task_files: TaskFiles,
        on_prepared: Callable[[Running, TaskEnded | None], None],
        tell: Callable[[Running, TaskEnded], None],
    ) -> None:
        self._jobs = jobs
        self._boundary = boundary
        self._task_files = task_files
        self._on_prepared = on_prepared
        self._tell = tell
        # By the tokens of their leases: tasks whose files are being written, and that have ended with a large output.
        self._preparing: dict[int, Running] = {}
        self._keeping: dict[int, Running] = {}

    @property
    def kept(self) -> Collection[Running]:
        """Tasks that have ended, and whose outputs are being kept."""
        return self._keeping.values()

    def forget_all(self) -> None:
        """Nobody waits any more for what is under way."""
        self._preparing.clear()
        self._keeping.clear()

    # -- what a task reads

    def find(self, running: Running) -> None:
        """Say where a child finds the artifacts that the task reads. NotYet: it is a process, and a child writes files.

        StoreUnavailable, and InputInvalid where one cannot be had.
        """
        task = running.own.task
        is_called = task.kind not in SPAWNED
        if running.is_prepared or not (is_called or is_large(task)):
            return
        if self._preparing.get(running.lease.token) is running:
            raise NotYet
        self._locate(running)
        if not is_called:
            self._preparing[running.lease.token] = running
            wanted = SPAWNED[task.kind].preparation(task, running.sides, self._jobs.new_path)
            self._jobs.start(wanted.call, wanted.args, partial(self._prepared, running, wanted), running.files)
            raise NotYet

    def _locate(self, running: Running) -> None:
        task, spooled = running.own.task, running.spooled

        def spool(data: bytes) -> str:
            spooled.append(self._jobs.write(data))
            return spooled[-1]

        running.files = self._boundary.files(values_of(task), spool)

    def give_up(self, running: Running) -> None:
        """The task is over before it was started."""
        self._preparing.pop(running.lease.token, None)

    def _prepared(self, running: Running, wanted: Preparation, answer: Answer | None) -> None:
        is_wanted = self._preparing.pop(running.lease.token, None) is running
        problem = refusal(running.lease.task, answer)
        for path, side in wanted.moves.items():
            if is_wanted and problem is None:
                os.replace(path, side)
            else:
                outputs.remove(path)
        running.is_prepared = problem is None
        if is_wanted:
            self._on_prepared(running, problem)

    # -- what it gave

    def set_aside(self, running: Running, report: TaskEnded) -> TaskEnded:
        """The report with a large output in a file that nobody else uses; with its value where there can be none."""
        large = report.output
        if not isinstance(large, Large):
            return report
        path = self._jobs.new_path()
        try:
            if not self._boundary.keeps_large:
                return with_value(report, large)
            # What it printed stays in its log as well.
            (os.link if large.path == self._task_files.written(running).out else os.rename)(large.path, path)
        except OSError:
            return with_value(report, large)
        return msgspec.structs.replace(report, output=msgspec.structs.replace(large, path=path))

    def keep(self, running: Running, report: TaskEnded, large: Large) -> None:
        """Have it checked, redacted and written to the disk; `tell` is called then."""
        target = self._jobs.new_path()
        args = order_arguments(large, target, self._boundary.secrets(running.own))
        self._keeping[running.lease.token] = running
        self._jobs.start(MAKE_READY, args, partial(self._kept, running, report, target), {})

    def _kept(self, running: Running, report: TaskEnded, target: str, answer: Answer | None) -> None:
        outputs.remove(report.output.path)
        if self._keeping.pop(running.lease.token, None) is running:
            self._tell(running, read_answer(report, target, answer))
        else:
            outputs.remove(target)
