"""Levels of log lines: what `logging` and `mulligan.log` wrote begins with a time; lines behind it belong to it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}
_INFO = LEVELS["info"]
# `2026-11-16T15:43:11.650Z WARNING sales.load: …`, or what `mulligan.log` writes: without level and logger.
_HEAD = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) (?:([A-Z][A-Z0-9_]*) ([^\s:][^:\n]*): )?")
# A level that was given to `mulligan.log` as a field.
_FIELD = re.compile(rb" level=(\w+)")


def record_of(line: bytes) -> dict[str, Any] | None:
    """When the record in a line was written, its level and its logger; None if the line begins no record."""
    found = _HEAD.match(line)
    if found is None:
        return None
    at, level, logger = found.groups()
    if level is None:
        field = _FIELD.search(line)
        level = b"info" if field is None else field[1]
    return {"at": at.decode(), "level": level.decode().lower(), "logger": (logger or b"").decode("utf-8", "replace")}


def split_records(data: bytes) -> Iterator[tuple[dict[str, Any], bytes]]:
    """The records of a log, each with its text and the lines behind it. Lines before the first are left out."""
    known: dict[str, Any] | None = None
    text: list[bytes] = []
    for line in data.splitlines(keepends=True):
        if (found := record_of(line)) is None:
            text.append(line)
            continue
        if known is not None:
            yield known, b"".join(text)
        known, text = found, [_HEAD.sub(b"", line, count=1)]
    if known is not None:
        yield known, b"".join(text)


class LevelFilter:
    """Keeps the records of a level or a higher one, with the lines behind them. Lines before the first are left out."""

    def __init__(self, level: str) -> None:
        self._least = LEVELS[level]
        self._is_kept = False

    def keep(self, data: bytes) -> bytes:
        """What is kept of whole lines; to be called with one piece after the other."""
        return b"".join(line for line in data.splitlines(keepends=True) if self._keeps(line))

    def _keeps(self, line: bytes) -> bool:
        record = record_of(line)
        if record is not None:
            # Levels of a program's own are between those that we know: shown with INFO.
            self._is_kept = LEVELS.get(record["level"], _INFO) >= self._least
        return self._is_kept
