"""A part of what an attempt wrote, by line: the end, a range, or the lines that have a text. Always bounded."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Literal

import msgspec

from mulligan.core.model.place_keys import step_name
from mulligan.errors import InputInvalid
from mulligan.ports import LogKey
from mulligan.service.logs.log_lines import CountedLogs, LogLines
from mulligan.service.logs.logs import Part, find_attempts
from mulligan.service.runs.stored.run_reader import RunReader

Stream = Literal["stdout", "stderr"]
# How many lines and how many characters a page has at most, and a line in it.
LINES_MAX, PAGE_CHARS_MAX, LINE_CHARS_MAX = 500, 40_000, 2_000
# How many lines that have a text are shown.
FOUND_MAX = 100
# How many calls a search makes: each looks at 32 MiB.
SEARCHES_MAX = 32


class LogLine(msgspec.Struct, frozen=True):
    """A line with its number, from 1 on."""

    line: int
    text: str


class LogPage(msgspec.Struct, frozen=True):
    """A part of a log."""

    run_id: int
    place: str
    attempt: int
    stream: Stream
    # The whole log: bytes, and lines as far as they were counted.
    size: int
    total_lines: int
    lines: list[LogLine]
    # The first line of the next page; of a search, the next line that has the text. None at the end.
    next: int | None
    # Whether long lines were cut.
    is_cut: bool


class LogPages:
    """Reads parts of logs."""

    def __init__(self, reader: RunReader, counted: CountedLogs) -> None:
        self._reader = reader
        self._ranges = reader.log_ranges
        self._lines = LogLines(reader.log_ranges, counted)

    def read(
        self,
        run_id: int,
        step: str,
        *,
        attempt: int | None = None,
        stream: Stream | None = None,
        part: Part = "own",
        first: int | None = None,
        limit: int = 100,
        search: str = "",
    ) -> LogPage:
        """A page of what one attempt wrote, by default the end of what the last one wrote.

        Without `stream` it is stderr, or stdout if nothing was written there. `UnknownAttempt`, `InputInvalid`.
        """
        place, number = self._attempt(run_id, step, attempt, part)
        key = self._key(run_id, place, number, stream)
        while not self._lines.count(key):
            pass
        limit = min(limit, LINES_MAX)
        index = self._lines.index(key)
        if search:
            shown, following = self._search(key, search, (first or 1) - 1, min(limit, FOUND_MAX))
        else:
            start = max(0, index.lines - limit) if first is None else first - 1
            shown, following = self._page(key, start, limit, index.lines)
        return LogPage(
            run_id=run_id,
            place=place,
            attempt=number,
            stream=key.stream,
            size=index.size,
            total_lines=index.lines,
            lines=[LogLine(line + 1, text) for line, text, _ in shown],
            next=None if following is None else following + 1,
            is_cut=any(is_cut for _, _, is_cut in shown),
        )

    def _attempt(self, run_id: int, step: str, attempt: int | None, part: Part) -> tuple[str, int]:
        found = find_attempts(self._reader, run_id, step, attempt=attempt, part=part)
        if len(found) > 1:
            named = self._reader.name_places(run_id, [place for place, _ in found[:5]])
            names = ", ".join(f"'{name}'" for name in named.values())
            raise InputInvalid(
                f"'{step}' of run {run_id} has {len(found):,} logs",
                hint=f"name one of them as the step: {names}",
                argument="step",
                step=step_name(step),
                item_names=list(named.values()),
            )
        return found[0]

    def _key(self, run_id: int, place: str, attempt: int, stream: Stream | None) -> LogKey:
        if stream is not None:
            return LogKey(run_id, place, attempt, stream)
        errors = LogKey(run_id, place, attempt, "stderr")
        found = self._ranges.size(errors)
        return errors if found is not None and found.size else LogKey(run_id, place, attempt, "stdout")

    def _page(self, key: LogKey, start: int, limit: int, total: int) -> tuple[list[tuple[int, str, bool]], int | None]:
        shown: list[tuple[int, str, bool]] = []
        chars = 0
        for number, text, is_cut in self._from(key, start):
            chars += len(text)
            if len(shown) == limit or (shown and chars > PAGE_CHARS_MAX):
                return shown, number
            shown.append((number, text, is_cut))
        return shown, None

    def _search(self, key: LogKey, text: str, start: int, limit: int) -> tuple[list[tuple[int, str, bool]], int | None]:
        found: list[int] = []
        position: int | None = 0
        for _ in range(SEARCHES_MAX):
            matches = self._lines.search(key, text, position or 0)
            found += [line for line in matches.lines if line >= start]
            position = matches.next
            if position is None or len(found) > limit:
                break
        shown = [next(self._from(key, line)) for line in found[:limit]]
        return shown, found[limit] if len(found) > limit else None

    def _from(self, key: LogKey, start: int) -> Iterator[tuple[int, str, bool]]:
        """The lines from number `start` (0 is the first) on: number, text, and whether it was cut."""
        index = self._lines.index(key)
        block = max(0, bisect_right(index.blocks, start) - 1)
        number, kept, length = index.blocks[block] if index.blocks else 0, b"", 0
        for data in self._ranges.pieces(key, block * index.block_bytes, index.size):
            *ended, rest = data.split(b"\n")
            for piece in ended:
                if number >= start:
                    yield number, *_shown(kept + piece[:LINE_CHARS_MAX], length + len(piece))
                number, kept, length = number + 1, b"", 0
            kept, length = (kept + rest)[:LINE_CHARS_MAX], length + len(rest)
        if length and number >= start:
            yield number, *_shown(kept, length)


def _shown(data: bytes, length: int) -> tuple[str, bool]:
    """The text of a line, and whether it is longer."""
    return data[:LINE_CHARS_MAX].decode("utf-8", "replace").rstrip("\r"), length > LINE_CHARS_MAX
