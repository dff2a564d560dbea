"""The timers that a run waits for, found from its state alone: each is still current."""

from __future__ import annotations

from collections.abc import Iterator

from mulligan.core.effects.effects import SetTimer
from mulligan.core.evolve.evolve_places import is_engine_action, waits_until
from mulligan.core.model.reports import TimerKind
from mulligan.core.state.deadlines import deadline_of
from mulligan.core.state.state import Place, State
from mulligan.core.state.transitions import RUN_ENDED


def open_timers(state: State) -> Iterator[SetTimer]:
    """The timers of the run, then those of its places; none once it has ended. A loop may be busy when it is due."""
    run = state.run
    if run.status in (*RUN_ENDED, "new"):
        return
    if run.due is not None and run.stop is None:
        yield SetTimer("run", run.due, "", run.round)
    if run.late_due is not None:
        yield SetTimer("late", run.late_due, "", run.round)
    for loop in run.loops.values():
        yield SetTimer("loop", loop.due, loop.step, loop.edge)
    for place in state.places.values():
        if not place.has_ended and place.status != "waiting":
            yield from _of_place(state, place)


def _of_place(state: State, place: Place) -> Iterator[SetTimer]:
    climb, key, attempt = place.climb, place.key, place.attempt
    if place.status == "backing_off" and climb.due is not None:
        yield SetTimer("retry", climb.due, key, attempt + 1)
    if place.status == "handling" and climb.handler_due is not None and not climb.is_handler_late:
        yield SetTimer("handler", climb.handler_due, key, attempt)
    if place.status == "pending_failed" and climb.parked_due is not None:
        yield SetTimer("triage", climb.parked_due, key, attempt)
    if place.phase or place.status not in ("ready", "running"):
        return
    if place.status == "running" and place.due is not None and is_engine_action(place.spec):
        kind: TimerKind = "until" if waits_until(place.spec) else "attempt"
        yield SetTimer(kind, place.due, key, attempt)
    if (deadline := deadline_of(state, place)) is not None:
        yield SetTimer("deadline", deadline, key, place.visit)
