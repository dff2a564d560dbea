"""A run as a grid: its steps down, its rounds across, in each cell the attempts and how they ended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from mulligan.core.model import events as e
from mulligan.core.model.workflow import END
from mulligan.core.state.state import State
from mulligan.core.state.verdict import is_handled
from mulligan.errors import InputInvalid
from mulligan.service.runs.stored.attempts import AttemptRecord, list_attempts
from mulligan.service.runs.stored.run_cache import RunCache
from mulligan.service.runs.views.run_pages import StepLine, step_line

# How many steps a page has at most.
ROWS_MAX = 200
# A step with more events (a map of thousands of items) is shown with the counts of its items alone.
EVENTS_MAX = 2_000
# What nobody looks for.
QUIET = ("completed", "skipped")


class GridRow(msgspec.Struct, frozen=True):
    """A step with its attempts, in their order. `is_folded`: there are too many events, so attempts are left out.

    Attempts at its items are left out too: the counts of its items say more.
    """

    step: StepLine
    attempts: list[AttemptRecord]
    is_folded: bool = False
    # The runs that it called, by place and attempt.
    called: dict[tuple[str, int], int] = {}


class GridQuery(msgspec.Struct, frozen=True):
    """Which steps: failures come first, then what is under way, then the others in the order of the file."""

    # A part of the name.
    text: str = ""
    hides_completed: bool = False
    start: int = 0
    limit: int = 100


class GridPage(msgspec.Struct, frozen=True):
    """Some rows, and how many there are."""

    run_id: int
    rounds: int
    rows: list[GridRow]
    start: int
    total: int
    # How many completed or skipped steps are left out.
    hidden: int
    # Which share of the log has been read. Before it is 1.0 the rows have no attempts: ask again.
    read_share: float = 1.0


def read_grid(cache: RunCache, run_id: int, query: GridQuery, called: Mapping[tuple[str, int], int]) -> GridPage:
    """A page of the grid of a run. `called`: the runs that it called, by place and attempt."""
    if query.start < 0 or query.limit < 1:
        raise InputInvalid("a page begins at 0 and has at least 1 row")
    state = cache.get(run_id).state
    places = state.places
    names = [name for name in (*state.graph.nodes, *_end(state)) if query.text in name]
    status = {name: str(places[name].status) if name in places else "waiting" for name in names}
    chosen = [name for name in names if not (query.hides_completed and status[name] in QUIET)]
    # Sorting keeps the order of the file among equals.
    chosen.sort(key=lambda name: _rank(state, name, status[name]))
    page = chosen[query.start : query.start + min(query.limit, ROWS_MAX)]
    share = cache.index.read_on(run_id)
    if share < 1.0:
        rows = [GridRow(step_line(state, name), []) for name in page]
        return GridPage(run_id, state.run.round, rows, query.start, len(chosen), len(names) - len(chosen), share)
    opened = cache.index.rounds(run_id)
    rows = []
    for name in page:
        is_folded = cache.index.count(run_id, name) > EVENTS_MAX
        entries = [] if is_folded else cache.index.entries(run_id, name)
        attempts = list_attempts(entries, lambda place: "[" not in place, opened)
        by_attempt = {key: called[key] for one in attempts if (key := (one.place, one.attempt)) in called}
        rows.append(GridRow(step_line(state, name), attempts, is_folded, by_attempt | dict(_continued(entries))))
    return GridPage(run_id, state.run.round, rows, query.start, len(chosen), len(names) - len(chosen))


def _end(state: State) -> tuple[str, ...]:
    """The step `end`, if it does something: otherwise nobody has written it, and nobody looks for it."""
    place = state.places.get(END)
    return (END,) if place is not None and (place.attempt or place.failure is not None) else ()


def _rank(state: State, name: str, status: str) -> int:
    """Failures that nothing has dealt with, what is under way, failures that were dealt with, then the others."""
    if status == "failed":
        place = state.places[name]
        record = None if place.failure_index is None else state.failures[place.failure_index]
        return 0 if record is None or not (record.is_allowed or is_handled(state, record)) else len(_UNDER_WAY) + 1
    return _UNDER_WAY.index(status) + 1 if status in _UNDER_WAY else len(_UNDER_WAY) + 2


_UNDER_WAY = ("pending_failed", "handling", "backing_off", "running", "ready", "cancelled")


def _continued(entries: list[e.Entry]) -> Iterator[tuple[tuple[str, int], int]]:
    """The runs that attempts continued, which an earlier attempt had called."""
    for entry in entries:
        fact = entry.fact
        if isinstance(fact, e.AttemptStarted) and fact.continues is not None:
            yield (fact.place, fact.attempt), fact.continues.run_id
