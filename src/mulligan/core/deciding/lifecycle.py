"""The life of a place between being entered and having ended well: schedule, start, check, complete.

Shared by steps, commands of items and handlers, scripts and undos. What happens on failure is the ladder's.
Each function yields facts; what follows from a fact is decided when it has become true.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

import msgspec

from mulligan.core.deciding.budgets import is_queued, refusal
from mulligan.core.deciding.classify import PAST_DEADLINE
from mulligan.core.deciding.end_status import status_problem
from mulligan.core.deciding.routes import goes_back, has_no_route, success_edges
from mulligan.core.evolve.arrivals import is_beyond_limit
from mulligan.core.evolve.places import is_agent, is_engines_own, waits_until
from mulligan.core.model import events as e
from mulligan.core.model.credentials import hide_at_ends
from mulligan.core.model.durations import moment, wait_seconds
from mulligan.core.model.failure import Failure, failure
from mulligan.core.model.failure_context import CONTEXT_CHARS_MAX, head_tail, retry_summary_text
from mulligan.core.model.rejected_output import rejected_details
from mulligan.core.model.workflow import END, FAKE
from mulligan.core.state.held_steps import is_on_hold
from mulligan.core.state.scope import Now, filled, next_attempt
from mulligan.core.state.state import Place, State
from mulligan.errors import ExpressionFailed

Facts = Iterator[e.Fact]
# What follows from most facts. One for all: an iterator that has ended stays so.
NOTHING: Facts = iter(())


def make_failure(now: Now, place: Place, code: str, message: str, **fields: Any) -> Failure:
    """A failure of this place, now, found by the core itself."""
    return located(now, place, failure(code, message, **fields))


def located(now: Now, place: Place, found: Failure, attempt: int | None = None) -> Failure:
    """The failure with where and when it happened filled in."""
    step = now.state.step_of(place)
    return msgspec.structs.replace(
        found,
        step=step.key,
        item=_item_of(now.state, place),
        visit=step.visit,
        attempt=place.attempt if attempt is None else attempt,
        at=now.at,
    )


def _item_of(state: State, place: Place) -> int | None:
    return next((above.index for above in state.ancestors(place) if above.role == "item"), None)


# -- attempts ------------------------------------------------------------------------------


def schedule(now: Now, place: Place, cause: str) -> Facts:
    """The next attempt, with the values its expressions give. One that cannot be evaluated has failed.

    The visit beyond max_visits has no attempt that runs, whatever asks for one: an entry, a rule, a handler, a person.
    """
    attempt = next_attempt(now.state, place)
    if is_beyond_limit(now.state, place):
        message = f"visited {now.state.step(place.key).max_visits} times already"
        found = located(now, place, failure("LOOP_LIMIT", message), attempt)
        return iter((e.AttemptFailed(place.key, attempt, found),))
    if place.spec.deadline is not None and _is_past(now, place, place.spec.deadline):
        found = located(now, place, failure("TIMEOUT", PAST_DEADLINE), attempt)
        return iter((e.AttemptFailed(place.key, attempt, found),))
    if is_agent(place.spec) and (refused := refusal(now.state, place)) is not None:
        return iter((e.AttemptFailed(place.key, attempt, located(now, place, refused, attempt)),))
    try:
        bindings = now.bindings(place.spec, place)
    except ExpressionFailed as error:
        found = located(now, place, failure("EXPRESSION_FAILED", error.message), attempt)
        return iter((e.AttemptFailed(place.key, attempt, found),))
    told, is_call = _summary(now, place), is_agent(place.spec)
    scheduled = e.AttemptScheduled(place.key, attempt, cause, bindings, place.climb.adjusted, told, is_call)
    return _schedule_own(now, place, scheduled) if is_engines_own(place.spec) else iter((scheduled,))


def refuse_queued(now: Now, step: Place) -> Facts:
    """An agent of a step has reported what it spent: those that wait for a worker fail where it has left nothing."""
    state = now.state
    if refusal(state, step, is_counted=True) is None:
        return
    for key in [place.key for place in state.places.values() if is_queued(place)]:
        # What followed from the refusal of one may have ended another.
        place = state.places.get(key)
        if place is not None and is_queued(place):
            refused = refusal(state, place, is_counted=True)
            if refused is not None:
                yield e.AttemptFailed(key, place.attempt, located(now, place, refused))


def _summary(now: Now, place: Place) -> str:
    """What an agent that failed before is told of that, whatever the next attempt comes from."""
    if place.failure is None or not is_agent(place.spec):
        return ""
    return _advice(now, place) or retry_summary_text(
        place.failure, place.failure.attempt, now.state.workflow.hide_credentials
    )


def _advice(now: Now, place: Place) -> str:
    """What another agent has made of the failure, for this attempt. It is help: one that cannot be read is none."""
    hides = now.state.workflow.hide_credentials
    try:
        answer = now.fetched(place.climb.advice)
    except ExpressionFailed:
        return ""
    said = answer.get("content") if isinstance(answer, dict) else None
    if not isinstance(said, str):
        return ""
    advice = said.strip()
    return head_tail(hide_at_ends(advice, CONTEXT_CHARS_MAX) if hides else advice, CONTEXT_CHARS_MAX)[0]


def _is_past(now: Now, place: Place, deadline: float) -> bool:
    """Whether the visit's time is up: in a script, a triage, a wait for a lost worker. No attempt starts any more."""
    return now.at >= place.entered_at + timedelta(seconds=deadline)


