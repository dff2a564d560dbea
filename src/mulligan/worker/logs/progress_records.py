"""What a step said of its progress: read from what it wrote, and from the file beside its logs."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime

import msgspec

from mulligan.core.model.text.lazy_regex import lazy_regex
from mulligan.worker.folders import open_regular_file

ENDING = ".progress"
# How much of the end of a file is read: a shell step may append to it instead of writing it anew.
READ_BYTES = 4096
TEXT_CHARS_MAX = 200
NUMBER_MAX = 1e18
# `3/10 text`, `30% text`, `0.3 text`, `3 text`.
_PLAIN = lazy_regex(r"(?P<done>\d{1,18}(?:\.\d{1,9})?)(?P<rest>%|\s*/\s*(?P<total>\d{1,18}(?:\.\d{1,9})?))?(?:\s+|$)")


class Progress(msgspec.Struct, frozen=True):
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
        return _checked(done / 100, 1, text)
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


def read_progress(path: str) -> Progress | None:
    """Return the progress in a file beside the logs; None if there is none."""
    try:
        with open_regular_file(path) as file:
            return msgspec.json.decode(file.read(READ_BYTES), type=Progress)
    except (OSError, msgspec.DecodeError):
        return None
