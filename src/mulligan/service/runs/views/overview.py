"""A run as plain data: its steps, what they cost, its items, its child runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import msgspec

from mulligan.core.deciding.rounds.rounds import needs_force
from mulligan.core.model.place_keys import step_name
from mulligan.core.model.workflow import END
from mulligan.core.state.brief_state import BriefState
from mulligan.core.state.state import Place, State
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.errors import Refused, UnknownStep
from mulligan.history.matrices import ATTENTION
from mulligan.history.views import run_json, run_json_parts, step_json
from mulligan.ports import RunRecord
from mulligan.service.driving.workers import find_worker_pool
from mulligan.service.host.breakers import find_breaker_waits
from mulligan.service.runs.changes.run_worktrees import seen_workspace
from mulligan.service.runs.stored.artifacts import KeptFile, add_file_paths, kept_files, with_artifact_paths
from mulligan.service.runs.stored.attempts import AttemptRecord, Cost, Costs, attempts_by_step, total
from mulligan.service.runs.stored.run_reader import RunReader
from mulligan.service.runs.stored.step_events import StepEvents
from mulligan.service.runs.views.attempt_progress import FindProgress, add_progress, progress_finder

# How many items of a map are in each status.
CountItems = Callable[[State, Place], dict[str, int] | None]
# The steps of so many child runs are shown: a map may call ten thousand.
CHILDREN_OPENED_MAX = 20


def overview(reader: RunReader, run_id: int) -> dict[str, Any]:
    """The run as `run --json` prints it, with its driver, the cost of each step, its items and its child runs."""
    record = reader.record(run_id)
    children = called_runs(reader, run_id)
    line = {**listed(reader, record), "labels": reader.labels(run_id)}
    return {**line, **_run_with_steps(reader, run_id, children), "children": children}


def show_run(reader: RunReader, run_id: int) -> dict[str, Any]:
    """The run as `run --json` prints it."""
    # The state of a run that has not begun does not know its number.
    return {**_view(reader, reader.state(run_id)), "run_id": run_id}


def show_run_in_parts(reader: RunReader, run_id: int, known: State | None) -> Iterator[tuple[str, Any]]:
    """The keys and values of `show_run`, one after the other, and one step after the other: a run may be large.

    `known`: a state of the run, which is not read again if nothing has happened since.
    """
    is_latest = known is not None and (known.run.run_id, known.run.seq) == (run_id, reader.record(run_id).seq)
    state = known if known is not None and is_latest else reader.state(run_id)
    artifacts = reader.store.artifacts
    workers = find_worker_pool(reader.home, reader.store, state)
    for key, value in run_json_parts(state, find_breaker_waits(reader.store, state), workers):
        if key == "steps":
            yield key, ((name, with_artifact_paths(artifacts, step)) for name, step in value)
        elif key == "workspace":
            yield key, seen_workspace(state)
        else:
            yield key, with_artifact_paths(artifacts, value)


def is_force_needed(reader: RunReader, run_id: int) -> bool:
    """Whether another round of an ended run is refused without `force`, since an undo has failed."""
    return needs_force(reader.state(run_id))


def past_run(reader: RunReader, state: State, called: Mapping[tuple[str, int], int]) -> dict[str, Any]:
    """The run as `run --json` prints it, at an earlier event: without what nobody recorded, such as the workers then.

    `called`: the runs that it had called by then.
    """
    shown = with_artifact_paths(reader.store.artifacts, run_json(state))
    by_step = _called_by_step(called)
    for name, step in _steps_of(shown):
        add_facts(state, name, step, _no_progress, {}, by_step.get(name, []))
    for group in shown["matrices"].values():
        add_up(group, shown["steps"])
    for waiting in (shown["waiting_for"], *(step["waiting_for"] for step in shown["steps"].values())):
        name_called(waiting, called)
    return shown


def past_steps(
    reader: RunReader, state: State, names: Iterable[str], called: Mapping[tuple[str, int], int]
) -> dict[str, dict[str, Any]]:
    """Some steps as `past_run` has them."""
    by_step = _called_by_step(called)
    steps = {name: with_artifact_paths(reader.store.artifacts, step_json(state, name)) for name in names}
    for name, step in steps.items():
        add_facts(state, name, step, _no_progress, {}, by_step.get(name, []))
        name_called(step["waiting_for"], called)
    return steps


def _no_progress(place: str, attempt: int) -> None:
    """What an attempt reports while it runs is replaced by what it reports later."""


def _called_by_step(called: Mapping[tuple[str, int], int]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for (place, _), run_id in called.items():
        found.setdefault(step_name(place), []).append(run_id)
    return found


def _view(reader: RunReader, state: State) -> dict[str, Any]:
    workers = find_worker_pool(reader.home, reader.store, state)
    shown = run_json(state, find_breaker_waits(reader.store, state), workers)
    return with_artifact_paths(reader.store.artifacts, {**shown, "workspace": seen_workspace(state)})


def overview_with_attempts(reader: RunReader, run_id: int) -> dict[str, Any]:
    """The same, with every attempt at each step, its handlers and scripts."""
    found, tried = overview(reader, run_id), attempts_of_run(reader, run_id)
    for name, step in _steps_of(found):
        step["tries"] = tried.get(name, [])
    return found


def attempts_of_run(reader: RunReader, run_id: int) -> dict[str, list[AttemptRecord]]:
    """Every attempt at the steps of a run, by step, with what it reported and the files that it kept."""
    tried = attempts_by_step(reader.events(run_id))
    _complete(reader, run_id, [one for tries in tried.values() for one in tries])
    return tried


def _complete(reader: RunReader, run_id: int, tried: Sequence[AttemptRecord]) -> None:
    """Add to attempts what they reported last, and the paths of the files that they kept."""
    add_progress(reader.home.folders, run_id, tried)
    add_file_paths(reader.store.artifacts, (kept for attempt in tried for kept in attempt.artifacts))


def _steps_of(shown: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    yield from shown["steps"].items()
    if shown["end"]:
        yield END, shown["end"]


def _run_with_steps(reader: RunReader, run_id: int, children: list[dict[str, Any]]) -> dict[str, Any]:
    """One run with its steps, each with its cost and the runs that it called."""
    state = reader.state(run_id)
    costs, kept = _read_log(reader, run_id)
    called, progress_of = children_by_step(children), progress_finder(reader.home.folders, run_id)
    shown = _view(reader, state)
    shown["artifacts"] = msgspec.to_builtins(kept)
    for name, step in _steps_of(shown):
        add_facts(state, name, step, progress_of, costs, called.get(name, []))
    for group in shown["matrices"].values():
        add_up(group, shown["steps"])
    name_waits(shown, children)
    return shown


def name_waits(shown: dict[str, Any], children: list[dict[str, Any]]) -> None:
    """Add the numbers of the child runs that a run and its steps wait for."""
    runs = {(child["step"], child["attempt"]): child["run_id"] for child in children}
    for waiting in (shown["waiting_for"], *(step["waiting_for"] for step in shown["steps"].values())):
        name_called(waiting, runs)


def add_facts(
    state: State,
    name: str,
    step: dict[str, Any],
    progress_of: FindProgress,
    costs: Mapping[str, Cost],
    children: list[int],
    count_items: CountItems | None = None,
) -> None:
    """Add to a step what is not in its state: its progress, its cost, its items, the runs that it called."""
    place = state.places[name]
    step["progress"] = msgspec.to_builtins(progress_of(name, place.attempt))
    step["usage"] = msgspec.to_builtins(costs[name]) if name in costs else None
    step["items"] = (count_items or count_item_statuses)(state, place)
    step["undone"] = place.is_undone and not place.undo_failed
    step["undo_failed"] = place.undo_failed
    step["children"] = children


def _read_log(reader: RunReader, run_id: int) -> tuple[dict[str, Cost], list[KeptFile]]:
    """The costs by step, and the files that the attempts kept, from one pass over the log."""
    costs, artifacts = Costs(), reader.store.artifacts
    kept: list[KeptFile] = []
    for entry in reader.events(run_id):
        costs.see(entry)
        kept.extend(kept_files(entry, artifacts))
    return costs.by_step, kept


def add_up(group: dict[str, Any], steps: Mapping[str, dict[str, Any]]) -> None:
    """Add to a matrix the totals of its steps: attempts, time and processor time; and the most memory of one."""
    # A run that no worker has taken yet has no steps.
    members = [steps[name] for name in group["combinations"] if name in steps]
    costs = [Cost(**step["usage"]) for step in members if step["usage"]]
    group["attempts"] = sum(step["attempts"] for step in members)
    group["usage"] = msgspec.to_builtins(total(costs)) if costs else None


def step_overview(
    reader: RunReader, run_id: int, name: str, state: State | None = None, events: StepEvents | None = None
) -> dict[str, Any]:
    """One step with every attempt at it, or a matrix with all its steps, as `show RUN STEP --json` prints it.

    `state`, `events`: the state of the run, and the events of its steps, if the caller has them.
    """
    state = reader.lazy_state(run_id) if state is None else state
    if name in state.graph.matrices and state.places:
        shown = _run_with_steps(reader, run_id, _children(reader, run_id, [0]))
        group = shown["matrices"][name]
        steps = [{"name": member, **shown["steps"][member]} for member in _by_attention(group, shown["steps"])]
        return {"run_id": run_id, "name": name, **group, "steps": steps}
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
    costs, tried = {name: total(measured)} if measured else {}, attempts_by_step(entries).get(name, [])
    store = reader.store
    found = step_json(state, name, find_breaker_waits(store, state), find_worker_pool(reader.home, store, state))
    progress_of = progress_finder(reader.home.folders, run_id)
    add_facts(state, name, found, progress_of, costs, [child.run_id for child in children])
    name_called(found["waiting_for"], {(one.parent_place, one.parent_attempt): one.run_id for one in children})
    _complete(reader, run_id, tried)
    found = with_artifact_paths(store.artifacts, found)
    return {"run_id": run_id, "name": name, **found, "matrix": _matrix_of(state, name), "tries": tried}


def _refuse_no_step(reader: RunReader, run_id: int, state: State, name: str) -> NoReturn:
    # The state of a run that no worker has taken yet does not have its number.
    if name not in state.graph.matrices:
        reader.refuse_unknown(run_id, name)
        reader.refuse_removed(run_id, name)
    if not state.places:
        raise Refused(f"run {run_id} has not started yet: '{name}' has had no attempt", step=name)
    raise UnknownStep(f"'{name}' is a part of a step, not a step", hint=f"mulligan show {run_id} {step_name(name)}")


def _by_attention(group: Mapping[str, Any], steps: Mapping[str, dict[str, Any]]) -> list[str]:
    """The steps of a matrix: failed, parked and running ones first, then in the order of the combinations."""
    rank = {status: index for index, status in enumerate(ATTENTION)}
    return sorted(group["combinations"], key=lambda name: rank.get(steps[name]["status"], len(rank)))


def _matrix_of(state: State, name: str) -> dict[str, Any] | None:
    """The matrix that a step belongs to, and the values of the step."""
    step = state.step(name)
    return {"name": step.matrix_name, "values": msgspec.to_builtins(step.matrix)} if step.matrix_name else None


def children_by_step(children: list[dict[str, Any]]) -> dict[str, list[int]]:
    called: dict[str, list[int]] = {}
    for child in children:
        called.setdefault(step_name(child["step"]), []).append(child["run_id"])
    return called


def name_called(waiting: Iterable[dict[str, Any]], called: Mapping[tuple[str, int], int]) -> None:
    """Add the number of the child run that is waited for, which the core does not know."""
    for wait in waiting:
        if wait["kind"] == "child" and (wait["place"], wait["attempt"]) in called:
            wait["child_run_id"] = called[wait["place"], wait["attempt"]]
            wait["text"] = wait["text"].replace("its child run", f"run {wait['child_run_id']}")


def listed(reader: RunReader, record: RunRecord) -> dict[str, Any]:
    """The run's row in the list."""
    driver = None if record.status in RUN_ENDED else reader.driver_of(record)
    return {
        "run_id": record.run_id,
        "workflow": record.workflow,
        "version": record.version,
        # A new run counts as running, also before a worker has taken it.
        "status": "running" if record.status == "new" else record.status,
        "round": record.round,
        "degraded": record.degraded,
        "reason": record.reason,
        "created_at": record.created_at.isoformat(),
        "updated_at": record.updated_at.isoformat(),
        "parent_run_id": record.parent_run_id,
        "driver": None if driver is None else {"pid": driver.pid, "host": driver.host},
    }


