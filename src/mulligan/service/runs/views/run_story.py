"""The story of a run for every face: its lines, those of its child runs, and what all of them wait for."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from mulligan.core.model.events import Entry, RunReopened
from mulligan.core.model.place_keys import is_at_or_below, step_name
from mulligan.core.state.state import State
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.history.story import StoryLine, story
from mulligan.history.views import list_waits, step_json
from mulligan.service.driving.workers import find_worker_pool
from mulligan.service.host.breakers import find_breaker_waits
from mulligan.service.runs.stored.artifacts import with_artifact_paths
from mulligan.service.runs.stored.run_reader import RunReader
from mulligan.service.runs.views.overview import name_called

__all__ = ["LocatedLine", "LocatedWait", "StoryLine", "run_story", "run_waits"]


class LocatedLine(msgspec.Struct, frozen=True):
    """A line of a story with its run and its display place: `east/build` is a step of a child run."""

    run_id: int
    where: str
    line: StoryLine


class LocatedWait(msgspec.Struct, frozen=True):
    """Something that is waited for now, with its display place as in a `LocatedLine`."""

    run_id: int
    where: str
    wait: dict[str, Any]


def run_story(service: RunReader, run_id: int, step: str = "", *, is_tree: bool = False) -> Iterator[LocatedLine]:
    """The story of a run, of one of its steps or of a matrix; as a tree, with those of its child runs."""
    yield from _located_lines(service, run_id, _place_filter(service, run_id, step), is_tree, "")
    if not step and _has_notices(service, run_id):
        yield from _notices_given_up(service, run_id)


def _has_notices(service: RunReader, run_id: int) -> bool:
    """Whether somebody is notified about the run: only then the outbox is asked."""
    started = next((entry.fact for entry in service.store.log(run_id, limit=1)), None)
    return bool(service.first_workflow(run_id).notify or getattr(started, "notify", ()))


def _notices_given_up(service: RunReader, run_id: int) -> Iterator[LocatedLine]:
    """The notices about the run that could not be sent. They are no events, and come last."""
    for notice in reversed(service.store.server_records.notices(status="given_up", run_id=run_id)):
        text = f"a notice to '{notice.target}' was {notice.reason}"
        yield LocatedLine(run_id, "", StoryLine(notice.due_at or notice.created_at, "", text, "bad"))


def _place_filter(service: RunReader, run_id: int, step: str) -> Callable[[str], bool]:
    """A filter for places: those of a step or a part of one, of a matrix, or with "" of the whole run."""
    if not step:
        return lambda place: True
    if members := frozenset(service.matrix_steps(run_id, step)):
        return lambda place: step_name(place) in members
    service.refuse_unknown(run_id, step)
    key = service.find_place(run_id, step)
    return lambda place: is_at_or_below(place, key)


def _located_lines(
    service: RunReader, run_id: int, is_selected: Callable[[str], bool], is_tree: bool, prefix: str, round: int = 0
) -> Iterator[LocatedLine]:
    """The lines of a run; of one round, if it is named: a child run tells each where its caller asked for it."""
    opened: list[int] = []
    for line in story(_noting(service.events(run_id), opened), service.first_workflow(run_id), service.called(run_id)):
        if not is_selected(line.place) or (round and round != 1 + bisect_right(opened, line.seq)):
            continue
        where = line.shown_place
        yield LocatedLine(run_id, f"{prefix}{where}".rstrip("/") if prefix else where, line)
        if is_tree and line.child_run_id:
            above = f"{prefix}{where}/"
            yield from _located_lines(service, line.child_run_id, lambda _: True, True, above, line.child_round)


def _noting(entries: Iterable[Entry], opened: list[int]) -> Iterator[Entry]:
    """The entries; the number of each that opens a further round is added to `opened`."""
    for entry in entries:
        if isinstance(entry.fact, RunReopened):
            opened.append(entry.seq)
        yield entry


def run_waits(service: RunReader, run_id: int, step: str = "") -> list[LocatedWait]:
    """What the run, or one of its steps, waits for; for a child run, also what that waits for."""
    if not step and service.record(run_id).status in RUN_ENDED:
        return []
    state = service.brief_state(run_id)[0]
    waiting = _waits(service, state)
    if step:
        is_selected = _place_filter(service, run_id, step)
        own = [wait for wait in waiting if is_selected(wait.get("place", ""))]
        is_a_step = step in state.graph.nodes and step in state.places
        waiting = own or (_step_waits(service, state, step) if is_a_step else [])
    return list(_located_waits(service, run_id, waiting, ""))


def _waits(service: RunReader, state: State) -> list[dict[str, Any]]:
    """What a run as a whole waits for, as its `waiting_for` has it."""
    pool = find_worker_pool(service.home, service.store, state)
    found = list_waits(state, find_breaker_waits(service.store, state), pool)
    return with_artifact_paths(service.store.artifacts, msgspec.to_builtins(found))


def _step_waits(service: RunReader, state: State, step: str) -> list[dict[str, Any]]:
    pool = find_worker_pool(service.home, service.store, state)
    found = step_json(state, step, find_breaker_waits(service.store, state), pool)["waiting_for"]
    return with_artifact_paths(service.store.artifacts, found)


def shown_place(wait: Mapping[str, Any]) -> str:
    """The display name of the place that waits; "" for a run."""
    return str(wait.get("name") or wait.get("place", ""))


def _located_waits(
    service: RunReader, run_id: int, waiting: list[dict[str, Any]], prefix: str
) -> Iterator[LocatedWait]:
    if any(wait["kind"] == "child" for wait in waiting):
        name_called(waiting, service.called(run_id))
    for wait in waiting:
        where = f"{prefix}{shown_place(wait)}".rstrip("/")
        yield LocatedWait(run_id, where, wait)
        if child := wait.get("child_run_id"):
            yield from _located_waits(service, child, _waits(service, service.brief_state(child)[0]), f"{where}/")
