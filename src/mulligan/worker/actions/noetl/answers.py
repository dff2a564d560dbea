"""What a step or a tool gave, as templates read it: NoETL's users write `.data` and `.result` wherever they look."""

from __future__ import annotations

from itertools import islice
from typing import Any

from mulligan.worker.actions.noetl.file_texts import FileText
from mulligan.worker.databases.values import as_json

MISSING = object()
ITEMS_MAX = 100_000
# Names that stand for the thing itself where it has nothing of that name.
_ITSELF = frozenset({"data", "result", "context", "_prev"})


class Answer:
    """Marks a value as what a step gave: see `looked_up`."""


class AnswerMapping(Answer, dict[str, Any]):
    pass


class AnswerList(Answer, list[Any]):
    pass


class AnswerText(Answer, str):
    pass


class AnswerInteger(Answer, int):
    pass


class AnswerNumber(Answer, float):
    pass


_MARKED: dict[type, type] = {
    dict: AnswerMapping,
    list: AnswerList,
    str: AnswerText,
    int: AnswerInteger,
    float: AnswerNumber,
}
# What Python says of a template that goes wrong speaks of them by the names that users know.
for _plain, _marked in _MARKED.items():
    _marked.__name__ = _plain.__name__


def answer(value: Any) -> Any:
    """The value, marked. What has no room for a mark (true, false, null) stays what it is."""
    marked = _MARKED.get(type(value))
    return marked(value) if marked else value


def looked_up(value: Any, name: Any) -> Any:
    """What is under `name`, or MISSING. Keys come before methods: `page.items` is what the page has under 'items'.

    In an answer, what is not there is looked for in its `data`; and `data` or `result` that is not there is itself.
    """
    if isinstance(value, dict) and name in value:
        found = value[name]
        return answer(found) if isinstance(value, Answer) and name in _ITSELF else found
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
    """The rows of a query may be counted without naming them."""
    rows = value.get("rows")
    if not isinstance(rows, list) or not -len(rows) <= number < len(rows):
        return MISSING
    return rows[number]


def plain(value: Any) -> Any:
    """A value of a template as JSON has it: what is gone through is a list, what is no JSON is text."""
    if isinstance(value, FileText):
        return str(value)
    if isinstance(value, Answer | str) or value is None or isinstance(value, bool | int | float):
        return as_json(value) if isinstance(value, int | float) and not isinstance(value, bool) else value
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    if hasattr(value, "__iter__") and not isinstance(value, bytes | bytearray):
        return [plain(inner) for inner in islice(value, ITEMS_MAX)]
    return as_json(value)
