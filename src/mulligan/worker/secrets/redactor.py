"""Redact secrets, in all their encodings, from everything that leaves a task.

Every byte of an encoding is redacted, also where two overlap; each contiguous piece becomes `***`. A stream is redacted
as its whole text would be, however it was split into writes, and holds back only what may still become a secret.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from itertools import groupby
from typing import Any

import msgspec

from mulligan.core.model.outcome import Outcome
from mulligan.core.model.reports import TaskEnded
from mulligan.worker.secrets.secret_encodings import Encoding, encodings_of

MASK = b"***"
# The fields of an outcome that contain text of the task.
_TEXT_FIELDS = (
    *(
        "message",
        "stderr_head",
        "stderr_tail",
        "stdout_tail",
        "trace",
        "traceback",
        "details",
        "reported",
        "report_error",
        "missing_outputs",
        "output_error",
    ),
    "log_warning",
)
# This many bytes of an encoding trigger a closer look. No encoding is shorter.
_PREFIX_BYTES = 3
# A truncated secret is redacted if at least this many bytes of it are left; fewer reveal nothing.
_TRUNCATED_BYTES_MIN = 4
# An event cannot hold a larger number.
_NUMBER_MAX = 1 << 64
TOO_DEEP = "its output is nested too deep to be searched for secrets"

Span = tuple[int, int]


class Redactor:
    """Redact these secrets."""

    def __init__(self, values: Collection[str]) -> None:
        encodings = {encoding for value in values for encoding in encodings_of(value)}
        # Encodings by their first bytes, and by fewer bytes for the end of the data.
        self._by_prefix: dict[bytes, list[_Pattern]] = {}
        for patterns in map(_Pattern, encodings):
            for head in {head[:length] for head in patterns.prefixes() for length in range(1, _PREFIX_BYTES + 1)}:
                self._by_prefix.setdefault(head, []).append(patterns)
        self._prefix = re.compile(_alternatives({head for head in self._by_prefix if len(head) == _PREFIX_BYTES}))
        self._bytes_max = max((sum(max(map(len, piece)) for piece in encoding) for encoding in encodings), default=0)

    # -- complete values

    def redact_bytes(self, data: bytes) -> bytes:
        stream = RedactingStream(self)
        return stream.feed(data) + stream.end()

    def redact_text(self, text: str) -> str:
        """Return the text without secrets; the same object if it contains none."""
        data = text.encode("utf-8", "surrogatepass")
        if self._search(data) is None:
            return text
        return self.redact_bytes(data).decode("utf-8", "surrogatepass")

    def redact_truncated(self, text: str) -> str:
        """Redact a text that may have been truncated within a secret."""
        kept = text.rstrip("…")
        data = kept.encode("utf-8", "surrogatepass")
        start = self.partial_match_at(data)
        if len(data) - start < _TRUNCATED_BYTES_MIN:
            return self.redact_text(text)
        before = self.redact_text(data[:start].decode("utf-8", "surrogatepass"))
        return f"{before}{MASK.decode()}{text[len(kept) :]}"

    def redact_value(self, value: Any, *, is_truncated: bool = False) -> Any:
        """Redact the strings and keys of a JSON value. A number that spells a secret becomes a string."""
        if isinstance(value, str):
            return self.redact_truncated(value) if is_truncated else self.redact_text(value)
        if isinstance(value, Mapping):
            return {
                self.redact_text(str(key)): self.redact_value(inner, is_truncated=is_truncated)
                for key, inner in value.items()
            }
        if isinstance(value, list | tuple):
            return type(value)([self.redact_value(inner, is_truncated=is_truncated) for inner in value])
        if isinstance(value, int | float) and abs(value) <= _NUMBER_MAX and not isinstance(value, bool):
            return value if self._search(str(value).encode()) is None else MASK.decode()
        return value

    def redact_report(self, report: TaskEnded) -> TaskEnded:
        """Return the report without secrets."""
        try:
            redacted = {
                name: self.redact_value(getattr(report.outcome, name), is_truncated=True) for name in _TEXT_FIELDS
            }
            output = self.redact_output(report.output)
            data = self.redact_value(report.data)
            outcome = msgspec.structs.replace(report.outcome, **redacted)
        except RecursionError:
            outcome, output, data = Outcome(output_error=TOO_DEEP), None, {}
        # Mostly numbers, but an agent names its model, which may be any text.
        usage = self.redact_value(report.usage)
        return msgspec.structs.replace(report, outcome=outcome, output=output, usage=usage, data=data)

    def redact_output(self, output: Any) -> Any:
        """Return a task's output without secrets; raise RecursionError if it is nested too deep."""
        return output if self._has_no_secret(output) else self.redact_value(output)

    def _has_no_secret(self, output: Any) -> bool:
        """Whether there is certainly nothing to redact: a million rows are searched at once, not one by one.

        This searches the JSON text, if nothing in it is escaped: then every string is there unchanged.
        """
        if not isinstance(output, list | dict):
            return False
        try:
            data = msgspec.json.encode(output)
        except (TypeError, ValueError, OverflowError):
            return False
        return b"\\" not in data and self._search(data) is None

    # -- streams

    def find_spans(self, data: bytes, covered: int = 0) -> Iterator[Span]:
        """Yield what to redact, in order; matches that overlap or touch are merged. `covered` bytes are part of one."""
        start, end = (0, covered) if covered else (-1, -1)
        match = self._search(data)
        while match is not None:
            if match[0] > end:
                if start >= 0:
                    yield start, end
                start = match[0]
            end = max(end, match[1])
            match = self._search(data, match[0] + 1)
        if start >= 0:
            yield start, end

    def _search(self, data: bytes, position: int = 0) -> Span | None:
        """Return where the next match starts, and where the longest one there ends."""
        for start, patterns in self._starts(data, position):
            if (end := max(pattern.end(data, start) for pattern in patterns)) >= 0:
                return start, end
        return None

    def partial_match_at(self, data: bytes) -> int:
        """Return where the first encoding starts that `data` may have cut off; its length if there is none."""
        for start, patterns in self._starts(data, max(0, len(data) - self._bytes_max)):
            if any(pattern.is_open(data, start) for pattern in patterns):
                return start
        return next(
            (at for at in (len(data) - 2, len(data) - 1) if at >= 0 and data[at:] in self._by_prefix), len(data)
        )

    def _starts(self, data: bytes, position: int) -> Iterator[tuple[int, list[_Pattern]]]:
        """Yield where something starts like an encoding, and which ones."""
        while (head := self._prefix.search(data, position)) is not None:
            yield head.start(), self._by_prefix[head[0]]
            position = head.start() + 1


