"""Failures of a `sql` step: a code, whether a retry may help, and a message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mulligan import StepError

# A query may be one line of a megabyte.
_SHOWN_CHARS_MAX = 120
READ_ONLY = "the step has 'read_only: true', but this query writes"


def invalid(message: str) -> StepError:
    """The step itself is wrong: a retry cannot help."""
    return StepError("INPUT_INVALID", message, retryable=False)


def rejected(message: str, details: Mapping[str, Any] | None = None) -> StepError:
    """The database rejected the query: a syntax error, an unknown table, a constraint."""
    return StepError("EXCEPTION", message, retryable=False, details=_without_empty(details))


def temporary_failure(message: str, details: Mapping[str, Any] | None = None) -> StepError:
    """The database could not do it this time: a full disk, a cancelled query."""
    return StepError("EXCEPTION", message, retryable=True, details=_without_empty(details))


def connection_lost(message: str, details: Mapping[str, Any] | None = None) -> StepError:
    """The database is unreachable or busy: a retry may help."""
    return StepError("CONNECTION", message, retryable=True, details=_without_empty(details))


def timed_out(message: str, details: Mapping[str, Any] | None = None) -> StepError:
    """A time limit of the database itself was exceeded."""
    return StepError("TIMEOUT", message, retryable=True, details=_without_empty(details))


def _without_empty(details: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (details or {}).items() if value}


def excerpt(query: str, offset: int) -> str:
    """Return the line at this offset, with its number and a caret under it, starting with a line break."""
    start = query.rfind("\n", 0, offset) + 1
    end = query.find("\n", offset)
    line = query[start : len(query) if end < 0 else end]
    first = max(0, offset - start - _SHOWN_CHARS_MAX // 2) if len(line) > _SHOWN_CHARS_MAX else 0
    shown = line[first : first + _SHOWN_CHARS_MAX].replace("\t", " ").rstrip()
    number = str(query.count("\n", 0, start) + 1)
    blanks = " " * (offset - start - first)
    return f"\n  {number} | {shown}\n  {' ' * len(number)} | {blanks}^"
