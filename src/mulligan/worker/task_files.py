"""The files of the tasks that are at work: side files, used again and again, and logs, named for their attempts."""

from __future__ import annotations

import selectors
from collections.abc import Iterable

from mulligan.core.effects.tasks import Task
from mulligan.core.model.workflow import AGENT
from mulligan.worker import outputs
from mulligan.worker.children import Child
from mulligan.worker.folders import Folders, Logs, Sides, file_size, move, name_also, write_side
from mulligan.worker.log_links import link_logs
from mulligan.worker.redacted_logs import RedactedLogs
from mulligan.worker.redactor import Redactor
from mulligan.worker.running import Running


class TaskFiles:
    """Hands each task its side files, and leaves nothing in them for the next one."""

    def __init__(self, folders: Folders, worker: str) -> None:
        self._folders = folders
        self._worker = worker
        self._free: list[Sides] = []
        self._made = 0
        self._is_ready = False

    def make_ready(self) -> None:
        """The folder, when the first task comes: the start of a worker waits for no disk."""
        if not self._is_ready:
            self._folders.make_worker(self._worker)
            self._is_ready = True

    def is_made_again(self, at_work: Iterable[Running]) -> bool:
        """Whether somebody had removed the folder, and it is there again. What is at work has lost its files."""
        try:
            is_new = self._folders.make_worker(self._worker)
        except OSError:
            return False
        for running in at_work if is_new else ():
            running.has_lost_files = True
        return is_new

    def take(self) -> Sides:
        if self._free:
            return self._free.pop()
        self._made += 1
        return self._folders.sides(self._worker, self._made)

    def lay_out(self, running: Running) -> None:
        """What it is told in a file whatever its action is: $MULLIGAN_FAILURE_CONTEXT."""
        if running.own.task.context:
            write_side(running.sides.context, running.own.task.context)

    def logs(self, task: Task) -> Logs:
        """The names that its logs get; most have nothing in them, and never get any."""
        return self._folders.logs(task.run_id, task.place, task.attempt)

    def name_logs(self, running: Running, child: Child | None) -> bool:
        """Give the logs of a task that runs their names; False where its child has not opened them yet."""
        logs = self.logs(running.lease.task)
        if running.pipes is not None:
            pass  # they have their names
        elif child is None:
            # Whether it has been started by now or not: what it opens is what has the name.
            running.has_named_logs = not running.has_lost_files and name_also(running.sides, logs)
        elif child.has_logs:
            child.name_logs(logs)
        else:
            return False
        return True

    def link_logs(self, running: Running) -> None:
        """Have the paths that it names lead to its logs: when they have names, and when it has ended."""
        task = running.own.task
        if task.logs:
            running.log_warning = link_logs(task, self._folders)

    def written(self, running: Running) -> Logs | Sides:
        """Where its logs are now."""
        return self.logs(running.lease.task) if running.child or running.has_named_logs else running.sides

    def lay_pipes(self, running: Running, redactor: Redactor, selector: selectors.BaseSelector) -> None:
        """In the place of its logs: it may print a secret."""
        running.pipes = RedactedLogs(selector, running.sides.out, running.sides.err)
        running.pipes.begin(redactor, self.logs(running.lease.task))
        running.has_named_logs = True

    def clear(self, running: Running) -> None:
        """Name what it wrote, and leave nothing for the next task that gets the same side files."""
        sides = running.sides
        if running.pipes is not None:
            running.pipes.tidy()
            if not running.child:
                running.pipes.close()
        used = [sides.output, sides.error, *running.spooled]
        if running.has_named_logs or (not running.child and not self._keep_logs(running)):
            used += [sides.out, sides.err]
        if running.lease.task.context:
            used.append(sides.context)
        if running.lease.task.kind == AGENT:
            used += [sides.stdin, sides.prompt, sides.told]
        elif "stdin" in running.lease.task.params:
            used.append(sides.stdin)
        if all(outputs.remove(path) for path in used):
            self._free.append(sides)
        self.link_logs(running)

    def _keep_logs(self, running: Running) -> bool:
        """What is in them gets its name; an empty one stays for the next task. False: that could not use it."""
        sides = running.sides
        out, err = file_size(sides.out), file_size(sides.err)
        if out or err:
            logs = self.logs(running.lease.task)
            for size, side, name in ((out, sides.out, logs.out), (err, sides.err, logs.err)):
                if size:
                    move(side, name)
        return out is not None and err is not None
