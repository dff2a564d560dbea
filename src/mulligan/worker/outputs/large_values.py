"""Values that are too large for the worker's loop: children write what a task reads, and store what it returns."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from functools import partial

import msgspec

from mulligan.core.model.reports import TaskEnded
from mulligan.worker.actions.action_registry import SPAWNED, spawned_action
from mulligan.worker.child.background_jobs import BackgroundJobs
from mulligan.worker.child.warm_child import CallResult
from mulligan.worker.outputs import outputs
from mulligan.worker.outputs.artifact_inputs import (
    InputPreparation,
    has_large_input,
    preparation_failure,
    values_with_references,
)
from mulligan.worker.outputs.large_outputs import STORE_OUTPUT, call_arguments, report_stored, with_value
from mulligan.worker.outputs.outputs import (
    LargeOutput,
)
from mulligan.worker.running_task import RunningTask
from mulligan.worker.secrets.secret_commands import NotReady
from mulligan.worker.task_boundary import TaskBoundary
from mulligan.worker.task_files import TaskFiles


class LargeValues:
    """`after_preparing` gets a task whose input is written, or why it is not; `report_end` gets the final report."""

    def __init__(
        self,
        jobs: BackgroundJobs,
        boundary: TaskBoundary,
        task_files: TaskFiles,
        *,
        after_preparing: Callable[[RunningTask, TaskEnded | None], None],
        report_end: Callable[[RunningTask, TaskEnded], None],
    ) -> None:
        self._jobs = jobs
        self._boundary = boundary
        self._task_files = task_files
        self._after_preparing = after_preparing
        self._report = report_end
        # By lease token: tasks whose input is being written, and tasks whose large output is being stored.
        self._preparing: dict[int, RunningTask] = {}
        self._storing: dict[int, RunningTask] = {}

    @property
    def storing(self) -> Collection[RunningTask]:
        """Tasks that have ended and whose outputs are being stored."""
        return self._storing.values()

    def clear(self) -> None:
        """Forget everything that is in progress."""
        self._preparing.clear()
        self._storing.clear()

    # -- input

    def prepare_input(self, running: RunningTask) -> None:
        """Locate the artifacts that the task reads. NotReady while a child writes them to files for a process.

        Raises StoreUnavailable, and InputInvalid if one is not available.
        """
        task = running.resolved.task
        is_called = task.kind not in SPAWNED
        if running.is_prepared or not (is_called or has_large_input(task)):
            return
        if self._preparing.get(running.lease.token) is running:
            raise NotReady
        self._locate(running)
        if not is_called:
            self._preparing[running.lease.token] = running
            preparation = spawned_action(task.kind).prepare_input(task, running.scratch, self._jobs.new_path)
            self._jobs.call(
                preparation.call,
                preparation.args,
                partial(self._on_prepared, running, preparation),
                running.artifact_files,
            )
            raise NotReady

    def _locate(self, running: RunningTask) -> None:
        values = values_with_references(running.resolved.task)
        running.artifact_files = self._boundary.locate_artifacts(values, partial(self.spool, running))

    def spool(self, running: RunningTask, data: bytes, ending: str) -> str:
        """Write data to a file that exists for as long as the task."""
        running.spooled_files.append(self._jobs.write(data, ending))
        return running.spooled_files[-1]

    def forget(self, running: RunningTask) -> None:
        """Forget a task that ended before it was started."""
        self._preparing.pop(running.lease.token, None)

    def _on_prepared(self, running: RunningTask, preparation: InputPreparation, answer: CallResult | None) -> None:
        is_current = self._preparing.pop(running.lease.token, None) is running
        problem = preparation_failure(running.lease.task, answer)
        for path, scratch_path in preparation.moves.items():
            if is_current and problem is None:
                os.replace(path, scratch_path)
            else:
                outputs.remove_file(path)
        running.is_prepared = problem is None
        if is_current:
            self._after_preparing(running, problem)

    # -- output

    def detach_output(self, running: RunningTask, report: TaskEnded) -> TaskEnded:
        """Move a large output to a file of its own; return the report with the value itself if that is not possible."""
        large = report.output
        if not isinstance(large, LargeOutput):
            return report
        path = self._jobs.new_path()
        try:
            if not self._boundary.can_store_large:
                return with_value(report, large)
            # What it printed stays in its log too.
            (os.link if large.path == self._task_files.log_paths(running).out else os.rename)(large.path, path)
        except OSError:
            return with_value(report, large)
        return msgspec.structs.replace(report, output=msgspec.structs.replace(large, path=path))

    def store(self, running: RunningTask, report: TaskEnded, large: LargeOutput) -> None:
        """Have the output checked, redacted and written to the disk; then `report_end` is called."""
        target = self._jobs.new_path()
        args = call_arguments(large, target, self._boundary.secrets(running.resolved))
        self._storing[running.lease.token] = running
        self._jobs.call(STORE_OUTPUT, args, partial(self._on_stored, running, report, target), {})

    def _on_stored(self, running: RunningTask, report: TaskEnded, target: str, answer: CallResult | None) -> None:
        outputs.remove_file(report.output.path)
        if self._storing.pop(running.lease.token, None) is running:
            self._report(running, report_stored(report, target, answer))
        else:
            outputs.remove_file(target)
