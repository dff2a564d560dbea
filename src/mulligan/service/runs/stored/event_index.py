"""Where the events of all steps are in a log, for faces that show many steps of a large run at once."""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterator, Sequence

from mulligan.core.model import events as e
from mulligan.core.model.place_keys import step_name
from mulligan.language.garbage_collection import pause_garbage_collection
from mulligan.service.runs.stored.remembered import ReadsRuns, forget_oldest
from mulligan.service.runs.stored.run_reader import RunReader
from mulligan.service.runs.stored.step_events import place_of

# How many runs are remembered.
RUNS_MAX = 16
# How many events one call reads.
EVENTS_MAX = 100_000
# Events are read in one go, if no more than so many others are between them.
GAP_MAX = 50


class EventIndex(ReadsRuns):
    """The numbers of the events of each step without those of its items, moved on with the log, which only grows.

    One call reads a bounded part of the log, so that nobody else waits long for the first look at a large run.
    """

    def __init__(self, reader: RunReader) -> None:
        super().__init__(reader)
        self._runs: OrderedDict[int, _IndexedRun] = OrderedDict()

    def read_on(self, run_id: int) -> float:
        """Read the next part of the log, and say which share of it has been read. Nothing below counts before 1.0."""
        last = self._reader.record(run_id).seq
        run = self._runs.setdefault(run_id, _IndexedRun())
        self._runs.move_to_end(run_id)
        forget_oldest(self._runs, RUNS_MAX)
        if run.seq < last:
            with pause_garbage_collection():
                for entry in self._reader.store.log(run_id, run.seq, EVENTS_MAX):
                    run.add(entry)
        return min(1.0, run.seq / last) if last else 1.0

    def entries(self, run_id: int, step: str) -> list[e.Entry]:
        """The events of a step and its commands, without those of its items, in their order."""
        numbers = self._runs[run_id].numbers.get(step, ())
        wanted, store = frozenset(numbers), self._reader.store
        found: list[e.Entry] = []
        for first, last in _ranges(numbers):
            found += [one for one in store.log(run_id, first - 1, last - first + 1) if one.seq in wanted]
        return found

    def count(self, run_id: int, step: str) -> int:
        """How many events `entries` would give."""
        return len(self._runs[run_id].numbers.get(step, ()))

    def rounds(self, run_id: int) -> list[tuple[int, int]]:
        """The rounds behind the first one: the number of the event that opened each, and its number."""
        return list(self._runs[run_id].rounds)


def _ranges(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Numbers in order as ranges, each with few others between them."""
    first = last = 0
    for number in numbers:
        if first and number - last > GAP_MAX:
            yield first, last
            first = 0
        first, last = first or number, number
    if first:
        yield first, last


class _IndexedRun:
    def __init__(self) -> None:
        self.seq = 0
        self.rounds: list[tuple[int, int]] = []
        # By step, in order.
        self.numbers: dict[str, array[int]] = {}

    def add(self, entry: e.Entry) -> None:
        self.seq = entry.seq
        if isinstance(entry.fact, e.RunReopened):
            self.rounds.append((entry.seq, entry.fact.round))
        place = place_of(entry)
        if not place or "[" in place.partition(".")[0]:
            return
        step = step_name(place)
        numbers = self.numbers.get(step)
        if numbers is None:
            numbers = self.numbers[step] = array("q")
        numbers.append(entry.seq)
