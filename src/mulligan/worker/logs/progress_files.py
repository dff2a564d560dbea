"""The progress of attempts: what a step wrote to $MULLIGAN_PROGRESS, redacted, in a small file beside its logs.

A step writes as often as it likes; the worker looks twice a second, and when the attempt has ended. No event is
written ([ADR 39](docs/project/adr/0039-progress-is-a-file-beside-the-logs.md)).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import msgspec

from mulligan.ports import Lease
from mulligan.worker.folders import Folders, make_private, open_regular_file, replace_private_file
from mulligan.worker.logs.progress_records import READ_BYTES, Progress, parse_progress
from mulligan.worker.running_task import RunningTask
from mulligan.worker.secrets.redactor import Redactor

# A longer file is emptied.
FILE_BYTES_MAX = 1 << 20


class ProgressFiles:
    """Copy the progress of the tasks of a worker to the folders of their runs."""

    def __init__(self, folders: Folders, redactor_of: Callable[[Lease], Redactor | None]) -> None:
        self._folders = folders
        self._redactor_of = redactor_of

    def copy(self, running: RunningTask) -> None:
        """Copy the progress of a task, if it has changed. No task fails because that is not possible."""
        path = running.scratch.progress
        # The usual case, and exceptions are expensive.
        if not os.access(path, os.F_OK, follow_symlinks=False):
            return
        running.has_progress = True
        with suppress(OSError):
            data = _read_end(path)
            if not data or data == running.progress:
                return
            running.progress = data
            found = parse_progress(data)
            if found is not None:
                redactor = self._redactor_of(running.resolved)
                self._write(running, found if redactor is None else _redacted(found, redactor))

    def _write(self, running: RunningTask, found: Progress) -> None:
        task = running.lease.task
        name = self._folders.progress(task.run_id, task.place, task.attempt)
        data = msgspec.json.encode(msgspec.structs.replace(found, at=datetime.now(UTC)))
        make_private(os.path.dirname(name))
        replace_private_file(name, data.decode())


def _read_end(path: str) -> bytes:
    with open_regular_file(path, "r+b") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - READ_BYTES))
        data = file.read(READ_BYTES)
        if size > FILE_BYTES_MAX:
            file.truncate(0)
        return data


def _redacted(found: Progress, redactor: Redactor) -> Progress:
    values: dict[str, Any] = redactor.redact_value({"done": found.done, "total": found.total})
    numbers = {name: None if isinstance(value, str) else value for name, value in values.items()}
    # The text may have been cut within a secret.
    return Progress(**numbers, text=redactor.redact_value(found.text, is_truncated=True))
