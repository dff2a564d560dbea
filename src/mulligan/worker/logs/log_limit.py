"""Limit how much a task may write to its logs, so that it cannot fill the disk.

Logs are checked periodically, and only of tasks that have run for a while: short tasks cost nothing.
"""

from __future__ import annotations

import os

from mulligan.core.model.outcome import Outcome
from mulligan.core.model.text.formatting import format_size
from mulligan.worker.folders import open_regular_file
from mulligan.worker.running_task import RunningTask
from mulligan.worker.task_files import TaskFiles

LOG_BYTES_MAX = 1 << 30
CHECK_SECONDS = 0.5
# How much of the beginning and of the end is kept of a log that exceeded the limit.
KEPT_BYTES = 1 << 20


class LogLimit:
    """Check the size of logs, and describe the failure of a task that exceeds the limit."""

    def __init__(self, task_files: TaskFiles, bytes_max: int) -> None:
        self._task_files = task_files
        self._bytes_max = bytes_max

    def next_check(self, now: float) -> float:
        return now + CHECK_SECONDS

    def is_exceeded(self, running: RunningTask, now: float) -> bool:
        """Whether the task has written too much. If not, schedule the next check."""
        if sum(map(_file_size, self._logs(running))) > self._bytes_max:
            running.check_logs_at = None
            return True
        running.check_logs_at = self.next_check(now)
        return False

    def make_outcome(self, running: RunningTask) -> Outcome:
        """Return the outcome of a task that exceeded the limit, and cut the middle out of its logs."""
        kept = min(KEPT_BYTES, self._bytes_max // 4)
        for log in self._logs(running):
            _truncate_middle(log, kept)
        most = format_size(self._bytes_max)
        message = f"it wrote more than {most} to standard output and error and was stopped (limit: MULLIGAN_LOG_MAX)"
        return Outcome(code="OUTPUT_INVALID", exit_code=None, message=message)

    def _logs(self, running: RunningTask) -> tuple[str, str]:
        paths = self._task_files.log_paths(running)
        return paths.out, paths.err


def _file_size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0  # not opened yet, or removed


def _truncate_middle(path: str, kept: int) -> None:
    """Keep the beginning and the end of a log, with a note of how much is missing between them."""
    try:
        with open_regular_file(path, "r+b") as log:
            size = log.seek(0, os.SEEK_END)
            if size <= 3 * kept:
                return
            log.seek(size - kept)
            end = log.read(kept)
            log.seek(kept)
            log.write(f"\n[… {size - 2 * kept:,} bytes omitted …]\n".encode() + end)
            log.truncate()
    except OSError:
        pass  # leave it as it is
