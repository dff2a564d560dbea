"""The files of the tasks that are at work: side files, used again and again, and logs, named for their attempts."""

from __future__ import annotations

from ..core.tasks import Task
from ..core.workflow import AGENT
from . import outputs
from .folders import Folders, Logs, Sides, has_content, move
from .running import Running


class Desk:
    """Hands each task its side files, and leaves nothing in them for the next one."""

    def __init__(self, folders: Folders, worker: str) -> None:
        self._folders = folders
        self._worker = worker
        self._free: list[Sides] = []
        self._made = 0

    def take(self) -> Sides:
        if self._free:
            return self._free.pop()
        self._made += 1
        return self._folders.sides(self._worker, self._made)

    def logs(self, task: Task) -> Logs:
        """The names that its logs get; most have nothing in them, and never get any."""
        return self._folders.logs(task.run_id, task.place, task.attempt)

    def written(self, running: Running) -> Logs | Sides:
        """Where its logs are now."""
        return self.logs(running.lease.task) if running.child or running.has_named_logs else running.sides

    def clear(self, running: Running) -> None:
        """Name what it wrote, and leave nothing for the next task that gets the same side files."""
        sides = running.sides
        used = [sides.output, sides.error]
        if running.has_named_logs:
            used += [sides.out, sides.err]
        elif not running.child:
            self._keep_logs(running)
        if running.lease.task.context:
            used.append(sides.context)
        if running.lease.task.kind == AGENT:
            used += [sides.stdin, sides.prompt, sides.told]
        elif "stdin" in running.lease.task.params:
            used.append(sides.stdin)
        if all(outputs.remove(path) for path in used):
            self._free.append(sides)

    def _keep_logs(self, running: Running) -> None:
        """What is in them gets its name; an empty one stays for the next task."""
        logs = self.logs(running.lease.task)
        for side, name in ((running.sides.out, logs.out), (running.sides.err, logs.err)):
            if has_content(side):
                move(side, name)
