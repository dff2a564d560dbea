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

from mulligan.core.deciding.flow import unwoken
from mulligan.core.effects.snapshot import restore
from mulligan.core.evolve.evolve import evolve
from mulligan.core.model.events import Entry, RunStarted
from mulligan.core.model.graph import Graph
from mulligan.core.state.state import State
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.ports import Loaded, Store
from mulligan.testing.liveness import (
    PendingWork,
    promise_10_a_run_that_waits_says_for_whom,
    promise_10_the_engine_has_met_no_bug,
)
from mulligan.testing.run_invariants import (
    RunInvariants,
    promise_7_nothing_is_queued_for_nobody,
    promise_8_a_fork_keeps_what_was_done,
    promise_8_the_line_says_what_the_log_says,
    promise_8_the_tables_say_what_the_log_says,
    promise_9_no_secret_is_told,
)
from mulligan.testing.store_contents import RunRow, StoreContents
from mulligan.testing.store_invariants import (
    STORE_PROMISES,
    StoreHistory,
    promise_6_a_pause_goes_down_the_tree,
    promise_6_what_is_stopped_stops_its_children,
    promise_7_nobody_holds_a_run_that_is_over,
    promise_7_the_dead_are_buried,
    promise_9_no_secret_is_kept,
    promise_10_every_message_is_answered,
)
from mulligan.testing.workflows import read_workflow


class CheckedRun(msgspec.Struct):
    """One run, as far as its log was read."""

    run_id: int
    state: State
    invariants: RunInvariants
    # What the world held for it when it was last at rest.
    pending: PendingWork | None = None

    @property
    def log(self) -> list[Entry]:
        return self.invariants.facts.log


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
        self.runs: dict[int, CheckedRun] = {}
        self.history = StoreHistory()
        # How many first steps the engines enter with one turn, where that is not what graphs say.
        self._starts_at_once = starts_at_once
        # Graphs by version of the workflow: a child that is called again has the same.
        self._graphs: dict[str, Graph] = {}

    def check_new(self) -> StoreContents:
        """Somebody has done something: ask about what is new."""
        contents = self.look()
        for run in contents.runs.values():
            self._read(run)
        for promise in STORE_PROMISES:
            promise(self.history, contents)
        self.history.record(contents)
        unread = contents.run_ids_with_messages
        for run in contents.runs.values():
            if run.parent_run_id in self.runs and not unread & {run.run_id, run.parent_run_id}:
                self._check_tree(self.runs[run.parent_run_id].state, run)
        for checked in self.runs.values():
            if checked.log and checked.run_id not in unread:
                self._check_at_rest(checked, contents.pending_work_of(checked.run_id), contents.queued(checked.run_id))
        return contents

    def note_fetched(self, message_id: int) -> None:
        """Somebody has fetched the answer to this message: it need not be kept any more."""
        self.history.fetched.add(message_id)

    def check_tables(self) -> None:
        """What the store would give to whoever takes the runs up is what their logs say."""
        for checked in self.runs.values():
            loaded = self.store.load(checked.run_id)
            promise_8_the_line_says_what_the_log_says(checked.state, loaded.record)
            restored = restore(checked.state.workflow, loaded.rows, checked.state.graph)
            promise_8_the_tables_say_what_the_log_says(checked.state, restored)

    def check_finished(self, living: Collection[str] | None = None) -> None:
        """Everything was reported: each run has ended or waits for a person, and nothing is left lying about."""
        contents = self.check_new()
        self.check_tables()
        promise_10_every_message_is_answered(contents)
        promise_7_nobody_holds_a_run_that_is_over(contents)
        if living is not None:
            promise_7_the_dead_are_buried(contents, living)
        for checked in self.runs.values():
            checked.invariants.check_finished(checked.state, contents.pending_work_of(checked.run_id))
            promise_10_a_run_that_waits_says_for_whom(checked.state)
        if self.secret:
            for checked in self.runs.values():
                promise_9_no_secret_is_told(checked.log, self.secret)
            promise_9_no_secret_is_kept(self.contents(), self.secret)

    # -- looking -----------------------------------------------------------------------------------------------------

    def _read(self, run: RunRow) -> None:
        checked = self.runs.get(run.run_id) or self._checked_run(run.run_id)
        if run.seq == len(checked.log):
            return
        for entry in self.store.log(run.run_id, after=len(checked.log)):
            self._check_fork(checked, entry)
            checked.invariants.check_entry(entry)
            evolve(checked.state, entry)
        checked.pending = None

    def _check_tree(self, parent: State, run: RunRow) -> None:
        child = self.runs[run.run_id].state
        promise_6_what_is_stopped_stops_its_children(parent, child, run)
        promise_6_a_pause_goes_down_the_tree(parent, child, run)

    def _check_fork(self, checked: CheckedRun, entry: Entry) -> None:
        if isinstance(entry.fact, RunStarted) and entry.fact.forked_from in self.runs:
            original = self.runs[entry.fact.forked_from].invariants.facts
            promise_8_a_fork_keeps_what_was_done(checked.invariants.facts, entry, original)

    def _checked_run(self, run_id: int) -> CheckedRun:
        loaded = self.store.load(run_id)
        graph = self._graphs.get(loaded.record.version) or self._graph(loaded)
        checked = self.runs[run_id] = CheckedRun(
            run_id, State(graph.workflow, graph), RunInvariants(graph.workflow, graph)
        )
        return checked

    def _graph(self, loaded: Loaded) -> Graph:
        graph = self._graphs[loaded.record.version] = Graph(read_workflow(loaded.workflow))
        graph.starts_at_once = self._starts_at_once or graph.starts_at_once
        return graph

    def _check_at_rest(self, checked: CheckedRun, pending: PendingWork, queued: list[tuple[str, int]]) -> None:
        """Nothing waits in its inbox. What has not changed since is not asked again."""
        if checked.pending == pending:
            return
        checked.pending = pending
        promise_7_nothing_is_queued_for_nobody(checked.state, queued)
        promise_10_the_engine_has_met_no_bug(checked.state)
        # More of its first steps are entered by whoever drives it, without a message.
        if not (checked.state.run.status == "running" and unwoken(checked.state)):
            checked.invariants.check_at_rest(checked.state, pending)

    @property
    def has_ended(self) -> bool:
        """Whether every run has."""
        return all(checked.state.run.status in RUN_ENDED for checked in self.runs.values())
