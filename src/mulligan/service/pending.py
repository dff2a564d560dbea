"""What waits for a person, over all runs: parked steps, approvals, pauses; with what one must know to decide."""

from __future__ import annotations

from functools import cache
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any

import msgspec

from mulligan.core.effects.run_lists import RunFilter
from mulligan.core.effects.snapshot import place_alone, restore
from mulligan.core.model.graph import Graph
from mulligan.core.model.place_keys import is_part
from mulligan.core.model.workflow import decode
from mulligan.core.state.scope import error_view, filled
from mulligan.core.state.state import Place, State
from mulligan.errors import CodecError, MulliganError, Refused, StoreUnavailable
from mulligan.history.retry_reasons import why_not
from mulligan.ports import RunRecord, Store, WaitingPlace
from mulligan.service.run_list import pause_of
from mulligan.service.verbs import Service

# How many runs of the same workflow are looked at, and of how many it is told what became of the step.
RUNS_SEEN_MAX = 20
RUNS_TOLD_MAX = 5
# How many paused runs are told, the newest of them.
PAUSED_MAX = 1000
# What every entry has, whatever it waits for: those who hand decisions back may hand these back with them.
KEYS = tuple(
    (
        "run_id workflow step kind parent_run_id root_run_id visit attempt since failure message parked_for rules "
        "earlier due default paused_by error commands"
    ).split()
)
_NOTHING: dict[str, Any] = {**dict.fromkeys(KEYS), "message": "", "rules": [], "earlier": [], "commands": []}


def pending(service: Service) -> list[dict[str, Any]]:
    """Oldest run first. A run that cannot be read is told as such, and hides no other."""
    if not service.home.is_there:
        return []
    waiting = sorted(service.store.waiting_places(), key=attrgetter("run_id", "place"))
    look = _Look(service.store)
    asked = [told for run_id, group in groupby(waiting, key=attrgetter("run_id")) for told in look.at(run_id, [*group])]
    paused = service.store.lists.find(RunFilter(statuses=("paused",)), limit=PAUSED_MAX)
    return sorted([*(_paused_run(service.store, record) for record in paused), *asked], key=itemgetter("run_id"))


def _paused_run(store: Store, record: RunRecord) -> dict[str, Any]:
    """A run that goes on when somebody resumes it."""
    pause = pause_of(store, record)
    return {
        **_NOTHING,
        "run_id": record.run_id,
        "workflow": record.workflow,
        "kind": "paused",
        "root_run_id": record.root_run_id or record.run_id,
        "since": (pause.at if pause is not None else record.updated_at).isoformat(),
        "message": record.reason,
        "paused_by": (pause.by or None) if pause is not None else None,
    }


def waiting_approval(service: Service, run_id: int, step: str) -> str:
    """The place of a step that waits for an approval: itself, or the one command below it that does."""
    service.record(run_id)
    approvals = [one.place for one in service.store.waiting_places() if one.run_id == run_id and one.kind == "approval"]
    below = [place for place in approvals if is_part(place, step)]
    if step in approvals or not below:
        return step
    if len(below) > 1:
        raise Refused(
            f"{len(below)} approvals wait in step '{step}': {', '.join(below[:10])}", hint="name one of them", step=step
        )
    return below[0]


