"""The states of runs that are looked at again and again: loaded once, then moved on by their logs.

For faces that stay up. A state here belongs to the cache: it may be read until the next call, and never be changed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from weakref import WeakValueDictionary

from mulligan.core.effects.snapshot import restore
from mulligan.core.evolve.evolve_run import evolve
from mulligan.core.model import events as e
from mulligan.core.model.graph import Graph
from mulligan.core.model.place_keys import step_name
from mulligan.core.model.workflow import decode
from mulligan.core.state.state import State
from mulligan.engine.integrity import refuse_damaged
from mulligan.errors import MulliganError
from mulligan.language.garbage_collection import pause_garbage_collection
from mulligan.service.logs.log_lines import CountedLogs
from mulligan.service.runs.stored.event_index import EventIndex
from mulligan.service.runs.stored.past_states import PastStates
from mulligan.service.runs.stored.remembered import ReadsRuns, forget_oldest
from mulligan.service.runs.stored.run_reader import RunReader
from mulligan.service.runs.stored.step_events import StepEvents
from mulligan.service.runs.views.run_timeline import Timelines

# How many events a state is moved on by; behind more of them it is loaded again.
ENTRIES_MAX = 5_000
# How many runs are kept, about 10 kB each with their definition; and how many places all of them together may have,
# about 2 kB each. The run that was asked for last always stays.
RUNS_MAX, PLACES_MAX = 500, 100_000


class Definition:
    """The workflow of a version and its graph: all runs of that version which are kept share it."""

    def __init__(self, workflow: bytes) -> None:
        self.workflow = decode(workflow)
        self.graph = Graph(self.workflow)


class CachedRun:
    """The state of a run at one event, and which steps have changed since it was loaded."""

    def __init__(self, state: State, definition: Definition) -> None:
        self.state = state
        # What it was started with. It is forgotten with the last run that was.
        self.definition = definition
        # What changed before this event is not known.
        self.known_since = state.run.seq
        self._changed_at: dict[str, int] = {}
        # Of the graph that it was made for.
        self._positions: tuple[object, dict[str, int]] | None = None
        # The statuses of the items of maps, each as of an event: a table of them asks for one page after the other.
        self._item_statuses: dict[str, tuple[int, list[str]]] = {}

    def item_statuses(self, step: str, find: Callable[[], list[str]]) -> list[str]:
        """The status of each item of a map step, or of each step of a matrix, as of now."""
        seq, found = self._item_statuses.get(step, (-1, []))
        if seq != self.seq:
            found = find()
            self._item_statuses[step] = self.seq, found
        return found

    @property
    def positions(self) -> dict[str, int]:
        """The number of each step in the order of the file, from 0."""
        nodes = self.state.graph.nodes
        if self._positions is None or self._positions[0] is not nodes:
            self._positions = nodes, {name: number for number, name in enumerate(nodes)}
        return self._positions[1]

    @property
    def seq(self) -> int:
        return self.state.run.seq

    def changed_since(self, seq: int) -> list[str] | None:
        """The steps that have changed after this event, perhaps a few more; None if that is not known."""
        if not self.known_since <= seq <= self.seq:
            return None
        return [name for name, at in self._changed_at.items() if at > seq]

    def advance(self, entries: list[e.Entry]) -> None:
        """Apply the next entries of the log."""
        self.state.begin()
        for entry in entries:
            evolve(self.state, entry)
        for name in _changed_steps(self.state):
            self._changed_at[name] = self.seq
        self.state.commit()
        if any(isinstance(entry.fact, e.RunStarted | e.RunRevised) for entry in entries):
            # All steps are new.
            self.known_since, self._changed_at = self.seq, {}


def _changed_steps(state: State) -> Iterator[str]:
    """The steps whose line in a list may have changed since `begin`."""
    for table, key in state.changed_entries():
        if table == "places":
            yield step_name(key)
        elif table == "failures" and key < len(state.failures):
            yield state.failures[key].step


class RunCache(ReadsRuns):
    """States by run, each at its newest event when it is asked for."""

    def __init__(self, reader: RunReader) -> None:
        super().__init__(reader)
        # The one that was asked for last is the last.
        self._runs: OrderedDict[int, CachedRun] = OrderedDict()
        # By version, those of the runs that are kept.
        self._definitions: WeakValueDictionary[tuple[str, str], Definition] = WeakValueDictionary()
        # The events of single steps, and where those of all steps are.
        self.step_events = StepEvents(reader)
        self.index = EventIndex(reader)
        # When the steps ran.
        self.timelines = Timelines(reader)
        # The states at earlier events.
        self.past = PastStates(reader)
        # How many lines the logs have that are looked at.
        self.counted_logs: CountedLogs = OrderedDict()

    def seen_by(self, reader: RunReader) -> RunCache:
        """The same states for another reader, which may know fewer runs."""
        other = super().seen_by(reader)
        other.step_events = self.step_events.seen_by(reader)
        other.index = self.index.seen_by(reader)
        other.timelines = self.timelines.seen_by(reader)
        other.past = self.past.seen_by(reader)
        return other

    def has(self, run_id: int) -> bool:
        """Whether the run is here already, so that it takes little time to read it."""
        return run_id in self._runs

    def get(self, run_id: int) -> CachedRun:
        """The run as it is now. `UnknownRun` if there is none."""
        seq = self._reader.record(run_id).seq
        found = self._runs.pop(run_id, None)
        if found is not None and found.seq != seq:
            found = self._advanced(found, run_id, seq)
        if found is None:
            found = self._loaded(run_id)
        self._runs[run_id] = found
        forget_oldest(self._runs, RUNS_MAX, PLACES_MAX, lambda run: len(run.state.places))
        return found

    def _advanced(self, found: CachedRun, run_id: int, seq: int) -> CachedRun | None:
        """The same state, moved on; None if it has to be loaded."""
        if not 0 < seq - found.seq <= ENTRIES_MAX:
            return None
        try:
            found.advance(self._reader.store.log(run_id, found.seq, ENTRIES_MAX))
        except (MulliganError, LookupError, AssertionError):
            # The log and the tables of a store that was changed by hand may disagree: `show` says so.
            return None
        return found

    def _loaded(self, run_id: int) -> CachedRun:
        with pause_garbage_collection():
            loaded = self._reader.store.load(run_id)
            key = loaded.record.project, loaded.record.version
            definition = self._definitions.get(key)
            if definition is None:
                definition = self._definitions[key] = Definition(loaded.workflow)
            state = restore(definition.workflow, loaded.rows, definition.graph)
            refuse_damaged(loaded.record, state)
            return CachedRun(state, definition)
