"""The graph in motion: when a step has ended, who may start, who never will, and what was repaired."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from mulligan.core.deciding.ladder import delay_seconds
from mulligan.core.deciding.lifecycle import NOTHING, Facts, located, schedule
from mulligan.core.deciding.routes import has_no_route, success_edges
from mulligan.core.evolve.arrivals import is_beyond_limit, is_met
from mulligan.core.model import events as e
from mulligan.core.model.failure import failure
from mulligan.core.model.graph import Arc, Barrier, Node
from mulligan.core.model.workflow import END
from mulligan.core.state.scope import Now
from mulligan.core.state.state import FailureRecord, Place, State
from mulligan.core.state.verdict import is_handled, open_failures
from mulligan.errors import ExpressionFailed

# -- who may start ------------------------------------------------------------------------------


def readiness(state: State, place: Place) -> str:
    """Of a waiting step: "enter", "" (not yet), or the reason why it never will."""
    node = state.graph.nodes[place.key]
    if place.has_dead_need:
        return "need_unmet"
    if node.arrivals:
        missing = _join(place, node.step.join)
        if missing != "enter":
            return missing
    return "" if place.open_needs else "enter"


def _join(place: Place, join: str) -> str:
    """What the arrivals say. `any` waits for all to be decided; `first` and `each` go at the first."""
    if join == "all":
        return "no_arrival" if place.dead_arrivals else "" if place.open_arrivals else "enter"
    arrived = bool(place.queue) if join == "each" else place.taken_arrivals > 0
    if join == "any" and place.open_arrivals:
        return ""
    return "enter" if arrived else "" if place.open_arrivals else "no_arrival"


def wake(now: Now, name: str) -> Facts:
    """Look at a step whose needs or arrivals have changed."""
    if now.state.run.stop is not None:
        return NOTHING
    place = now.state.places[name]
    if place.status == "waiting":
        answer = readiness(now.state, place)
        if answer == "enter":
            return enter(now, place) if now.state.workflow.max_parallel is None else NOTHING
        return iter((pass_over(place, answer),)) if answer else NOTHING
    return _look_again(now, place) if place.has_ended else NOTHING


def is_full(state: State) -> bool:
    """Whether the run has as many steps under way as it may have at a time."""
    most = state.workflow.max_parallel
    return most is not None and state.run.active >= most


def is_held(state: State, place: Place) -> bool:
    """Whether a waiting step has to wait for room, and will be found when there is some."""
    return is_full(state) and _may_enter(state, place)


def enter_held(now: Now) -> Facts:
    """Where only so many steps may be under way at a time: those that may start, while there is room for them.

    In the order of the file, whatever the order in which they came to it. Each is looked at, so such a workflow has
    a bounded number of steps (`STEPS_HELD_MAX`).
    """
    if now.state.workflow.max_parallel is None or now.state.run.stop is not None:
        return
    for place in list(now.state.steps()):
        if is_full(now.state):
            return
        # One that somebody holds takes no other's place: it is entered where nothing else is under way.
        if _may_enter(now.state, place) and (place.pause is None or not _has_other(now.state)):
            yield from enter(now, place)


def _has_other(state: State) -> bool:
    """Whether something is under way, or may be, that nobody holds."""
    return state.run.active > 0 or any(place.pause is None and _may_enter(state, place) for place in state.steps())


def wake_starts(now: Now, begin: int) -> Facts:
    """Look at the steps that a run enters first: a piece of them, from the `begin`-th on."""
    graph, places = now.state.graph, now.state.places
    for name in graph.starts[begin : begin + graph.starts_at_once]:
        if places[name].status == "waiting":
            yield from wake(now, name)


def unwoken(state: State) -> range:
    """Where the pieces of a large run's first steps begin that nobody has looked at yet."""
    graph = state.graph
    if len(graph.starts) <= graph.starts_at_once:
        return range(0)
    waiting = (i for i, name in enumerate(graph.starts) if _may_enter(state, state.places[name]))
    return range(next(waiting, len(graph.starts)), len(graph.starts), graph.starts_at_once)


def _may_enter(state: State, place: Place) -> bool:
    return place.status == "waiting" and readiness(state, place) == "enter"


def _look_again(now: Now, place: Place) -> Facts:
    """A step at rest that was arrived at once more, or that now knows that nobody will come."""
    if _awaits(now.state, place):
        if _is_in_vain(now.state, place):
            yield e.StepSettled(place.key, "failed")
        return
    if place.queue:
        yield e.StepPutBack(place.key, "arrival", place.queue[0].rpartition("#")[0])
    elif not place.settled and place.loop_edge is None and now.state.graph.nodes[place.key].step.join == "each":
        arcs = now.state.graph.nodes[place.key].arrivals
        if all(now.state.arcs.get(arc.key) in ("taken", "dead") for arc in arcs):
            yield e.StepSettled(place.key, _outcome(now.state, place))


