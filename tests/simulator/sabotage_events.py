"""Deliberate defects in how a run receives events, keeps them and gives them to the steps that wait for them."""

from __future__ import annotations

from typing import Any

from mulligan.core.deciding import admit, fact_dispatch, run_events
from mulligan.core.effects import snapshot
from mulligan.core.evolve import evolve_places, evolve_run
from mulligan.core.model import reports as r
from mulligan.core.state import mailbox

from .sabotage import DEFECTS, defect

_BEFORE = set(DEFECTS)


@defect(run_events, "first_free")
def _(real: Any) -> Any:
    """the event that came last is taken first"""
    return lambda state, name: (state.free_events.get(name) or (0,))[-1]


@defect(fact_dispatch, "deliver_to")
def _(real: Any) -> Any:
    """an event that came early is not given to the step that waits for it later"""
    return lambda *about: iter(())


@defect(admit._HANDLERS, r.EventSent)
def _(real: Any) -> Any:
    """an event for which nothing waits is accepted and not kept"""

    def receive_event(now: Any, report: Any) -> Any:
        facts = list(real(now, report))
        return iter(facts if mailbox.open_waits(now.state, report.name) else ())

    return receive_event


@defect(evolve_run, "receive")
def _(real: Any) -> Any:
    """an event that is sent again with its key is another one"""

    def receive(state: Any, number: int, event: Any) -> None:
        real(state, number, event)
        state.event_keys.pop(event.key, None)

    return receive


@defect(snapshot, "restore_events")
def _(real: Any) -> Any:
    """a run that is loaded has forgotten the keys of its events"""

    def restore_events(state: Any) -> None:
        real(state)
        state.event_keys.clear()

    return restore_events


@defect(evolve_run, "give_back")
def _(real: Any) -> Any:
    """a step that runs again waits for another event"""
    return lambda *about: None


@defect(evolve_places, "take")
def _(real: Any) -> Any:
    """a step that has failed with an event gets it again"""
    return lambda state, number, place, **about: real(state, number, place)


@defect(evolve_places, "spend")
def _(real: Any) -> Any:
    """a step that was undone gets its event again"""
    return lambda *about: None


SENTENCES = tuple(sentence for sentence in DEFECTS if sentence not in _BEFORE)
