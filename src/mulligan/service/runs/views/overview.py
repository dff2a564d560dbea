"""Reading the view of a run from the store: whole, without its steps, in brief, one step, or at an earlier event."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, NoReturn

import msgspec

from mulligan.core.effects.snapshot import read_place
from mulligan.core.model.place_keys import step_name
from mulligan.core.model.workflow import END
from mulligan.core.state.brief_state import BriefState
from mulligan.core.state.state import Place, State
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.errors import Refused, UnknownStep
from mulligan.history.matrices import ATTENTION
from mulligan.history.views import ChildWait, Wait, WaitFinder
from mulligan.ports import RunRecord
from mulligan.service.driving.workers import find_worker_pool
from mulligan.service.host.breakers import find_breaker_waits
from mulligan.service.runs.changes.run_worktrees import seen_workspace
from mulligan.service.runs.stored.artifacts import add_file_paths, kept_files, with_artifact_paths
from mulligan.service.runs.stored.attempts import AttemptRecord, Cost, Costs, attempts_by_step, total
from mulligan.service.runs.stored.run_reader import RunReader
from mulligan.service.runs.stored.step_events import StepEvents
from mulligan.service.runs.views.attempt_progress import FindProgress, add_progress, progress_finder
from mulligan.service.runs.views.run_view import (
    RUN,
    CalledRunView,
    MatrixPlace,
    MatrixView,
    RunDriver,
    RunRow,
    RunView,
    Show,
    StepView,
    has_handled_failure,
    view_state,
    view_step,
)

# The steps of so many child runs are shown: a map may call ten thousand.
CHILDREN_OPENED_MAX = 20
# A run with more events is shown in brief: reading its log takes seconds.
WHOLE_EVENTS_MAX = 20_000
# In brief: how many steps of each matrix, and of the steps that belong to none, are listed. If there are no more, all.
MATRIX_STEPS_MAX, STEPS_MAX = 8, 20
# How many failures and waits are described, where all might be too many.
ENTRIES_MAX = 50


def run_row(reader: RunReader, record: RunRecord) -> RunRow:
    """What the row of a run in the store says of it."""
    driver = None if record.status in RUN_ENDED else reader.driver_of(record)
    return RunRow(
        run_id=record.run_id,
        workflow=record.workflow,
        version=record.version,
        # A new run counts as running, also before a worker has taken it.
        status="running" if record.status == "new" else record.status,
        round=record.round,
        degraded=record.degraded,
        reason=record.reason,
        created_at=record.created_at.isoformat(),
        updated_at=record.updated_at.isoformat(),
        parent_run_id=record.parent_run_id,
        driver=None if driver is None else RunDriver(pid=driver.pid, host=driver.host),
    )


def _add_row(reader: RunReader, view: RunView, record: RunRecord) -> RunView:
    """Add what the row says, and the labels. The state of a run that has not begun does not know its number."""
    row = run_row(reader, record)
    view.run_id, view.workflow, view.version = row.run_id, row.workflow, view.version or row.version
    view.created_at, view.updated_at = row.created_at, row.updated_at
    view.parent_run_id, view.driver = row.parent_run_id, row.driver
    view.labels = reader.labels(record.run_id)
    return view


def _show(reader: RunReader) -> Show:
    return partial(with_artifact_paths, reader.store.artifacts)


def find_waits(reader: RunReader, state: State) -> WaitFinder:
    """What a run waits for now, with the breakers and the workers of the store."""
    workers = find_worker_pool(reader.home, reader.store, state)
    return WaitFinder(state, find_breaker_waits(reader.store, state), workers)


def view_head(reader: RunReader, record: RunRecord, state: State) -> RunView:
    """A run without its steps: of failures and waits only the first, and matrices are counted."""
    view = view_state(state, find_waits(reader, state), _show(reader), names=(), entries_max=ENTRIES_MAX)
    view.matrices = {
        name: MatrixView(status=group.status, statuses=group.statuses, count=len(group.combinations))
        for name, group in (view.matrices if state.places else {}).items()
    }
    if not state.places:
        view.inputs = _show(reader)(reader.inputs(record.run_id) or {})
    view.root_run_id, view.started_by = record.root_run_id or record.run_id, record.started_by
    view.child_count = len(reader.store.children(record.run_id))
    return _add_row(reader, view, record)


def overview(reader: RunReader, run_id: int, *, with_attempts: bool = False) -> RunView:
    """The whole run: with its driver, the cost of each step, its items and its child runs; and every attempt."""
    children = _children(reader, run_id, [CHILDREN_OPENED_MAX])
    view = _add_row(reader, _view_whole(reader, run_id, children), reader.record(run_id))
    if with_attempts:
        tried = attempts_of_run(reader, run_id)
        for name, step in _steps_of(view):
            step.tries = tried.get(name, [])
    return view


def show_run(reader: RunReader, run_id: int) -> dict[str, Any]:
    """The run as `run --json` prints it."""
    return {key: dict(value) if key == "steps" else value for key, value in show_run_in_parts(reader, run_id, None)}


def show_run_in_parts(reader: RunReader, run_id: int, known: State | None) -> Iterator[tuple[str, Any]]:
    """The keys and values of `show_run`, one after the other, and one step after the other: a run may be large.

    `known`: a state of the run, which is not read again if nothing has happened since.
    """
    is_latest = known is not None and (known.run.run_id, known.run.seq) == (run_id, reader.record(run_id).seq)
    state = known if known is not None and is_latest else reader.state(run_id)
    waits, show = find_waits(reader, state), _show(reader)
    view = view_state(state, waits, show, names=())
    # The state of a run that has not begun does not know its number.
    view.run_id, view.workspace = run_id, seen_workspace(state)
    names = state.graph.nodes if state.places else ()
    for key in RUN.__struct_fields__:
        if key == "steps":
            yield key, ((name, msgspec.to_builtins(view_step(waits, name, show))) for name in names)
        else:
            yield key, msgspec.to_builtins(getattr(view, key))


def past_run(reader: RunReader, state: State, called: Mapping[tuple[str, int], int]) -> RunView:
    """The run at an earlier event: without what nobody recorded, such as the workers then.

    `called`: the runs that it had called by then.
    """
    view = view_state(state, show=_show(reader))
    return _complete(view, state, called, _steps_of(view))


def past_head(reader: RunReader, state: State, called: Mapping[tuple[str, int], int], names: Iterable[str]) -> RunView:
    """The same of a large run: with these steps only, and of failures and waits the first."""
    view, waits, show = view_state(state, names=(), entries_max=ENTRIES_MAX), WaitFinder(state), _show(reader)
    view.steps, view.matrices = {name: view_step(waits, name, show) for name in names}, {}
    return _complete(view, state, called, view.steps.items())


def attempts_of_run(reader: RunReader, run_id: int) -> dict[str, list[AttemptRecord]]:
    """Every attempt at the steps of a run, by step, with what it reported and the files that it kept."""
    tried = attempts_by_step(reader.events(run_id))
    complete_attempts(reader, run_id, [one for tries in tried.values() for one in tries])
    return tried


def complete_attempts(reader: RunReader, run_id: int, tried: Sequence[AttemptRecord]) -> None:
    """Add to attempts what they reported last, and the paths of the files that they kept."""
    add_progress(reader.home.folders, run_id, tried)
    add_file_paths(reader.store.artifacts, (kept for attempt in tried for kept in attempt.artifacts))


def _steps_of(view: RunView) -> Iterator[tuple[str, StepView]]:
    """The steps of a run, and `end`."""
    yield from view.steps.items()
    if view.end:
        yield END, view.end


def _view_whole(reader: RunReader, run_id: int, children: list[CalledRunView]) -> RunView:
    """One run with its steps, each with its cost and the runs that it called."""
    state = reader.state(run_id)
    view = view_state(state, find_waits(reader, state), _show(reader))
    view.workspace, view.children = seen_workspace(state), children
    costs, view.artifacts = Costs(), []
    for entry in reader.events(run_id):
        costs.see(entry)
        view.artifacts.extend(kept_files(entry, reader.store.artifacts))
    find_progress = progress_finder(reader.home.folders, run_id)
    return _complete(view, state, _called(children), _steps_of(view), find_progress, costs.by_step)


def _called(children: Iterable[CalledRunView]) -> dict[tuple[str, int], int]:
    return {(child.step, child.attempt): child.run_id for child in children}


# How many items of a map are in each status.
CountItems = Callable[[State, Place], dict[str, int] | None]


def _complete(
    view: RunView,
    state: State,
    called: Mapping[tuple[str, int], int],
    steps: Iterable[tuple[str, StepView]],
    find_progress: FindProgress | None = None,
    costs: Mapping[str, Cost] = MappingProxyType({}),
    count_items: CountItems | None = None,
) -> RunView:
    """Add to a run, and to these steps of it, what the state does not know.

    `called`: the runs that it called. Without `find_progress` there is none: what an attempt reported while it ran was
    replaced by what it reported later.
    """
    by_step: dict[str, list[int]] = {}
    for (place, _), run_id in called.items():
        by_step.setdefault(step_name(place), []).append(run_id)
    for name, step in steps:
        _add_facts(state, name, step, find_progress, costs, by_step.get(name, []), count_items)
    for group in view.matrices.values():
        # A run that no worker has taken yet has no steps.
        members = [view.steps[name] for name in group.combinations if name in view.steps]
        measured = [step.usage for step in members if step.usage]
        group.attempts = sum(step.attempts for step in members)
        group.usage = total(measured) if measured else None
    view.waiting_for = name_called(view.waiting_for, called)
    for step in view.steps.values():
        step.waiting_for = name_called(step.waiting_for, called)
    return view


def _add_facts(
    state: State,
    name: str,
    step: StepView,
    find_progress: FindProgress | None,
    costs: Mapping[str, Cost],
    children: list[int],
    count_items: CountItems | None = None,
) -> None:
    """Add to a step what is not in its state: its progress, its cost, its items, the runs that it called."""
    place = state.places[name]
    step.progress = find_progress(name, place.attempt) if find_progress else None
    step.usage = costs.get(name)
    step.items = (count_items or count_item_statuses)(state, place)
    step.undone, step.undo_failed = place.is_undone and not place.undo_failed, place.undo_failed
    step.children = children


def name_called(waiting: Iterable[Wait], called: Mapping[tuple[str, int], int]) -> list[Wait]:
    """Add the number of the child run that is waited for, which the core does not know."""
    return [_named(wait, called.get((wait.place, wait.attempt)) if wait.kind == "child" else None) for wait in waiting]


def _named(wait: Wait, run_id: int | None) -> Wait:
    if run_id is None:
        return wait
    kind = Wait if wait.child_run_id else ChildWait
    text = wait.text.replace("its child run", f"run {run_id}")
    return kind(**{**msgspec.structs.asdict(wait), "child_run_id": run_id, "text": text})


def count_item_statuses(state: State, place: Place) -> dict[str, int] | None:
    """How many items of a map are in each status; None for a step that has none."""
    if place.items is None:
        return None
    items = state.items_of(place)
    up_to_date = sum(item is not None and item.reused_run_id > 0 for item in items)
    return _item_counts(Counter("waiting" if item is None else item.status for item in items), up_to_date)


def _item_counts(statuses: Counter[str], up_to_date: int) -> dict[str, int]:
    counted = ("completed", "failed", "running", "waiting", "cancelled")
    return {"total": statuses.total(), **{status: statuses[status] for status in counted}, "up_to_date": up_to_date}


def _children(reader: RunReader, run_id: int, left: list[int]) -> list[CalledRunView]:
    """The runs that a run called, recursively; with their steps for as many as `left` allows."""
    children = reader.store.children(run_id)
    names = reader.name_places(run_id, [record.parent_place for record in children])
    return [_child(reader, record, names[record.parent_place], left) for record in children]


def _child(reader: RunReader, record: RunRecord, name: str, left: list[int]) -> CalledRunView:
    left[0] -= 1
    is_opened = left[0] >= 0
    children = _children(reader, record.run_id, left)
    view = _view_whole(reader, record.run_id, children) if is_opened else None
    return CalledRunView(
        **msgspec.structs.asdict(run_row(reader, record)),
        step=record.parent_place,
        step_name=name,
        attempt=reader.calling_attempt(record),
        steps=view.steps if view else None,
        matrices=view.matrices if view else {},
        waiting_for=view.waiting_for if view else [],
        children=children,
    )


# -- one step --------------------------------------------------------------------------------------------------------


def step_overview(
    reader: RunReader, run_id: int, name: str, state: State | None = None, events: StepEvents | None = None
) -> StepView | MatrixView:
    """One step with every attempt at it, or a matrix with all its steps, as `show RUN STEP --json` prints it.

    `state`, `events`: the state of the run, and the events of its steps, if the caller has them.
    """
    state = reader.lazy_state(run_id) if state is None else state
    if name in state.graph.matrices and state.places:
        whole = _view_whole(reader, run_id, _children(reader, run_id, [0]))
        group = whole.matrices[name]
        group.run_id, group.name, group.steps = run_id, name, []
        # Failed, parked and running ones first, then in the order of the combinations.
        rank = {status: index for index, status in enumerate(ATTENTION)}
        for member in sorted(group.combinations, key=lambda one: rank.get(whole.steps[one].status, len(rank))):
            whole.steps[member].name = member
            group.steps.append(whole.steps[member])
        return group
    return view_single_step(reader, run_id, name, state, events)


def view_single_step(
    reader: RunReader, run_id: int, name: str, state: State, events: StepEvents | None = None
) -> StepView:
    """One step with every attempt at it. Only its own events are read."""
    if name not in state.places or (name != END and name not in state.graph.nodes):
        _refuse_no_step(reader, run_id, state, name)
    if isinstance(state, BriefState) and state.step(name).map is not None:
        # Its items are counted.
        state = reader.state(run_id)
    children = [child for child in reader.store.children(run_id) if step_name(child.parent_place) == name]
    events = events or StepEvents(reader)
    entries = events.entries(run_id, name)
    of_items = events.cost_of_items(run_id, name) if state.step(name).map is not None else None
    measured = [one for one in (Costs(entries).by_step.get(name), of_items) if one]
    view = view_step(find_waits(reader, state), name, _show(reader))
    find_progress = progress_finder(reader.home.folders, run_id)
    costs = {name: total(measured)} if measured else {}
    _add_facts(state, name, view, find_progress, costs, [child.run_id for child in children])
    called = {(one.parent_place, one.parent_attempt): one.run_id for one in children}
    view.waiting_for = name_called(view.waiting_for, called)
    step = state.step(name)
    view.run_id, view.name = run_id, name
    view.matrix = MatrixPlace(name=step.matrix_name, values=step.matrix) if step.matrix_name else None
    if name in state.calls:
        view.call.arguments = state.calls[name].arguments
    view.tries = attempts_by_step(entries).get(name, [])
    complete_attempts(reader, run_id, view.tries)
    return view


def _refuse_no_step(reader: RunReader, run_id: int, state: State, name: str) -> NoReturn:
    # The state of a run that no worker has taken yet does not have its number.
    if name not in state.graph.matrices:
        reader.refuse_unknown(run_id, name)
        reader.refuse_removed(run_id, name)
    if not state.places:
        raise Refused(f"run {run_id} has not started yet: '{name}' has had no attempt", step=name)
    raise UnknownStep(f"'{name}' is a part of a step, not a step", hint=f"mulligan show {run_id} {step_name(name)}")


# -- a large run in brief --------------------------------------------------------------------------------------------


def is_large(reader: RunReader, run_id: int) -> bool:
    """Whether a run is shown in brief, unless everything is asked for."""
    return reader.record(run_id).seq > WHOLE_EVENTS_MAX


def brief_overview(reader: RunReader, run_id: int) -> RunView:
    """The run as `overview` has it, with the steps that need attention alone, without reading its log.

    What the steps cost and the files that they kept are left out: only the log knows them.
    """
    children = _children(reader, run_id, [CHILDREN_OPENED_MAX])
    (state, ended), record = reader.brief_state(run_id), reader.record(run_id)
    items, chosen = _ItemCounts(state, ended), _chosen(state)
    view = view_state(
        state,
        find_waits(reader, state),
        _show(reader),
        names=[name for some in chosen.values() for name in some],
        entries_max=ENTRIES_MAX,
        queued_max=ENTRIES_MAX,
    )
    view.listed, view.children = chosen, children
    find_progress = progress_finder(reader.home.folders, run_id)
    _complete(view, state, _called(children), _steps_of(view), find_progress, count_items=items.of)
    for group in view.matrices.values():
        group.attempts = 0
    held = (wait.place for wait in view.waiting_for if wait.kind == "step_pause")
    matrix_of = {name: state.step(name).matrix_name for name in held if name in state.graph.nodes}
    view.matrix_of = {name: matrix for name, matrix in matrix_of.items() if matrix}
    return _add_row(reader, view, record)


def _chosen(state: State) -> dict[str, list[str]]:
    """The steps to list, by the name of their matrix, or "" for none: in the order of the file."""
    plain = [name for name, node in state.graph.nodes.items() if not node.step.matrix_name]
    found = {name: _listed(state, group, MATRIX_STEPS_MAX) for name, group in state.graph.matrices.items()}
    return {**found, "": _listed(state, plain, STEPS_MAX)}


def _listed(state: State, names: Iterable[str], most: int) -> list[str]:
    """These steps, or if they are too many the first of those that need attention, unhandled failures first."""
    names = list(names) if state.places else []
    if len(names) <= most:
        return names
    wanted = [(name, number) for number, name in enumerate(names) if state.status_of(name) in ATTENTION]
    wanted.sort(key=lambda one: (_rank(state, one[0]), one[1]))
    return [name for name, _ in sorted(wanted[:most], key=lambda one: one[1])]


def _rank(state: State, name: str) -> int:
    if (status := state.status_of(name)) != "failed":
        return ATTENTION.index(status)
    return len(ATTENTION) if has_handled_failure(state, state.places[name]) else 0


class _ItemCounts:
    """How many items of each map are in each status, without those that have ended in the state."""

    def __init__(self, state: State, ended: Mapping[str, tuple[str, bytes]]) -> None:
        items = (place for place in state.others() if place.role == "item")
        self._live = Counter((place.parent, place.status) for place in items)
        self._ended = Counter((key[: key.rindex("[")], status) for key, (status, _) in ended.items())
        # Items are looked at one by one where some may have taken over the result of another run.
        rows = ended.items() if state.run.changed_only else ()
        reused = (key for key, (_, row) in rows if read_place(key, row).reused_run_id)
        self._up_to_date = Counter(key[: key.rindex("[")] for key in reused)

    def of(self, state: State, place: Place) -> dict[str, int] | None:
        """Those of one step; None if it is no map or has no items yet."""
        if place.items is None:
            return None
        both = self._live + self._ended
        found = Counter({status: count for (step, status), count in both.items() if step == place.key})
        found["waiting"] += max(0, len(place.items.values) - found.total())
        return _item_counts(found, self._up_to_date[place.key])
