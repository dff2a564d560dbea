"""The tables of a run as rows: what a turn has changed, and the state restored from rows.

A row holds the values of a struct in the order of its fields, without their names. A field that a later release adds
goes to the end of its struct and has a default, so that rows written before it can still be read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from operator import itemgetter, methodcaller
from typing import Any, get_type_hints

import msgspec

from mulligan.core.evolve.evolve_places import command_spec
from mulligan.core.model.actions import traits_of
from mulligan.core.model.agents.spending import Spent
from mulligan.core.model.event_types import ReceivedEvent
from mulligan.core.model.graph import Graph
from mulligan.core.model.workflow import END, Command, Step, Workflow, decode, encode
from mulligan.core.state.brief_state import BriefState
from mulligan.core.state.dropped_calls import restore_dropped
from mulligan.core.state.mailbox import restore_events, restore_waits
from mulligan.core.state.program_progress import DroppedCall, RecordedCall
from mulligan.core.state.state import (
    ITEM,
    NOTHING_TRIED,
    FailureRecord,
    Items,
    PastVisit,
    Place,
    RecordedDecision,
    Run,
    State,
    Tally,
    UndoableVisit,
)
from mulligan.core.state.transitions import ENDED
from mulligan.errors import CodecError, IllegalTransition

# kind of table, key, tag (for searches over all runs: "parked", "approval", "paused", "event", the fingerprint of a
# reusable result, or what a decision was about; otherwise ""), data (None: delete the row)
Row = tuple[str, str, str, bytes | None]

# The statuses of places that have no tag, unless they are paused or have a result that may be reused.
_UNTAGGED = frozenset({"waiting", "ready", "completed"})
# The tags of places that wait for a person, or for an event.
WAITING_TAGS = ("parked", "approval", "paused", "event")

_WAITING = {"approval": "approval", "event": "event"}


# The latest data by key, of one kind.
_Table = dict[str, bytes]


# Fields of the run that may be large and seldom change: each has its own row, written only if it has changed.
_LARGE = (
    *("inputs", "outputs", "loops", "loops_taken", "held", "unstarted", "adjustments"),
    *("spent", "budgets", "data", "notify", "sessions", "published"),
)
_RUN_NAMES = tuple(name for name in Run.__struct_fields__ if name not in _LARGE)
# Without the key, which is that of the row, and the spec, which is in the workflow. The list of a map has its own row.
_ITEMS = Place.__struct_fields__.index("items")
_IN_ROW = slice(0, Place.__struct_fields__.index("key"))


class _ItemsRow(msgspec.Struct, array_like=True):
    """The row of the list of a map. One without names is as it was before there were any."""

    values: list[Any]
    todo: tuple[int, ...]
    names: tuple[str, ...] = ()


_TYPES: dict[str, Any] = {
    "items": _ItemsRow,
    "arcs": str,
    "barriers": tuple[int, int],
    "failures": FailureRecord,
    "recoveries": FailureRecord,
    "undoables": UndoableVisit,
    "past": PastVisit,
    "routed": tuple[int, ...],
    "informed": tuple[int, ...],
    "tallies": Tally,
    "decisions": RecordedDecision,
    "calls": RecordedCall,
    "definitions": Step,
    "dropped": DroppedCall,
    "received": ReceivedEvent,
    # The same rows under another tag, for searches in all workflows. They are not restored.
    "decisions_by_code": RecordedDecision,
}
# The corrected definition that a run uses instead of the one it was started with: canonical JSON.
_DEFINITION = "definition"
_KINDS = ("run", *_LARGE, "places", *_TYPES, _DEFINITION)

_encode = msgspec.msgpack.Encoder().encode
_astuple = msgspec.structs.astuple
_copy = methodcaller("__copy__")
# Picks from all values of a run at once, which takes half the time of single lookups.
_small = itemgetter(*map(Run.__struct_fields__.index, _RUN_NAMES))
_large = itemgetter(*map(Run.__struct_fields__.index, _LARGE))


# -- writing ---------------------------------------------------------------------------------------------------------


def changes(state: State) -> list[Row]:
    """The rows that have changed since `state.begin()`, with their current values.

    The row of the run is always included. Takes time in proportion to the turn, not to the run.
    """
    run = _astuple(state.run)
    rows: list[Row] = [("run", "", "", _encode(_small(run)))]
    now, before = _large(run), _large(_astuple(state.run_before()))
    if now != before:
        rows += [
            (name, "", "", _encode(new)) for name, new, old in zip(_LARGE, now, before, strict=True) if new is not old
        ]
    if state.is_revised:
        rows.append((_DEFINITION, "", "", encode(state.workflow)))
    places = state.places
    for (table, key), old in state.changed_entries().items():
        if table == "decisions":
            rows += _decision_rows(state, key)
            continue
        if table != "places":
            rows.append(_plain_row(table, key, getattr(state, table)))
            continue
        place = places.get(key)
        listed_before = None if old is None else old.items
        if place is not None and place.items is None and listed_before is None:
            # Nearly all places.
            is_plain = place.status in _UNTAGGED and place.pause is None and not place.fingerprint
            tag = "" if is_plain else _tag(place)
            rows.append((table, key, tag, _encode(_astuple(place)[_IN_ROW])))
            continue
        rows.append((table, key, "", None) if place is None else (table, key, _tag(place), _encode(_values(place))))
        listed = None if place is None else place.items
        if listed is not listed_before:
            rows += _items_rows(key, listed, listed_before)
    return rows


def _values(place: Place) -> list[Any]:
    """The values of a place's row: its fields up to the key, of its items the counts alone."""
    values = list(_astuple(place)[_IN_ROW])
    if place.items is not None:
        values[_ITEMS] = place.items.counts
    return values


