"""Messages between a worker and its supervisor: a length, then a marshalled tuple.

Loaded by the supervisor too, which must stay small: import only what it needs.
"""

from __future__ import annotations

import marshal

# `typing` itself is not imported: a process that is about to start should not wait for it.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_LENGTH_BYTES = 4
RECEIVE_BYTES = 1 << 16


def encode_frame(message: tuple[Any, ...]) -> bytes:
    """Encode one message. `marshal` is safe here: both ends are the same interpreter and our own code."""
    body = marshal.dumps(message)
    return len(body).to_bytes(_LENGTH_BYTES, "little") + body


class FrameDecoder:
    """Split a stream into messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[tuple[Any, ...]]:
        """Return the messages that are complete with `data`."""
        self._buffer += data
        found, start = [], 0
        while (end := self._frame_end(start)) is not None:
            found.append(marshal.loads(self._buffer[start + _LENGTH_BYTES : end]))  # noqa: S302
            start = end
        del self._buffer[:start]
        return found

    def _frame_end(self, start: int) -> int | None:
        if len(self._buffer) - start < _LENGTH_BYTES:
            return None
        end = start + _LENGTH_BYTES + int.from_bytes(self._buffer[start : start + _LENGTH_BYTES], "little")
        return end if len(self._buffer) >= end else None
