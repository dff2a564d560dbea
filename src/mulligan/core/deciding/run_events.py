"""Events that are sent to a run: each is kept until a step that waits for one of its name takes it, once."""

from __future__ import annotations

from typing import Any

import msgspec

from mulligan.core.deciding.classify import LIMIT
from mulligan.core.deciding.json_schema import value_problems
from mulligan.core.deciding.lifecycle import Facts, make_failure
from mulligan.core.model import events as e
from mulligan.core.model.reports import EventSent
from mulligan.core.state.mailbox import awaited_name, first_free, free_events, open_waits
from mulligan.core.state.scope import DecisionContext, fill_params
from mulligan.core.state.state import Place
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.errors import EventUnusable, Refused, RunFinished

# How many events a run gets in all, and how many wait for a step to take them.
EVENTS_MAX, FREE_EVENTS_MAX = 10_000, 1_000

_encode = msgspec.json.Encoder(order="deterministic").encode


def receive_event(now: DecisionContext, report: EventSent) -> Facts:
    """Somebody sends an event to the run. It is refused if what waits for it could not use it."""
    state, run = now.state, now.state.run
    if report.key and (number := state.event_keys.get(report.key)) is not None:
        known = state.received[str(number)]
        if (known.name, _encode(known.value)) != (report.name, _encode(report.value)):
            raise Refused(f"another event was sent to run {run.run_id} with this key", hint="use a key of its own")
        return
    if run.status in RUN_ENDED:
        ended = "was cancelled" if run.status == "cancelled" else run.status
        raise RunFinished(f"run {run.run_id} {ended}, so nothing in it waits for an event")
    if len(state.received) >= EVENTS_MAX:
        raise Refused(f"run {run.run_id} has got {EVENTS_MAX:,} events, and gets no more", hint="start another run")
    waiting = open_waits(state, report.name)
    if not waiting and len(free_events(state)) >= FREE_EVENTS_MAX:
        message = f"{FREE_EVENTS_MAX:,} events of run {run.run_id} wait for a step to take them, and no more can"
        raise Refused(message, hint=f"see what it waits for: mulligan show {run.run_id}")
    problems = [_problem(place, report.value) for place in waiting]
    if problems and all(problems):
        raise EventUnusable(f"'{waiting[0].key}' waits for '{report.name}', and cannot use this event: {problems[0]}")
    yield e.EventReceived(report.name, report.value, report.by, report.key)


def deliver(now: DecisionContext, name: str) -> Facts:
    """Give the first event of this name to the first place that waits for one and can use it, if there are both."""
    number, waiting = first_free(now.state, name), open_waits(now.state, name)
    if number and waiting:
        value = now.state.received[str(number)].value
        place = next((one for one in waiting if not _problem(one, value)), waiting[0])
        yield e.EventDelivered(place.key, place.attempt, number, name, _problem(place, value))


def deliver_to(now: DecisionContext, place: Place) -> Facts:
    """An attempt waits for an event: one that came early is there already."""
    return deliver(now, awaited_name(place))


def after_delivery(now: DecisionContext, fact: e.EventDelivered) -> Facts:
    """The attempt ends with the value of the event."""
    place = now.state.places[fact.place]
    if fact.problem:
        found = make_failure(now, place, "OUTPUT_INVALID", fact.problem)
        yield e.AttemptFailed(place.key, place.attempt, found)
    else:
        yield e.AttemptSucceeded(place.key, place.attempt, now.state.received[str(fact.event)].value)


def end_without_event(now: DecisionContext, place: Place) -> Facts:
    """No event has come in time."""
    assert place.spec.action is not None
    params = fill_params(place.spec.action, place.bindings)
    if "default" in params:
        yield e.AttemptSucceeded(place.key, place.attempt, params["default"])
    else:
        message = f"no event '{params['event']}' came in time"
        found = make_failure(now, place, "TIMEOUT", message, details={LIMIT: "event"})
        yield e.AttemptFailed(place.key, place.attempt, found)


def _problem(place: Place, value: Any) -> str:
    """Why a place cannot use an event with this value; "" if it can."""
    assert place.spec.action is not None
    schema = place.spec.action.params.get("schema")
    problems = [] if schema is None else value_problems(schema, value, "event")
    return "; ".join(problems)
