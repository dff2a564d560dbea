"""The progress of attempts: what a step wrote to $MULLIGAN_PROGRESS, redacted, in a small file beside its logs.

A step writes as often as it likes; the worker looks twice a second, and when the attempt has ended. No event is
written ([ADR 39](docs/project/adr/0039-progress-is-a-file-beside-the-logs.md)).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import msgspec

from mulligan.ports import Lease
from mulligan.worker.folders import Folders, make_private, open_regular_file
from mulligan.worker.redactor import Redactor
from mulligan.worker.running_task import RunningTask

ENDING = ".progress"
# How much of the end of the file is read: a shell step may append to it instead of writing it anew.
READ_BYTES = 4096
# A longer file is emptied.
FILE_BYTES_MAX = 1 << 20
TEXT_CHARS_MAX = 200
NUMBER_MAX = 1e18
# `3/10 text`, `30% text`, `0.3 text`, `3 text`.
_PLAIN = re.compile(r"(?P<done>\d{1,18}(?:\.\d{1,9})?)(?P<rest>%|\s*/\s*(?P<total>\d{1,18}(?:\.\d{1,9})?))?(?:\s+|$)")


class Progress(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a step said it was: `done` of `total`, if it said so, a text, and when that was read."""

    done: int | float | None = None
    total: int | float | None = None
    text: str = ""
    at: datetime | None = None

    @property
    def share(self) -> float | None:
        """From 0 to 1; None without a total."""
        return None if self.done is None or not self.total else min(1.0, self.done / self.total)


class _Record(msgspec.Struct):
    done: int | float | None = None
    total: int | float | None = None
    text: str = ""


def parse_progress(data: bytes) -> Progress | None:
    """Return the last line as a progress: JSON, as the library writes it, or plain text; None if there is none."""
    lines = data.split(b"\n")
    line = next((line.strip() for line in reversed(lines) if line.strip()), b"")
    if not line:
        return None
    if line.startswith(b"{"):
        with suppress(msgspec.DecodeError):
            record = msgspec.json.decode(line, type=_Record)
            return _checked(record.done, record.total, record.text)
    text = line.decode("utf-8", "replace")
    match = _PLAIN.match(text)
    if match is None:
        return _checked(None, None, text)
    done, rest, text = _number(match["done"]), match["rest"] or "", text[match.end() :]
    if rest == "%":
        return _checked(done, 100, text)
    if match["total"] is not None:
        return _checked(done, _number(match["total"]), text)
    return _checked(done, 1 if isinstance(done, float) and done <= 1 else None, text)


def _checked(done: int | float | None, total: int | float | None, text: str) -> Progress:
    shown = "".join(char if char.isprintable() else " " for char in text.strip()[:TEXT_CHARS_MAX])
    return Progress(_in_range(done), _in_range(total), shown)


def _in_range(number: int | float | None) -> int | float | None:
    return number if number is not None and 0 <= number <= NUMBER_MAX else None


def _number(text: str) -> int | float:
    return float(text) if "." in text else int(text)


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
        fd = os.open(name + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(fd, "wb") as file:
            file.write(data)
        os.replace(name + ".new", name)


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


def read_progress(path: str) -> Progress | None:
    """Return the progress in a file beside the logs; None if there is none."""
    try:
        with open_regular_file(path) as file:
            return msgspec.json.decode(file.read(READ_BYTES), type=Progress)
    except (OSError, msgspec.DecodeError):
        return None
