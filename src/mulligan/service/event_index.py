"""Where the events of each step are in a log, for faces that ask about single steps of a large run again and again."""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterator, Sequence

from mulligan.core.model import events as e
from mulligan.core.model.place_keys import step_name
from mulligan.service.attempts import Cost, Costs
from mulligan.service.run_reader import RunReader

# How many runs are remembered.
RUNS_MAX = 16
# Events are read in one go, if no more than so many others are between them.
GAP_MAX = 50
# In place of the index of an item: the step itself.
NO_ITEM = -1


class EventIndex:
    """The numbers of the events of each step, read once and then moved on with the log, which only grows."""

    def __init__(self, reader: RunReader) -> None:
        self._reader = reader
        self._runs: OrderedDict[int, _IndexedRun] = OrderedDict()

    def seen_by(self, reader: RunReader) -> EventIndex:
        """The same for another reader, which may know fewer runs."""
        other = EventIndex(reader)
        other._runs = self._runs
        return other

    def entries(self, run_id: int, step: str) -> list[e.Entry]:
        """The events of a step and its commands, without those of its items, in their order."""
        return self._read(run_id, self._indexed(run_id).numbers_of(step, NO_ITEM))

    def entries_with_run(self, run_id: int, step: str, item: int = NO_ITEM) -> list[e.Entry]:
        """The same with the events of the run as a whole, and with those of one item."""
        run = self._indexed(run_id)
        numbers = [*run.numbers.get("", ()), *run.numbers_of(step, NO_ITEM)]
        if item != NO_ITEM:
            numbers += run.numbers_of(step, item)
        return self._read(run_id, sorted(numbers))

    def cost_of_items(self, run_id: int, step: str) -> Cost | None:
        """What the attempts at the items of a step cost together; None if nothing was measured."""
        return self._indexed(run_id).costs.by_step.get(step)

    def count(self, run_id: int, step: str) -> int:
        """How many events `entries` would give."""
        return len(self._indexed(run_id).numbers_of(step, NO_ITEM))

    def rounds(self, run_id: int) -> list[tuple[int, int]]:
        """The rounds behind the first one: the number of the event that opened each, and its number."""
        return list(self._indexed(run_id).rounds)

    def _indexed(self, run_id: int) -> _IndexedRun:
        run = self._runs.setdefault(run_id, _IndexedRun())
        self._runs.move_to_end(run_id)
        while len(self._runs) > RUNS_MAX:
            self._runs.popitem(last=False)
        for entry in self._reader.events(run_id, run.seq):
            run.add(entry)
        return run

    def _read(self, run_id: int, numbers: Sequence[int]) -> list[e.Entry]:
        wanted, store = frozenset(numbers), self._reader.store
        found: list[e.Entry] = []
        for first, last in _ranges(numbers):
            found += [one for one in store.log(run_id, first - 1, last - first + 1) if one.seq in wanted]
        return found


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
        # By step, in order; "" has those of the run itself. For each of them the item that it is about, if it is.
        self.numbers: dict[str, array[int]] = {}
        self.items: dict[str, array[int]] = {}
        # Of items only: there may be many of them, and a step adds them up.
        self.costs = Costs()

    def add(self, entry: e.Entry) -> None:
        self.seq = entry.seq
        if isinstance(entry.fact, e.RunReopened):
            self.rounds.append((entry.seq, entry.fact.round))
        place = place_of(entry)
        step = step_name(place)
        numbers = self.numbers.get(step)
        if numbers is None:
            numbers = self.numbers[step] = array("q")
        item = _item_of(place)
        if item != NO_ITEM and step not in self.items:
            self.items[step] = array("q", [NO_ITEM]) * len(numbers)
        if step in self.items:
            self.items[step].append(item)
        if item != NO_ITEM:
            self.costs.see(entry)
        numbers.append(entry.seq)

    def numbers_of(self, step: str, item: int) -> Sequence[int]:
        """The events of one item, or of the step itself."""
        numbers, items = self.numbers.get(step, ()), self.items.get(step)
        if items is None:
            return numbers if item == NO_ITEM else ()
        return [number for number, one in zip(numbers, items, strict=True) if one == item]


def place_of(entry: e.Entry) -> str:
    """The place that an event is about; "" for one about the whole run."""
    fact = entry.fact
    return getattr(fact, "place", "") or getattr(fact, "step", "")


def _item_of(place: str) -> int:
    _, bracket, rest = place.partition(".")[0].partition("[")
    index = rest.rstrip("]")
    return int(index) if bracket and index.isdecimal() else NO_ITEM
