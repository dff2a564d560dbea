"""How much of a log goes to the store that other hosts read it from, and who watches it while it is written."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import msgspec

# Of a longer log the beginning and the end are shipped. While a task runs, only the beginning is.
HEAD_BYTES, TAIL_BYTES = 12 << 20, 4 << 20
# More is in no log, with the note between the two.
SHIPPED_BYTES_MAX = HEAD_BYTES + TAIL_BYTES + 1024
# The kind of the documents that say which runs are watched, each under the number of its run.
WATCH_KIND = "log_watch"


class LogPart(msgspec.Struct, frozen=True):
    """A part to ship: bytes of the file from `source` on, or a text of our own."""

    # Its position in the shipped log.
    start: int
    source: int = 0
    length: int = 0
    text: bytes = b""


def parts_to_ship(
    size: int, shipped: int, *, is_last: bool, head: int = HEAD_BYTES, tail: int = TAIL_BYTES
) -> Iterator[LogPart]:
    """The parts of a file of `size` bytes that are missing in the store, which has `shipped` bytes.

    Parts that were shipped before are the same when they are shipped again.
    """
    if shipped > size:
        # The middle was cut out of the file, because its task wrote more than it may.
        if is_last:
            yield from _end(shipped, size, min(size, tail))
    elif not is_last:
        if shipped < min(size, head):
            yield LogPart(shipped, shipped, min(size, head) - shipped)
    elif size <= head + tail:
        if shipped < size:
            yield LogPart(shipped, shipped, size - shipped)
    else:
        if shipped < head:
            yield LogPart(shipped, shipped, head - shipped)
        yield from _end(head, size, tail, omitted=size - head - tail)


def _end(start: int, size: int, length: int, omitted: int = 0) -> Iterator[LogPart]:
    """A note that something is missing, then the end of the file."""
    what = f"{omitted:,} bytes" if omitted else "some bytes"
    note = LogPart(start, text=f"\n[… {what} omitted in the store: the host of the step has them …]\n".encode())
    yield note
    yield LogPart(start + len(note.text), size - length, length)


class LogWatch(msgspec.Struct, frozen=True):
    """Somebody reads the logs of a run while they are written, until then."""

    until: datetime


def encode_watch(until: datetime) -> bytes:
    return msgspec.json.encode(LogWatch(until))


def is_watched(data: bytes, now: datetime) -> bool:
    """Whether a stored watch lasts. What cannot be read is none."""
    try:
        return msgspec.json.decode(data, type=LogWatch).until > now
    except (msgspec.MsgspecError, TypeError):
        return False
