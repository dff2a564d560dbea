"""The veil: what is told of a task passes through it, and no secret does, in none of its forms.

Whatever belongs to a form is hidden, also where two overlap; what is hidden in one piece becomes `***`. A stream is
hidden as its whole text would be, however it was cut into writes, and holds back only what may still become a form.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from itertools import groupby
from typing import Any

import msgspec

from mulligan.core.model.outcome import Outcome
from mulligan.core.model.reports import TaskEnded
from mulligan.worker.secret_encodings import Encoding, encodings_of

MASK = b"***"
# What of an outcome is text of the task's, or of whoever spoke for it.
_TEXT_FIELDS = (
    *(
        "message",
        "stderr_tail",
        "stdout_tail",
        "trace",
        "details",
        "reported",
        "report_error",
        "missing_outputs",
        "output_error",
    ),
    "log_warning",
)
# So many bytes of a form are reason enough to look closer. No form is shorter.
_PREFIX_BYTES = 3
# So much of the beginning of a secret is hidden where a text was cut; less tells nothing.
_TRUNCATED_BYTES_MIN = 4
# What is larger no event can hold.
_NUMBER_MAX = 1 << 64
TOO_DEEP = "its output is nested too deep to be looked through for secrets"

Span = tuple[int, int]


class Redactor:
    """Hides these secrets."""

    def __init__(self, values: Collection[str]) -> None:
        encodings = {encoding for value in values for encoding in encodings_of(value)}
        # The forms that begin so: with as many bytes, or with fewer where there are no more.
        self._by_prefix: dict[bytes, list[_Pattern]] = {}
        for patterns in map(_Pattern, encodings):
            for head in {head[:length] for head in patterns.prefixes() for length in range(1, _PREFIX_BYTES + 1)}:
                self._by_prefix.setdefault(head, []).append(patterns)
        self._prefix = re.compile(_alternatives({head for head in self._by_prefix if len(head) == _PREFIX_BYTES}))
        self._bytes_max = max((sum(max(map(len, piece)) for piece in encoding) for encoding in encodings), default=0)

    # -- what is whole

    def redact_bytes(self, data: bytes) -> bytes:
        stream = RedactingStream(self)
        return stream.feed(data) + stream.end()

    def redact_text(self, text: str) -> str:
        """The text without secrets; itself where there is none in it."""
        data = text.encode("utf-8", "surrogatepass")
        if self._search(data) is None:
            return text
        return self.redact_bytes(data).decode("utf-8", "surrogatepass")

    def redact_truncated(self, text: str) -> str:
        """The same of a text that somebody may have cut at its end, within a secret."""
        kept = text.rstrip("…")
        data = kept.encode("utf-8", "surrogatepass")
        start = self.partial_match_at(data)
        if len(data) - start < _TRUNCATED_BYTES_MIN:
            return self.redact_text(text)
        before = self.redact_text(data[:start].decode("utf-8", "surrogatepass"))
        return f"{before}{MASK.decode()}{text[len(kept) :]}"

    def redact_value(self, value: Any, *, is_truncated: bool = False) -> Any:
        """A value of JSON, its strings and keys without secrets. A number that spells one is none any more."""
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
        """What may be told of a task's end."""
        try:
            told = {name: self.redact_value(getattr(report.outcome, name), is_truncated=True) for name in _TEXT_FIELDS}
            output = self.redact_output(report.output)
            outcome = msgspec.structs.replace(report.outcome, **told)
        except RecursionError:
            outcome, output = Outcome(output_error=TOO_DEEP), None
        # Nearly all figures; an agent names its model, and may say anything.
        usage = self.redact_value(report.usage)
        return msgspec.structs.replace(report, outcome=outcome, output=output, usage=usage)

    def redact_output(self, output: Any) -> Any:
        """What a task gave, without secrets; RecursionError where it is nested too deep."""
        return output if self._has_no_secret(output) else self.redact_value(output)

    def _has_no_secret(self, output: Any) -> bool:
        """Whether there is surely nothing to hide: a million rows are looked through at once, and not one by one.

        As JSON, where nothing in that is escaped: then every text stands there as it is.
        """
        if not isinstance(output, list | dict):
            return False
        try:
            data = msgspec.json.encode(output)
        except (TypeError, ValueError, OverflowError):
            return False
        return b"\\" not in data and self._search(data) is None

    # -- what is still coming

    def find_spans(self, data: bytes, covered: int = 0) -> Iterator[Span]:
        """What is to be hidden, in order: forms that overlap or touch are one. `covered` is known to be part of one."""
        start, end = (0, covered) if covered else (-1, -1)
        found = self._search(data)
        while found is not None:
            if found[0] > end:
                if start >= 0:
                    yield start, end
                start = found[0]
            end = max(end, found[1])
            found = self._search(data, found[0] + 1)
        if start >= 0:
            yield start, end

    def _search(self, data: bytes, position: int = 0) -> Span | None:
        """The next place where forms begin, and where the longest of them ends."""
        for start, patterns in self._starts(data, position):
            if (end := max(one.end(data, start) for one in patterns)) >= 0:
                return start, end
        return None

    def partial_match_at(self, data: bytes) -> int:
        """Where the first form begins that is not complete when `data` ends; its length if there is none."""
        for start, patterns in self._starts(data, max(0, len(data) - self._bytes_max)):
            if any(one.is_open(data, start) for one in patterns):
                return start
        return next(
            (at for at in (len(data) - 2, len(data) - 1) if at >= 0 and data[at:] in self._by_prefix), len(data)
        )

    def _starts(self, data: bytes, position: int) -> Iterator[tuple[int, list[_Pattern]]]:
        """Where something begins as forms do, and which."""
        while (head := self._prefix.search(data, position)) is not None:
            yield head.start(), self._by_prefix[head[0]]
            position = head.start() + 1


