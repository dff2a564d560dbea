"""Internal work that would block the worker's loop: functions of this package, called in warm children."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable
from typing import Any

from mulligan.worker.actions.called_actions import BUILT_IN_CHILDREN
from mulligan.worker.child.child_pool import ChildPool
from mulligan.worker.child.warm_child import (
    BackgroundJob,
    CallRequest,
    CallResult,
    ChildDisconnected,
    ChildUse,
    WarmChild,
)

# A child may have died while it was idle, or may be killed.
ATTEMPTS_MAX = 3


class BackgroundJobs:
    """Call functions in children of our own interpreter. `then` gets the result, or None if there is none.

    At most `concurrency_max` run at once, since each may need several times the memory of its value; others wait.
    """

    def __init__(self, children: ChildPool, folder: str, concurrency_max: int) -> None:
        self._children = children
        self._folder = folder
        self._concurrency_max = concurrency_max
        self._waiting: deque[BackgroundJob] = deque()
        self._last_number = 0

    def new_path(self, ending: str = "") -> str:
        """Return an unused path in the worker's folder."""
        self._last_number += 1
        return f"{self._folder}/large-{self._last_number}{ending}"

    def write(self, data: bytes, ending: str = "") -> str:
        """Write a new private file and return its path."""
        path = self.new_path(ending)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(fd, "wb") as file:
            file.write(data)
        return path

    def call(
        self, function: str, args: dict[str, Any], then: Callable[[CallResult | None], None], files: dict[str, str]
    ) -> None:
        """Call a function. `files` are the files of the artifacts that its arguments refer to."""
        self.submit(BackgroundJob(CallRequest(args=args, cwd="/", call=function, files=files), then))

    def submit(self, job: BackgroundJob) -> None:
        """Run a job as soon as a child is available; also used to retry a job whose child died."""
        self._waiting.append(job)
        self._start_waiting()

    def clear(self) -> None:
        """Forget the jobs that have not started."""
        self._waiting.clear()

    def _start_waiting(self) -> None:
        while self._waiting and len(self._children.running_jobs()) < self._concurrency_max:
            self._start(self._waiting.popleft())

    def _start(self, job: BackgroundJob) -> None:
        while job.attempts < ATTEMPTS_MAX:
            job.attempts += 1
            child = self._children.take(ChildUse(BUILT_IN_CHILDREN, sys.executable), self._folder)
            try:
                self._children.start_job(child, job)
            except ChildDisconnected:
                self._children.retire(child)
                continue
            return
        job.then(None)

    def finish(self, child: WarmChild, answer: CallResult) -> bool:
        """Deliver the result of a job; return whether the child may be used again."""
        is_well = not (answer.dirty or answer.forked or answer.exception)
        child.is_leaving = child.is_leaving or not is_well
        child.end_job().then(answer)
        self._start_waiting()
        return is_well

    def restart(self, child: WarmChild) -> None:
        """Retry a job whose child ended before it answered."""
        self.submit(child.end_job())