class _Look:
    """One look over all runs. What many of them share is read once: a workflow, and what its steps did lately."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._graph = cache(lambda body: Graph(decode(body)))
        self._earlier = cache(self._look_back)

    def at(self, run_id: int, waiting: list[WaitingPlace]) -> list[dict[str, Any]]:
        """What waits in one run."""
        try:
            loaded = self.store.load(run_id)
            graph = self._graph(loaded.workflow)
            state = restore(graph.workflow, loaded.rows, graph)
            return [self._told(loaded.record, state, one) for one in waiting if _still_waits(state, one)]
        except StoreUnavailable:
            raise
        except (MulliganError, msgspec.MsgspecError) as error:
            found = {**_NOTHING, "error": str(error)}
            return [{**found, "run_id": run_id, "step": one.place, "kind": one.kind} for one in waiting]

    def _told(self, record: RunRecord, state: State, waiting: WaitingPlace) -> dict[str, Any]:
        place = state.places[waiting.place]
        is_parked = waiting.kind == "parked"
        return {
            **_NOTHING,
            "run_id": record.run_id,
            "workflow": state.workflow.name,
            "step": waiting.place,
            "kind": waiting.kind,
            "parent_run_id": record.parent_run_id,
            "root_run_id": record.root_run_id or record.run_id,
            "visit": state.step_of(place).visit,
            "attempt": place.attempt,
            "earlier": self._earlier(state.workflow.name, place.key) if is_parked else [],
            **(
                _parked(state, place)
                if is_parked
                else _paused_step(place)
                if waiting.kind == "paused"
                else _approval(place)
            ),
        }

    def _look_back(self, workflow: str, step: str) -> list[dict[str, Any]]:
        """What the same step did in the newest other runs of that workflow: where it failed first, then the rest."""
        rows = self.store.recent_rows(workflow, "places", step, RUNS_SEEN_MAX)
        places = [(run_id, _place(step, data)) for run_id, data in rows]
        ended = [(run_id, place) for run_id, place in places if place and place.status in ("completed", "failed")]
        ended.sort(key=lambda one: not one[1].climb.tries)
        return [_earlier(run_id, place) for run_id, place in ended[:RUNS_TOLD_MAX]]


def _place(step: str, data: bytes) -> Place | None:
    """A place of another run; None if it cannot be read: that is that run's trouble."""
    try:
        return place_alone(step, data)
    except CodecError:
        return None


def _still_waits(state: State, waiting: WaitingPlace) -> bool:
    """It may have been answered since we asked what waits."""
    place = state.places.get(waiting.place)
    if place is not None and waiting.kind == "paused":
        return place.pause is not None
    return place is not None and place.status == ("pending_failed" if waiting.kind == "parked" else "running")


def _parked(state: State, place: Place) -> dict[str, Any]:
    policy, climb, failure = state.step(place.key).triage, place.climb, place.failure
    since = climb.parked_at or (failure.at if failure else None)
    return {
        "since": since.isoformat() if since else None,
        "failure": error_view(failure) if failure else None,
        "parked_for": climb.parked_for or None,
        "rules": [msgspec.to_builtins(ground) for ground in why_not(place.spec, climb, failure)] if failure else [],
        "due": climb.parked_due.isoformat() if climb.parked_due else None,
        "default": policy.default if policy and climb.parked_due else None,
    }


def _paused_step(place: Place) -> dict[str, Any]:
    assert place.pause is not None
    return {"since": place.pause.at.isoformat(), "message": place.pause.reason, "paused_by": place.pause.by or None}


def _approval(place: Place) -> dict[str, Any]:
    asked = filled(place.spec.action, place.bindings) if place.spec.action else {}
    return {
        "since": place.entered_at.isoformat(),
        "message": str(asked.get("message") or ""),
        "due": place.due.isoformat() if place.due else None,
        "default": (asked.get("default") or "refuse") if place.due else None,
    }


def _earlier(run_id: int, place: Place) -> dict[str, Any]:
    failure, ruling = place.failure, place.climb.ruling
    return {
        "run_id": run_id,
        "status": place.status,
        "attempts": place.attempt,
        "failure": {"code": failure.code, "exit_code": failure.exit_code} if failure else None,
        "recovered_by": place.recovered_by or None,
        "ruling": msgspec.structs.asdict(ruling) if ruling else None,
    }


def in_words(earlier: dict[str, Any]) -> str:
    """What a step did in another run, as a line: how it failed, what was said of it, and what became of it."""
    ruling = earlier["ruling"]
    word = (
        f"failed with {_short(ruling)}, {ruling['by']} said {ruling['verdict']}: {ruling['reason']}" if ruling else ""
    )
    return f"run {earlier['run_id']}: {'; '.join(filter(None, (word, _end(earlier))))}"


def _short(failure: dict[str, Any]) -> str:
    return failure["code"] if failure["exit_code"] is None else f"{failure['code']} {failure['exit_code']}"


def _end(earlier: dict[str, Any]) -> str:
    how = f", recovered by its {earlier['recovered_by']} handler" if earlier["recovered_by"] else ""
    if earlier["status"] == "failed" and earlier["failure"]:
        how = f" with {_short(earlier['failure'])}"
    attempt = f" on attempt {earlier['attempts']}" if earlier["attempts"] > 1 else ""
    return f"{earlier['status']}{how}{attempt}"
