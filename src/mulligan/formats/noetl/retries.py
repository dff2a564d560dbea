"""Retries: as the older dialects write them, and as rules of a tool. The waiting is done by ours, and is durable."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from mulligan.formats.noetl.texts import is_word
from mulligan.formats.noetl.tool_keys import RETRY
from mulligan.formats.translation import made
from mulligan.language.nodes import Mapping, Node, Scalar, Sequence, Source, describe
from mulligan.language.shapes import Fields

# What NoETL does where `retry: true` says no more.
ATTEMPTS_DEFAULT = 3
DELAY_DEFAULT = 1.0
FACTOR_DEFAULT = 2.0
# The action says when it is enough: how often may stand in a template.
ATTEMPTS_MAX = 1000
_JITTER = 0.1


class Retries(msgspec.Struct, frozen=True, eq=False):
    """What the step's own `retry` is, and what the tool gets: rules where a retry has a condition; its pages."""

    policy: dict[str, Any] | None
    rules: tuple[Node, ...] = ()
    pages: tuple[Node, ...] = ()


def read_retry(node: Node, source: Source) -> Retries | None:
    """`retry: 3`, `true`, a mapping, or a list of mappings with conditions. None where there is none."""
    if isinstance(node, Scalar):
        return _short(node, source)
    written = [RETRY.read(one, "'retry'", source) for one in (node.items if isinstance(node, Sequence) else [node])]
    pages = tuple(page for entry in written if (page := _page(entry)) is not None)
    entries = [again for entry in written if (again := _repeated(entry)) is not None]
    if not entries:
        return Retries(None, pages=pages) if pages else None
    conditions = [_condition(entry) for entry in entries]
    if conditions == [None]:
        return Retries(_policy(entries[0]), pages=pages)
    rules = tuple(_rule(entry, when) for entry, when in zip(entries, conditions, strict=True))
    return Retries(asked(max(_figures(entry)[0] for entry in entries)), rules, pages)


def _page(entry: Fields) -> Node | None:
    """How the tool walks its pages, as the action takes it; None of what is about failures."""
    said = entry.get("on_success") or entry.get("then")
    if said is None or "next_call" not in said:
        return None
    when = said.node.get("while") or said.node.get("when") or entry.node.get("when")
    kept = {key: said.node.get(key) for key in ("next_call", "collect", "sink", "max_attempts")}
    return made({"when": when, **kept}, entry.node)


def _repeated(entry: Fields) -> Fields | None:
    """What is about failures; None of what is about pages alone."""
    if "on_error" in entry:
        found: Fields = entry["on_error"]
        return found
    return None if _page(entry) is not None else entry


def _short(node: Scalar, source: Source) -> Retries | None:
    if node.value is True:
        return Retries(_as_policy(ATTEMPTS_DEFAULT, DELAY_DEFAULT, FACTOR_DEFAULT))
    if node.value is False or node.value is None:
        return None
    if type(node.value) is int and 1 <= node.value <= ATTEMPTS_MAX:
        return Retries(_as_policy(node.value, DELAY_DEFAULT, FACTOR_DEFAULT))
    message = f"'retry' is {describe(node)}, a number of attempts, true, a mapping or a list is expected"
    raise source.refuse("type", message, node)


def _condition(entry: Fields) -> Node | None:
    return entry.node.get("when") or entry.node.get("retry_when")


def _said(entry: Fields) -> dict[str, Any]:
    """Its own keys, and over them those of its `then`."""
    return {**entry.values, **(entry["then"].values if "then" in entry else {})}


def _figures(entry: Fields) -> tuple[int, float, float]:
    """How often it is called in all, the first delay, and how much longer each further one is."""
    said = _said(entry)
    delay = said.get("initial_delay", said.get("delay", DELAY_DEFAULT))
    factor = said.get("backoff_multiplier", said.get("backoff", FACTOR_DEFAULT))
    return said.get("max_attempts", ATTEMPTS_DEFAULT), delay, factor


def _policy(entry: Fields) -> dict[str, Any]:
    said = _said(entry)
    policy = _as_policy(*_figures(entry))
    if "max_delay" in said:
        policy["max_delay"] = seconds(said["max_delay"])
    if said.get("jitter"):
        policy["jitter"] = _JITTER
    return policy


def _as_policy(attempts: int, delay: float, factor: float) -> dict[str, Any]:
    return {"max_retries": attempts - 1, "delay": seconds(delay), "factor": factor}


def _rule(entry: Fields, when: Node | None) -> Node:
    """A rule of the tool: whether there is a retry is for the action to say, and when."""
    attempts, delay, factor = _figures(entry)
    then = {"do": "retry", "attempts": attempts, "backoff": "exponential", "delay": delay, "factor": factor}
    then["max_delay"] = _said(entry).get("max_delay")
    return made({"when": when, "then": then} if when is not None else {"else": {"then": then}}, entry.node)


def asked(attempts: int) -> dict[str, Any]:
    """The policy of a step whose action asks for each retry, and says how long to wait."""
    return {"any": True, "max_retries": attempts - 1, "delay": "0s"}


def granted(rules: Iterator[Mapping]) -> dict[str, Any] | None:
    """The `retry` of a step whose tool has rules."""
    most = 1
    for rule in rules:
        if (then := _then(rule)) is not None and is_word(then.get("do"), "retry"):
            attempts = then.get("attempts")
            given = attempts.value if isinstance(attempts, Scalar) else None
            most = max(most, _attempts(given))
    return asked(most) if most > 1 else None


def _attempts(given: Any) -> int:
    """How often at most; where only the action knows, as often as anybody may."""
    if given is None:
        return ATTEMPTS_DEFAULT
    return given if type(given) is int else ATTEMPTS_MAX


def _then(rule: Mapping) -> Mapping | None:
    otherwise = rule.get("else")
    found = otherwise.get("then") if isinstance(otherwise, Mapping) else rule.get("then")
    return found if isinstance(found, Mapping) else None


def seconds(value: float) -> str:
    """A number of seconds as a duration of ours."""
    return f"{value:g}s"
