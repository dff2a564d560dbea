"""Where the events of each step are in a log, for faces that ask about single steps of a large run again and again."""

from __future__ import annotations

from array import array
from collections import OrderedDict

from mulligan.core.model import events as e
from mulligan.core.model.place_keys import step_name
from mulligan.service.run_reader import RunReader

# How many runs are remembered.
RUNS_MAX = 16
# A step with more events is read in one go, with the events of other steps between them.
SINGLE_MAX = 100


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
        """The events of the attempts at a step, its items and its commands, in their order."""
        numbers = self._indexed(run_id).numbers.get(step)
        if not numbers:
            return []
        store = self._reader.store
        if len(numbers) <= SINGLE_MAX:
            return [one for number in numbers for one in store.log(run_id, number - 1, 1)]
        some = store.log(run_id, numbers[0] - 1, numbers[-1] - numbers[0] + 1)
        return [one for one in some if step_of(one) == step]

    def count(self, run_id: int, step: str) -> int:
        """How many events `entries` would give."""
        return len(self._indexed(run_id).numbers.get(step, ()))

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


class _IndexedRun:
    def __init__(self) -> None:
        self.seq = 0
        self.rounds: list[tuple[int, int]] = []
        self.numbers: dict[str, array[int]] = {}

    def add(self, entry: e.Entry) -> None:
        self.seq = entry.seq
        if isinstance(entry.fact, e.RunReopened):
            self.rounds.append((entry.seq, entry.fact.round))
        if step := step_of(entry):
            self.numbers.setdefault(step, array("q")).append(entry.seq)


def step_of(entry: e.Entry) -> str:
    """The step whose attempt an event is about; "" for any other event."""
    return step_name(getattr(entry.fact, "place", ""))
