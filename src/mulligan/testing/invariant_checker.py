"""Somebody who looks on while others work in a store, and asks every promise: of each run, and of the whole.

    onlooker = Onlooker(MemoryStore(shelf=shelf), lambda: look_into_memory(shelf))
    onlooker.see()          # after every step of anybody
    onlooker.verify()       # after a crash: the tables say what the logs say
    onlooker.over()         # nothing is on its way any more

Has a connection of its own, and a state of its own of each run, folded from the log alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

import msgspec

from mulligan.core.deciding.flow import remaining_start_batches
from mulligan.core.effects.snapshot import restore
from mulligan.core.evolve.evolve import evolve
from mulligan.core.model.events import Entry, RunStarted
from mulligan.core.model.graph import Graph
from mulligan.core.state.state import State
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.ports import Loaded, Store
from mulligan.testing.liveness import (
    Outside,
    promise_10_a_run_that_waits_says_for_whom,
    promise_10_the_engine_has_met_no_bug,
)
from mulligan.testing.run_invariants import (
    Promises,
    promise_7_nothing_is_queued_for_nobody,
    promise_8_a_fork_keeps_what_was_done,
    promise_8_the_line_says_what_the_log_says,
    promise_8_the_tables_say_what_the_log_says,
    promise_9_no_secret_is_told,
)
from mulligan.testing.store_contents import HeldRun, StoreContents
from mulligan.testing.store_invariants import (
    STORE_PROMISES,
    Known,
    promise_6_a_pause_goes_down_the_tree,
    promise_6_what_is_stopped_stops_its_children,
    promise_7_nobody_holds_a_run_that_is_over,
    promise_7_the_dead_are_buried,
    promise_9_no_secret_is_kept,
    promise_10_every_message_is_answered,
)
from mulligan.testing.workflows import read_workflow


class Watched(msgspec.Struct):
    """One run, as far as its log was read."""

    run_id: int
    state: State
    promises: Promises
    # What the world held for it when it was last at rest.
    outside: Outside | None = None

    @property
    def log(self) -> list[Entry]:
        return self.promises.seen.log


class InvariantChecker:
    """Asks the promises about everything in a store, as it is written. `secret` may be nowhere in `contents`."""

    def __init__(
        self,
        store: Store,
        look: Callable[[], StoreContents],
        contents: Callable[[], Iterable[bytes]] = tuple,
        secret: str = "",
        starts_at_once: int | None = None,
    ) -> None:
        self.store = store
        self.look = look
        self.contents = contents
        self.secret = secret
        self.runs: dict[int, Watched] = {}
        self.known = Known()
        # How many first steps the engines enter with one turn, where that is not what graphs say.
        self._starts_at_once = starts_at_once
        # Graphs by version of the workflow: a child that is called again has the same.
        self._graphs: dict[str, Graph] = {}

    def see(self) -> StoreContents:
        """Somebody has done something: ask about what is new."""
        held = self.look()
        for run in held.runs.values():
            self._read(run)
        for promise in STORE_PROMISES:
            promise(self.known, held)
        self.known.note(held)
        told = held.told
        for run in held.runs.values():
            if run.parent_run_id in self.runs and not told & {run.run_id, run.parent_run_id}:
                self._ask_tree(self.runs[run.parent_run_id].state, run)
        for watched in self.runs.values():
            if watched.log and watched.run_id not in told:
                self._rest(watched, held.outside(watched.run_id), held.queued(watched.run_id))
        return held

    def fetched(self, message_id: int) -> None:
        """Somebody has fetched the answer to this message: it need not be kept any more."""
        self.known.fetched.add(message_id)

    def verify(self) -> None:
        """What the store would give to whoever takes the runs up is what their logs say."""
        for watched in self.runs.values():
            loaded = self.store.load(watched.run_id)
            promise_8_the_line_says_what_the_log_says(watched.state, loaded.record)
            restored = restore(watched.state.workflow, loaded.rows, watched.state.graph)
            promise_8_the_tables_say_what_the_log_says(watched.state, restored)

    def over(self, living: Collection[str] | None = None) -> None:
        """Everything was reported: each run has ended or waits for a person, and nothing is left lying about."""
        held = self.see()
        self.verify()
        promise_10_every_message_is_answered(held)
        promise_7_nobody_holds_a_run_that_is_over(held)
        if living is not None:
            promise_7_the_dead_are_buried(held, living)
        for watched in self.runs.values():
            watched.promises.over(watched.state, held.outside(watched.run_id))
            promise_10_a_run_that_waits_says_for_whom(watched.state)
        if self.secret:
            for watched in self.runs.values():
                promise_9_no_secret_is_told(watched.log, self.secret)
            promise_9_no_secret_is_kept(self.contents(), self.secret)

    # -- looking -----------------------------------------------------------------------------------------------------

    def _read(self, run: HeldRun) -> None:
        watched = self.runs.get(run.run_id) or self._watch(run.run_id)
        if run.seq == len(watched.log):
            return
        for entry in self.store.log(run.run_id, after=len(watched.log)):
            self._ask_fork(watched, entry)
            watched.promises.see(entry)
            evolve(watched.state, entry)
        watched.outside = None

    def _ask_tree(self, parent: State, run: HeldRun) -> None:
        child = self.runs[run.run_id].state
        promise_6_what_is_stopped_stops_its_children(parent, child, run)
        promise_6_a_pause_goes_down_the_tree(parent, child, run)

    def _ask_fork(self, watched: Watched, entry: Entry) -> None:
        if isinstance(entry.fact, RunStarted) and entry.fact.forked_from in self.runs:
            original = self.runs[entry.fact.forked_from].promises.seen
            promise_8_a_fork_keeps_what_was_done(watched.promises.seen, entry, original)

    def _watch(self, run_id: int) -> Watched:
        loaded = self.store.load(run_id)
        graph = self._graphs.get(loaded.record.version) or self._graph(loaded)
        watched = self.runs[run_id] = Watched(run_id, State(graph.workflow, graph), Promises(graph.workflow, graph))
        return watched

    def _graph(self, loaded: Loaded) -> Graph:
        graph = self._graphs[loaded.record.version] = Graph(read_workflow(loaded.workflow))
        graph.starts_at_once = self._starts_at_once or graph.starts_at_once
        return graph

    def _rest(self, watched: Watched, outside: Outside, queued: list[tuple[str, int]]) -> None:
        """Nothing waits in its inbox. What has not changed since is not asked again."""
        if watched.outside == outside:
            return
        watched.outside = outside
        promise_7_nothing_is_queued_for_nobody(watched.state, queued)
        promise_10_the_engine_has_met_no_bug(watched.state)
        # More of its first steps are entered by whoever drives it, without a message.
        if not (watched.state.run.status == "running" and remaining_start_batches(watched.state)):
            watched.promises.rest(watched.state, outside)

    @property
    def has_ended(self) -> bool:
        """Whether every run has."""
        return all(watched.state.run.status in RUN_ENDED for watched in self.runs.values())
