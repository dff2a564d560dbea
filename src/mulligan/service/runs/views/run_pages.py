"""A run in parts, for faces that stay up: pages of its steps and items, and what has changed since an event."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

import msgspec

from mulligan.core.model.workflow import END
from mulligan.core.state.state import Place, State
from mulligan.errors import InputInvalid, UnknownStep
from mulligan.history.called_steps import call_text
from mulligan.history.matrices import values_text
from mulligan.history.phrases import describe_failure
from mulligan.language.text.suggestions import did_you_mean
from mulligan.service.rendering.descriptions import describe_value
from mulligan.service.runs.stored.run_cache import RunCache
from mulligan.service.runs.stored.run_reader import RunReader
from mulligan.service.runs.views.items import Item, item_statuses, items_at
from mulligan.service.runs.views.run_view import count_statuses, has_handled_failure, status_of

# How many steps or items a page has at most.
LIMIT_MAX = 1_000
# How long values and messages are in a brief list.
BRIEF_CHARS_MAX = 200


class StepLine(msgspec.Struct, frozen=True):
    """A step in a list: how it stands, without its output."""

    name: str
    status: str = "waiting"
    visits: int = 0
    attempts: int = 0
    # The code of its failure and the most useful line of the message; "" if it has not failed.
    code: str = ""
    failure: str = ""
    is_handled: bool = False
    recovered_by: str = ""
    # How many items it has, and how many ended how; None if it is no map or has no items yet.
    items: dict[str, int] | None = None
    is_undone: bool = False
    # A visit could not be undone: what it did may still be in effect.
    undo_failed: bool = False
    # The run whose result was taken over; None if the step ran itself.
    up_to_date_since: int | None = None
    paused: bool = False
    # Its number in the order of the file, from 0; -1 for `end`.
    index: int = -1
    # Where a program has called it: `nightly.py:31, branch 3 of 12`; "" if it is a step of a file.
    called_at: str = ""


class StepQuery(msgspec.Struct, frozen=True):
    """Which steps to list, and which page of them. An empty field accepts every step."""

    statuses: tuple[str, ...] = ()
    # A part of the name.
    text: str = ""
    limit: int = 200
    # Only steps behind this one in the file: `StepPage.next` of the page before.
    after: str = ""
    # Leave out so many of the steps that match.
    skip: int = 0


class StepPage(msgspec.Struct, frozen=True):
    """Steps in the order of the file. `seq` is the number of the last event: with the same one nothing has changed."""

    run_id: int
    seq: int
    steps: list[StepLine]
    # For `StepQuery.after`; None if this is the last page.
    next: str | None
    # How many steps match, over all pages; and how many of all steps have each status.
    total: int
    counts: dict[str, int]
    # What runs last; None if the run has not started.
    end: StepLine | None


class ItemQuery(msgspec.Struct, frozen=True):
    """Which items to list, and which page of them."""

    statuses: tuple[str, ...] = ()
    # Only items behind this index: `ItemPage.next` of the page before.
    after: int = -1
    # How many of those that match are left out before the first.
    offset: int = 0
    limit: int = 200
    # Values, outputs and messages as short texts: they may have megabytes.
    is_brief: bool = False


class ItemPage(msgspec.Struct, frozen=True):
    """Items of a map step, or steps of a matrix, in their order."""

    run_id: int
    seq: int
    step: str
    items: list[Item]
    # The index to ask for the next page with; None if this is the last one.
    next: int | None
    total: int
    counts: dict[str, int]


class RunChanges(msgspec.Struct, frozen=True):
    """What has changed in a run after an event, up to `seq`."""

    run_id: int
    after: int
    seq: int
    # "none": nothing; "steps": these steps; "all": everything has to be read again, since what changed is not known.
    kind: Literal["none", "steps", "all"]
    status: str
    round: int
    degraded: bool
    reason: str
    steps: list[StepLine] = []
    counts: dict[str, int] = {}


def list_steps(cache: RunCache, run_id: int, query: StepQuery) -> StepPage:
    """A page of the steps of a run."""
    limit = _limit(query.limit)
    run = cache.get(run_id)
    state = run.state
    names = list(state.graph.nodes)
    chosen = [name for name in names if query.text in name]
    if query.statuses:
        chosen = [name for name in chosen if status_of(state, name) in query.statuses]
    behind = _behind(state, names, query.after)
    left = [name for name in chosen if name in behind] if query.after else chosen
    left = left[max(0, query.skip) :]
    page = left[:limit]
    return StepPage(
        run_id=run_id,
        seq=run.seq,
        steps=[step_line(state, name, run.positions) for name in page],
        next=page[-1] if len(left) > limit else None,
        total=len(chosen),
        counts=count_statuses(state),
        end=step_line(state, END, {}) if END in state.places else None,
    )


def _behind(state: State, names: Sequence[str], after: str) -> frozenset[str]:
    if not after:
        return frozenset()
    if after not in state.graph.nodes:
        raise UnknownStep(
            f"'{after}' is not a step of run {state.run.run_id}", hint=did_you_mean(after, names), step=after
        )
    return frozenset(names[names.index(after) + 1 :])


def _limit(limit: int) -> int:
    if limit < 1:
        raise InputInvalid(f"a page has at least 1 line, not {limit}")
    return min(limit, LIMIT_MAX)


def list_item_page(reader: RunReader, cache: RunCache, run_id: int, step: str, query: ItemQuery) -> ItemPage:
    """A page of the items of a map step, or of the steps of a matrix."""
    limit = _limit(query.limit)
    run = cache.get(run_id)
    found = run.item_statuses(step, lambda: item_statuses(reader, run.state, step))
    chosen = [index for index, status in enumerate(found) if not query.statuses or status in query.statuses]
    left = [index for index in chosen if index > query.after] if query.after >= 0 else chosen
    page = left[query.offset : query.offset + limit]
    items = items_at(reader, run.state, step, page, found)
    return ItemPage(
        run_id=run_id,
        seq=run.seq,
        step=step,
        items=[_brief(one) for one in items] if query.is_brief else items,
        next=page[-1] if len(left) > query.offset + limit else None,
        total=len(chosen),
        counts=dict(Counter(found)),
    )


def _brief(item: Item) -> Item:
    failure = item.failure and {
        **item.failure,
        "message": _shorten(item.failure["message"]),
        "details": {},
        "trace": "",
        "cause": [],
        "handler_failure": None,
        "exceptions": [],
        "traceback": [],
    }
    return msgspec.structs.replace(
        item, item=_shorten(item.item), output=None if item.output is None else _shorten(item.output), failure=failure
    )


def _shorten(value: Any) -> str:
    if isinstance(value, dict) and value and all(isinstance(one, str | int | float) for one in value.values()):
        text = values_text(value)
    else:
        text = value if isinstance(value, str) else describe_value(value)
    return text if len(text) <= BRIEF_CHARS_MAX else text[: BRIEF_CHARS_MAX - 1] + "…"


def changes_since(cache: RunCache, run_id: int, after: int) -> RunChanges:
    """What has changed in a run after an event."""
    run = cache.get(run_id)
    state, names = run.state, run.changed_since(after)
    kind: Literal["none", "steps", "all"] = "none" if after == run.seq else "all" if names is None else "steps"
    return RunChanges(
        run_id=run_id,
        after=after,
        seq=run.seq,
        kind=kind,
        status="running" if state.run.status == "new" else state.run.status,
        round=state.run.round,
        degraded=state.run.degraded,
        reason=state.run.reason,
        steps=[step_line(state, name, run.positions) for name in names or () if name in state.places],
        counts={} if kind == "none" else count_statuses(state),
    )


def step_line(state: State, name: str, positions: Mapping[str, int] = MappingProxyType({})) -> StepLine:
    """A step as lists show it; with its position among all steps, if `positions` has it."""
    place, index = state.places.get(name), positions.get(name, -1)
    if place is None:
        return StepLine(name, index=index)
    return StepLine(
        name=name,
        status=place.status,
        visits=place.visit,
        attempts=place.attempt,
        is_handled=has_handled_failure(state, place),
        recovered_by=place.recovered_by,
        is_undone=place.is_undone and not place.undo_failed,
        undo_failed=place.undo_failed,
        up_to_date_since=place.reused_run_id or None,
        code=place.failure.code if place.failure else "",
        failure=describe_failure(place.failure) if place.failure else "",
        items=_items(state, place),
        paused=place.pause is not None and not place.has_ended,
        index=index,
        called_at=call_text(state, name),
    )


def _items(state: State, place: Place) -> dict[str, int] | None:
    if place.items is None:
        return None
    found = Counter("waiting" if item is None else str(item.status) for item in state.items_of(place))
    return {"total": sum(found.values()), **found}
