"""Lines of a log by number, and where a text occurs, without sending the log.

A log may have gigabytes. Whoever shows a part of it needs to know how many lines stand before each block of bytes; that
is counted once and then moved on with the log, which only grows.
"""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from mulligan.ports import LogKey
from mulligan.service.logs.log_ranges import LogRanges

# A block has at least so many bytes. A log with more blocks than that has blocks of twice the size.
BLOCK_BYTES, BLOCKS_MAX = 64 * 1024, 4096
# How many logs are remembered.
LOGS_MAX = 64
# How much of a log one call counts or searches, and how many lines it finds at most.
CALL_BYTES, MATCHES_MAX = 32 * 1024 * 1024, 10_000
LINE_BYTES_MAX = 4 * 1024 * 1024


class LogIndex(msgspec.Struct, frozen=True):
    """How many lines a log has, and how many end before each of its blocks."""

    size: int
    # A last line without its end counts too.
    lines: int
    block_bytes: int
    # The number of line ends before each block; the first is 0.
    blocks: list[int]


class LogMatches(msgspec.Struct, frozen=True):
    """The lines that have the text, by number from 0 on."""

    lines: list[int]
    # Where to search on; None at the end of the log.
    next: int | None


class CountedLog:
    """The line ends before each block of one log, as far as it was read."""

    def __init__(self) -> None:
        self.size = 0
        self.ends = 0
        self.is_line_open = False
        self.block_bytes = BLOCK_BYTES
        self.blocks = [0]

    def add(self, data: bytes) -> None:
        """Count what follows."""
        at = 0
        while at < len(data):
            piece = data[at : at + self.block_bytes - self.size % self.block_bytes]
            at += len(piece)
            self.size += len(piece)
            self.ends += piece.count(b"\n")
            self.is_line_open = not piece.endswith(b"\n")
            if self.size % self.block_bytes == 0:
                self.blocks.append(self.ends)
                self._widen()

    def _widen(self) -> None:
        if len(self.blocks) > BLOCKS_MAX and self.size % (2 * self.block_bytes) == 0:
            self.block_bytes *= 2
            self.blocks = self.blocks[::2]


# What is known of logs, for all who read them: the one that was asked for last is the last.
CountedLogs = OrderedDict[LogKey, CountedLog]


class LogLines:
    """Counts and searches logs, wherever they are."""

    def __init__(self, logs: LogRanges, counted: CountedLogs) -> None:
        self._logs = logs
        self._counted = counted

    def count(self, key: LogKey) -> bool:
        """Count on, a bounded part of the log: whether all of it is counted now. Call it until it is."""
        counted = self._counted.pop(key, None) or CountedLog()
        found = self._logs.size(key)
        size = found.size if found is not None else 0
        if size < counted.size:
            # The log of another attempt of that name has taken its place.
            counted = CountedLog()
        end = min(size, counted.size + CALL_BYTES)
        for data in self._logs.pieces(key, counted.size, end):
            counted.add(data)
        self._counted[key] = counted
        while len(self._counted) > LOGS_MAX:
            self._counted.popitem(last=False)
        # What is shorter than it was said to be is not read for ever.
        return counted.size >= size or counted.size < end

    def index(self, key: LogKey) -> LogIndex:
        """How the log is divided, as far as it is counted; of a log that is not there, that it is empty."""
        found = self._counted.get(key) or CountedLog()
        # A block begins behind the last whole one, unless nothing is in it.
        is_last_empty = found.size > 0 and found.size % found.block_bytes == 0
        blocks = found.blocks[:-1] if is_last_empty else found.blocks
        return LogIndex(found.size, found.ends + found.is_line_open, found.block_bytes, list(blocks))

    def search(self, key: LogKey, text: str, start: int = 0) -> LogMatches:
        """The lines that have this text, from the line on that begins at `start`: in a bounded part of the log.

        A text without capital letters is found in any case of ASCII letters.
        """
        if not text:
            return LogMatches([], None)
        counted = self._counted.get(key) or CountedLog()
        wanted, is_any_case = text.encode("utf-8", "surrogateescape"), text == text.lower()
        line, position, rest = self._line_at(key, counted, start), start, b""
        found: list[int] = []
        for data in self._logs.pieces(key, start, min(counted.size, start + CALL_BYTES)):
            position += len(data)
            # Whole lines. A line that is too long is searched in parts, which overlap by a text.
            whole = rest + data
            cut = len(whole) if position >= counted.size else whole.rfind(b"\n") + 1
            if not cut and len(whole) > LINE_BYTES_MAX:
                cut = len(whole) - len(wanted) + 1
            part, rest = whole[:cut], whole[cut:]
            begin = position - len(whole)
            at = counted_to = 0
            searched = part.lower() if is_any_case else part
            while (at := searched.find(wanted, at)) >= 0:
                line, counted_to = line + part.count(b"\n", counted_to, at), at
                if not found or found[-1] != line:
                    found.append(line)
                behind = part.find(b"\n", at)
                if behind < 0:
                    break
                at = behind + 1
                if len(found) >= MATCHES_MAX:
                    return LogMatches(found, _next(begin + at, counted))
            line += part.count(b"\n", counted_to)
        return LogMatches(found, _next(position - len(rest), counted) if position > start else None)

    def _line_at(self, key: LogKey, counted: CountedLog, start: int) -> int:
        """How many lines end before a position."""
        block = min(start // counted.block_bytes, len(counted.blocks) - 1)
        first = block * counted.block_bytes
        return counted.blocks[block] + self._logs.read(key, first, start).count(b"\n")


def _next(position: int, counted: CountedLog) -> int | None:
    return position if position < counted.size else None
