"""Results of steps and tools as templates read them: playbooks write `.data` and `.result` in many places."""

from __future__ import annotations

from itertools import islice
from typing import Any

from mulligan.formats.noetl.runtime.file_texts import FileText
from mulligan.worker.databases.values import as_json

MISSING = object()
ITEMS_MAX = 100_000
# Names that mean the value itself where it has no key of that name.
_ITSELF = frozenset({"data", "result", "context", "_prev"})


class Answer:
    """Marks a value as the result of a step: see `look_up`."""


# Error messages of Python about templates then have the names that users know.
_MARKED = {plain: type(plain.__name__, (Answer, plain), {}) for plain in (dict, list, str, int, float)}


def mark_answer(value: Any) -> Any:
    """The value, marked as a result. Booleans and null cannot be marked and stay as they are."""
    marker = _MARKED.get(type(value))
    return marker(value) if marker else value


def look_up(value: Any, name: Any) -> Any:
    """The value under `name`, or MISSING. Keys come before methods: `page.items` is the key 'items'.

    A name that a result does not have is looked up in its `data`; a missing `data` or `result` is the result itself.
    """
    if isinstance(value, dict) and name in value:
        found = value[name]
        return mark_answer(found) if isinstance(value, Answer) and name in _ITSELF else found
    if not isinstance(value, Answer):
        return MISSING
    if isinstance(value, dict):
        if isinstance(name, int):
            return _row(value, name)
        inner = value.get("data")
        if isinstance(inner, dict) and name in inner:
            return inner[name]
    return value if name in _ITSELF else MISSING


def _row(value: dict[str, Any], number: int) -> Any:
    """A number indexes the rows of a query result."""
    rows = value.get("rows")
    if not isinstance(rows, list) or not -len(rows) <= number < len(rows):
        return MISSING
    return rows[number]


def to_json(value: Any) -> Any:
    """A value of a template as JSON: an iterable becomes a list, other values that JSON does not have become text."""
    if isinstance(value, FileText):
        return str(value)
    if isinstance(value, Answer | str) or value is None or isinstance(value, bool | int | float):
        return as_json(value) if isinstance(value, int | float) and not isinstance(value, bool) else value
    if isinstance(value, dict):
        return {str(key): to_json(inner) for key, inner in value.items()}
    if hasattr(value, "__iter__") and not isinstance(value, bytes | bytearray):
        return [to_json(inner) for inner in islice(value, ITEMS_MAX)]
    return as_json(value)
