"""What the steps have written: which work was begun and ended, under which lease."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Line(NamedTuple):
    """A command began or ended. `place` and `visit` are those of its idempotency key."""

    verb: str
    run_id: int
    uid: str
    place: str
    visit: int
    fence: int


class Journal:
    """The file, read on from where it was read last."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.path.touch()
        self.begun = 0
        # The newest lease under which anything began.
        self.fence_max = 0
        self._read = 0

    def look(self) -> None:
        """Take in what was written since."""
        with self.path.open("rb") as file:
            file.seek(self._read)
            whole = file.read().rpartition(b"\n")[0]
        self._read += len(whole) + bool(whole)
        fences = [int(line.rpartition(b" ")[2]) for line in whole.splitlines() if line.startswith(b"start ")]
        self.begun += len(fences)
        self.fence_max = max(self.fence_max, *fences) if fences else self.fence_max

    @property
    def position(self) -> int:
        """How many bytes were written until now."""
        return self.path.stat().st_size

    def between(self, first: int, last: int) -> list[Line]:
        """What was written from one position to another."""
        with self.path.open("rb") as file:
            file.seek(first)
            return [parsed(text) for text in file.read(last - first).decode().splitlines()]

    def lines(self) -> Iterator[Line]:
        with self.path.open() as file:
            for text in file:
                yield parsed(text)


def parsed(text: str) -> Line:
    verb, run_id, key, fence = text.split()
    uid, _, rest = key.partition(":")
    place, _, visit = rest.rpartition(":")
    return Line(verb, int(run_id), uid, place, int(visit), int(fence))
