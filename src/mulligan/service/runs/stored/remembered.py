"""What is remembered of runs that are looked at again and again."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from copy import copy
from typing import Any, Self, TypeVar

from mulligan.service.runs.stored.run_reader import RunReader

Known = TypeVar("Known")


class ReadsRuns:
    """Reads runs with a reader, and remembers what it has read."""

    def __init__(self, reader: RunReader) -> None:
        self._reader = reader

    def seen_by(self, reader: RunReader) -> Self:
        """The same for another reader, which may know fewer runs: both remember the same."""
        other = copy(self)
        other._reader = reader
        return other


def forget_oldest(
    known: OrderedDict[Any, Known],
    count_max: int,
    size_max: float = math.inf,
    size_of: Callable[[Known], int] = lambda _: 0,
) -> None:
    """Forget what was asked for longest ago, while there is too much. What was asked for last always stays."""
    while len(known) > 1 and (len(known) > count_max or sum(map(size_of, known.values())) > size_max):
        known.popitem(last=False)
