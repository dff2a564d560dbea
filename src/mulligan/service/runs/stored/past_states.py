"""The states that runs had at earlier events: folded from their logs, from a copy that is kept on the way.

For faces that stay up and look at one point after the other. The fold of 100,000 events takes about a second; with the
copies the next point takes a few hundredths. A state here belongs to this cache: it may be read until the next call.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from datetime import datetime
from itertools import pairwise

from mulligan.core.evolve.evolve_run import evolve
from mulligan.core.model import events as e
from mulligan.core.model.workflow import Workflow
from mulligan.core.state.state import State
from mulligan.errors import CodecError, InputInvalid, Refused
from mulligan.history.moments import is_at_rest
from mulligan.history.story_memory import StoryMemory
from mulligan.language.garbage_collection import pause_garbage_collection
from mulligan.service.runs.stored.remembered import ReadsRuns, forget_oldest
from mulligan.service.runs.stored.run_reader import PAGE, RunReader

# A copy is kept after so many events, at first, or after as many as the run has steps; and how many places the copies
# of all runs have together, at most: about 0.5 kB each. Where there are more, every second copy is given up.
INTERVAL, PLACES_MAX = 2_000, 100_000
# How many events of a turn are known, the last ones: one that enters or skips steps may have thousands.
TURN_MAX = 200
# How many runs are remembered, and how many states of each that were asked for.
RUNS_MAX, POINTS_MAX = 4, 4


class PastRun:
    """A run after one of its events: its state, and what the story of the run remembers so far."""

    def __init__(self, state: State, memory: StoryMemory) -> None:
        self.state, self.memory = state, memory
        # The turn of that event, up to it; and what the story remembered before the first of these events.
        self.turn: list[e.Entry] = []
        self.turn_memory = memory

    @property
    def seq(self) -> int:
        return self.state.run.seq

    def copy(self) -> PastRun:
        return PastRun(self.state.copy(), self.memory.copy())

    def advance(self, entry: e.Entry) -> None:
        """Apply the next entry of the log."""
        evolve(self.state, entry)
        self.memory.update(entry.fact)


class _Copies:
    """What is remembered of one run."""

    def __init__(self, workflow: Workflow) -> None:
        self.start = PastRun(State(workflow), StoryMemory(workflow))
        # In the order of the log, each after a multiple of the interval.
        self.kept: list[PastRun] = []
        self.interval = max(INTERVAL, len(workflow.steps))
        self.points: OrderedDict[int, PastRun] = OrderedDict()

    @property
    def place_count(self) -> int:
        return sum(len(one.state.places) for one in self.kept)

    def nearest(self, seq: int) -> PastRun:
        """The last one at or before an event."""
        number = bisect_right(self.kept, seq, key=lambda one: one.seq)
        return self.kept[number - 1] if number else self.start

    def keep(self, run: PastRun) -> None:
        if run.seq % self.interval == 0 and (not self.kept or self.kept[-1].seq < run.seq):
            self.kept.append(run.copy())

    def thin_out(self) -> None:
        """Give up every second copy."""
        self.interval *= 2
        self.kept = [one for one in self.kept if one.seq % self.interval == 0]


class PastStates(ReadsRuns):
    """States of runs by event."""

    def __init__(self, reader: RunReader) -> None:
        super().__init__(reader)
        # The run that was asked for last is the last.
        self._runs: OrderedDict[int, _Copies] = OrderedDict()

    def at(self, run_id: int, seq: int) -> PastRun:
        """The run as it was after this event, with the definition that it had then."""
        self.check(run_id, seq)
        copies = self._copies(run_id)
        found = copies.points.pop(seq, None)
        if found is None:
            with pause_garbage_collection():
                found = self._folded(copies, run_id, seq)
        copies.points[seq] = found
        forget_oldest(copies.points, POINTS_MAX, PLACES_MAX, lambda one: len(one.state.places))
        return found

    def is_at_rest(self, run_id: int, seq: int) -> bool:
        """Whether a turn of the run ended with this event."""
        entry, *following = self._reader.store.log(run_id, seq - 1, 2)
        return is_at_rest(entry, following[0] if following else None)

    def last_rest(self, run_id: int, seq: int) -> int:
        """The last event at or before this one with which a turn of the run ended; 0 if there is none."""
        if self.is_at_rest(run_id, seq):
            return seq
        while seq > 1:
            # A turn may be of any length. The first of a page is the last of the page before it.
            entries = self._reader.store.log(run_id, max(0, seq - TURN_MAX), min(seq, TURN_MAX))
            ends = (one.seq for one, two in pairwise(entries) if is_at_rest(one, two))
            if found := max(ends, default=0):
                return found
            seq = entries[0].seq
        return 0

    def start(self, run_id: int) -> PastRun:
        """The run before its first event, for a caller that moves it on by itself."""
        self._reader.record(run_id)
        return self._copies(run_id).start.copy()

    def check(self, run_id: int, seq: int) -> int:
        """The number of the last event of the run. Refuses an event that the run does not have."""
        last = self._reader.record(run_id).seq
        if not last:
            raise Refused(f"run {run_id} has not started yet, so it has no events")
        if not 1 <= seq <= last:
            hint = f"list them: mulligan events {run_id}"
            raise InputInvalid(f"run {run_id} has the events 1 to {last:,}, and none with the number {seq}", hint=hint)
        return last

    def last_before(self, run_id: int, at: datetime) -> int:
        """The number of the last event at or before a time. Refuses a time before the run started."""
        low, high = 0, self.check(run_id, 1)
        # The times in a log never go back.
        while low < high:
            middle = (low + high + 1) // 2
            (entry,) = self._reader.store.log(run_id, middle - 1, 1)
            low, high = (middle, high) if entry.at <= at else (low, middle - 1)
        if not low:
            started = self._reader.store.log(run_id, limit=1)[0].at
            raise InputInvalid(f"run {run_id} started after that, at {started:%Y-%m-%d %H:%M:%S} UTC")
        return low

    def _folded(self, copies: _Copies, run_id: int, seq: int) -> PastRun:
        turn = self._turn(run_id, seq)
        before = turn[0].seq - 1
        near = [one for one in copies.points.values() if one.seq <= before]
        run = max((copies.nearest(before), *near), key=lambda one: one.seq).copy()
        while run.seq < before:
            page = self._reader.store.log(run_id, run.seq, min(PAGE, before - run.seq))
            if not page:
                raise CodecError(f"the log of run {run_id} ends with event {run.seq}")
            for entry in page:
                run.advance(entry)
                copies.keep(run)
            self._make_room()
        run.turn, run.turn_memory = turn, run.memory.copy()
        for entry in turn:
            run.advance(entry)
            copies.keep(run)
        return run

    def _turn(self, run_id: int, seq: int) -> list[e.Entry]:
        """The events of a turn up to this one, the last ones if there are many."""
        entries = self._reader.store.log(run_id, max(0, seq - TURN_MAX), min(seq, TURN_MAX))
        first = len(entries) - 1
        while first > 0 and not is_at_rest(entries[first - 1], entries[first]):
            first -= 1
        return entries[first:]

    def _copies(self, run_id: int) -> _Copies:
        found = self._runs.pop(run_id, None)
        if found is None:
            found = _Copies(self._reader.first_workflow(run_id))
        self._runs[run_id] = found
        forget_oldest(self._runs, RUNS_MAX)
        return found

    def _make_room(self) -> None:
        """Forget other runs first, then every second copy of the run that was asked for."""
        while sum(one.place_count for one in self._runs.values()) > PLACES_MAX:
            if len(self._runs) > 1:
                self._runs.popitem(last=False)
            else:
                next(iter(self._runs.values())).thin_out()
