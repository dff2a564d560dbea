"""Read what a task produced: standard output or an output file, declared files, reported errors. All are limited."""

from __future__ import annotations

import os
import stat
from functools import partial
from typing import Any

import msgspec

from mulligan.core.effects.tasks import Task
from mulligan.core.model.artifacts import OUTPUT_BYTES_MAX
from mulligan.core.model.failure import HEAD_CHARS_MAX
from mulligan.core.model.text.formatting import error_reason
from mulligan.worker.folders import open_regular_file

ERROR_BYTES_MAX = 64 * 1024
STDERR_TAIL_CHARS = 2000
STDERR_HEAD_CHARS = HEAD_CHARS_MAX
_UTF8_BYTES_PER_CHAR_MAX = 4


class OutputInvalid(Exception):
    """What was written is not a valid output; the message says why."""


class OutputTooLarge(OutputInvalid):
    """It is larger than the limit."""

    def __init__(self, message: str, size: int) -> None:
        super().__init__(message)
        self.size = size


class LargeOutput(msgspec.Struct, frozen=True):
    """A placeholder for an output that is so large that another process has to read it, see `large_outputs`."""

    path: str
    # The `capture` of a shell step; or "written": JSON in $MULLIGAN_OUTPUT; or "result": JSON that a function returned.
    capture: str


class OutputNotKept(Exception):
    """The output is too large to be kept, which is not an error of the task; the message says how large."""

    def __init__(self, message: str, size: int) -> None:
        super().__init__(message)
        self.size = size


def find_large_output(out: str, output_file: str, capture: str, bytes_max: int) -> LargeOutput | None:
    """Return where an output is that has more than `bytes_max` bytes and is not too large; otherwise None."""
    path, how = (output_file, "written") if exists(output_file) else (out, capture)
    try:
        info = os.stat(path)
    except OSError:
        return None
    return (
        LargeOutput(path, how) if stat.S_ISREG(info.st_mode) and bytes_max < info.st_size <= OUTPUT_BYTES_MAX else None
    )


def read_output(out: str, output_file: str, capture: str) -> Any:
    """Return the JSON in `output_file` if that exists, otherwise the content of `out` as `capture` says.

    OutputNotKept if it is text that is too large. It may be that nothing reads it: many programs print a lot.
    """
    info = read_if_there(output_file, OUTPUT_BYTES_MAX, "$MULLIGAN_OUTPUT")
    if info is not None:
        return decode_json(info, "$MULLIGAN_OUTPUT")
    return read_printed(out, capture)


def read_printed(out: str, capture: str) -> Any:
    """Return the content of `out` as `capture` says; raise OutputInvalid or OutputNotKept."""
    try:
        data = _read(out, OUTPUT_BYTES_MAX, "its standard output")
    except OutputTooLarge as problem:
        if capture != "text":
            raise
        raise OutputNotKept(f"{problem}; it was not kept, and the log has all of it", problem.size) from None
    if data is None:
        raise OutputInvalid("its standard output is gone: the file was removed while it ran")
    if capture == "json":
        return decode_json(data, "its standard output")
    text = data.decode("utf-8", "replace").removesuffix("\n")
    if capture == "lines":
        return text.split("\n") if text else []
    return text


def read_json_file(path: str, label: str) -> Any:
    """Return the JSON in a file; raise OutputInvalid if it is not JSON."""
    data = _read(path, OUTPUT_BYTES_MAX, label)
    if data is None:
        raise OutputInvalid(f"{label} is gone: the file was removed")
    return decode_json(data, label)


def read_reported_errors(path: str) -> tuple[tuple[Any, ...], str]:
    """Return the errors that a task wrote to the file, and why they cannot be read."""
    try:
        return _parse_reported(path), ""
    except OutputInvalid as problem:
        return (), str(problem).removeprefix("it ")


