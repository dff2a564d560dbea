"""The runs that are to be taken up: thousands may wait, and to read one takes its time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

# How many are read between two rounds of the loop: a heartbeat must not wait for more than that.
TAKEN_AT_ONCE_MAX = 50


class Wanted:
    """Runs in the order in which they were asked for, each until it was taken up or somebody else has it."""

    def __init__(self) -> None:
        self._run_ids: dict[int, None] = {}

    def __bool__(self) -> bool:
        return bool(self._run_ids)

    def __iter__(self) -> Iterator[int]:
        return iter(self._run_ids)

    def add(self, run_ids: Iterable[int]) -> None:
        self._run_ids.update(dict.fromkeys(run_ids))

    def some(self) -> list[int]:
        """The next ones. They stay wanted until it is said what became of them: an error on the way loses none."""
        return list(islice(self._run_ids, TAKEN_AT_ONCE_MAX))

    def done(self, run_ids: Iterable[int]) -> None:
        for run_id in run_ids:
            self._run_ids.pop(run_id, None)
