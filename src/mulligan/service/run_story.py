"""The story of a run for every face: its lines, those of the runs that it called, and what all of them wait for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from mulligan.core.model.place_keys import is_at_or_below, step_name
from mulligan.history.story import Line, story
from mulligan.service.overview import name_called, show_run
from mulligan.service.run_reader import RunReader

__all__ = ["Asked", "Line", "Sentence", "tell_run", "waits"]


class Sentence(msgspec.Struct, frozen=True):
    """A line of a story: whose it is, and where, as it is said to people: `east/build` is a step of a called run."""

    run_id: int
    where: str
    line: Line


class Asked(msgspec.Struct, frozen=True):
    """Something that is waited for now, with the place said as in a `Sentence`."""

    run_id: int
    where: str
    wait: dict[str, Any]


def tell_run(service: RunReader, run_id: int, step: str = "", *, is_tree: bool = False) -> Iterator[Sentence]:
    """The story of a run, of one of its steps or of a matrix; as a tree with those of the runs that it called."""
    return _sentences(service, run_id, _is_wanted(service, run_id, step), is_tree, "")


def _is_wanted(service: RunReader, run_id: int, step: str) -> Callable[[str], bool]:
    """Whether a place belongs to what was named: a step or a part of one, a matrix, or with "" the whole run."""
    if not step:
        return lambda place: True
    if members := frozenset(service.matrix_steps(run_id, step)):
        return lambda place: step_name(place) in members
    service.refuse_unknown(run_id, step)
    return lambda place: is_at_or_below(place, step)


def _sentences(
    service: RunReader, run_id: int, is_wanted: Callable[[str], bool], is_tree: bool, above: str
) -> Iterator[Sentence]:
    for line in story(service.events(run_id), service.first_workflow(run_id), service.called(run_id)):
        if not is_wanted(line.place):
            continue
        yield Sentence(run_id, f"{above}{line.place}".rstrip("/"), line)
        if is_tree and line.child_run_id:
            yield from _sentences(service, line.child_run_id, lambda place: True, True, f"{above}{line.place}/")


def waits(service: RunReader, run_id: int, step: str = "") -> list[Asked]:
    """What the run, or one of its steps, waits for: of a run that it called, what that waits for."""
    found = show_run(service, run_id)
    waiting = found["waiting_for"]
    if step:
        is_wanted = _is_wanted(service, run_id, step)
        own = [wait for wait in waiting if is_wanted(wait.get("place", ""))]
        waiting = own or found["steps"].get(step, {}).get("waiting_for", [])
    return list(_asked(service, run_id, waiting, ""))


def _asked(service: RunReader, run_id: int, waiting: list[dict[str, Any]], above: str) -> Iterator[Asked]:
    if any(wait["kind"] == "child" for wait in waiting):
        name_called(waiting, service.called(run_id))
    for wait in waiting:
        where = f"{above}{wait.get('place', '')}".rstrip("/")
        yield Asked(run_id, where, wait)
        if child := wait.get("child_run_id"):
            yield from _asked(service, child, show_run(service, child)["waiting_for"], f"{where}/")
