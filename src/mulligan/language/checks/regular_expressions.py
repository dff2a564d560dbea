"""Regular expressions in a file: valid, and fast enough to search.

Texts from steps are searched by `core.deciding.bounded_regex`, which does not backtrack. Names in the file are matched
by Python's `re`, which may take exponential time: a repeated group with a choice inside is tried in every combination,
so `(a+)+$` on thirty letters takes too long. Possessive quantifiers (`a++`) and atomic groups (`(?>…)`) do not
backtrack.
"""

from __future__ import annotations

import re
import warnings
from typing import Any

from mulligan.core.deciding.bounded_regex import NotSearchable, refuse_unsearchable
from mulligan.core.model.text.lazy_regex import lazy_regex
from mulligan.language.keys.value_schemas import Value
from mulligan.language.text.nodes import Node, Source, describe

_PART = lazy_regex(
    r"""
      \\. | \[\^?\]?(?>(?:\\.|[^\]\\])*)\] | \(\?\#[^)]*+\) | \(\?[a-zA-Z-]++\) | \(\?P=\w++\)
    | (?P<once>\(\?(?:>|<?[=!]))
    | (?P<open>\((?:\?(?:P<\w++>|\(\w++\)|[a-zA-Z-]*+:))?)
    | (?P<close>\))
    | (?P<or>\|)
    | (?P<times>[*+?]|\{(?=[\d,])(?P<least>\d*+)(?P<to>,(?P<most>\d*+))?\})(?P<how>[?+]?)
    | .
    """,
    re.VERBOSE | re.DOTALL,
)


def may_backtrack_exponentially(text: str) -> bool:
    """Whether a repeated group of this valid pattern contains a choice. Errs on the safe side."""
    # For each open group: whether it contains a choice, and whether it is atomic.
    groups = [(False, False)]
    has_choice = False
    for part in _PART.finditer(text):
        if part["times"]:
            if has_choice and _is_repeated(part):
                return True
            has_choice = part["how"] != "+" and (has_choice or _is_open(part))
            continue
        groups[-1] = (groups[-1][0] or has_choice or bool(part["or"]), groups[-1][1])
        has_choice = False
        if part["open"] or part["once"]:
            groups.append((False, bool(part["once"])))
        elif part["close"]:
            inside, is_once = groups.pop()
            has_choice = inside and not is_once
    return False


def _is_repeated(part: re.Match[str]) -> bool:
    """Whether the quantifier repeats and can backtrack."""
    return part["how"] != "+" and part["times"] not in ("?", "{1}", "{0,1}", "{,1}")


def _is_open(part: re.Match[str]) -> bool:
    """Whether the number of repetitions varies."""
    return not (part["least"] and (part["to"] is None or part["most"] == part["least"]))


def _require_valid(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(value)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            re.compile(value)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(value) from error
    return value


class PatternSchema(Value, frozen=True):
    """A regular expression in Python's dialect."""

    def read(self, node: Node, label: str, source: Source) -> Any:
        found = Value.read(self, node, label, source)
        if may_backtrack_exponentially(found):
            message = (
                f"{label} is {describe(node)}, which may take exponential time: a repeated group contains a choice"
            )
            raise source.refuse("pattern", message, node, hint=_HINT)
        return found


class SearchSchema(Value, frozen=True):
    """A regular expression in Python's dialect, without constructs that need backtracking."""

    def read(self, node: Node, label: str, source: Source) -> Any:
        found = Value.read(self, node, label, source)
        try:
            refuse_unsearchable(found)
        except NotSearchable as reason:
            message = f"{label} is {describe(node)}, which might take too long to search: {reason}"
            raise source.refuse("pattern", message, node, hint=_SEARCH_HINT) from None
        return found


_SEARCH_HINT = "this search does not backtrack, so repeated groups such as (a+)+ and (a|b)* are safe"
_HINT = "use a possessive quantifier or an atomic group: (a++)+ instead of (a+)+, (?>a|b)+ instead of (a|b)+"

SEARCHED = SearchSchema("a regular expression", _require_valid, {"type": "string", "minLength": 1, "format": "regex"})
PATTERN = PatternSchema("a regular expression", _require_valid, {"type": "string", "minLength": 1, "format": "regex"})
