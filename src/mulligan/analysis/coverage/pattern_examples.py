"""An example text for a regular expression, so that a rule with a pattern can be made to match."""

from __future__ import annotations

import re
from typing import Any

# The parser of the standard library: its tree is all that is needed here.
_parser: Any = re._parser  # type: ignore[attr-defined]
_REPEATS_MAX = 3
_CATEGORIES = {"CATEGORY_DIGIT": "0", "CATEGORY_SPACE": " ", "CATEGORY_WORD": "a", "CATEGORY_NOT_SPACE": "a"}


def example_of(pattern: str) -> str | None:
    """A short text in which the pattern is probably found; None if none can be made. The caller checks it."""
    try:
        return "".join(_text(node) for node in _parser.parse(pattern))
    except (re.error, ValueError, RecursionError, OverflowError, LookupError):
        return None


def _text(node: tuple[Any, Any]) -> str:
    kind, value = str(node[0]), node[1]
    if kind == "LITERAL":
        return chr(value)
    if kind == "ANY":
        return "a"
    if kind == "NOT_LITERAL":
        return "a" if chr(value) != "a" else "b"
    if kind == "IN":
        return _member(value)
    if kind == "BRANCH":
        return "".join(map(_text, value[1][0]))
    if kind == "SUBPATTERN":
        return "".join(map(_text, value[-1]))
    if kind in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        least, _, inner = value
        if least > _REPEATS_MAX * 100:
            raise ValueError("too long")
        return "".join("".join(map(_text, inner)) for _ in range(least))
    if kind in ("AT", "ASSERT_NOT"):
        return ""
    if kind == "ATOMIC_GROUP":
        return "".join(map(_text, value))
    if kind == "ASSERT":
        return "".join(map(_text, value[1])) if value[0] > 0 else ""
    raise ValueError(f"no example for {kind}")


def _member(choices: list[tuple[Any, Any]]) -> str:
    """A character of a class."""
    if str(choices[0][0]) == "NEGATE":
        refused = "".join(_member([one]) for one in choices[1:])
        return next(char for char in "abc 0-_xyz" if char not in refused)
    kind, value = str(choices[0][0]), choices[0][1]
    if kind == "LITERAL":
        return chr(value)
    if kind == "RANGE":
        return chr(value[0])
    if kind == "CATEGORY":
        return _CATEGORIES[str(value)]
    raise ValueError(f"no example for {kind}")