def count_item_statuses(state: State, place: Place) -> dict[str, int] | None:
    """How many items of a map are in each status; None for a step that has none."""
    if place.items is None:
        return None
    items = state.items_of(place)
    up_to_date = sum(item is not None and item.reused_run_id > 0 for item in items)
    return item_counts(Counter("waiting" if item is None else item.status for item in items), up_to_date)


def item_counts(statuses: Counter[str], up_to_date: int) -> dict[str, int]:
    """The items of a map as `show` has them."""
    counted = ("completed", "failed", "running", "waiting", "cancelled")
    return {"total": statuses.total(), **{status: statuses[status] for status in counted}, "up_to_date": up_to_date}


def called_runs(reader: RunReader, run_id: int) -> list[dict[str, Any]]:
    """The runs that a run called, recursively; the first with their steps."""
    return _children(reader, run_id, [CHILDREN_OPENED_MAX])


def _children(reader: RunReader, run_id: int, left: list[int]) -> list[dict[str, Any]]:
    """The runs that a run called, recursively; with their steps for as many as `left` allows."""
    children = reader.store.children(run_id)
    names = reader.name_places(run_id, [record.parent_place for record in children])
    return [_child(reader, record, names[record.parent_place], left) for record in children]


def _child(reader: RunReader, record: RunRecord, step_name: str, left: list[int]) -> dict[str, Any]:
    left[0] -= 1
    is_opened = left[0] >= 0
    children = _children(reader, record.run_id, left)
    shown = _run_with_steps(reader, record.run_id, children) if is_opened else {}
    return {
        **listed(reader, record),
        "step": record.parent_place,
        # The display name of the place that called it.
        "step_name": step_name,
        "attempt": reader.calling_attempt(record),
        "steps": shown.get("steps"),
        "matrices": shown.get("matrices", {}),
        "waiting_for": shown.get("waiting_for", []),
        "children": children,
    }
