"""How far attempts said that they were, from the files beside their logs; "" and None where there is nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from mulligan.worker.folders import Folders
from mulligan.worker.logs.progress_records import ENDING, Progress, read_progress

if TYPE_CHECKING:
    from mulligan.service.runs.stored.attempts import AttemptRecord

# Finds the progress of an attempt at a place.
FindProgress = Callable[[str, int], Progress | None]


def attempt_progress(folders: Folders, run_id: int, place: str, attempt: int) -> Progress | None:
    """What an attempt reported last."""
    return read_progress(folders.progress(run_id, place, attempt))


def progress_finder(folders: Folders, run_id: int) -> FindProgress:
    """A function that finds the progress of an attempt of this run. Only files that exist are opened."""
    folder = os.path.dirname(folders.progress(run_id, "any", 1))
    try:
        names = {name for name in os.listdir(folder) if name.endswith(ENDING)}
    except OSError:
        names = set()

    def find(place: str, attempt: int) -> Progress | None:
        path = folders.progress(run_id, place, attempt)
        return read_progress(path) if names and os.path.basename(path) in names else None

    return find


def add_progress(folders: Folders, run_id: int, records: Iterable[AttemptRecord]) -> None:
    """Add to attempts what they reported."""
    find = progress_finder(folders, run_id)
    for one in records:
        one.progress = find(one.place, one.attempt)


def describe_progress(progress: Progress | Mapping[str, Any] | None) -> str:
    """`3/10 loading`, `30%`, `loading`."""
    if progress is None:
        return ""
    shown = progress if isinstance(progress, Progress) else msgspec.convert(progress, Progress)
    return " ".join(filter(None, (_count(shown), shown.text)))


def _count(progress: Progress) -> str:
    if progress.done is None:
        return ""
    if progress.total == 1 and isinstance(progress.done, float):
        return f"{progress.done:.0%}"
    return _number(progress.done) if progress.total is None else f"{_number(progress.done)}/{_number(progress.total)}"


def _number(number: float) -> str:
    return f"{number:,}" if isinstance(number, int) else f"{number:g}"
