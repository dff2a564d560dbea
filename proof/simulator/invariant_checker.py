"""Check every invariant while processes work in a store: of each run, and of the store.

    checker = InvariantChecker(MemoryStore(shelf=shelf), lambda: read_memory(shelf))
    checker.check_new()       # after every step
    checker.check_tables()    # after a crash: the tables agree with the logs
    checker.check_finished()  # when nothing is in progress any more

Has its own connection, and its own state of each run, folded from the log alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

import msgspec
from msgspec.structs import replace

from mulligan.core.deciding.flow import remaining_start_batches
from mulligan.core.effects.snapshot import restore
from mulligan.core.evolve.evolve_run import evolve
from mulligan.core.model.events import Entry, ProgramEnded, RunForked, RunRevised, RunStarted
from mulligan.core.model.graph import Graph
from mulligan.core.model.workflow import version
from mulligan.core.state.state import State
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.ports import LoadedRun, Store
from proof.invariants.liveness import (
    PendingWork,
    promise_10_a_run_that_waits_says_for_what,
    promise_10_the_engine_has_met_no_bug,
)
from proof.invariants.log_facts import LogFacts
from proof.invariants.reuse_checks import promise_12_an_approval_counts_for_its_inputs
from proof.invariants.run_invariants import (
    RunInvariants,
    promise_7_every_queued_task_has_a_place,
    promise_8_a_fork_keeps_what_was_done,
    promise_8_the_line_says_what_the_log_says,
    promise_8_the_tables_say_what_the_log_says,
    promise_9_no_secret_is_logged,
)
from proof.invariants.store_contents import NoticeRow, RunRow, StoreContents
from proof.invariants.store_invariants import (
    STORE_PROMISES,
    StoreHistory,
    promise_2_a_round_belongs_to_one_call,
    promise_6_a_pause_goes_down_the_tree,
    promise_6_what_is_stopped_stops_its_children,
    promise_7_dead_workers_are_expired,
    promise_7_no_worker_holds_a_finished_run,
    promise_9_no_secret_is_kept,
    promise_10_every_message_is_answered,
    promise_11_every_event_is_announced_once,
)
from proof.simulator.programs.oracle import promise_16_a_program_comes_to_what_its_function_comes_to
from proof.simulator.workflows import read_workflow


class CheckedRun(msgspec.Struct):
    """One run, as far as its log was read."""

    run_id: int
    state: State
    invariants: RunInvariants
    # Its pending work when it was last at rest.
    pending: PendingWork | None = None

    @property
    def log(self) -> list[Entry]:
        return self.invariants.facts.log


class InvariantChecker:
    """Check everything in a store as it is written. `secret` must not be anywhere in `contents`."""

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
        # How many first steps the engines enter with one turn, if that differs from the graph's default.
        self._starts_at_once = starts_at_once
        # Graphs by workflow version: a child that is called again has the same.
        self._graphs: dict[str, Graph] = {}

    def check_new(self) -> StoreContents:
        """Check what is new since the last call."""
        contents = self.look()
        for run in contents.runs.values():
            self._read(run)
        contents = self._with_callers(contents)
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
        """Record that the answer to this message was fetched, so that it need not be kept."""
        self.history.fetched.add(message_id)

    def check_tables(self) -> None:
        """Check that the rows from which a run is loaded agree with its log."""
        for checked in self.runs.values():
            loaded = self.store.load(checked.run_id)
            promise_8_the_line_says_what_the_log_says(checked.state, loaded.record)
            restored = restore(checked.state.workflow, loaded.rows, checked.state.graph)
            promise_8_the_tables_say_what_the_log_says(checked.state, restored)

    def check_finished(self, living: Collection[str] | None = None) -> None:
        """Check the end: each run has ended or waits for a person, and nothing is left."""
        contents = self.check_new()
        self.check_tables()
        promise_10_every_message_is_answered(contents)
        promise_7_no_worker_holds_a_finished_run(contents)
        if living is not None:
            promise_7_dead_workers_are_expired(contents, living)
        for checked in self.runs.values():
            checked.invariants.check_finished(checked.state, contents.pending_work_of(checked.run_id))
            promise_10_a_run_that_waits_says_for_what(checked.state)
            self._check_notices(checked, [one for one in contents.notices if one.run_id == checked.run_id])
        if self.secret:
            for checked in self.runs.values():
                promise_9_no_secret_is_logged(checked.log, self.secret)
            promise_9_no_secret_is_kept(self.contents(), self.secret)

    def _check_notices(self, checked: CheckedRun, notices: list[NoticeRow]) -> None:
        """Check what is announced of a run. One that was corrected may have had other rules before."""
        log = checked.log
        if not log or any(isinstance(entry.fact, RunRevised) for entry in log):
            return
        started = log[0].fact
        assert isinstance(started, RunStarted)
        own = () if started.parent_run_id is not None else checked.state.workflow.notify
        promise_11_every_event_is_announced_once(log, (*own, *started.notify), notices)

    # -- reading -----------------------------------------------------------------------------------------------------

    def facts_now(self, run_id: int) -> LogFacts | None:
        """Return what the log of a run says at this moment; None if there is no such run."""
        if run_id not in self.runs and all(record.run_id != run_id for record in self.store.runs(limit=100)):
            return None
        checked = self.runs.get(run_id) or self._checked_run(run_id)
        self._read_log(checked)
        return checked.invariants.facts

    def state_now(self, run_id: int) -> State:
        """Return the state of a run as its log gives it at this moment."""
        checked = self.runs.get(run_id) or self._checked_run(run_id)
        self._read_log(checked)
        return checked.state

    def _read(self, run: RunRow) -> None:
        checked = self.runs.get(run.run_id) or self._checked_run(run.run_id)
        if run.seq != len(checked.log):
            self._read_log(checked)

    def _read_log(self, checked: CheckedRun) -> None:
        for entry in self.store.log(checked.run_id, after=len(checked.log)):
            self._check_fork(checked, entry)
            checked.invariants.check_entry(entry)
            evolve(checked.state, entry)
            if isinstance(entry.fact, ProgramEnded):
                promise_16_a_program_comes_to_what_its_function_comes_to(checked.state, entry.fact)
        checked.pending = None

    def _with_callers(self, contents: StoreContents) -> StoreContents:
        """The contents, each child run with the attempt that waits for its last round: its row has the first one."""
        logs = {run_id: checked.invariants.facts.called.attempts for run_id, checked in self.runs.items()}
        rows = {
            run.run_id: replace(run, parent_attempt=logs[run.parent_run_id].get(run.run_id, run.parent_attempt))
            for run in contents.runs.values()
            if run.parent_run_id in logs
        }
        return replace(contents, runs={**contents.runs, **rows})

    def _check_tree(self, parent: State, run: RunRow) -> None:
        child = self.runs[run.run_id].state
        called, below = (self.runs[one].invariants.facts.called for one in (run.parent_run_id or 0, run.run_id))
        promise_2_a_round_belongs_to_one_call(called, run.run_id, below)
        promise_6_what_is_stopped_stops_its_children(parent, child, run)
        promise_6_a_pause_goes_down_the_tree(parent, child, run)

    def _check_fork(self, checked: CheckedRun, entry: Entry) -> None:
        if isinstance(entry.fact, RunStarted) and entry.fact.forked_from in self.runs:
            original = self.runs[entry.fact.forked_from].invariants.facts
            promise_8_a_fork_keeps_what_was_done(checked.invariants.facts, entry, original)
        fact = entry.fact
        forked = fact.forked_from if isinstance(fact, RunStarted) else None
        source = fact.run_id if isinstance(fact, RunForked) else forked
        if source in self.runs:
            promise_12_an_approval_counts_for_its_inputs(self.runs[source].state, checked.state, entry)

    def _checked_run(self, run_id: int) -> CheckedRun:
        loaded = self.store.load(run_id)
        graph = self._graphs.get(loaded.record.version) or self._graph(loaded)
        checked = self.runs[run_id] = CheckedRun(
            run_id, State(graph.workflow, graph), RunInvariants(graph.workflow, graph)
        )
        return checked

    def _graph(self, loaded: LoadedRun) -> Graph:
        if version(loaded.workflow) != loaded.record.version:
            raise AssertionError(f"promise 8: run {loaded.record.run_id} has the definition of another version")
        graph = self._graphs[loaded.record.version] = Graph(read_workflow(loaded.workflow))
        graph.starts_at_once = self._starts_at_once or graph.starts_at_once
        return graph

    def _check_at_rest(self, checked: CheckedRun, pending: PendingWork, queued: list[tuple[str, int]]) -> None:
        """Check a run with an empty inbox, unless nothing has changed."""
        if checked.pending == pending:
            return
        checked.pending = pending
        promise_7_every_queued_task_has_a_place(checked.state, queued)
        promise_10_the_engine_has_met_no_bug(checked.state)
        # Its driver enters more of its first steps without a message.
        if not (checked.state.run.status == "running" and remaining_start_batches(checked.state)):
            checked.invariants.check_at_rest(checked.state, pending)

    @property
    def has_ended(self) -> bool:
        """Whether every run has ended."""
        return all(checked.state.run.status in RUN_ENDED for checked in self.runs.values())
