"""The files of running tasks: scratch files, which are reused, and logs, which are named after attempts."""

from __future__ import annotations

import os
import selectors
import shlex
import sys
from collections.abc import Iterable

import msgspec

from mulligan.core.effects.tasks import Task
from mulligan.core.model.actions import traits
from mulligan.worker.child.warm_child import WarmChild
from mulligan.worker.folders import (
    Folders,
    Logs,
    ScratchFiles,
    file_size,
    link_log_names,
    move_file,
    write_private_file,
)
from mulligan.worker.logs.log_links import link_logs, make_log_folders
from mulligan.worker.logs.redacted_logs import RedactedLogs
from mulligan.worker.outputs import outputs
from mulligan.worker.running_task import RunningTask
from mulligan.worker.secrets.redactor import Redactor

# How a step calls us: `mulligan data`.
PROGRAM = "mulligan"


class TaskFiles:
    """Give each task its scratch files, and leave nothing in them for the next task."""

    def __init__(self, folders: Folders, worker: str, *, has_program: bool = False) -> None:
        self._folders = folders
        self._worker = worker
        # Whether the folder has our own command line, for steps that would not find it.
        self._has_program = has_program
        self._free: list[ScratchFiles] = []
        self._last_number = 0
        self.is_ready = False

    def make_folder(self) -> None:
        """Create the folder when the first task comes, so that the start of a worker does not wait for the disk."""
        if not self.is_ready:
            self._folders.make_worker(self._worker)
            self._write_program()
            self.is_ready = True

    def restore_folder(self, running_tasks: Iterable[RunningTask]) -> bool:
        """Create the folder again if it was removed; return whether it was. Running tasks have lost their files."""
        try:
            is_new = self._folders.make_worker(self._worker)
            if is_new:
                self._write_program()
        except OSError:
            return False
        for running in running_tasks if is_new else ():
            running.has_lost_files = True
        return is_new

    def _write_program(self) -> None:
        if self._has_program:
            path = f"{self._folders.worker(self._worker)}/{PROGRAM}"
            write_private_file(path, f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -P -m mulligan "$@"\n')
            os.chmod(path, 0o700)

    def take_scratch(self) -> ScratchFiles:
        if self._free:
            return self._free.pop()
        self._last_number += 1
        return self._folders.scratch(self._worker, self._last_number)

    def give_back(self, scratch: ScratchFiles) -> None:
        """Take back scratch files of which none exists."""
        self._free.append(scratch)

    def look_for_files(self, running: RunningTask) -> None:
        """Note whether a task that has ended, and of which nothing runs any more, has written any file but its logs."""
        scratch = running.scratch
        written = (scratch.error, scratch.data_set, scratch.output, scratch.progress, scratch.artifacts)
        running.may_have_files = any(map(outputs.exists, written))

    def prepare(self, running: RunningTask) -> None:
        """Write the files that any kind of task may get: failure context, data; make the folders of its logs."""
        if running.resolved.task.logs:
            make_log_folders(running.resolved.task, self._folders)
        if running.resolved.task.context:
            write_private_file(running.scratch.context, running.resolved.task.context)
        if running.resolved.task.data:
            write_private_file(running.scratch.data, msgspec.json.encode(running.resolved.task.data).decode())

    def logs(self, task: Task) -> Logs:
        """Return the final paths of its logs; most logs are empty and never get there."""
        return self._folders.logs(task.run_id, task.place, task.attempt)

    def name_logs(self, running: RunningTask, child: WarmChild | None) -> bool:
        """Give the logs of a running task their names; return False if its child has not opened them yet."""
        logs = self.logs(running.lease.task)
        if running.has_named_logs or (child is None and running.child):
            pass  # they have their names already, or get them with the result: the child has ended
        elif child is None:
            # Works before the process has opened them too: it opens the same files.
            running.has_named_logs = not running.has_lost_files and link_log_names(running.scratch, logs)
        elif child.has_open_logs:
            child.name_logs(logs)
        else:
            return False
        return True

    def link_logs(self, running: RunningTask) -> None:
        """Link the paths that the task names to its logs: when they are named, and when the task has ended."""
        task = running.resolved.task
        if task.logs:
            running.log_warning = link_logs(task, self._folders)

    def log_paths(self, running: RunningTask) -> Logs | ScratchFiles:
        """Return where its logs are now."""
        return self.logs(running.lease.task) if running.child or running.has_named_logs else running.scratch

    def open_pipes(self, running: RunningTask, redactor: Redactor, selector: selectors.BaseSelector) -> None:
        """Replace its logs by pipes, because it may print a secret."""
        running.pipes = RedactedLogs(selector, running.scratch.out, running.scratch.err)
        running.pipes.begin(redactor, self.logs(running.lease.task))
        running.has_named_logs = True

    def clear_build(self, running: RunningTask) -> None:
        """Remove what the search for its environment has written: the log of a step is its own."""
        scratch = running.scratch
        if running.pipes is not None:
            running.pipes.end()
            running.pipes.close()
            running.pipes = None
        for path in (*(self.logs(running.lease.task) if running.has_named_logs else ()), scratch.out, scratch.err):
            outputs.remove_file(path)
        outputs.remove_file(scratch.output)
        running.has_named_logs, running.name_logs_at, running.check_logs_at = False, None, None

    def clear(self, running: RunningTask) -> None:
        """Name its logs, and leave nothing for the next task that gets the same scratch files."""
        scratch = running.scratch
        if running.pipes is not None:
            running.pipes.remove_empty()
            if not running.child:
                running.pipes.close()
        used = [*running.spooled_files]
        if running.may_have_files:
            used += [scratch.output, scratch.error, scratch.data_set]
        if running.has_progress:
            used.append(scratch.progress)
        if running.lease.task.data:
            used.append(scratch.data)
        if running.has_named_logs or (not running.child and not self._rename_logs(running)):
            used += [scratch.out, scratch.err]
        if running.lease.task.context:
            used.append(scratch.context)
        if traits(running.lease.task.kind, {}).is_agent:
            used += [scratch.stdin, scratch.prompt, scratch.agent_context]
        elif "stdin" in running.lease.task.params:
            used.append(scratch.stdin)
        if not used or all(map(outputs.remove_file, used)):
            self._free.append(scratch)
        self.link_logs(running)

    def clear_turn(self, running: RunningTask) -> None:
        """Take back the scratch files of a program that waits: its turn had none but those of its process."""
        if running.pipes is not None or running.has_progress or running.lease.task.context:
            self.clear(running)
        else:
            self._free.append(running.scratch)
            self.link_logs(running)

    def _rename_logs(self, running: RunningTask) -> bool:
        """Rename logs that are not empty; empty ones stay for the next task. Return False if that cannot use them."""
        scratch = running.scratch
        out, err = file_size(scratch.out), file_size(scratch.err)
        if out or err:
            logs = self.logs(running.lease.task)
            for size, scratch_path, name in ((out, scratch.out, logs.out), (err, scratch.err, logs.err)):
                if size:
                    move_file(scratch_path, name)
        return out is not None and err is not None
