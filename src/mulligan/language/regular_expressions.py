"""Regular expressions that a file may hold: valid ones, whose search comes to an end.

For what is searched for in the words of a step there is `core.searching`, where nothing takes long. What is held
against the file's own words has Python's search, and there some take for ever: a group that is repeated, with a choice
inside (how often, which of these), is tried in every way there is, and `(a+)+$` on thirty letters already takes longer
than anybody waits. What gives nothing back once it has matched, possessive (`a++`) or atomic (`(?>…)`), leaves no such
choice.
"""

from __future__ import annotations

import re
import warnings
from typing import Any

from mulligan.core.deciding.bounded_regex import NotSearchable, refuse_unsearchable
from mulligan.core.model.lazy_regex import lazy_regex
from mulligan.language.nodes import Node, Source, describe
from mulligan.language.shapes import Value

_PART = lazy_regex(
    r"""
      \\. | \[\^?\]?(?:\\.|[^\]\\])*+\] | \(\?\#[^)]*+\) | \(\?[a-zA-Z-]++\) | \(\?P=\w++\)
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
    """Whether a choice stands in a repeated group of this (valid) regular expression. Errs on the safe side."""
    # Of each group that is open: whether there is a choice in it, and whether that is over with the group.
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
    """More than once, and what one time has taken can be given back for another."""
    return part["how"] != "+" and part["times"] not in ("?", "{1}", "{0,1}", "{,1}")


def _is_open(part: re.Match[str]) -> bool:
    """Not always the same number of times."""
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


class PatternShape(Value, frozen=True):
    """A regular expression in Python's dialect."""

    def read(self, node: Node, label: str, source: Source) -> Any:
        found = Value.read(self, node, label, source)
        if may_backtrack_exponentially(found):
            message = (
                f"{label} is {describe(node)}, which may take exponential time: a repeated group contains a choice"
            )
            raise source.refuse("pattern", message, node, hint=_HINT)
        return found


class SearchShape(Value, frozen=True):
    """A regular expression in Python's dialect, without what has to go back in the text."""

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

SEARCHED = SearchShape("a regular expression", _require_valid, {"type": "string", "minLength": 1, "format": "regex"})
PATTERN = PatternShape("a regular expression", _require_valid, {"type": "string", "minLength": 1, "format": "regex"})