def _schedule_own(now: Now, place: Place, scheduled: e.AttemptScheduled) -> Facts:
    """An attempt that needs no worker starts at once, but for a pause of the run or of the step."""
    yield scheduled
    if now.state.run.status != "paused" and not is_on_hold(now.state, place):
        yield from start(now, place)


def start(now: Now, place: Place) -> Facts:
    """Begin what the engine itself carries out: a wait, an approval, a child run, a map."""
    try:
        due = _due(now, place)
    except (ValueError, TypeError, OverflowError) as error:
        message = f"{place.spec.action.kind if place.spec.action else 'map'}: {error}"
        yield e.AttemptFailed(place.key, place.attempt, make_failure(now, place, "INPUT_INVALID", message))
        return
    is_faked = place.spec.action is not None and place.spec.action.kind == FAKE
    yield e.AttemptStarted(place.key, place.attempt, due=due, is_faked=is_faked)


def _due(now: Now, place: Place) -> datetime | None:
    """When the engine's own action ends by itself: a wait is over, an approval expires, a child run's time is up."""
    action = place.spec.action
    if action is None or action.kind == FAKE:
        return None
    params = filled(action, place.bindings)
    if action.kind == "wait":
        if waits_until(place.spec):
            return moment(params["until"])
        return now.at + timedelta(seconds=wait_seconds(params["seconds"]))
    adjusted = place.climb.adjusted.timeout if place.climb.adjusted else None
    limit = params.get("timeout") if action.kind == "approve" else adjusted or place.spec.timeout
    return None if limit is None else now.at + timedelta(seconds=float(limit))


# -- success ------------------------------------------------------------------------------


def succeed(now: Now, place: Place) -> Facts:
    """The attempt gave a result: check it, run what belongs to success, complete.

    What an earlier run did was checked there.
    """
    if place.reused_run_id:
        return complete(now, place, place.output, "")
    if place.spec.validate is not None:
        rejected = _reject(now, place)
        if rejected is not None:
            return iter((e.ResultRejected(place.key, place.attempt, rejected),))
    if place.spec.validator is not None and now.may_start(place):
        return enter_command(now, place, "validator", 0)
    return validated(now, place)


def _reject(now: Now, place: Place) -> Failure | None:
    condition = place.spec.validate
    assert condition is not None
    try:
        if now.condition(condition, place, output=place.output):
            return None
    except ExpressionFailed as error:
        return make_failure(now, place, "EXPRESSION_FAILED", error.message)
    message = f"'{condition.source}' does not hold"
    return make_failure(now, place, "VALIDATION_FAILED", message, details=rejected_details(place.output))


def after_validator(now: Now, place: Place, fact: e.Fact) -> Facts:
    """The check is over: its failure is the step's, and it climbs like any other."""
    if isinstance(fact, e.CommandFailed) and not fact.is_allowed:
        message = fact.failure.message or f"the check ended with {fact.failure.code}"
        # Of a step that no worker carries out the check looks for the declared files, too.
        code = fact.failure.code if fact.failure.code == "OUTPUT_MISSING" else "VALIDATION_FAILED"
        refused = rejected_details(place.output) if code == "VALIDATION_FAILED" else {}
        checked = {"exit_code": fact.failure.exit_code, "cause": (fact.failure,)}
        found = make_failure(now, place, code, message, details=refused, **checked)
        yield e.ResultRejected(place.key, place.attempt, found)
    elif isinstance(fact, e.CommandCancelled):
        yield e.AttemptCancelled(place.key, place.attempt)
    else:
        yield from validated(now, place)


def validated(now: Now, place: Place) -> Facts:
    is_rerun = place.climb.reruns > 0
    if place.spec.on_success and not is_rerun and now.may_start(place):
        return enter_command(now, place, "success", 0)
    return complete(now, place, place.output, "rerun" if is_rerun else "")


