"""Files that steps declare, as they were when a step had written them: what a later run or round compares them with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal

import msgspec

Problem = Literal["gone", "changed"]


class FileRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file, or a folder with all that is in it. `path` is relative to the folder of the run, or absolute."""

    name: str
    path: str
    # Of the contents. "" where only its existence is known: the log was written before contents were recorded.
    sha256: str = ""
    size: int = 0
    # Of a file: equal to that of the file now, with the same size, it spares reading the file. A folder has none.
    mtime_ns: int = 0


class StaleFile(msgspec.Struct, frozen=True):
    """A file that a step wrote, and that is not what the step wrote any more."""

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
    """Of each path the step that wrote it last, given the number of the event, the step and its file.

    What an earlier step wrote there was changed by a later one, as the workflow says.
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
    """The files of which `problem_of` finds that they are not what was written."""
    found = ((step, record, problem_of(record)) for step, record in written)
    return tuple(StaleFile(step, record.path, problem) for step, record, problem in found if problem is not None)
