"""What a task gave: its standard output or the file that it wrote, and the errors that it reported. Bounded."""

from __future__ import annotations

import os
from typing import Any

import msgspec

OUTPUT_BYTES_MAX = 64 * 1024 * 1024
ERROR_BYTES_MAX = 64 * 1024
STDERR_TAIL_CHARS = 2000
_UTF8_BYTES_PER_CHAR_MAX = 4


class NotUsable(Exception):
    """What was written cannot be taken; the message says why."""


def captured(out: str, written: str, capture: str) -> Any:
    """The JSON in `written` if that file is there, else what is in the file `out`, as `capture` says."""
    found = _content(written, OUTPUT_BYTES_MAX, "$MULLIGAN_OUTPUT")
    if found is not None:
        return _from_json(found, "$MULLIGAN_OUTPUT")
    data = _read(out, OUTPUT_BYTES_MAX, "its standard output") or b""
    if capture == "json":
        return _from_json(data, "its standard output")
    text = data.decode("utf-8", "replace").removesuffix("\n")
    if capture == "lines":
        return text.split("\n") if text else []
    return text


def reported(path: str) -> tuple[Any, ...]:
    """The errors in the file: one object, or a list of them."""
    found = _content(path, ERROR_BYTES_MAX, "it")
    if found is None:
        return ()
    if not found.strip():
        return ()  # somebody opened it, and had nothing to say
    value = _from_json(found, "it")
    return tuple(value) if isinstance(value, list) else (value,)


def tail(path: str) -> str:
    """The last characters of a log, whatever bytes are in it."""
    try:
        with open(path, "rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(0, size - STDERR_TAIL_CHARS * _UTF8_BYTES_PER_CHAR_MAX))
            return log.read().decode("utf-8", "replace")[-STDERR_TAIL_CHARS:]
    except OSError:
        return ""


def _content(path: str, bytes_max: int, label: str) -> bytes | None:
    """What is in the file, or None if there is none: nearly always, and an exception is dear."""
    return _read(path, bytes_max, label) if os.access(path, os.F_OK) else None


def _read(path: str, bytes_max: int, label: str) -> bytes | None:
    try:
        if (size := os.stat(path).st_size) > bytes_max:
            raise NotUsable(f"{label} has {size} bytes, and {bytes_max} are the most")
        if not size:
            return b""  # or a pipe that somebody has put there, which may never end
        with open(path, "rb") as file:
            return file.read(bytes_max)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise NotUsable(f"{label} cannot be read: {(error.strerror or str(error)).lower()}") from None


def _from_json(data: bytes, label: str) -> Any:
    """Strict: no NaN, no lone surrogate, no byte that is not UTF-8."""
    try:
        return msgspec.json.decode(data)
    except (ValueError, RecursionError) as error:
        raise NotUsable(f"{label} is not JSON: {str(error)[:200]}") from None


def remove(path: str) -> bool:
    """Whether nothing is there any more."""
    if not os.access(path, os.F_OK):
        return True
    try:
        os.unlink(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False  # somebody has made a folder of it
    return True