class RedactingStream:
    """Bytes that come bit by bit, without secrets."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        # It may still become a form.
        self.pending = b""
        # How much of what is held is hidden already, as part of what was hidden before it; -1: what was before is not.
        self._covered = -1

    def feed(self, data: bytes) -> bytes:
        """What may be told now."""
        self.pending += data
        return self._release(self._redactor.partial_match_at(self.pending))

    def end(self) -> bytes:
        """The rest: no more will come."""
        return self._release(len(self.pending))

    def _release(self, until: int) -> bytes:
        if not until:
            return b""  # looked through once it may be told, and not with every byte that comes
        told, position = [], max(0, self._covered)
        is_hidden = self._covered >= 0
        for start, end in self._redactor.find_spans(self.pending, max(0, self._covered)):
            if start >= until:
                break
            if not (is_hidden and start <= position):
                told += [self.pending[position:start], MASK]
            position, is_hidden = end, True
        told.append(self.pending[position:until])
        is_hidden = is_hidden and position >= until
        self._covered = position - until if is_hidden else -1
        self.pending = self.pending[until:]
        return b"".join(told)


class _Pattern:
    """A form that is looked for."""

    def __init__(self, encoding: Encoding) -> None:
        self._form = tuple(_merge_pieces(encoding))

    def prefixes(self) -> set[bytes]:
        """Its first bytes, in every spelling."""
        prefixes = {b""}
        for piece in self._form:
            prefixes = {(head + one)[:_PREFIX_BYTES] for head in prefixes for one in piece}
            if all(len(head) == _PREFIX_BYTES for head in prefixes):
                break
        return prefixes

    def end(self, data: bytes, start: int) -> int:
        """Where it ends if it begins at `start`, the latest if it may be read in several ways; -1 if it does not."""
        positions = {start}
        for piece in self._form:
            # All ways at once: one after the other, as a regular expression tries them, takes for ever.
            positions = {at + len(one) for at in positions for one in piece if data.startswith(one, at)}
            if not positions:
                return -1
        return max(positions)

    def is_open(self, data: bytes, start: int) -> bool:
        """Whether `data` ends within it, if it begins at `start`: in any of the ways in which it may be written."""
        positions = {start}
        for piece in self._form:
            rests = [data[at : at + max(map(len, piece))] for at in positions]
            if any(one != rest and one.startswith(rest) for rest in rests for one in piece):
                return True
            positions = {at + len(one) for at in positions for one in piece if data.startswith(one, at)}
            if not positions:
                return False
        return False


def _merge_pieces(encoding: Encoding) -> Iterator[tuple[bytes, ...]]:
    """The pieces, those that follow one another and have one spelling each as one: fewer to look at."""
    for is_single, pieces in groupby(encoding, lambda piece: len(piece) == 1):
        if is_single:
            yield (b"".join(piece[0] for piece in pieces),)
        else:
            yield from pieces


def _alternatives(words: Collection[bytes]) -> bytes:
    """An expression for any of these, which are of one length: what begins alike is looked at once."""
    by_first: dict[bytes, set[bytes]] = {}
    for word in words:
        by_first.setdefault(word[:1], set()).add(word[1:])
    parts = [
        re.escape(first) + (b"" if rests == {b""} else _alternatives(rests))
        for first, rests in sorted(by_first.items())
    ]
    return b"(?:%s)" % b"|".join(parts or [b"(?!)"])
