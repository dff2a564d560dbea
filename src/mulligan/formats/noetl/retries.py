"""Translate retries, of the older dialects and of rules, into retry policies of ours, whose waits are durable."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from mulligan.formats.noetl.texts import is_word
from mulligan.formats.noetl.tool_keys import RETRY
from mulligan.formats.translation import made
from mulligan.language.keys.value_schemas import Fields
from mulligan.language.text.nodes import Mapping, Node, Scalar, Sequence, Source, describe

# The defaults of NoETL.
ATTEMPTS_DEFAULT = 3
DELAY_DEFAULT = 1.0
FACTOR_DEFAULT = 2.0
# The limit where the number is a template: the action decides.
ATTEMPTS_MAX = 1000
_JITTER = 0.1


class Retries(msgspec.Struct, frozen=True, eq=False):
    """The retry policy of the step, and what the tool gets: rules for retries with conditions, and pages."""

    policy: dict[str, Any] | None
    rules: tuple[Node, ...] = ()
    pages: tuple[Node, ...] = ()


def read_retry(node: Node, source: Source) -> Retries | None:
    """Read `retry`: a number, true, a mapping, or a list of mappings with conditions. None where it asks for none."""
    if isinstance(node, Scalar):
        return _read_short(node, source)
    found: list[Node] = []
    entries: list[Fields] = []
    for one in node.items if isinstance(node, Sequence) else [node]:
        entry = RETRY.read(one, "'retry'", source)
        page = _page(entry)
        found += [] if page is None else [page]
        # What is not only about pages is about failures.
        entries += [entry["on_error"]] if "on_error" in entry else [entry] if page is None else []
    pages = tuple(found)
    if not entries:
        return Retries(None, pages=pages) if pages else None
    conditions = [entry.node.get("when") or entry.node.get("retry_when") for entry in entries]
    if conditions == [None]:
        return Retries(_policy(entries[0]), pages=pages)
    rules = tuple(_rule(entry, when) for entry, when in zip(entries, conditions, strict=True))
    return Retries(policy_for_requests(max(_figures(entry)[0] for entry in entries)), rules, pages)


def _page(entry: Fields) -> Node | None:
    """The rule for pages, as the action takes it; None where the entry is about failures."""
    values = entry.get("on_success") or entry.get("then")
    if values is None or "next_call" not in values:
        return None
    when = values.node.get("while") or values.node.get("when") or entry.node.get("when")
    kept = {key: values.node.get(key) for key in ("next_call", "collect", "sink", "max_attempts")}
    return made({"when": when, **kept}, entry.node)


def _read_short(node: Scalar, source: Source) -> Retries | None:
    if node.value is True:
        return Retries(_as_policy(ATTEMPTS_DEFAULT, DELAY_DEFAULT, FACTOR_DEFAULT))
    if node.value is False or node.value is None:
        return None
    if type(node.value) is int and 1 <= node.value <= ATTEMPTS_MAX:
        return Retries(_as_policy(node.value, DELAY_DEFAULT, FACTOR_DEFAULT))
    message = f"'retry' is {describe(node)}, a number of attempts, true, a mapping or a list is expected"
    raise source.refuse("type", message, node)


def _values(entry: Fields) -> dict[str, Any]:
    """The keys of the entry, overridden by those of its `then`."""
    return {**entry.values, **(entry["then"].values if "then" in entry else {})}


def _figures(entry: Fields) -> tuple[int, float, float]:
    """The number of calls in all, the first delay, and the factor between delays."""
    values = _values(entry)
    delay = values.get("initial_delay", values.get("delay", DELAY_DEFAULT))
    factor = values.get("backoff_multiplier", values.get("backoff", FACTOR_DEFAULT))
    return values.get("max_attempts", ATTEMPTS_DEFAULT), delay, factor


def _policy(entry: Fields) -> dict[str, Any]:
    values = _values(entry)
    policy = _as_policy(*_figures(entry))
    if "max_delay" in values:
        policy["max_delay"] = seconds(values["max_delay"])
    if values.get("jitter"):
        policy["jitter"] = _JITTER
    return policy


def _as_policy(attempts: int, delay: float, factor: float) -> dict[str, Any]:
    return {"max_retries": attempts - 1, "delay": seconds(delay), "factor": factor}


def _rule(entry: Fields, when: Node | None) -> Node:
    """A rule for the tool: the action decides whether and when to retry."""
    attempts, delay, factor = _figures(entry)
    then = {"do": "retry", "attempts": attempts, "backoff": "exponential", "delay": delay, "factor": factor}
    then["max_delay"] = _values(entry).get("max_delay")
    return made({"when": when, "then": then} if when is not None else {"else": {"then": then}}, entry.node)


def policy_for_requests(attempts: int) -> dict[str, Any]:
    """The policy of a step whose action asks for each retry, with the delay."""
    return {"any": True, "max_retries": attempts - 1, "delay": "0s"}


def policy_for_rules(rules: Iterator[Mapping]) -> dict[str, Any] | None:
    """The retry policy of a step whose tool has rules; None where no rule retries."""
    most = 1
    for rule in rules:
        if (then := then_of(rule)) is not None and is_word(then.get("do"), "retry"):
            attempts = then.get("attempts")
            given = attempts.value if isinstance(attempts, Scalar) else None
            most = max(most, _attempts(given))
    return policy_for_requests(most) if most > 1 else None


def _attempts(given: Any) -> int:
    """The largest number of calls; where only the action knows it, the limit."""
    if given is None:
        return ATTEMPTS_DEFAULT
    return given if type(given) is int else ATTEMPTS_MAX


def then_of(rule: Mapping) -> Mapping | None:
    """What a rule says to do."""
    otherwise = rule.get("else")
    found = otherwise.get("then") or otherwise if isinstance(otherwise, Mapping) else rule.get("then")
    return found if isinstance(found, Mapping) else None


def seconds(value: float) -> str:
    """A number of seconds as a duration of ours."""
    return f"{value:g}s"