def missing_files(task: Task) -> tuple[str, ...]:
    """Return the declared files that do not exist: their names, or the path if a name is an expression.

    Paths are relative to where `run` was called.
    """
    home = task.home or "/"
    missing = [(name, path) for name, path in task.files.items() if not os.path.exists(os.path.join(home, path))]
    return tuple(path if "${" in name else name for name, path in missing)


def _parse_reported(path: str) -> tuple[Any, ...]:
    """Parse one object, or a list of them."""
    info = read_if_there(path, ERROR_BYTES_MAX, "it")
    if info is None:
        return ()
    if not info.strip():
        return ()  # the file was opened and nothing was written
    value = decode_json(info, "it")
    return tuple(value) if isinstance(value, list) else (value,)


def read_tail(path: str) -> str:
    """Return the last characters of a log, whatever bytes are in it."""
    try:
        with open_regular_file(path) as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(0, size - STDERR_TAIL_CHARS * _UTF8_BYTES_PER_CHAR_MAX))
            return log.read().decode("utf-8", "replace")[-STDERR_TAIL_CHARS:]
    except OSError:
        return ""


class LogEnds(msgspec.Struct, frozen=True):
    """The beginning and the end of a log, and how many bytes between them are in neither. A short log is all end."""

    head: str
    tail: str
    left_out: int = 0


def read_ends(path: str) -> LogEnds:
    """Return the first and last characters of a log, whatever bytes are in it."""
    tail = read_tail(path)
    if len(tail) < STDERR_TAIL_CHARS:
        return LogEnds("", tail)
    try:
        with open_regular_file(path) as log:
            before = log.seek(0, os.SEEK_END) - len(tail.encode())
            log.seek(0)
            first = log.read(min(max(before, 0), STDERR_HEAD_CHARS * _UTF8_BYTES_PER_CHAR_MAX))
    except OSError:
        return LogEnds("", tail)
    head = first.decode("utf-8", "replace")[:STDERR_HEAD_CHARS]
    return LogEnds(head, tail, max(0, before - len(head.encode())))


def read_if_there(path: str, bytes_max: int, label: str) -> bytes | None:
    """Return the content of the file, or None if it does not exist: the usual case, and exceptions are expensive."""
    return _read(path, bytes_max, label) if exists(path) else None


# Whether there is anything at a path, even a dangling link. No function of Python: it is asked for five files at the
# end of every task.
exists = partial(os.access, mode=os.F_OK, follow_symlinks=False)


def _read(path: str, bytes_max: int, label: str) -> bytes | None:
    try:
        info = os.stat(path)
        if not stat.S_ISREG(info.st_mode):
            # Never open a pipe or a device, which may never end.
            raise OutputInvalid(f"{label} is {_kind(info.st_mode)}, not a file")
        if info.st_size > bytes_max:
            size = info.st_size
            raise OutputTooLarge(f"{label} has {size:,} bytes; the limit is {bytes_max:,}", size)
        if not info.st_size:
            return b""  # the usual case, and opening a file is expensive compared with a short task
        with open_regular_file(path, may_be_link=True) as file:
            return file.read(bytes_max)
    except FileNotFoundError:
        if exists(path):
            raise OutputInvalid(f"{label} is a dangling link") from None
        return None
    except OSError as error:
        raise OutputInvalid(f"{label} cannot be read: {error_reason(error)}") from None


def _kind(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return "a folder"
    return "a pipe" if stat.S_ISFIFO(mode) else "a socket" if stat.S_ISSOCK(mode) else "a device"


def decode_json(data: bytes, label: str) -> Any:
    """Decode strictly: no NaN, no lone surrogates, no invalid UTF-8."""
    try:
        return msgspec.json.decode(data)
    except RecursionError:
        raise OutputInvalid(f"{label} is not readable JSON: it is nested too deep") from None
    except ValueError as error:
        reason = str(error)[:200] if data.strip() else "it is empty"
        raise OutputInvalid(f"{label} is not JSON: {reason}") from None


def remove_file(path: str) -> bool:
    """Remove a file; return whether nothing is left at the path."""
    if not exists(path):
        return True
    try:
        os.unlink(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False  # there is a folder now
    return True