def _tag(place: Place) -> str:
    """What the place waits for, if that is a person or an event; the fingerprint of a result that may be reused."""
    status = place.status
    if status == "completed":
        return "" if place.recovered_by or place.is_undone or place.has_failed_undo else place.fingerprint
    if status == "running" and not place.phase and (tag := _WAITING.get(traits_of(place.spec.action).activity)):
        return tag
    if status == "pending_failed":
        # Not while an agent is asked: it may decide.
        return "" if place.child else "parked"
    return "paused" if place.pause is not None and not place.has_ended else ""


def _items_rows(key: str, items: Items | None, before: Items | None) -> list[Row]:
    """The row for the list of a map step, if it has changed. The counts of items are in the row of the place."""
    if items is None:
        return [("items", key, "", None)]
    if before is not None and items.values is before.values and items.todo is before.todo:
        return []
    row = (items.values, items.todo, items.names) if items.names else (items.values, items.todo)
    return [("items", key, "", _encode(row))]


def decision_tag(code: str, exit_code: int | None = None, *, workflow: str = "", step: str = "") -> str:
    """The tag of decisions about an error: of one step of a workflow, or of this exit code anywhere.

    A digest, since an index takes no text of any length.
    """
    about = msgspec.json.encode([code, workflow, step] if workflow else [code, exit_code])
    return f"decided:{hashlib.sha256(about).hexdigest()[:32]}"


def _decision_rows(state: State, key: tuple[str, int]) -> list[Row]:
    """The rows of a decision: by workflow, step and code, and by code and exit code."""
    decision, text = state.decisions.get(key), _text(key)
    if decision is None:
        return [("decisions", text, "", None), ("decisions_by_code", text, "", None)]
    data, code = _encode(decision), decision.code
    return [
        ("decisions", text, decision_tag(code, workflow=state.workflow.name, step=key[0]), data),
        ("decisions_by_code", text, decision_tag(code, decision.exit_code), data),
    ]


def _plain_row(name: str, key: Any, table: Any) -> Row:
    if type(table) is list:
        return name, str(key), "", _encode(table[key]) if key < len(table) else None
    value = table.get(key)
    return name, _text(key), "", None if value is None else _encode(value)


def _text(key: str | tuple[str, int]) -> str:
    """The key of a table as text. The visit comes first, so that the step may contain a colon."""
    return key if isinstance(key, str) else f"{key[1]}:{key[0]}"


# -- reading ---------------------------------------------------------------------------------------------------------


@cache
def _reader(kind: str) -> Callable[[bytes], Any]:
    """The decoder for rows of a kind, created at its first use: most processes only write."""
    if kind == "run":
        return _values_reader(Run, _RUN_NAMES)
    if kind == "places":
        return msgspec.msgpack.Decoder(Place).decode
    if kind == "heads":
        return msgspec.msgpack.Decoder(_PlaceHead).decode
    return msgspec.msgpack.Decoder(_TYPES[kind] if kind in _TYPES else get_type_hints(Run)[kind]).decode


def _values_reader(struct: type[msgspec.Struct], names: Iterable[str]) -> Callable[[bytes], tuple[Any, ...]]:
    """A decoder for the fields of a struct, in order; missing fields get their defaults."""
    hints = get_type_hints(struct)
    known = {field.name: (field.name, hints[field.name], _default(field)) for field in msgspec.structs.fields(struct)}
    values = msgspec.defstruct("Values", [known[name] for name in names], array_like=True)
    decode = msgspec.msgpack.Decoder(values).decode
    return lambda data: msgspec.structs.astuple(decode(data))


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return msgspec.field(default_factory=field.default_factory)
    return field.default


def read_place(key: str, data: bytes) -> Place:
    """A place from its row alone, without its spec and items."""
    place: Place = _read_row("places", data)
    place.key, place.items = key, None
    return place


