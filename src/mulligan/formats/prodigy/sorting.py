"""Prodigy's `sort_by`: `priority DESC NULLS LAST, name`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from mulligan.formats.prodigy.conditions import Value, field
from mulligan.formats.prodigy.grammar import GrammarRefused

_PART = re.compile(
    r"\s*(?P<path>[A-Za-z_][\w.\[\]-]*)(?:\s+(?P<way>ASC|DESC))?(?:\s+NULLS\s+(?P<nulls>FIRST|LAST))?\s*", re.I | re.A
)


class _Key(NamedTuple):
    value: Value
    is_descending: bool
    are_nulls_first: bool


def order(text: str) -> Callable[[list[Any]], list[Any]]:
    """What sorts items as the text says; those that are alike stay in their order. Nulls come last by default."""
    keys, position = [], 0
    for part in text.split(","):
        match = _PART.fullmatch(part)
        if match is None:
            message = f"'{part.strip()}' is no order such as 'priority DESC NULLS LAST'"
            raise GrammarRefused(message, position + len(part) - len(part.lstrip()), max(1, len(part.strip())))
        nulls = (match["nulls"] or "last").lower()
        keys.append(_Key(field(match["path"]), (match["way"] or "asc").lower() == "desc", nulls == "first"))
        position += len(part) + 1
    return lambda items: _sorted(items, keys)


def _sorted(items: list[Any], keys: list[_Key]) -> list[Any]:
    for key in reversed(keys):
        nulls = [item for item in items if key.value(item) is None]
        others = [item for item in items if key.value(item) is not None]
        others.sort(key=lambda item: _comparable(key.value(item)), reverse=key.is_descending)
        items = [*nulls, *others] if key.are_nulls_first else [*others, *nulls]
    return items


def _comparable(value: Any) -> tuple[int, Any]:
    """Values of unlike types sort by type: a mixed list is an order, not an error."""
    if isinstance(value, bool | int | float):
        return (0, value)
    return (1, value) if isinstance(value, str) else (2, json.dumps(value, sort_keys=True))