def _awaits(state: State, place: Place) -> bool:
    """Its last failure was sent to a remediation that may still bring it back or stand in for it."""
    if place.status != "failed" or place.settled or place.failure_index is None:
        return False
    return bool(state.failures[place.failure_index].then)


def _is_in_vain(state: State, place: Place) -> bool:
    """Its failure was sent to a step that will not be visited for it."""
    return place.failure_index is not None and is_handled(state, state.failures[place.failure_index]) is False


def _outcome(state: State, place: Place) -> str:
    """How the graph sees the last visit of a step that has only now ended for good."""
    record = None if place.failure_index is None else state.failures[place.failure_index]
    return "allowed" if record is not None and record.is_allowed and not record.target else place.status


def pass_over(place: Place, reason: str) -> e.Fact:
    """A step that is not entered: skipped, or, if a loop put it back, as it was before."""
    return e.StepRestored(place.key, reason) if place.last_status else e.StepSkipped(place.key, reason)


def enter(now: Now, place: Place) -> Facts:
    """A new visit, unless `when` says no. The visit beyond max_visits fails at once, and there is none after it."""
    step = now.state.graph.nodes[place.key].step
    if is_beyond_limit(now.state, place):
        return iter((pass_over(place, "loop_limit"),))
    try:
        if step.when is not None and not now.condition(step.when, place):
            return iter((pass_over(place, "when"),))
    except ExpressionFailed as error:
        return _enter_and_fail(now, place, error.message)
    return _enter_and_schedule(now, place)


def _enter_and_schedule(now: Now, place: Place) -> Facts:
    yield e.StepEntered(place.key, place.visit + 1)
    yield from schedule(now, place, "entered")


def _enter_and_fail(now: Now, place: Place, message: str) -> Facts:
    yield e.StepEntered(place.key, place.visit + 1)
    attempt = place.attempt + 1
    yield e.AttemptFailed(place.key, attempt, located(now, place, failure("EXPRESSION_FAILED", message), attempt))


# -- when a step has ended ------------------------------------------------------------------------------


def after_end(now: Now, name: str, visit: int) -> Facts:
    """Everything that follows from the end of a step's visit (or from its being passed over)."""
    state = now.state
    place, node = state.places[name], state.graph.nodes[name]
    # Asked before anything follows: a second member that ends meanwhile would hide that this one broke a barrier.
    barriers = _just_decided(state, node, place.settled) if node.barriers and place.settled else ()
    # In a run in which nothing has failed there is nothing to strike for or to repair.
    if state.failures:
        yield from strike(now, name, visit)
        yield from _repaired(now, place, visit)
    if place.loop_edge is not None and place.has_ended and state.run.stop is None:
        arc = state.graph.arc(name, place.loop_edge)
        if arc.key not in state.run.loops:
            yield _loop_taken(now, arc)
    yield from _spread(now, node, place, barriers)
    # One that has settled and that nobody arrived at need not be looked at: nearly all of them.
    if (place.queue or not place.settled) and place.has_ended and state.run.stop is None:
        yield from _look_again(now, place)


def _just_decided(state: State, node: Node, settled: str) -> list[Barrier]:
    """The barriers that the end of this step has opened or broken. Each is decided once, so its targets wake once."""
    found = []
    for barrier in node.barriers:
        unsettled, bad = state.barriers[barrier.key]
        if (bad == 1 and not is_met(barrier.on, settled)) or (unsettled == 0 and bad == 0):
            found.append(barrier)
    return found


def after_passing_over(now: Now, name: str) -> Facts:
    """What was sent to the visit that did not happen has come to nothing; with `join: each`, to any of the visits."""
    place = now.state.places[name]
    visits = len(now.state.graph.nodes[name].arrivals) if now.state.step(name).join == "each" else 1
    for behind in range(visits, 1, -1):
        yield from strike(now, name, place.visit + behind)
        yield from _repaired(now, place, place.visit + behind)
    yield from after_end(now, name, place.visit + 1)


def _spread(now: Now, node: Node, place: Place, barriers: Iterable[Barrier]) -> Facts:
    """Wake whoever the end of a step touches."""
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


