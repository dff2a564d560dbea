"""Records of the declared files that steps wrote, for later runs and rounds to compare with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal

import msgspec

Problem = Literal["gone", "changed"]


class FileRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file, or a folder with all that is in it. `path` is relative to the folder of the run, or absolute."""

    name: str
    path: str
    # The hash of the contents; "" in logs from before contents were recorded.
    sha256: str = ""
    size: int = 0
    # If mtime and size are unchanged the file need not be read. 0 for a folder.
    mtime_ns: int = 0


class StaleFile(msgspec.Struct, frozen=True):
    """A file that was changed or removed since a step wrote it."""

    step: str
    path: str
    problem: Problem

    @property
    def state(self) -> str:
        return "is gone" if self.problem == "gone" else "has changed"

    @property
    def text(self) -> str:
        return f"{self.path} {self.state}"


def last_writers(written: Iterable[tuple[int, str, FileRecord]]) -> Iterator[tuple[str, FileRecord]]:
    """For each path the step that wrote it last, given the seq of the event, the step and its file.

    If several steps write a path, each later one changes it on purpose.
    """
    latest: dict[str, tuple[int, str, FileRecord]] = {}
    for one in written:
        known = latest.get(one[2].path)
        if known is None or known[0] < one[0]:
            latest[one[2].path] = one
    return ((step, record) for _, step, record in latest.values())


def stale_files(
    written: Iterable[tuple[str, FileRecord]], problem_of: Callable[[FileRecord], Problem | None]
) -> tuple[StaleFile, ...]:
    """The files for which `problem_of` finds a problem."""
    found = ((step, record, problem_of(record)) for step, record in written)
    return tuple(StaleFile(step, record.path, problem) for step, record, problem in found if problem is not None)