class _NamedStep(msgspec.Struct):
    name: str


class _NamedSteps(msgspec.Struct):
    steps: list[_NamedStep]


class _PlaceHead(msgspec.Struct, array_like=True):
    role: str
    status: str


def read_step_statuses(workflow: bytes, rows: Iterable[Row]) -> dict[str, str]:
    """The status of each step in the order of the file, without restoring the run: a tenth of the time."""
    read = _reader("heads")
    found: dict[str, str] = {}
    for kind, key, _, data in rows:
        if kind == _DEFINITION and data is not None:
            workflow = data
        elif kind == "places" and data is not None:
            place = read(data)
            if place.role == "step":
                found[key] = place.status
    names = [step.name for step in msgspec.json.decode(workflow, type=_NamedSteps).steps]
    return {name: found.get(name, "waiting") for name in names}


def read_items(data: bytes) -> tuple[list[Any], tuple[str, ...]]:
    """The values of the items of a map, and the names that its file gives them, from their row alone."""
    row: _ItemsRow = _read_row("items", data)
    return row.values, row.names


def read_spent(data: bytes) -> Spent:
    """What the agents of a run have spent, from its row alone."""
    spent: Spent = _read_row("spent", data)
    return spent


def read_tally(data: bytes) -> Tally:
    """A tally from its row alone."""
    tally: Tally = _read_row("tallies", data)
    return tally


def read_decision(key: str, data: bytes) -> tuple[str, RecordedDecision]:
    """A decision from its row alone: the step, and the verdict."""
    decision: RecordedDecision = _read_row("decisions", data)
    return key.partition(":")[2], decision


def read_failure(data: bytes) -> FailureRecord:
    """The record of a failed visit from its row alone."""
    record: FailureRecord = _read_row("failures", data)
    return record


def _read_row(kind: str, data: bytes) -> Any:
    try:
        return _reader(kind)(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, TypeError) as error:
        raise CodecError(f"a row of the tables cannot be read: {_reason(error)}") from error


def restore_brief(
    workflow: Workflow, rows: Iterable[Row], graph: Graph | None = None
) -> tuple[State, dict[str, tuple[str, bytes]]]:
    """The state for readers, without the items that have ended; and those by key, each with its status and its row.

    Steps are decoded when they are asked for: see `BriefState`. A run of 100,000 steps or items is read in a quarter of
    the time. Raises `CodecError` if the rows cannot be read; a damaged row of a step raises it later.
    """
    ended: dict[str, tuple[str, bytes]] = {}
    return _restore(BriefState, workflow, _without_ended_items(rows, ended), graph), ended


def _without_ended_items(rows: Iterable[Row], ended: dict[str, tuple[str, bytes]]) -> Iterator[Row]:
    read = _reader("heads")
    for row in rows:
        kind, key, _, data = row
        if key[-1:] == "]" and kind == "places" and data is not None:
            head = read(data)
            if head.role == "item" and head.status in ENDED:
                ended[key] = head.status, data
                continue
        yield row


def restore(
    workflow: Workflow, rows: Iterable[Row], graph: Graph | None = None, *, may_lack_steps: bool = False
) -> State:
    """The state from rows: for each kind and key the last row counts. Raises `CodecError` if they cannot be read.

    `workflow` is the definition that the run was started with; a corrected one is in the rows. A started run has a
    row for each step, unless `may_lack_steps`, which is for audits that report missing rows.
    """
    return _restore(State, workflow, rows, graph, may_lack_steps=may_lack_steps)


def _restore(
    kind: type[State],
    workflow: Workflow,
    rows: Iterable[Row],
    graph: Graph | None,
    *,
    may_lack_steps: bool = False,
) -> State:
    try:
        tables = _latest(rows)
        if tables[_DEFINITION]:
            workflow, graph = decode(tables[_DEFINITION][""]), None
        state = kind(workflow, graph)
        _fill(state, tables)
    except (msgspec.MsgspecError, LookupError, ValueError, TypeError, RecursionError, IllegalTransition) as error:
        raise CodecError(f"the tables of the run cannot be read: {_reason(error)}") from error
    if state.run.status != "new" and not may_lack_steps:
        missing = next((name for name in (*state.graph.nodes, END) if name not in state.places), None)
        if missing is not None:
            raise CodecError(f"the tables of the run cannot be read: step '{missing}' is not in them")
    return state


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "a value is nested too deep"
    return f"unknown name {error}" if isinstance(error, KeyError) else str(error)