def spread_kept(now: Now, names: Iterable[str]) -> Facts:
    """Wake whoever is touched by the results that a fork took over, all of them at once."""
    for name in names:
        yield from _spread(now, now.state.graph.nodes[name], now.state.places[name], ())
    for key, barrier in now.state.graph.barriers.items():
        unsettled, bad = now.state.barriers[key]
        if bad or not unsettled:
            for target in barrier.targets:
                yield from wake(now, target)


def _loop_taken(now: Now, arc: Arc) -> e.LoopTaken:
    number = now.state.run.loops_taken.get(arc.key, 0) + 1
    seed = f"{now.state.run.run_id}:{arc.key}:{number}"
    due = now.at + timedelta(seconds=delay_seconds(arc.edge.backoff, number, seed, {}))
    return e.LoopTaken(arc.source, arc.edge.index, arc.to, number, due)


# -- what a remediation brings about ------------------------------------------------------------------------------


def _repaired(now: Now, fix: Place, visit: int) -> Facts:
    """The visit that failures were sent to has ended: visit their sources again, stand in for them, or let them be."""
    is_open = now.state.run.stop is None and fix.visit == visit
    if is_open and (_awaits(now.state, fix) or fix.loop_edge is not None):
        # It has a remediation of its own, or goes back in a loop: what comes of that decides.
        return
    # Asked before anything follows: a source that fails again at once may visit the fix anew, or stop the run.
    is_repaired, output = is_open and (fix.status == "completed" or fix.settled == "stood_in"), fix.output
    for record in _sent_to(now.state, fix.key, visit):
        source = now.state.places[record.step]
        if source.visit != record.visit or source.loop_edge is not None or not _awaits(now.state, source):
            continue
        if not is_repaired or now.state.run.stop is not None:
            yield e.StepSettled(source.key, "failed")
        elif record.then == "rerun":
            yield e.StepPutBack(source.key, "rerun", fix.key)
        else:
            yield _stood_in(now, source, record, fix.key, output)


def _sent_to(state: State, step: str, visit: int) -> list[FailureRecord]:
    return [state.failures[index] for index in state.routed.get((step, visit), ())]


def _stood_in(now: Now, source: Place, record: FailureRecord, by: str, output: Any) -> e.Fact:
    """The fix takes the source's edges in its place; if none can be chosen, the source has failed after all."""
    try:
        # Its always edges were taken when it failed.
        taken = success_edges(now, source, output, with_always=False)
    except ExpressionFailed as error:
        return _not_stood_in(now, source, record, "EXPRESSION_FAILED", error.message)
    no_route = has_no_route(now, source, taken)
    if no_route and now.state.step(source.key).no_match == "fail":
        return _not_stood_in(now, source, record, "NO_ROUTE", "none of its success edges holds")
    return e.StepStoodIn(source.key, by, output, taken, no_route)


def _not_stood_in(now: Now, source: Place, record: FailureRecord, code: str, message: str) -> e.StepSettled:
    found = located(now, source, failure(code, message, cause=(record.failure,)))
    return e.StepSettled(source.key, "failed", found)


def strike(now: Now, name: str, visit: int) -> Facts:
    """Fail-fast: a failure has reached rung 5 unhandled, here, or there whence it was sent here in vain."""
    yield from _strike(now, _come_to_nothing(now.state, name, visit))


def strike_late(now: Now) -> Facts:
    """Fail-fast for what came to nothing in a pause: to stop then would have started cleanup, undo and `end`."""
    state = now.state
    open_ = (record for record in open_failures(state) if not record.is_allowed)
    yield from _strike(now, (record for record in open_ if is_handled(state, record) is False))


def _strike(now: Now, records: Iterable[FailureRecord]) -> Facts:
    policy, run = now.state.workflow.fail_fast, now.state.run
    if policy == "never" or run.stop is not None or run.status == "paused":
        return
    for record in records:
        if policy == "always" or record.failure.severity == "critical":
            reason = f"{record.failure.code} in '{record.step}'"
            yield e.RunStopping("failed_fast", reason=reason)
            return


def _come_to_nothing(state: State, name: str, visit: int) -> Iterable[FailureRecord]:
    """The failure of this visit, and those that were sent to it, and so on up, as far as they are unhandled."""
    place = state.places[name]
    if place.status == "failed" and place.failure_index is not None:
        record = state.failures[place.failure_index]
        if not record.is_allowed and is_handled(state, record) is False:
            yield record
    # A list that grows as it is walked: a chain of a thousand remediations is deeper than Python's stack.
    sent = _sent_to(state, name, visit)
    for record in sent:
        if not record.is_allowed and is_handled(state, record) is False:
            yield record
            sent += _sent_to(state, record.step, record.visit)