class RedactingStream:
    """A stream of bytes without secrets."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        # It may still become a secret.
        self.pending = b""
        # How much of `pending` is redacted already, as part of the last match; -1 if the last byte was not redacted.
        self._covered = -1

    def feed(self, data: bytes) -> bytes:
        """Return what can be released now."""
        self.pending += data
        return self._release(self._redactor.partial_match_at(self.pending))

    def end(self) -> bytes:
        """Return the rest."""
        return self._release(len(self.pending))

    def _release(self, until: int) -> bytes:
        if not until:
            return b""  # search only when something can be released, not for every byte
        redacted, position = [], max(0, self._covered)
        is_hidden = self._covered >= 0
        for start, end in self._redactor.find_spans(self.pending, max(0, self._covered)):
            if start >= until:
                break
            if not (is_hidden and start <= position):
                redacted += [self.pending[position:start], MASK]
            position, is_hidden = end, True
        redacted.append(self.pending[position:until])
        is_hidden = is_hidden and position >= until
        self._covered = position - until if is_hidden else -1
        self.pending = self.pending[until:]
        return b"".join(redacted)


class _Pattern:
    """An encoding to search for."""

    def __init__(self, encoding: Encoding) -> None:
        self._form = tuple(_merge_pieces(encoding))

    def prefixes(self) -> set[bytes]:
        """Return its first bytes, in every spelling."""
        prefixes = {b""}
        for piece in self._form:
            prefixes = {(head + pattern)[:_PREFIX_BYTES] for head in prefixes for pattern in piece}
            if all(len(head) == _PREFIX_BYTES for head in prefixes):
                break
        return prefixes

    def end(self, data: bytes, start: int) -> int:
        """Return where it ends if it starts at `start`, the latest end if there are several; -1 if it does not."""
        positions = {start}
        for piece in self._form:
            # All alternatives at once: a regular expression would try them one by one, which is exponential.
            positions = {at + len(pattern) for at in positions for pattern in piece if data.startswith(pattern, at)}
            if not positions:
                return -1
        return max(positions)

    def is_open(self, data: bytes, start: int) -> bool:
        """Whether `data` ends within it, in any spelling, if it starts at `start`."""
        positions = {start}
        for piece in self._form:
            rests = [data[at : at + max(map(len, piece))] for at in positions]
            if any(pattern != rest and pattern.startswith(rest) for rest in rests for pattern in piece):
                return True
            positions = {at + len(pattern) for at in positions for pattern in piece if data.startswith(pattern, at)}
            if not positions:
                return False
        return False


def _merge_pieces(encoding: Encoding) -> Iterator[tuple[bytes, ...]]:
    """Merge consecutive pieces that have one spelling each: fewer to compare."""
    for is_single, pieces in groupby(encoding, lambda piece: len(piece) == 1):
        if is_single:
            yield (b"".join(piece[0] for piece in pieces),)
        else:
            yield from pieces


def _alternatives(words: Collection[bytes]) -> bytes:
    """Return a regular expression for these words of equal length, with common prefixes merged."""
    by_first: dict[bytes, set[bytes]] = {}
    for word in words:
        by_first.setdefault(word[:1], set()).add(word[1:])
    parts = [
        re.escape(first) + (b"" if rests == {b""} else _alternatives(rests))
        for first, rests in sorted(by_first.items())
    ]
    return b"(?:%s)" % b"|".join(parts or [b"(?!)"])