def after_success_command(now: Now, place: Place, fact: e.Fact, index: int) -> Facts:
    """`on_success` goes on; its failure is a warning, or fails the step with `handler_failure_fatal`."""
    if isinstance(fact, e.CommandFailed) and not fact.is_allowed:
        if place.spec.handler_failure_fatal:
            found = make_failure(
                now, place, "HANDLER_FAILED", fact.failure.message, severity="critical", cause=(fact.failure,)
            )
            yield e.ResultRejected(place.key, place.attempt, found)
            return
        yield e.WarningRecorded(place.key, fact.failure)
    elif _has_next(place, fact, index) and now.may_start(place):
        yield from enter_command(now, place, "success", index + 1)
        return
    yield from complete(now, place, place.output, "")


def _has_next(place: Place, fact: e.Fact, index: int) -> bool:
    return not isinstance(fact, e.CommandCancelled) and index + 1 < len(place.spec.on_success)


# -- ends ------------------------------------------------------------------------------


def complete(now: Now, place: Place, output: Any, recovered_by: str) -> Facts:
    """The place has done its part. A step chooses its edges first: none to take may be a failure of its own."""
    if place.role != "step":
        fact: e.Fact = e.CommandCompleted(place.key, place.parent, place.role, place.index, output, recovered_by)
    elif place.key == END:
        fact = _end_completed(now, place, output, recovered_by)
    else:
        fact = _step_completed(now, place, output, recovered_by)
    return iter((fact,))


def _end_completed(now: Now, place: Place, output: Any, recovered_by: str) -> e.Fact:
    """`end` has ended well, unless it returned a status that no run can have: that is a failure of `end`."""
    # An artifact that cannot be read says nothing.
    with suppress(ExpressionFailed):
        problem = status_problem(now.fetched(output))
        if problem:
            return e.ResultRejected(END, place.attempt, make_failure(now, place, "OUTPUT_INVALID", problem))
    return e.StepCompleted(END, place.visit, place.attempt, output, recovered_by)


def _step_completed(now: Now, place: Place, output: Any, recovered_by: str) -> e.Fact:
    taken: tuple[int, ...] = ()
    no_route = False
    # Most steps of a long chain have no edges of their own: there is nothing to choose.
    if now.state.graph.nodes[place.key].arcs:
        try:
            taken = success_edges(now, place, output)
        except ExpressionFailed as error:
            return e.ResultRejected(
                place.key, place.attempt, make_failure(now, place, "EXPRESSION_FAILED", error.message)
            )
        no_route = has_no_route(now, place, taken)
        if no_route and now.state.step(place.key).no_match == "fail":
            message = "none of its success edges holds"
            return e.ResultRejected(place.key, place.attempt, make_failure(now, place, "NO_ROUTE", message))
    is_final = is_last_visit(now.state, place) and not (taken and goes_back(now.state, place.key, taken))
    return e.StepCompleted(place.key, place.visit, place.attempt, output, recovered_by, taken, no_route, is_final)


def is_last_visit(state: State, place: Place) -> bool:
    """Whether the graph may go on from here: nothing that arrived, or may arrive, will visit the step again."""
    if state.run.stop is not None:
        return True
    node = state.graph.nodes[place.key]
    if node.step.join != "each":
        return not place.queue
    return not place.queue and all(state.arcs.get(arc.key) in ("taken", "dead") for arc in node.arrivals)


# -- commands below a place ------------------------------------------------------------------------------

# Where there may be several for one attempt; what there is one of is called by its role.
_SUFFIX = {"handler": "on_failure@{0}.{1}", "success": "on_success@{0}.{1}"}


def command_key(place: Place, role: str, index: int) -> str:
    """The key of a command below `place`; unique in the run, since attempts are."""
    if role == "do":
        return f"{place.key}.{index}"
    return f"{place.key}.{_SUFFIX.get(role, role + '@{0}').format(place.attempt, index)}"


def enter_command(now: Now, place: Place, role: e.Role, index: int, key: str = "") -> Facts:
    key = key or command_key(place, role, index)
    yield e.CommandEntered(key, place.key, role, index)
    yield from schedule(now, now.state.places[key], "entered")


def files_due(state: State, place: Place) -> tuple[str, ...]:
    """The declared files that must be there when this attempt has ended well.

    Its own; and for the last command of a handler that completes what it belongs to, that one's too.
    """
    parent = state.places.get(place.parent)
    handler = parent.spec.on_failure if parent is not None and place.role == "handler" else None
    if parent is None or handler is None:
        return place.spec.writes
    is_last = place.index == len(handler.commands) - 1
    completes = handler.strategy in ("recovery", "fallback") and not handler.rerun
    return (*place.spec.writes, *files_due(state, parent)) if is_last and completes else place.spec.writes
