"""Display names for the items of a map: short, and different for each item."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from mulligan.core.model.artifact_words import describe_file
from mulligan.core.model.artifacts import is_artifact
from mulligan.core.model.formatting import escape_unprintable, single_line, strip_control_characters

NAME_CHARS_MAX = 48
# How many of the differing keys the name of a mapping has at most.
_KEYS_MAX = 3


def item_names(values: Sequence[Any]) -> list[str]:
    """A short name for each item: a text or number unchanged, a mapping by the keys in which the items differ.

    Items with the same name get their number appended.
    """
    keys = _distinguishing_keys(values)
    names = [_name(value, keys) for value in values]
    often = Counter(names)
    return [f"{name} #{index}".strip() if often[name] > 1 or not name else name for index, name in enumerate(names)]


def _distinguishing_keys(values: Sequence[Any]) -> list[str]:
    """The first keys in which the mappings among the values differ; if none differs, the first keys."""
    maps = [value for value in values if isinstance(value, dict) and not is_artifact(value)]
    seen: dict[str, set[bytes]] = {}
    for value in maps:
        for key, one in value.items():
            seen.setdefault(str(key), set()).add(msgspec.json.encode(one))
    differing = [key for key, found in seen.items() if len(found) > 1]
    # A key that is different in every item is enough; prefer a text to a number.
    unique = [key for key in differing if len(seen[key]) == len(maps)]
    unique.sort(key=lambda key: not all(isinstance(value.get(key), str) for value in maps))
    return unique[:1] or (differing or list(seen))[:_KEYS_MAX]


def _name(value: Any, keys: Sequence[str]) -> str:
    if is_artifact(value):
        return describe_file(value)
    if isinstance(value, dict):
        found = [(key, value[key]) for key in keys if key in value]
        is_plain = len(found) == 1 and isinstance(found[0][1], str)
        text = _text(found[0][1]) if is_plain else ", ".join(f"{key}={_text(one)}" for key, one in found)
    else:
        text = _text(value)
    text = escape_unprintable(single_line(strip_control_characters(text))).strip()
    return text if len(text) <= NAME_CHARS_MAX else text[: NAME_CHARS_MAX - 1] + "…"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
