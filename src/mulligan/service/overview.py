"""A run at a glance, as plain data for every face: its steps, what they cost, its items, its child runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..core import events as e
from ..core.failure import Failure
from ..core.scope import error_view
from ..core.state import Place, State
from ..core.transitions import RUN_ENDED
from ..core.views import run_json
from ..core.words import what
from ..core.workflow import END
from ..errors import Refused, UnknownStep
from ..ports import RunRecord
from .reading import STEP_NAME
from .verbs import Service

_MEASURED = (e.AttemptSucceeded, e.AttemptFailed)


def overview(service: Service, run_id: int) -> dict[str, Any]:
    """The run as `run --json` prints it, and more: who drives it, what each step cost, items, the tree of children."""
    state = service.state(run_id)
    costs = _costs(service.events(run_id))
    shown = run_json(state)
    for name, step in (*shown["steps"].items(), *([(END, shown["end"])] if shown["end"] else [])):
        step["usage"] = costs.get(name)
        step["items"] = _counted(state, state.places[name])
    return {**listed(service, service.record(run_id)), **shown, "children": _children(service, run_id)}


def listed(service: Service, record: RunRecord) -> dict[str, Any]:
    """The run's line in the list."""
    driver = None if record.status in RUN_ENDED else service.driver_of(record)
    return {
        "run_id": record.run_id,
        "workflow": record.workflow,
        "version": record.version,
        # One that nobody has taken up yet is no other kind of run.
        "status": "running" if record.status == "new" else record.status,
        "round": record.round,
        "degraded": record.degraded,
        "reason": record.reason,
        "created_at": record.created_at.isoformat(),
        "updated_at": record.updated_at.isoformat(),
        "parent_run_id": record.parent_run_id,
        "driver": None if driver is None else {"pid": driver.pid, "host": driver.host},
    }


def items(service: Service, run_id: int, step: str) -> list[dict[str, Any]]:
    """The items of a map step, in order; refused where it has none."""
    state = service.state(run_id)
    place = state.places.get(step)
    if place is None or place.role != "step":
        raise UnknownStep(f"'{step}' is not a step of run {run_id}", step=step)
    if state.step(step).map is None:
        raise Refused(f"step '{step}' of run {run_id} is no map: it has no items", step=step)
    values = place.items.values if place.items else []
    return [{"run_id": run_id, "step": step, **_item(state, step, i, value)} for i, value in enumerate(values)]


def in_a_line(failure: Mapping[str, Any]) -> str:
    """A failure that is shown as data, in a few words."""
    return what(Failure(failure["code"], failure["message"] or "", exit_code=failure["exit_code"]))


def _costs(entries: Iterable[e.Entry]) -> dict[str, dict[str, Any]]:
    """What the attempts cost, added up by step."""
    costs: dict[str, dict[str, Any]] = {}
    for entry in entries:
        if isinstance(entry.fact, _MEASURED) and entry.fact.usage:
            _add(costs, entry.fact.place, entry.fact.usage)
    return costs


def _add(costs: dict[str, dict[str, Any]], place: str, usage: dict[str, Any]) -> None:
    name = STEP_NAME.match(place)
    assert name is not None, "a place begins with the name of its step"
    cost = costs.setdefault(name.group(), {"wall_seconds": 0.0, "cpu_seconds": 0.0, "peak_memory": 0})
    for key in ("wall_seconds", "cpu_seconds"):
        cost[key] = round(cost[key] + usage.get(key, 0.0), 6)
    cost["peak_memory"] = max(cost["peak_memory"], usage.get("peak_memory") or 0)


def _counted(state: State, place: Place) -> dict[str, int] | None:
    found = place.items
    if found is None:
        return None
    statuses = [_status(state, place.key, index) for index in range(len(found.values))]
    told = ("completed", "failed", "running", "waiting", "cancelled")
    return {"total": len(statuses), **{status: statuses.count(status) for status in told}}


def _status(state: State, step: str, index: int) -> str:
    item = state.places.get(f"{step}[{index}]")
    return "waiting" if item is None else item.status


def _item(state: State, step: str, index: int, value: Any) -> dict[str, Any]:
    place = state.places.get(f"{step}[{index}]")
    failure = place.failure if place else None
    return {
        "index": index,
        "item": value,
        "status": _status(state, step, index),
        "attempts": place.attempt if place else 0,
        "recovered": bool(place and place.recovered_by),
        "output": place.output if place else None,
        "failure": error_view(failure) if failure else None,
    }


def _children(service: Service, run_id: int) -> list[dict[str, Any]]:
    return [
        {
            **listed(service, child),
            "step": child.parent_place,
            "attempt": child.parent_attempt,
            "children": _children(service, child.run_id),
        }
        for child in service.store.children(run_id)
    ]
