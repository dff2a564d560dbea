"""What a retry rule or a failure edge may ask of a failure: one table, read by the ladder and by the explanations.

To add a condition: a row here, the field in `workflow.Rule` (or `Edge`), and the key in `language/keys/retry_keys.py`.
A rule has exactly one condition; an edge may have several, and all of them must match.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from mulligan.core.deciding.bounded_regex import is_found
from mulligan.core.model.failure import Failure
from mulligan.core.model.text.formatting import number_ranges
from mulligan.core.model.workflow import Edge, Rule


class Condition(msgspec.Struct, frozen=True):
    """One key. `value` is what the rule or the edge has under it; an empty value means that the key is not set."""

    key: str
    # Whether a failure matches the value, in a rule.
    matches: Callable[[Any, Failure], bool]
    # Why a failure does not match: `exit code was 42`.
    mismatch: Callable[[Failure], str]
    # The value as people read it: `exit codes 10, 20-29`.
    describe: Callable[[Any], str]
    # The same as `matches` for a fatal failure; None if a rule with this condition never retries one.
    matches_fatal: Callable[[Any, Failure], bool] | None = None
    # The same as `matches`, in an edge, where that differs.
    matches_in_edge: Callable[[Any, Failure], bool] | None = None


# In the order of precedence: a rule with codes wins over one with exit codes, and so on.
CONDITIONS = (
    Condition(
        "codes",
        matches=lambda codes, failure: failure.code in codes,
        mismatch=lambda failure: f"the code was {failure.code}",
        describe=", ".join,
        matches_fatal=lambda codes, failure: failure.code in codes,
        # HANDLER_FAILED matches too, where the handler of the step failed.
        matches_in_edge=lambda codes, failure: not set(codes).isdisjoint(failure.codes),
    ),
    Condition(
        "exit_codes",
        matches=lambda exit_codes, failure: failure.exit_code in exit_codes,
        mismatch=lambda failure: (
            "there was no exit code" if failure.exit_code is None else f"exit code was {failure.exit_code}"
        ),
        describe=lambda codes: f"exit code{'s' if len(codes) > 1 else ''} {', '.join(number_ranges(codes))}",
    ),
    Condition(
        "exceptions",
        matches=lambda names, failure: not set(names).isdisjoint(failure.exceptions),
        mismatch=lambda failure: (
            f"it raised {failure.exceptions[0]}" if failure.exceptions else "no exception of Python code"
        ),
        describe=", ".join,
        matches_fatal=lambda names, failure: not set(names).isdisjoint(own_names(failure)),
    ),
    Condition(
        "pattern",
        matches=lambda pattern, failure: is_found(pattern, failure.message),
        mismatch=lambda failure: "the message does not match",
        describe=lambda pattern: f"'{pattern}'",
    ),
    Condition(
        "any",
        matches=lambda value, failure: True,
        mismatch=lambda failure: "",
        describe=lambda value: "any failure",
    ),
)
_EDGE_CONDITIONS = tuple(condition for condition in CONDITIONS if condition.key in Edge.__struct_fields__)


# -- rules ------------------------------------------------------------------------------


def matching_rule(rules: tuple[Rule, ...], failure: Failure) -> int | None:
    """The index of the rule for a failure: by the precedence of its condition, then the first in the file.

    A fatal failure is retried only by a rule that names its code, or its very class and not only a base of it.
    """
    if not rules:
        return None
    is_fatal = failure.is_fatal
    for condition in CONDITIONS:
        matches = condition.matches_fatal if is_fatal else condition.matches
        if matches is None:
            continue
        for index, rule in enumerate(rules):
            value = getattr(rule, condition.key)
            if value and matches(value, failure):
                return index
    return None


def own_names(failure: Failure) -> tuple[str, ...]:
    """The names of the class that was raised, without those of its bases."""
    last = failure.exceptions[0].rpartition(".")[2] if failure.exceptions else ""
    return tuple(name for name in failure.exceptions if name.rpartition(".")[2] == last)


def rule_mismatch(rule: Rule, failure: Failure) -> str:
    """Why a failure does not match the rule; empty if it does."""
    condition, value = _condition_of(rule)
    return "" if condition.matches(value, failure) else condition.mismatch(failure)


def describe_rule(rule: Rule) -> str:
    """A rule by what it is for: `TIMEOUT`, `exit code 10`, `'no space left'`, `any failure`."""
    condition, value = _condition_of(rule)
    return condition.describe(value)


def _condition_of(rule: Rule) -> tuple[Condition, Any]:
    found = ((condition, getattr(rule, condition.key)) for condition in CONDITIONS)
    return next((pair for pair in found if pair[1]), (CONDITIONS[-1], True))


# -- edges ------------------------------------------------------------------------------


def edge_mismatch(edge: Edge, failure: Failure) -> str:
    """Why a failure edge is not for this failure, as the log records it: `codes_do_not_match`; empty if it is."""
    for condition, value in _edge_conditions(edge):
        if not (condition.matches_in_edge or condition.matches)(value, failure):
            return f"{condition.key}_do_not_match"
    return ""


def describe_edge(edge: Edge) -> str:
    """What a failure edge is for: `TIMEOUT, CONNECTION and exit codes 10, 20-29`; empty if it is for any failure."""
    return " and ".join(condition.describe(value) for condition, value in _edge_conditions(edge))


def _edge_conditions(edge: Edge) -> Iterator[tuple[Condition, Any]]:
    return ((condition, value) for condition in _EDGE_CONDITIONS if (value := getattr(edge, condition.key)))
