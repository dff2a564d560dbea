"""A run at a glance, as plain data for every face: its steps, what they cost, its items, its child runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import msgspec

from ..core.failure import Failure
from ..core.keys import step_name
from ..core.state import Place, State
from ..core.transitions import RUN_ENDED
from ..core.views import run_json
from ..core.words import plain, what
from ..core.workflow import END
from ..ports import RunRecord
from .artifacts import located
from .costs import Costs
from .held import held_up
from .spending import spent_by_run
from .tries import tries_by_step
from .verbs import Service

# Of how many child runs the steps are shown: a map may call ten thousand.
CHILDREN_OPENED_MAX = 20
# How many records are read at once where child runs are passed over.
PAGE = 500


def overview(service: Service, run_id: int) -> dict[str, Any]:
    """The run as `run --json` prints it, and more: who drives it, what each step cost, items, the tree of children."""
    record = service.record(run_id)
    children = _children(service, run_id, [CHILDREN_OPENED_MAX])
    return {**listed(service, record), **_shown(service, run_id, children), "children": children}


def overview_with_tries(service: Service, run_id: int) -> dict[str, Any]:
    """The same, with every attempt at each step and at what ran on its behalf."""
    found, tried = overview(service, run_id), tries_by_step(service.events(run_id))
    for name, step in _steps_of(found):
        step["tries"] = tried.get(name, [])
    return found


def _steps_of(shown: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    yield from shown["steps"].items()
    if shown["end"]:
        yield END, shown["end"]


def _shown(service: Service, run_id: int, children: list[dict[str, Any]]) -> dict[str, Any]:
    """One run with its steps, each with what it cost and the runs that it called."""
    state = service.state(run_id)
    costs, called = Costs(service.events(run_id)).by_step, _by_step(children)
    shown = located(service.store.artifacts, run_json(state, held_up(service.store, state)))
    for name, step in _steps_of(shown):
        step["usage"] = msgspec.to_builtins(costs[name]) if name in costs else None
        step["items"] = _counted(state, state.places[name])
        step["undone"] = state.places[name].is_undone
        step["children"] = called.get(name, [])
    runs = {(child["step"], child["attempt"]): child["run_id"] for child in children}
    for waiting in (shown["waiting_for"], *(step["waiting_for"] for step in shown["steps"].values())):
        name_called(waiting, runs)
    return shown


def _by_step(children: list[dict[str, Any]]) -> dict[str, list[int]]:
    called: dict[str, list[int]] = {}
    for child in children:
        called.setdefault(step_name(child["step"]), []).append(child["run_id"])
    return called


def name_called(waiting: Iterable[dict[str, Any]], called: Mapping[tuple[str, int], int]) -> None:
    """Say which run it is that is waited for: the core does not know what it is called in the store."""
    for wait in waiting:
        if wait["kind"] == "child" and (wait["place"], wait["attempt"]) in called:
            wait["child_run_id"] = called[wait["place"], wait["attempt"]]
            wait["text"] = wait["text"].replace("its child run", f"run {wait['child_run_id']}")


def run_list(
    service: Service, *, limit: int, statuses: Collection[str] = (), with_children: bool = False
) -> list[dict[str, Any]]:
    """The newest runs first; with the runs that they called, each of those below its caller where that is listed."""
    records = list(islice(_records(service, limit, statuses, with_children), limit))
    asking = _asking(service)
    spent = spent_by_run(service) if records else {}
    listing = {
        one.run_id: {**listed(service, one), "asks": asking.get(one.run_id, []), "spent": spent.get(one.run_id)}
        for one in records
    }
    below: dict[int | None, list[int]] = {}
    for record in records:
        above = record.parent_run_id if record.parent_run_id in listing else None
        below.setdefault(above, []).append(record.run_id)
    return [listing[run_id] for run_id in _in_order(below, None)]


def _records(service: Service, limit: int, statuses: Collection[str], with_children: bool) -> Iterator[RunRecord]:
    before, size = None, limit if with_children else max(limit, PAGE)
    while page := service.runs(limit=size, before=before, statuses=statuses):
        yield from (record for record in page if with_children or record.parent_run_id is None)
        before = page[-1].run_id


def _in_order(below: dict[int | None, list[int]], above: int | None) -> Iterator[int]:
    """A run, then those that it called in the order of the calls."""
    called = below.get(above, [])
    for run_id in called if above is None else reversed(called):
        yield run_id
        yield from _in_order(below, run_id)


def _asking(service: Service) -> dict[int, list[dict[str, Any]]]:
    """What waits for a person, by the run and by the one that it is a child of."""
    found: dict[int, list[dict[str, Any]]] = {}
    for one in service.store.waiting() if service.home.is_there else ():
        asked = {"run_id": one.run_id, "place": one.place, "kind": one.kind}
        for run_id in {one.run_id, one.root_run_id or one.run_id}:
            found.setdefault(run_id, []).append(asked)
    return found


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


def in_a_line(failure: Mapping[str, Any]) -> str:
    """A failure that is shown as data, in a few words."""
    return what(
        Failure(
            failure["code"],
            failure["message"] or "",
            exit_code=failure["exit_code"],
            signal=failure["signal"],
            details=failure["details"],
        )
    )


def lines_of(failure: Mapping[str, Any]) -> list[str]:
    """What a failed command said last, line by line, fit for a terminal."""
    return plain(failure["message"] or "").splitlines()


def _counted(state: State, place: Place) -> dict[str, int] | None:
    if place.items is None:
        return None
    statuses: list[str] = ["waiting" if item is None else item.status for item in state.items_of(place)]
    told = ("completed", "failed", "running", "waiting", "cancelled")
    return {"total": len(statuses), **{status: statuses.count(status) for status in told}}


def _children(service: Service, run_id: int, left: list[int]) -> list[dict[str, Any]]:
    """The runs that a run called, and so on down; with their steps as long as there are any `left` to be opened."""
    return [_child(service, record, left) for record in service.store.children(run_id)]


def _child(service: Service, record: RunRecord, left: list[int]) -> dict[str, Any]:
    left[0] -= 1
    is_opened = left[0] >= 0
    children = _children(service, record.run_id, left)
    shown = _shown(service, record.run_id, children) if is_opened else {}
    return {
        **listed(service, record),
        "step": record.parent_place,
        "attempt": record.parent_attempt,
        "steps": shown.get("steps"),
        "waiting_for": shown.get("waiting_for", []),
        "children": children,
    }
