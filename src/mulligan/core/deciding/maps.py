"""Map steps: the list, its items, and what their failures mean for the step."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable
from typing import Any

from mulligan.core.deciding.lifecycle import Facts, add_location, command_key, enter_command, make_failure
from mulligan.core.model import events as e
from mulligan.core.model.failure import Failure, failure
from mulligan.core.model.place_keys import item_key
from mulligan.core.model.text.item_words import NAMED_MAX, item_word, with_numbers
from mulligan.core.model.workflow import Map
from mulligan.core.state.scope import DecisionContext
from mulligan.core.state.state import Items, Place
from mulligan.errors import ExpressionFailed

FAILURES_SHOWN_MAX = 20
# Of each child run, in the output of a map.
CHILD_FAILURES_SHOWN_MAX = 5


def expand(now: DecisionContext, place: Place) -> Facts:
    """Start an attempt of a map step: list its items, or, on a later attempt, continue with those not done."""
    policy = _policy(now, place)
    try:
        _most_parallel(now, place, policy)
    except ExpressionFailed as error:
        yield e.AttemptFailed(place.key, place.attempt, make_failure(now, place, error.failure_code, error.message))
        return
    if place.items is not None and (place.items.visit == place.visit or _runs_chosen_items(now, place)):
        yield _continue_list(now, place, place.items)
    elif policy.lister is not None:
        yield from enter_command(now, place, "lister", 0)
    elif (over := policy.over) is not None:
        yield from _expand_with(now, place, lambda: now.evaluate(over, place))


def _policy(now: DecisionContext, place: Place) -> Map:
    policy = now.state.step(place.key).map
    assert policy is not None
    return policy


def _continue_list(now: DecisionContext, place: Place, items: Items) -> e.MapExpanded:
    """Continue the same list: run only the items that are not done."""
    todo = tuple(i for i in range(len(items.values)) if not _is_done(now, place, i))
    return e.MapExpanded(place.key, place.attempt, todo=todo)


def _runs_chosen_items(now: DecisionContext, place: Place) -> bool:
    """Whether the round was opened for some items of this step: the list stays, and only those items run."""
    return place.key == now.state.run.items_of and place.visit == place.visits_before + 1


def _is_done(now: DecisionContext, place: Place, index: int) -> bool:
    """Whether the item need not run: it completed, or it failed before a round that was opened for other items."""
    item = now.state.places.get(item_key(place.key, index))
    if item is None or item.status != "failed" or not _runs_chosen_items(now, place):
        return item is not None and item.status == "completed"
    return item.visit != place.visit


def after_lister(now: DecisionContext, place: Place, fact: e.Fact) -> Facts:
    """Expand the map from the output of its lister, or fail with it."""
    if isinstance(fact, e.CommandCompleted):
        yield from _expand_with(now, place, lambda: now.fetch(fact.output))
    elif isinstance(fact, e.CommandFailed):
        yield e.AttemptFailed(place.key, place.attempt, fact.failure)
    elif place.phase == "deadline":
        yield _too_late(now, place)
    else:
        yield e.AttemptCancelled(place.key, place.attempt)


def _too_late(now: DecisionContext, place: Place) -> e.AttemptFailed:
    return e.AttemptFailed(
        place.key, place.attempt, make_failure(now, place, "TIMEOUT", "the map took longer than its deadline")
    )


def _expand_with(now: DecisionContext, place: Place, values: Callable[[], Any]) -> Facts:
    try:
        items = select_items(now, place, values())
        names = _item_names(now, place, items)
    except ExpressionFailed as error:
        yield e.AttemptFailed(place.key, place.attempt, make_failure(now, place, error.failure_code, error.message))
        return
    # After a visit that failed, completed items stay completed if the list is the same.
    if place.items is not None and _have_same_items(place.items.values, items):
        yield _continue_list(now, place, place.items)
    else:
        yield e.MapExpanded(place.key, place.attempt, items, names=names)


def _item_names(now: DecisionContext, place: Place, items: list[Any]) -> tuple[str, ...]:
    """What the file calls the items; of very many they are not made."""
    policy = _policy(now, place)
    if policy.item_name is None or len(items) > NAMED_MAX:
        return ()
    found = [
        now.render(policy.item_name, place, **{policy.name: value, "index": index}) for index, value in enumerate(items)
    ]
    return tuple(with_numbers([item_word(one if isinstance(one, str) else json.dumps(one)) for one in found]))


def _have_same_items(before: list[Any], items: list[Any]) -> bool:
    """Whether both lists have the same items, in any order: the keys of an object have no order."""
    if len(before) != len(items):
        return False
    # Compared as JSON, since for Python True == 1.
    first, second = (
        Counter(json.dumps(_normalize_numbers(value), sort_keys=True) for value in values) for values in (before, items)
    )
    return first == second


def _normalize_numbers(value: Any) -> Any:
    """The value with whole floats as integers: 1.0 becomes 1."""
    if isinstance(value, dict):
        return {key: _normalize_numbers(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_normalize_numbers(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def select_items(now: DecisionContext, place: Place, values: Any) -> list[Any]:
    """Apply filter, sort_by, distinct, offset and max_items, in this order."""
    policy = _policy(now, place)
    if not isinstance(values, list):
        raise ExpressionFailed(f"'over' gave {_kind(values)}, not a list")
    items = values
    if policy.filter is not None:
        keeps = policy.filter
        items = [v for i, v in enumerate(items) if now.condition(keeps, place, **{policy.name: v, "index": i})]
    if policy.sort_by is not None:
        keys = [
            _sort_key(now.evaluate(policy.sort_by, place, **{policy.name: v, "index": i})) for i, v in enumerate(items)
        ]
        order = sorted(range(len(items)), key=keys.__getitem__, reverse=policy.sort_descending)
        items = [items[i] for i in order]
    if policy.distinct is not None:
        seen: dict[str, Any] = {}
        for i, v in enumerate(items):
            seen.setdefault(
                json.dumps(now.evaluate(policy.distinct, place, **{policy.name: v, "index": i}), sort_keys=True), v
            )
        items = list(seen.values())
    stop = None if policy.max_items is None else policy.offset + policy.max_items
    return list(items[policy.offset : stop])


def _sort_key(value: Any) -> tuple[int, Any]:
    """Sort values of different types by type, nulls last, so that a mixed list is not an error."""
    if value is None:
        return (3, 0)
    if isinstance(value, bool | int | float):
        return (0, value)
    return (1, value) if isinstance(value, str) else (2, json.dumps(value, sort_keys=True))


def _kind(value: Any) -> str:
    names = {dict: "an object", str: "a string", bool: "a boolean", int: "a number", float: "a number"}
    return names.get(type(value), "nothing" if value is None else type(value).__name__)


# -- items ------------------------------------------------------------------------------


def run_items(now: DecisionContext, place: Place) -> Facts:
    """Enter as many items as may run in parallel; when none is left and none runs, conclude the map."""
    while may_enter(now, place):
        items = _items(place)
        index = items.todo[items.next]
        key = item_key(place.key, index)
        yield e.ItemEntered(key, place.key, index)
        yield from _enter_or_skip(now, now.state.places[key], 0)
    items = _items(place)
    if not items.is_judged and items.running == 0:
        yield from conclude_map(now, place)


def _items(place: Place) -> Items:
    assert place.items is not None
    return place.items


def may_enter(now: DecisionContext, place: Place) -> bool:
    items, policy = _items(place), _policy(now, place)
    if items.is_judged or place.phase or items.next >= len(items.todo) or not now.may_start(place):
        return False
    if policy.on_item_failure == "stop" and _are_too_many(policy, len(items.values), items.failed, items.critical):
        return False
    try:
        most = _most_parallel(now, place, policy)
    except ExpressionFailed:
        # It was a number when the step started, and the data of the run has changed since: go on with one at a time.
        most = 1
    return most is None or items.running < most


def _most_parallel(now: DecisionContext, place: Place, policy: Map) -> int | None:
    """How many items may run at the same time; None: all. ExpressionFailed if its expression gives no such number."""
    if policy.parallel is None:
        return policy.max_parallel
    most = now.evaluate(policy.parallel, place)
    if isinstance(most, bool) or not isinstance(most, int | float) or most < 1 or not float(most).is_integer():
        shown = most if isinstance(most, int | float) else _kind(most)
        raise ExpressionFailed(f"'max_parallel' gave {shown}, not a whole number of at least 1")
    return int(most)


def _enter_or_skip(now: DecisionContext, item: Place, index: int) -> Facts:
    """Enter the command of an item, or skip it if `when` is false. If `when` cannot be evaluated, the command fails."""
    when = now.state.step(item.parent).do[index].when
    if when is None:
        return enter_command(now, item, "do", index)
    try:
        if now.condition(when, item):
            return enter_command(now, item, "do", index)
    except ExpressionFailed as error:
        return _enter_and_fail(now, item, index, failure(error.failure_code, error.message))
    return iter((e.CommandSkipped(command_key(item, "do", index), item.key, "do", index),))


def _enter_and_fail(now: DecisionContext, item: Place, index: int, found: Failure) -> Facts:
    key, attempt = command_key(item, "do", index), item.attempt + 1
    yield e.CommandEntered(key, item.key, "do", index)
    yield e.AttemptFailed(key, attempt, add_location(now, now.state.places[key], found, attempt))


def after_command(now: DecisionContext, item: Place, fact: e.Fact, index: int) -> Facts:
    """A command of an item has ended: run the next one, or end the item."""
    step = now.state.step(item.parent)
    if isinstance(fact, e.CommandCancelled):
        yield e.ItemCancelled(item.key, item.parent, item.index)
    elif isinstance(fact, e.CommandFailed) and not fact.is_allowed:
        yield e.ItemFailed(item.key, item.parent, item.index, fact.failure)
    elif index + 1 < len(step.do):
        if now.may_start(item) and not now.state.places[item.parent].phase:
            yield from _enter_or_skip(now, item, index + 1)
        else:
            yield e.ItemCancelled(item.key, item.parent, item.index)
    else:
        output = fact.output if isinstance(fact, e.CommandCompleted) else None
        yield e.ItemCompleted(item.key, item.parent, index=item.index, output=output, recovered_by=item.recovered_by)


# -- the end of a map ------------------------------------------------------------------------------


def conclude_map(now: DecisionContext, place: Place) -> Facts:
    """No item runs and no more may start: the step succeeds, fails with ITEMS_FAILED, or is cancelled."""
    items, policy = _items(place), _policy(now, place)
    begun, total = [item for item in now.state.items_of(place) if item is not None], len(items.values)
    failed = [item for item in begun if item.status == "failed"]
    is_whole = sum(item.status in ("completed", "failed") for item in begun) == total
    if place.phase == "deadline":
        yield _too_late(now, place)
    elif not now.may_start(place) and not is_whole:
        yield e.AttemptCancelled(place.key, place.attempt)
    elif _are_too_many(policy, total, len(failed), sum(_is_critical(item) for item in failed)):
        yield e.AttemptFailed(place.key, place.attempt, _items_failed(now, place, failed, total))
    else:
        yield _map_succeeded(now, place, map_output(begun, items.values))


def _map_succeeded(now: DecisionContext, place: Place, output: dict[str, Any]) -> e.Fact:
    """End the attempt with its output. Large lists in it are stored as artifacts, each on its own."""
    kept = {name: now.keep(place, name, output[name]) for name in ("results", "failures")}
    return e.AttemptSucceeded(place.key, place.attempt, {**output, **kept})


def _are_too_many(policy: Map, total: int, failed: int, critical: int) -> bool:
    """Whether the step fails: more items failed than may fail, or one failed critically and that is not allowed."""
    return (critical > 0 and not policy.collect_critical) or failed > _failures_allowed(policy, total)


def _is_critical(item: Place) -> bool:
    return item.failure is not None and item.failure.severity == "critical"


def _failures_allowed(policy: Map, total: int) -> float:
    """How many items may fail: none, unless the step collects failures or sets a bound."""
    bounds = [] if policy.max_failures is None else [float(policy.max_failures)]
    if policy.failure_threshold is not None:
        bounds.append(math.floor(policy.failure_threshold * total + 1e-9))
    if bounds:
        return min(bounds)
    return math.inf if policy.on_item_failure == "collect" else 0


def _items_failed(now: DecisionContext, place: Place, failed: list[Place], total: int) -> Failure:
    """ITEMS_FAILED with the failures of the items. If a critical one fails the step, it is critical and comes first."""
    critical = [] if _policy(now, place).collect_critical else [item for item in failed if _is_critical(item)]
    shown = dict.fromkeys(item.key for item in (*critical, *failed))
    causes = tuple(now.state.places[key].failure for key in shown)[:FAILURES_SHOWN_MAX]
    message = f"{len(failed)} of {total} items failed"
    fields: dict[str, Any] = {"details": {"failed": len(failed), "total": total}}
    if critical:
        message += f", {len(critical)} of them critically"
        fields = {"details": {**fields["details"], "critical": len(critical)}, "severity": "critical"}
    return make_failure(now, place, "ITEMS_FAILED", message, cause=causes, **fields)


def map_output(items: list[Place], values: list[Any]) -> dict[str, Any]:
    """The output of a map whose items have all ended: results in item order, null for a failed item."""
    failures = [_failure_of(item, values) for item in items if item.status == "failed"]
    return {
        "total": len(items),
        "succeeded": len(items) - len(failures),
        "failed": len(failures),
        "results": [item.output for item in items],
        "failures": failures,
    }


def _failure_of(item: Place, values: list[Any]) -> dict[str, Any]:
    found = item.failure
    assert found is not None
    view: dict[str, Any] = {"code": found.code, "message": found.message, "exit_code": found.exit_code}
    if found.severity != "error":
        view["severity"] = found.severity
    if "child_run_id" in found.details:
        # A map over child runs: what failed inside each of them.
        view["run_id"] = found.details["child_run_id"]
        view["failures"] = [_inner_view(one) for one in found.cause[:CHILD_FAILURES_SHOWN_MAX]]
    return {"index": item.index, "item": values[item.index], **view}


def _inner_view(one: Failure) -> dict[str, Any]:
    """A failure of a child run, in the output of the map."""
    names = ("step", "code", "message", "severity", "retryable", "exit_code", "attempt", "details")
    return {name: getattr(one, name) for name in names}
