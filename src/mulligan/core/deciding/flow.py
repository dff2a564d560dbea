"""What the end of a step means for the graph: which steps start, which never will, what a remediation repaired."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from mulligan.core.deciding.agents.triage_agent import default_due
from mulligan.core.deciding.ladder import delay_seconds
from mulligan.core.deciding.lifecycle import NOTHING, Facts, add_location, enter_and_fail, schedule
from mulligan.core.deciding.programs import after_call, cancel_open_calls
from mulligan.core.deciding.routes import has_no_route, success_edges
from mulligan.core.evolve.arrivals import is_met
from mulligan.core.model import events as e
from mulligan.core.model.failure import failure
from mulligan.core.model.graph import Arc, Barrier, Node
from mulligan.core.model.workflow import END
from mulligan.core.state.not_begun import count_not_begun
from mulligan.core.state.scope import DecisionContext
from mulligan.core.state.state import FailureRecord, Place, State
from mulligan.core.state.verdict import is_handled, open_failures, verdict
from mulligan.core.state.visit_limits import is_beyond_limit
from mulligan.core.state.workspace import awaits_worktree, opens_worktree
from mulligan.errors import ExpressionFailed

# -- which steps may start ------------------------------------------------------------------------------


def readiness(state: State, place: Place) -> str:
    """Whether a waiting step may start: "enter", "" (not yet), or the reason why it never will."""
    if awaits_worktree(state) and not opens_worktree(state, place.key):
        return ""
    if place.program is not None and (place.program.leaving or place.program.not_undone):
        # What it drops is undone first: see `converge`.
        return ""
    node = state.graph.nodes[place.key]
    if place.has_dead_need:
        return "need_unmet"
    if node.arrivals:
        missing = _join_readiness(place, node.step.join)
        if missing != "enter":
            return missing
    return "" if place.open_needs else "enter"


def _join_readiness(place: Place, join: str) -> str:
    """Readiness by arrivals alone. `any` waits until all are decided; `first` and `each` start at the first."""
    if join == "all":
        return "no_arrival" if place.dead_arrivals else "" if place.open_arrivals else "enter"
    arrived = bool(place.queue) if join == "each" else place.taken_arrivals > 0
    if join == "any" and place.open_arrivals:
        return ""
    return "enter" if arrived else "" if place.open_arrivals else "no_arrival"


def wake(now: DecisionContext, name: str) -> Facts:
    """Start, skip or reconsider a step whose needs or arrivals have changed."""
    if now.state.run.stop is not None:
        return NOTHING
    place = now.state.places[name]
    if place.status == "waiting":
        answer = readiness(now.state, place)
        if answer == "enter":
            return enter(now, place) if now.state.workflow.max_parallel is None else NOTHING
        return iter((skip_step(place, answer),)) if answer else NOTHING
    return _reconsider(now, place) if place.has_ended else NOTHING


def is_at_max_parallel(state: State) -> bool:
    """Whether the run has as many active steps as `max_parallel` allows."""
    most = state.workflow.max_parallel
    return most is not None and state.run.active - _active_programs(state) >= most


def _active_programs(state: State) -> int:
    """How many of the active steps are programs: they wait for others, and take no slot of `max_parallel`."""
    program = state.places.get(state.graph.program)
    return int(program is not None and program.is_active)


def waits_for_slot(state: State, place: Place) -> bool:
    """Whether a step is ready to start and waits only for a free slot of `max_parallel`."""
    return is_at_max_parallel(state) and may_enter(state, place)


def enter_free_slots(now: DecisionContext) -> Facts:
    """With `max_parallel`: enter steps that are ready, in file order, while there are free slots.

    It looks at every step, so such a workflow has a bounded number of steps (`MAX_PARALLEL_STEPS`).
    """
    if now.state.workflow.max_parallel is None or now.state.run.stop is not None:
        return
    for place in list(now.state.steps()):
        if is_at_max_parallel(now.state):
            return
        # A paused step does not take a slot from another: it is entered only when nothing else is active or ready.
        if may_enter(now.state, place) and (place.pause is None or not _has_unpaused_work(now.state)):
            yield from enter(now, place)


def _has_unpaused_work(state: State) -> bool:
    """Whether a step is active, or ready and not paused."""
    return state.run.active > 0 or any(place.pause is None and may_enter(state, place) for place in state.steps())


def wake_starts(now: DecisionContext, begin: int) -> Facts:
    """Wake one batch of the steps that a run enters first, from index `begin` on."""
    graph, places = now.state.graph, now.state.places
    for name in graph.starts[begin : begin + graph.starts_at_once]:
        if places[name].status == "waiting":
            yield from wake(now, name)


def remaining_start_batches(state: State) -> range:
    """The indexes at which the batches of start steps begin that were not woken yet."""
    graph = state.graph
    if len(graph.starts) <= graph.starts_at_once:
        return range(0)
    waiting = (i for i, name in enumerate(graph.starts) if state.status_of(name) == "waiting")
    enterable = (i for i in waiting if may_enter(state, state.places[graph.starts[i]]))
    return range(next(enterable, len(graph.starts)), len(graph.starts), graph.starts_at_once)


def may_enter(state: State, place: Place) -> bool:
    """Whether a step that waits may start now."""
    return place.status == "waiting" and readiness(state, place) == "enter"


def _reconsider(now: DecisionContext, place: Place) -> Facts:
    """An ended step got another arrival, or can no longer get one."""
    if _awaits_remediation(now.state, place):
        if _has_no_remediation(now.state, place):
            yield e.StepSettled(place.key, "failed")
        return
    if place.queue:
        yield e.StepPutBack(place.key, "arrival", place.queue[0].rpartition("#")[0])
    elif not place.settled and place.loop_edge is None and now.state.graph.nodes[place.key].step.join == "each":
        arcs = now.state.graph.nodes[place.key].arrivals
        if all(now.state.arcs.get(arc.key) in ("taken", "dead") for arc in arcs):
            yield e.StepSettled(place.key, _outcome(now.state, place))


def _awaits_remediation(state: State, place: Place) -> bool:
    """Whether its last failure was routed to a remediation that may still rerun it or replace it."""
    if place.status != "failed" or place.settled or place.failure_index is None:
        return False
    return bool(state.failures[place.failure_index].then)


def _has_no_remediation(state: State, place: Place) -> bool:
    """Whether its failure was routed to a step that will not be visited for it."""
    return place.failure_index is not None and is_handled(state, state.failures[place.failure_index]) is False


def _outcome(state: State, place: Place) -> str:
    """The outcome of the last visit of a step that settles now."""
    record = None if place.failure_index is None else state.failures[place.failure_index]
    return "allowed" if record is not None and record.is_allowed and not record.target else place.status


def skip_step(place: Place, reason: str) -> e.Fact:
    """Skip a step, or, if a loop put it back, restore its status from before."""
    return e.StepRestored(place.key, reason) if place.last_status else e.StepSkipped(place.key, reason)


def enter(now: DecisionContext, place: Place) -> Facts:
    """Start a new visit, unless `when` is false. The visit beyond max_visits fails at once and is the last."""
    step = now.state.graph.nodes[place.key].step
    workspace = now.state.workflow.workspace
    if workspace is not None and place.key == workspace.closes and verdict(now.state) != "completed":
        return iter((skip_step(place, "unsuccessful"),))
    if is_beyond_limit(now.state, place):
        return iter((skip_step(place, "loop_limit"),))
    try:
        if step.when is not None and not now.condition(step.when, place):
            return iter((skip_step(place, "when"),))
    except ExpressionFailed as error:
        return enter_and_fail(now, place, failure(error.failure_code, error.message))
    return _enter_and_schedule(now, place)


def _enter_and_schedule(now: DecisionContext, place: Place) -> Facts:
    asks = asks_after_failed_undo(now.state, place)
    yield e.StepEntered(place.key, place.visit + 1)
    if asks:
        yield _park_after_failed_undo(now, place)
    else:
        yield from schedule(now, place, "entered")


def asks_after_failed_undo(state: State, place: Place) -> bool:
    """Whether a person decides if a step runs again whose undo has failed: in the first visit of a round, with triage.

    Without triage the round is refused, see `rounds`.
    """
    is_first = place.visit == place.visits_before
    may_ask = place.has_failed_undo and not state.run.is_forced and is_first
    return may_ask and state.step(place.key).triage is not None


def _park_after_failed_undo(now: DecisionContext, place: Place) -> e.StepParked:
    policy = now.state.step(place.key).triage
    assert policy is not None
    message = "it would run again, but its undo failed: what it did may still be in effect"
    found = add_location(now, place, failure("UNDO_FAILED", message))
    return e.StepParked(place.key, place.visit, place.attempt, found, "undo_failed", due=default_due(now, policy))


# -- when a step has ended ------------------------------------------------------------------------------


def after_end(now: DecisionContext, name: str, visit: int) -> Facts:
    """Everything that follows from the end of a visit, or from skipping it."""
    state = now.state
    place, node = state.places[name], state.graph.nodes[name]
    # Computed first: another member that ends in a consequence would hide that this one broke a barrier.
    barriers = _decided_barriers(state, node, place.settled) if node.barriers and place.settled else ()
    # Without failures there is no fail-fast and no remediation.
    if state.failures:
        yield from fail_fast(now, name, visit)
        yield from _after_remediation(now, place, visit)
    if place.loop_edge is not None and place.has_ended and state.run.stop is None:
        arc = state.graph.arc(name, place.loop_edge)
        if arc.key not in state.run.loops:
            yield _loop_taken(now, arc)
    yield from _wake_dependents(now, node, place, barriers)
    if state.calls:
        if name in state.calls:
            yield from after_call(now, name)
        elif name == state.graph.program and place.has_ended and state.run.stop is None:
            yield from cancel_open_calls(now)
    # A settled step without queued arrivals needs nothing more: nearly all of them.
    if (place.queue or not place.settled) and place.has_ended and state.run.stop is None:
        yield from _reconsider(now, place)


def _decided_barriers(state: State, node: Node, settled: str) -> list[Barrier]:
    """The barriers that the end of this step opened or broke. Each is decided once, so its targets wake once."""
    found = []
    for barrier in node.barriers:
        unsettled, bad = state.barriers[barrier.key]
        if (bad == 1 and not is_met(barrier.on, settled)) or (unsettled == 0 and bad == 0):
            found.append(barrier)
    return found


def after_passing_over(now: DecisionContext, name: str) -> Facts:
    """Failures routed to the visit that did not happen are unhandled; with `join: each`, to any of its visits."""
    place = now.state.places[name]
    visits = len(now.state.graph.nodes[name].arrivals) if now.state.step(name).join == "each" else 1
    for behind in range(visits, 1, -1):
        yield from fail_fast(now, name, place.visit + behind)
        yield from _after_remediation(now, place, place.visit + behind)
    yield from after_end(now, name, place.visit + 1)


def _wake_dependents(now: DecisionContext, node: Node, place: Place, barriers: Iterable[Barrier]) -> Facts:
    """Wake the steps that an edge, a need or a barrier connects to this one."""
    for arc in node.arcs:
        if arc.to != END and not arc.is_loop:
            yield from wake(now, arc.to)
    if not place.settled:
        return
    for target, _ in node.dependents:
        yield from wake(now, target)
    for barrier in barriers:
        for target in barrier.targets:
            yield from wake(now, target)


def wake_after_kept(now: DecisionContext, names: Iterable[str]) -> Facts:
    """Wake the steps that depend on results taken over by a fork, for all of these at once."""
    for name in names:
        yield from _wake_dependents(now, now.state.graph.nodes[name], now.state.places[name], ())
    for key, barrier in now.state.graph.barriers.items():
        unsettled, bad = now.state.barriers[key]
        if bad or not unsettled:
            for target in barrier.targets:
                yield from wake(now, target)


def _loop_taken(now: DecisionContext, arc: Arc) -> e.LoopTaken:
    number = now.state.run.loops_taken.get(arc.key, 0) + 1
    seed = f"{now.state.run.run_id}:{arc.key}:{number}"
    due = now.at + timedelta(seconds=delay_seconds(arc.edge.backoff, number, seed, {}))
    return e.LoopTaken(arc.source, arc.edge.index, to=arc.to, number=number, due=due)


# -- remediation ------------------------------------------------------------------------------


def _after_remediation(now: DecisionContext, fix: Place, visit: int) -> Facts:
    """The visit that failures were routed to has ended: rerun their sources, replace them, or settle them."""
    is_open = now.state.run.stop is None and fix.visit == visit
    if is_open and (_awaits_remediation(now.state, fix) or fix.loop_edge is not None):
        # It awaits its own remediation, or goes back in a loop: the outcome of that decides.
        return
    # Computed first: a source that fails again at once may visit the fix again, or stop the run.
    is_repaired, output = is_open and (fix.status == "completed" or fix.settled == "stood_in"), fix.output
    for record in now.state.failures_routed_to(fix.key, visit):
        if record.is_closed:
            # Its step runs again, or a corrected definition has no such step.
            continue
        source = now.state.places[record.step]
        if source.visit != record.visit or source.loop_edge is not None or not _awaits_remediation(now.state, source):
            continue
        if not is_repaired or now.state.run.stop is not None:
            yield e.StepSettled(source.key, "failed")
        elif record.then == "rerun":
            yield e.StepPutBack(source.key, "rerun", fix.key)
        else:
            yield _stand_in(now, source, record=record, by=fix.key, output=output)


def _stand_in(now: DecisionContext, source: Place, record: FailureRecord, by: str, output: Any) -> e.Fact:
    """The fix takes the success edges of the source; if none can be chosen, the source has failed."""
    try:
        # The always edges were taken when the source failed.
        taken = success_edges(now, source, output, with_always=False)
    except ExpressionFailed as error:
        return _cannot_stand_in(now, source, record=record, code=error.failure_code, message=error.message)
    no_route = has_no_route(now, source, taken)
    if no_route and now.state.step(source.key).no_match == "fail":
        return _cannot_stand_in(
            now, source, record=record, code="NO_ROUTE", message="the condition of none of its success edges holds"
        )
    return e.StepReplaced(source.key, by, output=output, taken=taken, no_route=no_route)


def _cannot_stand_in(
    now: DecisionContext, source: Place, record: FailureRecord, code: str, message: str
) -> e.StepSettled:
    found = add_location(now, source, failure(code, message, cause=(record.failure,)))
    return e.StepSettled(source.key, "failed", found)


def fail_fast(now: DecisionContext, name: str, visit: int) -> Facts:
    """Stop the run if a failure is unhandled now: of this visit, or one that was routed to it without success."""
    yield from _stop_if_required(now, _unhandled_chain(now.state, name, visit))


def fail_fast_after_pause(now: DecisionContext) -> Facts:
    """Fail-fast for failures that became unhandled during a pause. A paused run starts no cleanup, undo or `end`."""
    state = now.state
    open_ = (record for record in open_failures(state) if not record.is_allowed)
    yield from _stop_if_required(now, (record for record in open_ if is_handled(state, record) is False))


def stop_without_worktree(now: DecisionContext) -> Facts:
    """Stop a run whose worktree could not be opened: its other steps have no folder to work in."""
    state = now.state
    if not awaits_worktree(state) or state.run.status == "paused" or state.workflow.workspace is None:
        return
    place = state.places[state.workflow.workspace.opens]
    if place.status == "failed" and place.failure is not None:
        reason = f"{place.failure.code} in '{place.key}'"
        yield e.RunStopping("failed_fast", reason=reason, not_begun=count_not_begun(state))


def _stop_if_required(now: DecisionContext, records: Iterable[FailureRecord]) -> Facts:
    run = now.state.run
    if run.stop is not None or run.status == "paused":
        return
    for record in records:
        policy = now.state.step(record.step).fail_fast or now.state.workflow.fail_fast
        if policy == "never":
            continue
        if policy == "always" or record.failure.severity == "critical":
            reason = f"{record.failure.code} in '{record.step}'"
            yield e.RunStopping("failed_fast", reason=reason, not_begun=count_not_begun(now.state))
            return


def _unhandled_chain(state: State, name: str, visit: int) -> Iterable[FailureRecord]:
    """The unhandled failures among that of this visit, those routed to it, those routed to these, and so on."""
    place = state.places[name]
    if place.status == "failed" and place.failure_index is not None:
        record = state.failures[place.failure_index]
        if not record.is_allowed and is_handled(state, record) is False:
            yield record
    # A list that grows while it is walked, since a chain of remediations may be deeper than Python's stack.
    sent = state.failures_routed_to(name, visit)
    for record in sent:
        # A closed one does not count any more: its step runs again, or a corrected definition has no such step.
        if not (record.is_closed or record.is_allowed) and is_handled(state, record) is False:
            yield record
            sent += state.failures_routed_to(record.step, record.visit)
