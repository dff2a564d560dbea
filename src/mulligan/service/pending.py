"""What waits for a person, over all runs: parked steps and approvals, each with what one must know to decide."""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter
from typing import Any

from ..core.scope import error_view, filled
from ..core.state import Place, State
from ..errors import Refused
from ..ports import Waiting
from .verbs import Service


def pending(service: Service) -> list[dict[str, Any]]:
    """Oldest run first."""
    if not service.home.is_there:
        return []
    waiting = sorted(service.store.waiting(), key=attrgetter("run_id", "place"))
    found: list[dict[str, Any]] = []
    for run_id, group in groupby(waiting, key=attrgetter("run_id")):
        state = service.state(run_id)
        found += [_pending(state, one) for one in group if one.place in state.places]
    return found


def waiting_approval(service: Service, run_id: int, step: str) -> str:
    """The place of a step that waits for an approval: itself, or the one command below it that does."""
    service.record(run_id)
    approvals = [one.place for one in service.store.waiting() if one.run_id == run_id and one.kind == "approval"]
    below = [place for place in approvals if place.startswith((f"{step}[", f"{step}."))]
    if step in approvals or not below:
        return step
    if len(below) > 1:
        raise Refused(
            f"{len(below)} approvals wait in step '{step}': {', '.join(below[:10])}", hint="name one of them", step=step
        )
    return below[0]


def _pending(state: State, waiting: Waiting) -> dict[str, Any]:
    place = state.places[waiting.place]
    told = _parked(state, place) if waiting.kind == "parked" else _approval(place)
    return {
        "run_id": waiting.run_id,
        "workflow": state.workflow.name,
        "step": waiting.place,
        "kind": waiting.kind,
        "attempt": place.attempt,
        **told,
    }


def _parked(state: State, place: Place) -> dict[str, Any]:
    policy, due = state.step(place.key).triage, place.climb.parked_due
    return {
        "failure": error_view(place.failure) if place.failure else None,
        "message": "",
        "due": due.isoformat() if due else None,
        "default": policy.default if policy and due else None,
    }


def _approval(place: Place) -> dict[str, Any]:
    asked = filled(place.spec.action, place.bindings) if place.spec.action else {}
    return {
        "failure": None,
        "message": str(asked.get("message") or ""),
        "due": place.due.isoformat() if place.due else None,
        "default": (asked.get("default") or "refuse") if place.due else None,
    }
