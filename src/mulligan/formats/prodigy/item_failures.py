"""Prodigy's `error_policy` as what our maps, retries and breakers say of it.

Prodigy reads it and never asks it; here it holds as it is documented. What failed is its dead letter queue:
`mulligan items RUN STEP` lists it, and with `--retry` runs it again.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from mulligan.formats.prodigy.durations import fibonacci, spelled
from mulligan.formats.prodigy.mapreduce_keys import POLICY_KEYS
from mulligan.formats.prodigy.places import fitting
from mulligan.formats.translation import Translation, made
from mulligan.language.nodes import Node
from mulligan.language.shapes import Fields

_ATTEMPTS_DEFAULT = 3
_BREAKER_DEFAULTS = {"failure_threshold": 5, "timeout": 30.0}
_ONE_PROBE = {
    "success_threshold": "'success_threshold' is not honoured: one success closes a breaker",
    "half_open_requests": "'half_open_requests' is not honoured: one command at a time is let through",
}


class Policy(NamedTuple):
    """What goes onto the map, onto its step, onto the commands of its items, and to the top of the file."""

    of_map: dict[str, Any]
    of_step: dict[str, Any]
    of_commands: dict[str, Any]
    breakers: dict[str, Any]


def policy(form: Fields, workflow: str, translation: Translation) -> Policy:
    """The policy of a workflow: `error_policy`, and the copies of its keys beside it."""
    own: Fields | None = form.get("error_policy")
    said = _said(form, own, translation)
    breakers, of_commands = _breaker(own, workflow, translation)
    return Policy(_of_map(said, translation), _of_step(own, said), of_commands, breakers)


def _said(form: Fields, own: Fields | None, translation: Translation) -> dict[str, tuple[Any, Node]]:
    """Each key with its value and its place; what is said in both places is refused."""
    found = {key: (form[key], form.key(key)) for key in POLICY_KEYS if key in form}
    for key in own.values if own else ():
        if key in found:
            message = f"'{key}' stands in 'error_policy', too"
            raise translation.source.refuse("prodigy", message, found[key][1], hint="remove one of them")
    return found | ({key: (own[key], own.key(key)) for key in POLICY_KEYS if key in own} if own else {})


def _of_map(said: dict[str, tuple[Any, Node]], translation: Translation) -> dict[str, Any]:
    """Items are collected, unless a bound is named; then no further item starts once it is passed."""
    way, at = said.get("on_item_failure", ("dlq", None))
    if isinstance(way, Fields) or way == "custom":
        assert at is not None
        message = "'custom' is code inside Prodigy, and it has none"
        raise translation.source.refuse("prodigy", message, at, hint="write 'dlq', 'retry', 'skip' or 'stop'")
    if way == "stop" or said.get("continue_on_failure", (True, None))[0] is False:
        _warn_of_idle_bounds(said, translation)
        return {"on_item_failure": "stop"}
    bounds: dict[str, Any] = {}
    if "max_failures" in said:
        # Theirs stops at so many, ours beyond.
        bounds["max_failures"] = made(said["max_failures"][0] - 1, said["max_failures"][1])
    if "failure_threshold" in said:
        bounds["failure_threshold"] = said["failure_threshold"][0]
    return {"on_item_failure": "stop" if bounds else "collect", **bounds}


def _warn_of_idle_bounds(said: dict[str, tuple[Any, Node]], translation: Translation) -> None:
    for key in ("max_failures", "failure_threshold"):
        if key in said:
            message = f"'{key}' makes no difference: the first failure stops the map"
            translation.warn("prodigy", message, said[key][1])


def _of_step(own: Fields | None, said: dict[str, tuple[Any, Node]]) -> dict[str, Any]:
    """`retry` of the map is that of each command which has none itself."""
    way = said.get("on_item_failure", ("dlq", None))[0]
    config: Fields | None = own.get("retry_config") if own else None
    if config is None and way != "retry":
        return {}
    retries = (config.get("max_attempts", _ATTEMPTS_DEFAULT) if config else _ATTEMPTS_DEFAULT) - 1
    return {"retry": {"max_retries": retries, **_backoff(config, retries)} if retries else 0}


def _backoff(config: Fields | None, retries: int) -> dict[str, Any]:
    form: Fields | None = config.get("backoff") if config else None
    kind = next(iter(form.values), "exponential") if form else "exponential"
    options: dict[str, Any] = form[kind].values if form and isinstance(form.get(kind), Fields) else {}
    if kind == "fixed":
        return {"delay": spelled(options.get("delay", 1.0))}
    first = options.get("initial", 1.0)
    if kind == "exponential":
        return {"delay": spelled(first), "factor": options.get("multiplier", 2.0)}
    if kind == "linear":
        return {"delays": [spelled(first + options.get("increment", 0.0) * index) for index in range(retries)]}
    return {"delays": [spelled(first * figure) for figure in fibonacci(retries)]}


def _breaker(own: Fields | None, workflow: str, translation: Translation) -> tuple[dict[str, Any], dict[str, Any]]:
    form: Fields | None = own.get("circuit_breaker") if own else None
    if form is None:
        return {}, {}
    for key, why in _ONE_PROBE.items():
        if key in form and form[key] != 1:
            translation.warn("prodigy", why, form.key(key))
    name = f"{fitting(workflow)}-items"
    failures, reset = (form.get(key, default) for key, default in _BREAKER_DEFAULTS.items())
    return {name: made({"failures": failures, "reset": spelled(reset)}, form.node)}, {"breaker": name}
