"""The items of a map step, as plain data for every face: what became of each, and the whole history of one.

The steps of a matrix are its items here: each with its values, and with its own name as `name`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from mulligan.core.model.place_keys import is_at_or_below, item_key
from mulligan.core.state.scope import error_view
from mulligan.core.state.state import Place, State
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.errors import NotFound, Refused
from mulligan.service.artifacts import located
from mulligan.service.attempts import tries
from mulligan.service.verbs import Service


class UnknownItem(NotFound):
    code = "item.unknown"


def items(service: Service, run_id: int, step: str, *, is_failed: bool = False) -> list[dict[str, Any]]:
    """The items of a map step, or the steps of a matrix, in order; with `is_failed` those that have failed.

    Refused where it has none.
    """
    state = service.state(run_id)
    found: Iterable[dict[str, Any]]
    if step in state.graph.matrices:
        found = (_combination(state, step, index) for index in range(len(state.graph.matrices[step])))
    else:
        place = _map_step(service, state, step)
        values = place.items.values if place.items else []
        found = (_item(state, place, index, value) for index, value in enumerate(values))
    chosen = [item for item in found if not is_failed or item["status"] == "failed"]
    return located(service.store.artifacts, chosen)


def history(service: Service, run_id: int, step: str, index: int) -> dict[str, Any]:
    """One item with every attempt at it, over all rounds, in the order in which they were scheduled."""
    state = service.state(run_id)
    if members := state.graph.matrices.get(step):
        _refuse_beyond(state, step, index, len(members))
        name = members[index]
        item = _combination(state, step, index)
        tried = tries(service.events(run_id), lambda place: is_at_or_below(place, name))
    else:
        place = _map_step(service, state, step)
        values = place.items.values if place.items else []
        _refuse_beyond(state, step, index, len(values))
        item = _item(state, place, index, values[index])
        prefix = f"{item_key(step, index)}."
        tried = tries(service.events(run_id), lambda place: place.startswith(prefix))
    return {**located(service.store.artifacts, item), "history": [msgspec.to_builtins(one) for one in tried]}


def _refuse_beyond(state: State, step: str, index: int, count: int) -> None:
    if not 0 <= index < count:
        hint = f"its items are 0 to {count - 1}" if count else "it has no items yet"
        message = f"step '{step}' of run {state.run.run_id} has no item {index}"
        raise UnknownItem(message, hint=hint, step=step, item=index)


def refuse_matrix(service: Service, run_id: int, step: str) -> None:
    """Refuse to give a matrix another round by its items: its steps are steps, and `retry` runs them again."""
    if step in service.state(run_id).graph.matrices:
        message = f"'{step}' is a matrix, and its steps are retried with the run"
        raise Refused(
            message, hint=f"all that failed: mulligan retry {run_id}; one: mulligan retry {run_id} --from STEP"
        )


def _map_step(service: Service, state: State, step: str) -> Place:
    run_id = state.run.run_id
    if step not in state.graph.nodes:
        service.refuse_unknown(run_id, step)
    place = state.places.get(step)
    service.refuse_removed(run_id, step)
    if place is None or place.role != "step" or state.step(step).map is None:
        raise Refused(f"step '{step}' of run {run_id} is no map: it has no items", step=step)
    return place


# -- one item --------------------------------------------------------------------------------------------------------


def _item(state: State, step: Place, index: int, value: Any) -> dict[str, Any]:
    place = state.places.get(item_key(step.key, index))
    failure = place.failure if place else None
    return {
        "run_id": state.run.run_id,
        "step": step.key,
        "index": index,
        "item": value,
        "status": _status(state, step, place),
        "attempts": place.attempt if place else 0,
        "recovered": bool(place and place.recovered_by),
        "recovered_by": place.recovered_by or None if place else None,
        "output": place.output if place else None,
        "failure": error_view(failure) if failure else None,
    }


def _combination(state: State, matrix: str, index: int) -> dict[str, Any]:
    """A step of a matrix as an item of it."""
    name = state.graph.matrices[matrix][index]
    place = state.places.get(name)
    failure = place.failure if place else None
    return {
        "run_id": state.run.run_id,
        "step": matrix,
        "name": name,
        "index": index,
        "item": state.step(name).matrix,
        "status": place.status if place else "waiting",
        "attempts": place.attempt if place else 0,
        "recovered": bool(place and place.recovered_by),
        "recovered_by": place.recovered_by or None if place else None,
        "output": place.output if place else None,
        "failure": error_view(failure) if failure else None,
    }


def _status(state: State, step: Place, item: Place | None) -> str:
    """One that nobody has begun, of a map that has come to its end, waits for nothing: it was not started."""
    if item is not None and item.status != "waiting":
        return item.status
    is_over = state.run.status in RUN_ENDED or step.has_ended
    return "not started" if is_over else "waiting"
