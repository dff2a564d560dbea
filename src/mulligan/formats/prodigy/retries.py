"""Prodigy's `retry` as rules of ours. `attempts` is how often a step is tried in all.

Delays that no factor describes (linear, Fibonacci, custom) are written out, one for each retry. The budget counts the
delays alone, so it is known beforehand how many of them fit into it.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from mulligan.formats.prodigy.durations import SECONDS, fibonacci, spelled
from mulligan.formats.prodigy.forms import require, sound
from mulligan.formats.prodigy.keys import BACKOFFS
from mulligan.formats.translation import Translation, made
from mulligan.language.nodes import Mapping, Node, Scalar, plain
from mulligan.language.shapes import Fields, Key, ListOf, Record, number
from mulligan.language.suggestions import quote_list

ATTEMPTS_DEFAULT = 3
_PATTERNS = {
    "network": "(?i)network|connection|unreachable|dns",
    "timeout": "(?i)timeout|timed out",
    "server_error": "(?i)server error|internal error|\\b50[0-9]\\b|service unavailable|bad gateway",
    "rate_limit": "(?i)rate limit|too many requests|\\b429\\b",
}
LINEAR = Record("linear", {"increment": Key(SECONDS, "how much longer each delay is", is_required=True)})
EXPONENTIAL = Record("exponential", {"base": Key(number(1, 1000), "how many times longer each delay is (default 2)")})
CUSTOM = Record("custom", {"delays": Key(ListOf(SECONDS, at_least=1), "one for each retry", is_required=True)})
RECORDS = (LINEAR, EXPONENTIAL, CUSTOM)


def retry(form: Fields, translation: Translation) -> dict[str, Any] | int:
    """The value of our `retry`."""
    require(form, *form.node.entries, translation=translation)
    retries = form.get("attempts", ATTEMPTS_DEFAULT) - 1
    delays = _delays(form, retries, translation)
    if "retry_budget" in form:
        retries = sum(total <= form["retry_budget"] for total in accumulate(delays))
    if not retries:
        return 0
    backoff = _backoff(delays[:retries], form)
    if not form.get("retry_on"):
        return {"max_retries": retries, **backoff}
    for each in form["retry_on"]:
        if isinstance(each, Fields):
            require(each, "pattern", translation=translation)
    rules = [_rule(each, retries, backoff) for each in form["retry_on"]]
    return {"rules": rules, "max_attempts": retries + 1}


def _rule(matched: str | Fields, retries: int, backoff: dict[str, Any]) -> dict[str, Any]:
    if matched == "timeout":
        # Ours is told by its code; the others only by what they say.
        return {"pattern": f"{_PATTERNS['timeout']}|took longer than", "max_retries": retries, **backoff}
    pattern = _PATTERNS[matched] if isinstance(matched, str) else made(matched["pattern"], matched.at("pattern"))
    return {"pattern": pattern, "max_retries": retries, **backoff}


def _backoff(delays: list[float], form: Fields) -> dict[str, Any]:
    distinct = list(dict.fromkeys(delays))
    said: dict[str, Any] = (
        {"delay": spelled(delays[0])} if len(distinct) == 1 else {"delays": [spelled(delay) for delay in delays]}
    )
    if form.get("jitter"):
        # Theirs is spread by half of the factor to either side.
        said["jitter"] = form.get("jitter_factor", 0.3) / 2
    return said


def _delays(form: Fields, retries: int, translation: Translation) -> list[float]:
    limit = form.get("max_delay", 30.0)
    return [min(limit, delay) for delay in _unbounded(form, retries, translation)]


def _unbounded(form: Fields, retries: int, translation: Translation) -> list[float]:
    first = form.get("initial_delay", 1.0)
    kind, options = _kind(form, translation)
    if kind == "linear":
        increment = options["increment"] if options else first
        return [first + increment * index for index in range(retries)]
    if kind == "exponential":
        base = options.get("base", 2.0) if options else 2.0
        return [first * base**index for index in range(min(retries, 60))] + [first * base**60] * max(0, retries - 60)
    if kind == "fibonacci":
        return [first * figure for figure in fibonacci(retries)]
    if kind == "custom" and options:
        named = list(options["delays"])
        return (named + [named[-1]] * retries)[:retries]
    return [first] * retries


def _kind(form: Fields, translation: Translation) -> tuple[str, Fields | None]:
    """The name of the backoff, and its own keys."""
    said = form.get("backoff", "exponential")
    if isinstance(said, str):
        return said, None
    if len(said.node.entries) != 1:
        message = f"'backoff' says one thing, and here are {len(said.node.entries)}"
        raise translation.source.refuse("prodigy", message, said.node, hint=f"it is one of {quote_list(BACKOFFS)}")
    require(said, *said.node.entries, translation=translation)
    kind = next(iter(said.values))
    node = said.at(kind)
    shape = {"linear": LINEAR, "exponential": EXPONENTIAL, "custom": CUSTOM}.get(kind)
    if shape is None or _is_empty(node):
        return kind, None
    return kind, sound(shape, node, f"'{kind}'", translation)


def _is_empty(node: Node) -> bool:
    return (isinstance(node, Scalar) and node.value is None) or (isinstance(node, Mapping) and not plain(node))
