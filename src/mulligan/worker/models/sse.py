"""Server-sent events: the lines of a streamed answer, as they arrive, with limits for hostile servers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


class StreamTooLarge(Exception):
    """The stream is longer than its limit."""


def events(chunks: Iterable[bytes], bytes_max: int) -> Iterator[str]:
    """Yield the data of each event as soon as it is complete. Comments, names and ids of events are not needed."""
    data: list[str] = []
    for line in _lines(chunks, bytes_max):
        if not line:
            if data:
                yield "\n".join(data)
                data = []
        elif line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
    # An event without an empty line after it is incomplete, and is dropped: the stream was cut.


def _lines(chunks: Iterable[bytes], bytes_max: int) -> Iterator[str]:
    buffer, size = bytearray(), 0
    for chunk in chunks:
        size += len(chunk)
        if size > bytes_max:
            raise StreamTooLarge
        buffer += chunk
        if b"\n" not in chunk:
            continue
        *complete, rest = buffer.split(b"\n")
        for line in complete:
            yield line.removesuffix(b"\r").decode("utf-8", "replace")
        buffer = bytearray(rest)
