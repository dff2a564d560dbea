"""Refuse a file that asks more of Python than it can do: numbers of thousands of digits, or nesting without end.

Readers refuse what they know of with its exact place. This is for all that nobody thought of.
"""

from __future__ import annotations

import re

from mulligan.core.model.text.lazy_regex import lazy_regex
from mulligan.language.text.nodes import Refusal, Source

LIMIT_ERRORS = (RecursionError, MemoryError, OverflowError, ValueError)

_LONG_NUMBER = lazy_regex(r"[0-9][0-9_]{4300,}")
_LARGE_NUMBER = lazy_regex(r"[0-9][0-9_.]{15,}|[0-9.]+[eE][+]?[0-9]{3,}|[.](?:inf|Inf|INF)|Infinity")


def refuse_excess(error: Exception, source: Source) -> Refusal:
    """The refusal of the file, at its most likely place. A ValueError that is a bug of ours is raised again."""
    if isinstance(error, RecursionError | MemoryError):
        line = max(range(len(source.lines)), key=lambda number: len(source.lines[number]))
        indent = len(source.lines[line]) - len(source.lines[line].lstrip())
        return source.refuse_at("too_deep", "something is nested too deep, or is too long", line, indent)
    if isinstance(error, OverflowError):
        return _refuse_number("a number is too large", _LARGE_NUMBER, source)
    if "integer string conversion" in str(error):
        return _refuse_number("a number has too many digits", _LONG_NUMBER, source)
    raise error


def _refuse_number(message: str, pattern: re.Pattern[str], source: Source) -> Refusal:
    for line, text in enumerate(source.lines):
        if found := pattern.search(text):
            return source.refuse_at("number", message, line, found.start(), found.end() - found.start())
    return source.refuse_at("number", message, 0, 0)
