"""The items of a map step: what became of each, and the whole history of one.

The steps of a matrix are its items here: each with its values, and with its own name as `name`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from mulligan.core.effects.snapshot import read_place
from mulligan.core.evolve.revision import is_removed
from mulligan.core.model.events import Entry
from mulligan.core.model.place_keys import item_key, step_name
from mulligan.core.state.scope import error_view
from mulligan.core.state.state import Items, Place, State
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.errors import Refused, UnknownItem
from mulligan.history.item_names import find_item, index_names
from mulligan.service.runs.stored.artifacts import with_artifact_paths
from mulligan.service.runs.stored.attempts import AttemptRecord, list_attempts, unit_of
from mulligan.service.runs.stored.run_reader import RunReader, unknown_item
from mulligan.service.runs.stored.step_events import StepEvents
from mulligan.service.runs.views.overview import complete_attempts


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """An item of a map step, or a step of a matrix."""

    run_id: int
    # The map step, or the matrix.
    step: str
    # Of a step of a matrix its own name.
    name: str | msgspec.UnsetType = msgspec.UNSET
    index: int
    # Its value.
    item: Any
    status: str
    attempts: int
    recovered: bool
    recovered_by: str | None
    output: Any
    failure: dict[str, Any] | None
    # Every attempt at it, over all rounds, in the order in which they were scheduled; only where it was asked for.
    history: list[AttemptRecord] | msgspec.UnsetType = msgspec.UNSET


def find_item_indexes(reader: RunReader, run_id: int, step: str, words: Sequence[str]) -> list[int]:
    """The items that people name: by index, or by the name that places show, such as `west`. `UnknownItem`.

    An index wins where a name could be meant, so no name hides an item.
    """
    if all(word.isdecimal() for word in words):
        return [int(word) for word in words]
    state = reader.brief_state(run_id)[0]
    reader.refuse_unknown(run_id, step)
    if (members := state.graph.matrices.get(step)) is not None:
        return [_find_index(run_id, step, members, (), word) for word in words]
    place = state.places.get(step)
    items = place.items if place is not None and place.items is not None else Items(0)
    return [_find_index(run_id, step, items.values, items.names, word) for word in words]


def _find_index(run_id: int, step: str, values: Sequence[Any], given: Sequence[str], word: str) -> int:
    index = int(word) if word.isdecimal() else find_item(values, word, given)
    if index is not None:
        return index
    raise unknown_item(run_id, step, word, index_names(values, given))


class SomeItems(msgspec.Struct, frozen=True):
    """Some items of a map step or steps of a matrix, in order; and how many of all are in each status."""

    items: list[Item]
    # How many match; and behind which index the next ones are, None if there are no more.
    total: int
    next: int | None
    counts: dict[str, int]


def list_some_items(
    reader: RunReader, run_id: int, step: str, *, is_failed: bool = False, after: int = -1, limit: int | None = None
) -> SomeItems:
    """Items behind an index; with `is_failed` only those that failed. Of the others only the status is read."""
    state, ended = reader.brief_state(run_id)
    statuses = _brief_statuses(reader, state, ended, step)
    chosen = [index for index, status in enumerate(statuses) if not is_failed or status == "failed"]
    left = [index for index in chosen if index > after] if after >= 0 else chosen
    page = left if limit is None else left[:limit]
    items = _brief_items(reader, state, ended, step, page, statuses)
    return SomeItems(items, len(chosen), page[-1] if len(left) > len(page) else None, dict(Counter(statuses)))


_Ended = Mapping[str, tuple[str, bytes]]


def _brief_statuses(reader: RunReader, state: State, ended: _Ended, step: str) -> list[str]:
    """The status of each item, with those that have ended and are not in the state."""
    statuses = item_statuses(reader, state, step)
    if step not in state.graph.matrices:
        for index, status in enumerate(statuses):
            found = ended.get(item_key(step, index))
            statuses[index] = status if found is None else found[0]
    return statuses


def _brief_items(
    reader: RunReader, state: State, ended: _Ended, step: str, indexes: Sequence[int], statuses: Sequence[str]
) -> list[Item]:
    for key in (item_key(step, index) for index in indexes):
        if key in ended:
            state.places[key] = read_place(key, ended[key][1])
    return items_at(reader, state, step, indexes, statuses)


def item_histories(reader: RunReader, run_id: int, step: str, indexes: Sequence[int]) -> list[Item]:
    """Items with every attempt at them. State and log are read once, however many are asked for."""
    state, ended = reader.brief_state(run_id)
    statuses = _brief_statuses(reader, state, ended, step)
    count = len(statuses)
    for index in indexes:
        if not 0 <= index < count:
            hint = f"its items are 0 to {count - 1}" if count else "it has no items yet"
            raise UnknownItem(f"step '{step}' of run {run_id} has no item {index}", hint=hint, step=step, item=index)
    items = _brief_items(reader, state, ended, step, indexes, statuses)
    attempts = _attempts(reader, state, items)
    complete_attempts(reader, run_id, [one for some in attempts.values() for one in some])
    return [msgspec.structs.replace(item, history=attempts.get(_place(item), [])) for item in items]


def _attempts(reader: RunReader, state: State, items: Sequence[Item]) -> dict[str, list[AttemptRecord]]:
    """The attempts at items of a map, or at steps of a matrix, by their places."""
    found: dict[str, list[AttemptRecord]] = {_place(item): [] for item in items}
    owner = unit_of if items and items[0].name is msgspec.UNSET else step_name
    for one in list_attempts(_entries(reader, state, items), lambda place: owner(place) in found):
        found[owner(one.place)].append(one)
    return found


def _entries(reader: RunReader, state: State, items: Sequence[Item]) -> Iterable[Entry]:
    """The events in which the attempts are. Of a single one the store finds its events, and no others are read."""
    run_id = state.run.run_id
    # The items of a map are not among the events of its step.
    is_whole = len(items) != 1 or (isinstance(items[0].name, str) and state.step(items[0].name).map is not None)
    if is_whole:
        return reader.events(run_id)
    (item,) = items
    events = StepEvents(reader)
    # The events of the run say when its rounds began.
    find = events.entries_with_run if state.run.round > 1 else events.entries
    return find(run_id, item.name) if isinstance(item.name, str) else find(run_id, item.step, item.index)


def _place(item: Item) -> str:
    """The place of an item of a map; of a matrix, its step."""
    return item.name if isinstance(item.name, str) else item_key(item.step, item.index)


def refuse_matrix(reader: RunReader, run_id: int, step: str) -> None:
    """Refuse to retry single items of a matrix: its steps are steps, and `retry` runs them again."""
    if step in reader.lazy_state(run_id).graph.matrices:
        raise Refused(
            f"'{step}' is a matrix, and its steps are retried with the run",
            hint=f"all that failed: mulligan retry {run_id}; "
            f"one that completed, too: mulligan retry {run_id} --from STEP",
        )


def item_statuses(reader: RunReader, state: State, step: str) -> list[str]:
    """The status of each item of a map step, or of each step of a matrix, in order."""
    if step in state.graph.matrices:
        members = (state.places.get(name) for name in state.graph.matrices[step])
        return [member.status if member else "waiting" for member in members]
    map_step = _find_map_step(reader, state, step)
    is_over = state.run.status in RUN_ENDED or map_step.has_ended
    # An item that never began, of a map that has ended, waits for nothing.
    unbegun = "not started" if is_over else "waiting"
    return [
        unbegun if place is None or place.status == "waiting" else place.status for place in state.items_of(map_step)
    ]


def items_at(
    reader: RunReader, state: State, step: str, indexes: Sequence[int], statuses: Sequence[str] = ()
) -> list[Item]:
    """These items of a map step, or these steps of a matrix. `statuses`: those of all, if the caller has them."""
    statuses = statuses or item_statuses(reader, state, step)
    names = state.graph.matrices.get(step)
    if names is not None:
        return [
            _item(
                reader,
                state,
                state.places.get(names[index]),
                step=step,
                name=names[index],
                index=index,
                item=state.step(names[index]).matrix,
                status=statuses[index],
            )
            for index in indexes
        ]
    items = _find_map_step(reader, state, step).items
    places = ((index, state.places.get(item_key(step, index))) for index in indexes)
    return [
        _item(reader, state, place, step=step, index=index, item=items.values[index], status=statuses[index])
        for index, place in places
        if items
    ]


def _item(reader: RunReader, state: State, place: Place | None, **fields: Any) -> Item:
    failure = place.failure if place else None
    return Item(
        run_id=state.run.run_id,
        attempts=place.attempt if place else 0,
        recovered=bool(place and place.recovered_by),
        recovered_by=place.recovered_by or None if place else None,
        output=with_artifact_paths(reader.store.artifacts, place.output) if place else None,
        failure=with_artifact_paths(reader.store.artifacts, error_view(failure)) if failure else None,
        **{**fields, "item": with_artifact_paths(reader.store.artifacts, fields["item"])},
    )


def _find_map_step(reader: RunReader, state: State, step: str) -> Place:
    run_id = state.run.run_id
    if step not in state.graph.nodes:
        reader.refuse_unknown(run_id, step)
    place = state.places.get(step)
    # Asked of this state: the reader would load all of it again, which takes seconds with 100,000 items.
    if is_removed(state, step):
        reader.refuse_removed(run_id, step)
    if place is None or place.role != "step" or state.step(step).map is None:
        raise Refused(f"step '{step}' of run {run_id} is not a map: it has no items", step=step)
    return place
