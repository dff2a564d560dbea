"""Work of a worker's own that would take its loop too long: functions of ours, called in warm children."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable
from typing import Any

from mulligan.worker.actions.calls import BUILT_IN_CHILDREN
from mulligan.worker.children import Answer, Child, ChildBroke, Job, Order
from mulligan.worker.pool import Pool

# How often a job is begun: a child may have died while it was idle, or may be killed.
ATTEMPTS_MAX = 3


class Jobs:
    """Hands jobs to children of our own interpreter. `then` is told what came of one, or None where nothing did.

    At most `at_once_max` of them at once, since each may need several times the memory of its value; others wait.
    """

    def __init__(self, children: Pool, folder: str, at_once_max: int) -> None:
        self._children = children
        self._folder = folder
        self._at_once_max = at_once_max
        self._waiting: deque[Job] = deque()
        self._paths = 0

    def new_path(self) -> str:
        """A name in the worker's folder under which there is no file."""
        self._paths += 1
        return f"{self._folder}/large-{self._paths}"

    def write(self, data: bytes) -> str:
        """The name of a new file with this in it, for its owner alone."""
        path = self.new_path()
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(fd, "wb") as file:
            file.write(data)
        return path

    def start(
        self, call: str, args: dict[str, Any], then: Callable[[Answer | None], None], files: dict[str, str]
    ) -> None:
        """Have a function of ours called. `files` are those of the artifacts that its arguments refer to."""
        self.begin(Job(Order(args=args, cwd="/", call=call, files=files), then))

    def begin(self, job: Job) -> None:
        """Have it done as soon as there is a child for it; also once more, where its child has died."""
        self._waiting.append(job)
        self._hand_out()

    def forget_all(self) -> None:
        """Nobody waits any more for those that have not begun."""
        self._waiting.clear()

    def _hand_out(self) -> None:
        while self._waiting and len(self._children.jobs()) < self._at_once_max:
            self._hand_over(self._waiting.popleft())

    def _hand_over(self, job: Job) -> None:
        while job.attempts < ATTEMPTS_MAX:
            job.attempts += 1
            child = self._children.take(BUILT_IN_CHILDREN, sys.executable, self._folder)
            try:
                self._children.give_job(child, job)
            except ChildBroke:
                self._children.let_go(child)
                continue
            return
        job.then(None)

    def answered(self, child: Child, answer: Answer) -> bool:
        """Tell whoever waits for it; whether the child may be used again."""
        is_well = not (answer.worn or answer.forked or answer.exception)
        child.is_leaving = child.is_leaving or not is_well
        child.end_job().then(answer)
        self._hand_out()
        return is_well

    def lost(self, child: Child) -> None:
        """The child has ended before it had answered."""
        self.begin(child.end_job())
