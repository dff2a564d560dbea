"""The lifecycle of a place from entered to completed: schedule, start, check, complete.

Shared by steps, commands of items and handlers, scripts and undos. Failures go to `ladder`. Each function yields
facts; what follows from a fact is decided after it is in the state.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import msgspec

from mulligan.core.deciding.agents.budgets import budget_refusal, is_queued_agent
from mulligan.core.deciding.agents.sessions import session_facts
from mulligan.core.deciding.classify import PAST_DEADLINE
from mulligan.core.deciding.end_status import status_problem
from mulligan.core.deciding.rounds.child_failure import failure_words
from mulligan.core.deciding.rounds.child_rounds import child_to_continue
from mulligan.core.deciding.routes import has_no_route, success_edges, takes_loop
from mulligan.core.evolve.evolve_places import is_agent, is_agent_call, is_engine_action, waits_until
from mulligan.core.model import events as e
from mulligan.core.model.actions import traits_of
from mulligan.core.model.event_types import Role
from mulligan.core.model.failure import Failure, failure
from mulligan.core.model.failure_context import CONTEXT_CHARS_MAX, head_tail, retry_summary_text
from mulligan.core.model.rejected_output import rejected_details
from mulligan.core.model.run_data import name_problem
from mulligan.core.model.text.credential_patterns import hide_at_ends
from mulligan.core.model.text.durations import parse_time, parse_wait
from mulligan.core.model.workflow import END
from mulligan.core.state.deadlines import deadline_of
from mulligan.core.state.held_steps import is_on_hold
from mulligan.core.state.mailbox import awaited_name, awaits_event
from mulligan.core.state.scope import DecisionContext, fill_params, next_attempt
from mulligan.core.state.state import Place, State
from mulligan.core.state.visit_limits import is_beyond_limit, last_failure_of_loop
from mulligan.errors import ExpressionFailed, OutputDropped

Facts = Iterator[e.Fact]
# What follows from most facts. Shared: an exhausted iterator stays exhausted.
NOTHING: Facts = iter(())


def make_failure(now: DecisionContext, place: Place, code: str, message: str, **fields: Any) -> Failure:
    """A failure of this place, found by the core itself."""
    return add_location(now, place, failure(code, message, **fields))


def add_location(now: DecisionContext, place: Place, found: Failure, attempt: int | None = None) -> Failure:
    """The failure with its step, item, visit, attempt and time filled in."""
    step = now.state.step_of(place)
    return msgspec.structs.replace(
        found,
        step=step.key,
        item=item_index(now.state, place),
        visit=step.visit,
        attempt=place.attempt if attempt is None else attempt,
        at=now.at,
    )


def enter_and_fail(now: DecisionContext, place: Place, found: Failure) -> Facts:
    """The next visit of a step fails before its task could start."""
    yield e.StepEntered(place.key, place.visit + 1)
    attempt = place.attempt + 1
    yield e.AttemptFailed(place.key, attempt, add_location(now, place, found, attempt))


def item_index(state: State, place: Place) -> int | None:
    """The index of the item that a place belongs to; None outside of a map."""
    return next((above.index for above in state.ancestors(place) if above.role == "item"), None)


# -- attempts ------------------------------------------------------------------------------


def schedule(now: DecisionContext, place: Place, cause: str) -> Facts:
    """Schedule the next attempt with the values of its expressions; an attempt that cannot be evaluated has failed.

    In the visit beyond max_visits no attempt runs, whether an entry, a rule, a handler or a person asks for it.
    """
    attempt = next_attempt(now.state, place)
    if is_beyond_limit(now.state, place):
        found = add_location(now, place, _loop_limit(now.state, place), attempt)
        return iter((e.AttemptFailed(place.key, attempt, found),))
    deadline = deadline_of(now.state, place)
    # It may have passed during a script, a triage or a lost attempt.
    if deadline is not None and now.at >= deadline:
        found = add_location(now, place, failure("TIMEOUT", PAST_DEADLINE), attempt)
        return iter((e.AttemptFailed(place.key, attempt, found),))
    is_asking_agent = is_agent(place.spec)
    if is_asking_agent and (refused := budget_refusal(now.state, place)) is not None:
        return iter((e.AttemptFailed(place.key, attempt, add_location(now, place, refused, attempt)),))
    try:
        bindings = now.bindings(place.spec, place)
    except ExpressionFailed as error:
        found = add_location(now, place, failure(error.failure_code, error.message), attempt)
        return iter((e.AttemptFailed(place.key, attempt, found),))
    scheduled = e.AttemptScheduled(
        place.key,
        attempt,
        cause,
        bindings,
        adjusted=place.climb.adjusted,
        summary=_summary(now, place) if is_asking_agent else "",
        is_call=is_asking_agent and is_agent_call(place.spec),
    )
    return _schedule_engine_action(now, place, scheduled) if is_engine_action(place.spec) else iter((scheduled,))


def _loop_limit(state: State, place: Place) -> Failure:
    """What the visit beyond max_visits fails with: LOOP_LIMIT, or the failure that led back, if the step says so."""
    step = state.step(place.key)
    limit = f"the step was already visited {step.max_visits} times (max_visits)"
    last = last_failure_of_loop(state, place)
    if last is None:
        return failure("LOOP_LIMIT", limit)
    cause = (last.failure,)
    if step.at_max_visits == "last_failure":
        details = {**last.failure.details, "failed_step": last.step, "max_visits": step.max_visits}
        return msgspec.structs.replace(last.failure, cause=cause, details=details)
    return failure("LOOP_LIMIT", f"{limit}; last '{last.step}' failed with {failure_words(last.failure)}", cause=cause)


def refuse_queued(now: DecisionContext, step: Place) -> Facts:
    """An agent has reported what it spent: fail the queued agents for which no budget is left."""
    state = now.state
    if budget_refusal(state, step, is_counted=True) is None:
        return
    for key in [place.key for place in state.places.values() if is_queued_agent(place)]:
        # Consequences of an earlier refusal may have ended this one.
        place = state.places.get(key)
        if place is not None and is_queued_agent(place):
            refused = budget_refusal(state, place, is_counted=True)
            if refused is not None:
                yield e.AttemptFailed(key, place.attempt, add_location(now, place, refused))


def _summary(now: DecisionContext, place: Place) -> str:
    """The text about its last failure that an agent gets for its next attempt, whatever caused that attempt."""
    if place.failure is None:
        return ""
    return _advice(now, place) or retry_summary_text(
        place.failure, place.failure.attempt, now.state.workflow.hide_credentials
    )


def _advice(now: DecisionContext, place: Place) -> str:
    """What an agent in the recovery script answered about the failure. If it cannot be read, it is left out."""
    hides = now.state.workflow.hide_credentials
    try:
        answer = now.fetch(place.climb.advice)
    except ExpressionFailed:
        return ""
    content = answer.get("content") if isinstance(answer, dict) else None
    if not isinstance(content, str):
        return ""
    advice = content.strip()
    return head_tail(hide_at_ends(advice, CONTEXT_CHARS_MAX) if hides else advice, CONTEXT_CHARS_MAX)[0]


def _schedule_engine_action(now: DecisionContext, place: Place, scheduled: e.AttemptScheduled) -> Facts:
    """Schedule an attempt that needs no worker, and start it unless the run or the step is paused."""
    yield scheduled
    if now.state.run.status != "paused" and not is_on_hold(now.state, place):
        yield from start_engine_action(now, place)


def start_engine_action(now: DecisionContext, place: Place) -> Facts:
    """Start what the engine carries out itself: a wait, an approval, a child run, a map, a conversation."""
    try:
        due = _due(now, place)
    except (ValueError, TypeError, OverflowError) as error:
        message = f"{place.spec.action.kind if place.spec.action else 'map'}: {error}"
        yield e.AttemptFailed(place.key, place.attempt, make_failure(now, place, "INPUT_INVALID", message))
        return
    if awaits_event(place.spec) and (problem := name_problem(name := awaited_name(place))):
        message = f"'{name[:100]}' is not the name of an event: {problem}"
        yield e.AttemptFailed(place.key, place.attempt, make_failure(now, place, "INPUT_INVALID", message))
        return
    is_faked = traits_of(place.spec.action).is_fake
    continues = None if place.last_child is None else child_to_continue(now.state, place)
    yield e.AttemptStarted(place.key, place.attempt, due=due, is_faked=is_faked, continues=continues)


def _due(now: DecisionContext, place: Place) -> datetime | None:
    """When an action of the engine ends by itself: a wait is over, an approval expires, no event has come in time.

    A child run times out.

    Or an agent that is asked turn by turn times out.
    """
    action = place.spec.action
    found = traits_of(action)
    if action is None or found.is_fake:
        return None
    params = fill_params(action, place.bindings)
    if found.is_timer:
        if waits_until(place.spec):
            return parse_time(params["until"])
        return now.at + timedelta(seconds=parse_wait(params["seconds"]))
    adjusted = place.climb.adjusted.timeout if place.climb.adjusted else None
    limit = params.get("timeout") if found.asks_person or found.awaits_event else adjusted or place.spec.timeout
    return None if limit is None else now.at + timedelta(seconds=float(limit))


# -- success ------------------------------------------------------------------------------


def succeed(now: DecisionContext, place: Place) -> Facts:
    """The attempt succeeded: check its result, run on_success, complete the place.

    A result taken over from an earlier run was checked there.
    """
    if place.reused_run_id:
        return complete(now, place, place.output, "")
    if place.spec.validate is not None:
        rejected = _reject(now, place)
        if rejected is not None:
            return iter((e.ResultRejected(place.key, place.attempt, rejected),))
    if place.spec.validator is not None and now.may_start(place):
        return enter_command(now, place, "validator", 0)
    return after_validation(now, place)


def _reject(now: DecisionContext, place: Place) -> Failure | None:
    condition = place.spec.validate
    assert condition is not None
    try:
        if now.condition(condition, place, output=place.output):
            return None
    except ExpressionFailed as error:
        return make_failure(now, place, error.failure_code, error.message)
    message = f"'{condition.source}' does not hold"
    return make_failure(now, place, "VALIDATION_FAILED", message, details=rejected_details(place.output))


def after_validator(now: DecisionContext, place: Place, fact: e.Fact) -> Facts:
    """The validator has ended. Its failure becomes a failure of the place and goes up the ladder."""
    if isinstance(fact, e.CommandFailed) and not fact.is_allowed:
        message = fact.failure.message or f"the validator ended with {fact.failure.code}"
        # For a step that runs without a worker, the validator also checks the declared files.
        code = fact.failure.code if fact.failure.code == "OUTPUT_MISSING" else "VALIDATION_FAILED"
        refused = rejected_details(place.output) if code == "VALIDATION_FAILED" else {}
        checked = {"exit_code": fact.failure.exit_code, "cause": (fact.failure,)}
        found = make_failure(now, place, code, message, details=refused, **checked)
        yield e.ResultRejected(place.key, place.attempt, found)
    elif isinstance(fact, e.CommandCancelled):
        yield e.AttemptCancelled(place.key, place.attempt)
    else:
        yield from after_validation(now, place)


def after_validation(now: DecisionContext, place: Place) -> Facts:
    is_rerun = place.climb.reruns > 0
    if place.spec.on_success and not is_rerun and now.may_start(place):
        return enter_command(now, place, "success", 0)
    return complete(now, place, place.output, "rerun" if is_rerun else "")


def after_success_command(now: DecisionContext, place: Place, fact: e.Fact, index: int) -> Facts:
    """Continue `on_success`. Its failure is a warning, or, with `handler_failure_fatal`, fails the place."""
    if isinstance(fact, e.CommandFailed) and not fact.is_allowed:
        if place.spec.handler_failure_fatal:
            found = make_failure(
                now, place, "HANDLER_FAILED", fact.failure.message, severity="critical", cause=(fact.failure,)
            )
            yield e.ResultRejected(place.key, place.attempt, found)
            return
        yield e.WarningRecorded(place.key, fact.failure)
    elif not isinstance(fact, e.CommandCancelled) and index + 1 < len(place.spec.on_success) and now.may_start(place):
        yield from enter_command(now, place, "success", index + 1)
        return
    yield from complete(now, place, place.output, "")


# -- ends ------------------------------------------------------------------------------


def complete(now: DecisionContext, place: Place, output: Any, recovered_by: str) -> Facts:
    """Complete the place: its data is set, and a step chooses its edges; to find none may itself be a failure."""
    # A handler that replaces an agent says nothing in its session.
    keeps_session = place.spec.session != "" and recovered_by in ("", "rerun")
    if place.data or keeps_session:
        return _complete_with_data(now, place, output, recovered_by, keeps_session)
    return iter((_completion(now, place, output, recovered_by),))


def _complete_with_data(
    now: DecisionContext, place: Place, output: Any, recovered_by: str, keeps_session: bool
) -> Facts:
    if keeps_session:
        yield from session_facts(now, place)
    for name, value in place.data.items():
        before = now.state.run.data.get(name)
        version = before.version + 1 if before is not None else 1
        yield e.DataSet(place.key, place.attempt, name, value, version)
    # After that, so that the conditions of edges read the new data.
    yield _completion(now, place, output, recovered_by)


def _completion(now: DecisionContext, place: Place, output: Any, recovered_by: str) -> e.Fact:
    if place.role != "step":
        return e.CommandCompleted(
            place.key, place.parent, role=place.role, index=place.index, output=output, recovered_by=recovered_by
        )
    if place.key == END:
        return _end_completed(now, place, output, recovered_by)
    return step_completed(now, place, output, recovered_by)


def _end_completed(now: DecisionContext, place: Place, output: Any, recovered_by: str) -> e.Fact:
    """Complete `end`, unless it returned a status that a run cannot have: then `end` has failed."""
    try:
        problem, code = status_problem(now.fetch(output)), "OUTPUT_INVALID"
    except OutputDropped as error:
        problem, code = error.message, error.failure_code
    except ExpressionFailed:
        problem, code = "", ""  # an artifact that cannot be read counts as no status
    if problem:
        return e.ResultRejected(END, place.attempt, make_failure(now, place, code, problem))
    return e.StepCompleted(END, place.visit, attempt=place.attempt, output=output, recovered_by=recovered_by)


def step_completed(now: DecisionContext, place: Place, output: Any, recovered_by: str) -> e.Fact:
    """Complete a step, which chooses its edges; or reject its result, if it finds none and needs one."""
    taken: tuple[int, ...] = ()
    no_route = False
    # Most steps have no edges: there is nothing to choose.
    if now.state.graph.nodes[place.key].arcs:
        try:
            taken = success_edges(now, place, output)
        except ExpressionFailed as error:
            return e.ResultRejected(
                place.key, place.attempt, make_failure(now, place, error.failure_code, error.message)
            )
        no_route = has_no_route(now, place, taken)
        if no_route and now.state.step(place.key).no_match == "fail":
            message = "the condition of none of its success edges holds"
            return e.ResultRejected(place.key, place.attempt, make_failure(now, place, "NO_ROUTE", message))
    is_final = is_last_visit(now.state, place) and not (taken and takes_loop(now.state, place.key, taken))
    return e.StepCompleted(
        place.key,
        place.visit,
        place.attempt,
        output,
        recovered_by=recovered_by,
        taken=taken,
        no_route=no_route,
        is_final=is_final,
    )


def is_last_visit(state: State, place: Place) -> bool:
    """Whether no queued or possible arrival will visit the step again."""
    if state.run.stop is not None:
        return True
    node = state.graph.nodes[place.key]
    if node.step.join != "each":
        return not place.queue
    return not place.queue and all(state.arcs.get(arc.key) in ("taken", "dead") for arc in node.arrivals)


# -- commands below a place ------------------------------------------------------------------------------

# For roles with several commands per attempt; other commands are named after their role.
_SUFFIX = {
    "handler": "on_failure@{0}.{1}",
    "success": "on_success@{0}.{1}",
    "tool_list": "tool_list@{0}.{1}",
    "model": "model@{0}.{1}",
    "tool": "tool@{0}.{1}",
}


def command_key(place: Place, role: str, index: int) -> str:
    """The key of a command below `place`. Unique in the run, since attempt numbers are."""
    if role == "do":
        return f"{place.key}.{index}"
    return f"{place.key}.{_SUFFIX.get(role, role + '@{0}').format(place.attempt, index)}"


def enter_command(now: DecisionContext, place: Place, role: Role, index: int, key: str = "") -> Facts:
    key = key or command_key(place, role, index)
    yield e.CommandEntered(key, place.key, role, index)
    yield from schedule(now, now.state.places[key], "entered")


def expected_files(state: State, place: Place) -> tuple[str, ...]:
    """The declared files that must exist when this attempt succeeds.

    Its own, and for the last command of a handler that completes its parent, those of the parent too.
    """
    parent = state.places.get(place.parent)
    handler = parent.spec.on_failure if parent is not None and place.role == "handler" else None
    if parent is None or handler is None:
        return place.spec.writes
    is_last = place.index == len(handler.commands) - 1
    completes = handler.strategy in ("recovery", "fallback") and not handler.rerun
    return (*place.spec.writes, *expected_files(state, parent)) if is_last and completes else place.spec.writes
