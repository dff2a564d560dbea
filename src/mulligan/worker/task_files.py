"""The files of the tasks that are at work: side files, used again and again, and logs, named for their attempts."""

from __future__ import annotations

import selectors
from collections.abc import Iterable

from mulligan.core.effects.tasks import Task
from mulligan.core.model.workflow import AGENT
from mulligan.worker import outputs
from mulligan.worker.folders import (
    Folders,
    Logs,
    ScratchFiles,
    file_size,
    link_log_names,
    move_file,
    write_private_file,
)
from mulligan.worker.log_links import link_logs
from mulligan.worker.redacted_logs import RedactedLogs
from mulligan.worker.redactor import Redactor
from mulligan.worker.running_task import RunningTask
from mulligan.worker.warm_child import WarmChild


class TaskFiles:
    """Hands each task its side files, and leaves nothing in them for the next one."""

    def __init__(self, folders: Folders, worker: str) -> None:
        self._folders = folders
        self._worker = worker
        self._free: list[ScratchFiles] = []
        self._last_number = 0
        self._is_ready = False

    def make_folder(self) -> None:
        """The folder, when the first task comes: the start of a worker waits for no disk."""
        if not self._is_ready:
            self._folders.make_worker(self._worker)
            self._is_ready = True

    def restore_folder(self, running_tasks: Iterable[RunningTask]) -> bool:
        """Whether somebody had removed the folder, and it is there again. What is at work has lost its files."""
        try:
            is_new = self._folders.make_worker(self._worker)
        except OSError:
            return False
        for running in running_tasks if is_new else ():
            running.has_lost_files = True
        return is_new

    def take_scratch(self) -> ScratchFiles:
        if self._free:
            return self._free.pop()
        self._last_number += 1
        return self._folders.scratch(self._worker, self._last_number)

    def prepare(self, running: RunningTask) -> None:
        """What it is told in a file whatever its action is: $MULLIGAN_FAILURE_CONTEXT."""
        if running.resolved.task.context:
            write_private_file(running.scratch.context, running.resolved.task.context)

    def logs(self, task: Task) -> Logs:
        """The names that its logs get; most have nothing in them, and never get any."""
        return self._folders.logs(task.run_id, task.place, task.attempt)

    def name_logs(self, running: RunningTask, child: WarmChild | None) -> bool:
        """Give the logs of a task that runs their names; False where its child has not opened them yet."""
        logs = self.logs(running.lease.task)
        if running.pipes is not None:
            pass  # they have their names
        elif child is None:
            # Whether it has been started by now or not: what it opens is what has the name.
            running.has_named_logs = not running.has_lost_files and link_log_names(running.scratch, logs)
        elif child.has_open_logs:
            child.name_logs(logs)
        else:
            return False
        return True

    def link_logs(self, running: RunningTask) -> None:
        """Have the paths that it names lead to its logs: when they have names, and when it has ended."""
        task = running.resolved.task
        if task.logs:
            running.log_warning = link_logs(task, self._folders)

    def log_paths(self, running: RunningTask) -> Logs | ScratchFiles:
        """Where its logs are now."""
        return self.logs(running.lease.task) if running.child or running.has_named_logs else running.scratch

    def open_pipes(self, running: RunningTask, redactor: Redactor, selector: selectors.BaseSelector) -> None:
        """In the place of its logs: it may print a secret."""
        running.pipes = RedactedLogs(selector, running.scratch.out, running.scratch.err)
        running.pipes.begin(redactor, self.logs(running.lease.task))
        running.has_named_logs = True

    def clear(self, running: RunningTask) -> None:
        """Name what it wrote, and leave nothing for the next task that gets the same side files."""
        scratch = running.scratch
        if running.pipes is not None:
            running.pipes.remove_empty()
            if not running.child:
                running.pipes.close()
        used = [scratch.output, scratch.error, *running.spooled_files]
        if running.has_named_logs or (not running.child and not self._rename_logs(running)):
            used += [scratch.out, scratch.err]
        if running.lease.task.context:
            used.append(scratch.context)
        if running.lease.task.kind == AGENT:
            used += [scratch.stdin, scratch.prompt, scratch.agent_context]
        elif "stdin" in running.lease.task.params:
            used.append(scratch.stdin)
        if all(outputs.remove_file(path) for path in used):
            self._free.append(scratch)
        self.link_logs(running)

    def _rename_logs(self, running: RunningTask) -> bool:
        """What is in them gets its name; an empty one stays for the next task. False: that could not use it."""
        scratch = running.scratch
        out, err = file_size(scratch.out), file_size(scratch.err)
        if out or err:
            logs = self.logs(running.lease.task)
            for size, side, name in ((out, scratch.out, logs.out), (err, scratch.err, logs.err)):
                if size:
                    move_file(side, name)
        return out is not None and err is not None