def _fill(state: State, tables: dict[str, _Table]) -> None:
    for name in ("arcs", "barriers", "tallies", "dropped", "received"):
        read = _reader(name)
        getattr(state, name).update((key, read(data)) for key, data in tables[name].items())
    for name in ("past", "routed", "informed", "decisions"):
        read = _reader(name)
        getattr(state, name).update((_pair(key), read(data)) for key, data in tables[name].items())
    for name in ("failures", "recoveries", "undoables"):
        table = tables[name]
        getattr(state, name).extend(_reader(name)(table[str(index)]) for index in range(len(table)))
    state.definitions.update((digest, _reader("definitions")(data)) for digest, data in tables["definitions"].items())
    calls = ((label, _reader("calls")(data)) for label, data in tables["calls"].items())
    state.restore_calls(dict(sorted(calls, key=lambda one: one[1].index)))
    restore_dropped(state)
    restore_events(state)
    _restore_run(state.run, tables)
    _restore_places(state, tables["places"], tables["items"])
    if not isinstance(state, BriefState):
        state.restore_deliveries()
        restore_waits(state)


def _latest(rows: Iterable[Row]) -> dict[str, _Table]:
    tables: dict[str, _Table] = {kind: {} for kind in _KINDS}
    for kind, key, _, data in rows:
        if data is None:
            tables[kind].pop(key, None)
        else:
            tables[kind][key] = data
    return tables


def _pair(text: str) -> tuple[str, int]:
    visit, _, step = text.partition(":")
    return step, int(visit)


def _restore_run(run: Run, tables: dict[str, _Table]) -> None:
    if tables["run"]:
        for name, value in zip(_RUN_NAMES, _reader("run")(tables["run"][""]), strict=True):
            setattr(run, name, value)
    for name in _LARGE:
        if tables[name]:
            setattr(run, name, _reader(name)(tables[name][""]))


def _restore_places(state: State, places: _Table, items: _Table) -> None:
    """Restore steps in file order, then items, then commands in the order they were entered: parents first."""
    read: Callable[[bytes], Place] = _reader("places")
    texts = _SharedTexts()
    if isinstance(state, BriefState):
        _add_lazy_steps(state, places, items, texts)
    else:
        _restore_steps(state, places, items, texts)
    found = state.places
    below = [(place.role != "item", place.entered_seq, key, place) for key, place in _others(places, found, read)]
    # No two have the same key, so that places are not compared.
    below.sort()
    for is_command, _, key, place in below:
        if is_command:
            place.spec = _spec(state, key, place)
        found[key] = place
        _complete(place, key, items, texts)


def _restore_steps(state: State, places: _Table, items: _Table, texts: _SharedTexts) -> None:
    read: Callable[[bytes], Place] = _reader("places")
    found = state.places
    # Most steps that were not entered have the same row, and a copy is made in a fifth of the time.
    last_data, last = b"", Place("step", "waiting")
    for name, step in (*((name, node.step) for name, node in state.graph.nodes.items()), (END, state.workflow.end)):
        data = places.get(name)
        if data is not None:
            place = _copy(last) if data == last_data else read(data)
            last_data, last = data, place
            found[name] = place
            place.spec = step
            _complete(place, name, items, texts)


def _add_lazy_steps(state: BriefState, places: _Table, items: _Table, texts: _SharedTexts) -> None:
    def make(name: str) -> Place:
        place: Place = _read_row("places", places[name])
        place.spec = state.step(name)
        _complete(place, name, items, texts)
        return place

    read = _reader("heads")
    names = [name for name in (*state.graph.nodes, END) if name in places]
    state.add_steps({name: read(places[name]).status for name in names}, make)


def _others(places: _Table, found: dict[str, Place], read: Callable[[bytes], Place]) -> Iterator[tuple[str, Place]]:
    """The places that are no steps of the graph."""
    return ((key, read(data)) for key, data in places.items() if key not in found)


class _SharedTexts(dict[str, str]):
    """One object for texts that are equal in many places."""

    def __missing__(self, text: str) -> str:
        self[text] = text
        return text


def _complete(place: Place, key: str, items: _Table, texts: _SharedTexts) -> None:
    """Add to a place what is not in its row."""
    place.key = key
    if place.settled:
        place.settled = texts[place.settled]
    if place.worker:
        place.worker, place.host = texts[place.worker], texts[place.host]
    if place.parent:
        place.parent = texts[place.parent]
    if place.items is not None:
        row: _ItemsRow = _reader("items")(items[key])
        place.items = msgspec.structs.replace(place.items, values=row.values, todo=row.todo, names=row.names)
    if place.climb == NOTHING_TRIED:
        # The shared instance, as in a live state: most places never fail.
        place.climb = NOTHING_TRIED


def _spec(state: State, key: str, place: Place) -> Command:
    """The definition of a place that is no item and no step of the graph."""
    if place.role == "step":
        # A step that a corrected definition removed keeps its place.
        return ITEM if state.run.revision is not None else state.step(key)
    return command_spec(state, state.places[place.parent], place.role, place.index)
