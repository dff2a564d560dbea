"""The end of an ordinary step as one plain function: its task has succeeded, and the steps behind it are entered.

The facts are those that `core.turn` finds at length, byte for byte, and so is the state; `proof.simulator.both_ways`
compares them on every such turn of the tests and of the simulator. There is one meaning and two speeds. What is
ordinary of a step is in its plan (`core.model.step_plan`); anything else, of the step or of its run, takes the general
way.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import chain
from operator import itemgetter
from typing import Any

import msgspec

from mulligan.core.deciding.agents.budgets import LIMITED
from mulligan.core.deciding.fact_dispatch import decide
from mulligan.core.deciding.flow import readiness, wake
from mulligan.core.deciding.lifecycle import Facts, add_location, step_completed
from mulligan.core.deciding.programs import (
    added_call,
    after_turn,
    define,
    finish_turn,
    goes_on,
    resume_program,
    turn_problem,
    used_in_turn,
)
from mulligan.core.effects.program_history import program_turn
from mulligan.core.effects.tasks import Task, make_task, plain_task
from mulligan.core.evolve.arrivals import count_member, reopen_arrivals
from mulligan.core.evolve.evolve_programs import count_delivery, step_ran
from mulligan.core.evolve.evolve_run import evolve
from mulligan.core.model import events as e
from mulligan.core.model.failure import failure
from mulligan.core.model.graph import Node
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.program_calls import CALLS_MAX, TurnEnd
from mulligan.core.model.reports import CallsMade, TaskEnded, TaskStarted
from mulligan.core.model.workflow import END
from mulligan.core.state.program_progress import NO_PROGRESS
from mulligan.core.state.scope import DecisionContext, Evaluator
from mulligan.core.state.state import NOTHING_TRIED, Place, State
from mulligan.errors import ExpressionFailed

_SUCCESS = Outcome()
# The name of a step that needs another.
_name = itemgetter(0)
_astuple = msgspec.structs.astuple
# A step that was never visited, and for which nothing is missing any more.
_ARRIVALS = ("open_arrivals", "taken_arrivals", "dead_arrivals")
_fresh = itemgetter(*(i for i, name in enumerate(Place.__struct_fields__) if name not in (*_ARRIVALS, "key", "spec")))
_READY = _fresh(_astuple(Place("step", "waiting")))
# What is not set while nothing but the first result of a visit counts.
_NOT_SET = (
    *("phase", "child", "due", "output", "failure", "recovered_by", "climb", "items", "queue", "loop_edge"),
    *("last_status", "no_route", "failure_index", "reused_run_id", "pause", "data", "conversation", "call"),
    "last_child",
)
_not_set = itemgetter(*map(Place.__struct_fields__.index, _NOT_SET))
_NOTHING = _not_set(_astuple(Place("step", "running")))


class OrdinaryEnd(msgspec.Struct):
    """The entries that it was given and those of this end; the steps that it has entered, whose tasks are queued."""

    now: DecisionContext
    entries: list[e.Entry]
    queued: list[Place] = []
    # What follows at length, one after the other, each with the event that causes it.
    rest: list[tuple[Facts, int]] = []
    cause: int = 0


def end_step(
    state: State, report: TaskEnded | CallsMade, evaluator: Evaluator, entries: list[e.Entry] | None = None
) -> OrdinaryEnd | None:
    """Complete an ordinary step whose task has succeeded; None, and nothing has changed, if it is not one.

    So is the end of a turn in which a program has called ordinary steps, and an inline step that it has run meanwhile.

    Each entry is added to `entries` when it is in the state: also if a later one cannot be decided, and this raises.
    """
    run, workflow, key = state.run, state.workflow, report.place
    node = state.graph.nodes.get(key)
    if node is None or run.status != "running" or run.stop is not None or run.loops or run.stepping is not None:
        return None
    # Fail-fast and remediations are asked at the end of every step of a run with failures.
    if state.failures or workflow.max_parallel is not None or workflow.workspace is not None:
        return None
    place = state.places[key]
    if isinstance(report, CallsMade):
        return _run_inline(state, place, report, evaluator, entries)
    if report.turn is not None:
        return None if key != state.graph.program else _end_turn(state, place, report, report.turn, evaluator, entries)
    call = state.calls.get(key)
    if place.is_unwanted or (state.calls and call is None):
        return None
    plan = node.made_plan or node.plan
    if plan.after or place.attempt != report.attempt or place.spec is not node.step:
        return None
    if place.status != "running" and place.status != "ready":
        return None
    if report.outcome != _SUCCESS or report.files or report.fingerprint or report.reused_run_id or report.data:
        return None
    if _not_set(_astuple(place)) != _NOTHING or not report.usage.keys().isdisjoint(LIMITED):
        return None
    if plan.memory and isinstance(used := report.usage.get("peak_memory"), int) and used > plan.memory:
        return None
    seq, at = run.seq + 1, max(report.at, run.at)
    place = state.touch(key)
    place.status, place.output, place.bindings = "running", report.output, {}
    run.seq, run.at = seq, at
    end = OrdinaryEnd(DecisionContext(state, at, evaluator), [] if entries is None else entries, cause=seq)
    end.entries.append(e.Entry(seq, at, 0, _succeeded(report)))
    # With `join: each` it may be visited again although no arrival waits.
    is_simple = not node.arcs and node.step.join != "each" and node.step.undo is None
    targets = _complete(end, place) if is_simple else _complete_with_choice(end, node, place)
    if node.dependents:
        targets = [*targets, *map(_name, node.dependents)]
    if node.barriers:
        opened = [barrier for barrier in node.barriers if state.barriers[barrier.key] == (0, 0)]
        targets = [*targets, *(name for barrier in opened for name in barrier.targets)]
    if targets and not end.rest:
        _enter(end, targets)
    if call is not None and not end.rest:
        if is_simple:
            count_delivery(state, place)
        _resume(end, resume_program(end.now, state.places[call.program]))
    if not run.active and not end.rest:
        # A loop or `end` may be next.
        end.rest.append((iter(()), end.cause))
    return end


def _end_turn(
    state: State,
    place: Place,
    report: TaskEnded,
    turn: TurnEnd,
    evaluator: Evaluator,
    entries: list[e.Entry] | None,
) -> OrdinaryEnd | None:
    """A program has called steps and waits. From the first that is not ordinary, the turn goes on at length."""
    run, progress = state.run, place.program or NO_PROGRESS
    if place.status != "running" or place.phase or place.attempt != report.attempt or turn.turn != progress.turn:
        return None
    if turn.how or turn.cancelled or turn.goes_on or report.outcome != _SUCCESS or state.dropped:
        return None
    for call in turn.calls:
        if call.kind != "step" or call.failure is not None:
            return None
    if turn_problem(state, turn):
        return None
    at = max(report.at, run.at)
    end = OrdinaryEnd(DecisionContext(state, at, evaluator), [] if entries is None else entries)
    now = end.now
    for fact in define(state, place, turn):
        _apply(end, fact, 0)
    for position, call in enumerate(turn.calls, 1):
        added = added_call(now, place, call)
        end.cause = _apply(end, added, 0)
        _enter(end, (state.labels[call.branch, call.ordinal],))
        if end.rest:
            end.rest.append((finish_turn(now, place, report, turn, turn.calls[position:]), 0))
            return end
    cpu, peak = used_in_turn(report)
    waiting = e.ProgramWaiting(
        place.key, place.attempt, turn.turn, turn.at, published=turn.published, cpu=cpu, peak=peak
    )
    end.cause = _apply(end, waiting, 0)
    _resume(end, after_turn(now, waiting))
    return end


def _run_inline(
    state: State, place: Place, report: CallsMade, evaluator: Evaluator, entries: list[e.Entry] | None
) -> OrdinaryEnd | None:
    """A program has run an inline step that it has run before, and goes on in its turn."""
    run, turn, progress = state.run, report.turn, place.program
    if len(turn.calls) != 1 or state.dropped or progress is None or not goes_on(state, report):
        return None
    if turn.definitions and not turn.definitions.keys() <= state.definitions.keys():
        return None
    (call,) = turn.calls
    # The name and the definition of one that it has called before were checked then.
    if (
        call.kind != "inline"
        or call.key
        or call.name not in progress.numbers
        or call.definition not in state.definitions
    ):
        return None
    if (call.branch, call.ordinal) in state.labels or len(state.calls) >= CALLS_MAX:
        return None
    if place.is_unwanted or place.parent or place.climb.is_handler_late or not run.active:
        return None
    end = OrdinaryEnd(DecisionContext(state, max(report.at, run.at), evaluator), [] if entries is None else entries)
    ran: Any = added_call(end.now, place, call, is_known=True)
    entry = e.Entry(run.seq + 1, end.now.at, 0, ran)
    step_ran(state, ran, entry)
    run.seq, run.at = entry.seq, entry.at
    end.entries.append(entry)
    return end


def _apply(end: OrdinaryEnd, fact: e.Fact, cause: int) -> int:
    """Add a fact; return its number."""
    state = end.now.state
    entry = e.Entry(state.run.seq + 1, end.now.at, cause, fact)  # type: ignore[arg-type]
    evolve(state, entry)
    end.entries.append(entry)
    return entry.seq


def _resume(end: OrdinaryEnd, facts: Facts) -> None:
    """Queue the next turn of a program that waits; what else follows is left."""
    for fact in facts:
        if type(fact) is not e.ProgramResumed:
            end.rest.append((iter((fact,)), end.cause))
            return
        _apply(end, fact, end.cause)
        end.queued.append(end.now.state.places[fact.place])


def _complete(end: OrdinaryEnd, place: Place) -> Sequence[str]:
    """Complete a step without edges and undo, and count it for the steps and groups that wait for it."""
    state, at = end.now.state, end.now.at
    node, run = state.graph.nodes[place.key], state.run
    seq = run.seq = run.seq + 1
    completed = e.StepCompleted(place.key, place.visit, place.attempt, place.output)
    end.entries.append(e.Entry(seq, at, end.cause, completed))
    end.cause = seq
    place.status, place.settled, place.given = "completed", "completed", (seq, at)
    run.active -= 1
    for name, _ in node.dependents:
        # A success meets whatever is needed of the step.
        waiting = state.touch(name)
        if waiting.status == "waiting":
            waiting.open_needs -= 1
    for barrier in node.barriers:
        count_member(state, barrier, True)
    return ()


def _complete_with_choice(end: OrdinaryEnd, node: Node, place: Place) -> Sequence[str]:
    """Complete any other step, with the edges that it takes; return the steps to which edges lead.

    What follows from a step that has no route, that goes back in a loop, or that will be visited again, is left.
    """
    now = end.now
    fact = step_completed(now, place, place.output, "")
    if type(fact) is not e.StepCompleted:
        end.rest.append((iter((fact,)), end.cause))
        return ()
    entry = e.Entry(now.state.run.seq + 1, now.at, end.cause, fact)
    evolve(now.state, entry)
    end.entries.append(entry)
    end.cause = entry.seq
    if not fact.is_final or place.loop_edge is not None:
        end.rest.append((decide(now, fact) or iter(()), end.cause))
    return [arc.to for arc in node.arcs if arc.to != END and not arc.is_loop]


def _succeeded(report: TaskEnded) -> e.AttemptSucceeded:
    return e.AttemptSucceeded(report.place, report.attempt, report.output, report.usage, artifacts=report.artifacts)


def _enter(end: OrdinaryEnd, targets: Sequence[str]) -> None:
    """Enter those of the steps that may start now, in order. The first that is not ordinary goes at length."""
    now, state, at = end.now, end.now.state, end.now.at
    run, nodes = state.run, state.graph.nodes
    for position, name in enumerate(targets):
        node, place = nodes[name], state.places[name]
        if place.status == "waiting":
            if node.arrivals:
                answer = readiness(state, place)
            else:
                answer = "need_unmet" if place.has_dead_need else "" if place.open_needs else "enter"
            if not answer:
                continue
        elif not place.has_ended:
            continue
        else:
            answer = ""
        plan = node.made_plan or node.plan
        if answer != "enter" or plan.before or run.adjustments or _fresh(_astuple(place)) != _READY:
            end.rest.append((_wake_all(now, targets[position:]), end.cause))
            return
        if node.arrivals:
            # Otherwise the end of what it needed has touched it.
            state.touch(name)
        place.status, place.visit, place.entered_at, place.entered_seq = "ready", 1, at, run.seq + 1
        run.active += 1
        run.waiting -= 1
        run.seq += 1
        end.entries.append(e.Entry(run.seq, at, end.cause, e.StepEntered(name, 1)))
        if node.arrivals:
            reopen_arrivals(state, name)
        if plan.has_values:
            try:
                place.bindings = now.bindings(place.spec, place)
            except ExpressionFailed as error:
                found = add_location(now, place, failure(error.failure_code, error.message), 1)
                failed: Facts = iter((e.AttemptFailed(name, 1, found),))
                end.rest.append((chain(failed, _wake_all(now, targets[position + 1 :])), end.cause))
                return
        place.attempt = 1
        run.seq += 1
        scheduled = e.AttemptScheduled(name, 1, "entered", place.bindings)
        end.entries.append(e.Entry(run.seq, at, end.cause, scheduled))
        end.queued.append(place)


def _wake_all(now: DecisionContext, names: Sequence[str]) -> Facts:
    for name in names:
        yield from wake(now, name)


def task_of(state: State, place: Place) -> Task:
    """`make_task` for the current attempt of a place: at once for the first of an ordinary step."""
    if place.program is not None:
        return _task_of_turn(state, place)
    run, workflow, node = state.run, state.workflow, state.graph.nodes.get(place.key)
    if node is None or place.spec is not node.step or place.attempt != 1 or place.climb != NOTHING_TRIED:
        return make_task(state, place.key)
    plan = node.made_plan or node.plan
    is_plain = plan.has_plain_task and run.due is None and not (run.data or run.changed_only or state.informed)
    if not is_plain or workflow.secrets or workflow.callers_secrets or workflow.workspace is not None:
        return make_task(state, place.key)
    return plain_task(state, place, plan)


def _task_of_turn(state: State, place: Place) -> Task:
    """The task of a program: that of its last turn, but for the turn, if what it was made of is the same."""
    run, spec, climb = state.run, place.spec, place.climb
    if run.due is not None or run.data or run.changed_only or run.worktree_origin is not None or state.informed:
        return make_task(state, place.key)
    if spec.cache or spec.reads or spec.writes or climb.reruns or climb.avoids is not None or place.parent:
        return make_task(state, place.key)
    made_of = (
        *(place.key, place.visit, place.attempt, place.bindings, place.paths, climb, place.entered_at),
        *(spec, state.workflow, run.revision, run.cwd),
    )
    known = state.turn_task
    if known is not None and known[0] == made_of:
        task: Task = msgspec.structs.replace(known[1], turn=program_turn(state, place))
        return task
    task = make_task(state, place.key)
    state.turn_task = made_of, task
    return task


def may_start_at_once(state: State, report: TaskStarted) -> bool:
    """Whether `start_step` is all that follows when this task starts: the first attempt of an ordinary step."""
    run, workflow, node = state.run, state.workflow, state.graph.nodes.get(report.place)
    if node is None or run.status != "running" or run.stop is not None or run.loops or run.stepping is not None:
        return False
    if workflow.max_parallel is not None or workflow.workspace is not None:
        return False
    place, plan = state.places[report.place], node.made_plan or node.plan
    if not plan.is_ordinary or place.spec is not node.step or place.status != "ready" or place.program is not None:
        return False
    is_first = place.attempt == report.attempt == 1 and place.climb == NOTHING_TRIED
    return bool(is_first and _not_set(_astuple(place)) == _NOTHING)


def start_step(state: State, place: Place, worker: str, host: str, at: datetime) -> e.Entry:
    """Start the task of a step that `end_step` has entered or `may_start_at_once`, or of a program's next turn."""
    run = state.run
    if place.program is not None and place.program.is_later:
        started = e.TurnStarted(place.key, place.attempt, place.program.turn, worker, host)
        entry = e.Entry(run.seq + 1, max(at, run.at), 0, started)
        evolve(state, entry)
        return entry
    place = state.touch(place.key)
    place.status, place.worker, place.host = "running", worker, host
    run.seq, run.at = run.seq + 1, max(at, run.at)
    return e.Entry(run.seq, run.at, 0, e.AttemptStarted(place.key, place.attempt, worker, host))
