"""Display names for the items of a map and their places: short, and different for each item.

People see `load[west]` and type `--item west`. Keys (`load[1].0`) stay what they are: in the log, in JSON, in folders.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from mulligan.core.model.artifacts import is_artifact
from mulligan.core.model.place_keys import step_name
from mulligan.core.model.text.artifact_words import describe_file
from mulligan.core.model.text.item_words import NAMED_MAX, item_word, with_numbers
from mulligan.core.model.text.lazy_regex import lazy_regex
from mulligan.core.state.state import Items, State

# How many of the differing keys the name of a mapping has at most.
_KEYS_MAX = 3
# What may stand behind the brackets in the name of a place.
_BEHIND = lazy_regex(r"(?: command ([1-9][0-9]*))?(\..*)?", re.DOTALL)


def item_names(values: Sequence[Any]) -> list[str]:
    """A short name for each item: a text or number unchanged, a mapping by the keys in which the items differ.

    Items with the same name get their number appended.
    """
    keys = _distinguishing_keys(values)
    return with_numbers([_name(value, keys) for value in values])


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
    return item_word(text)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def names_of_items(items: Items) -> list[str]:
    """What stands between the brackets for each item of a map."""
    return index_names(items.values, items.names)


# -- places ----------------------------------------------------------------------------------------------------------


def index_names(values: Sequence[Any], given: Sequence[str] = ()) -> list[str]:
    """What stands between the brackets for each item: its name, or its index. `given`: the names of `item_name`.

    A number is no name, since it would read as the index of another item. So is nothing that is not unique.
    """
    if len(values) > NAMED_MAX:
        return [str(index) for index in range(len(values))]
    names = given or item_names(values)
    return [
        str(index) if name.lstrip("-").isdecimal() or name.startswith("#") else name for index, name in enumerate(names)
    ]


def place_name(key: str, names: Sequence[str], commands: int = 1) -> str:
    """The display name of a place of an item: `load[west]`, `load[west] command 2`; any other key unchanged.

    `names`: as `index_names` gives them; `commands`: how many each item has.
    """
    step, bracket, rest = key.partition("[")
    index, _, below = rest.partition("]")
    if not bracket or not index.isdecimal() or int(index) >= len(names):
        return key
    command, dot, more = below.removeprefix(".").partition(".")
    if not command.isdecimal():
        return f"{step}[{names[int(index)]}]{below}"
    which = f" command {int(command) + 1}" if commands > 1 else ""
    return f"{step}[{names[int(index)]}]{which}{dot}{more}"


def place_key(name: str, names: Sequence[str]) -> str | None:
    """The key of the place that `place_name` gives this name, or of its item; None if no item has the name."""
    step, _, rest = name.partition("[")
    fitting = [index for index, one in enumerate(names) if rest.startswith(f"{one}]")]
    for index in sorted(fitting, key=lambda index: len(names[index]), reverse=True):
        if (found := _BEHIND.fullmatch(rest[len(names[index]) + 1 :])) is not None:
            command, more = found[1], found[2] or ""
            # What runs for an only command is named without its number.
            number = int(command) - 1 if command else None if more[1:2].isdecimal() or not more else 0
            return f"{step}[{index}]{'' if number is None else f'.{number}'}{more}"
    return None


def find_item(values: Sequence[Any], word: str, given: Sequence[str] = ()) -> int | None:
    """The index of the item that a word names: its index, or its name as places show it. None if there is none."""
    if word.isdecimal() and int(word) < len(values):
        return int(word)
    names = index_names(values, given)
    return names.index(word) if word in names else None


class PlaceNames:
    """Names the places of runs by their states. The names of a list of items are made once."""

    def __init__(self) -> None:
        self._names: dict[tuple[int, str], tuple[list[Any], list[str]]] = {}

    def name(self, state: State, key: str) -> str:
        """The display name of a place."""
        step = state.places.get(step_name(key)) if "[" in key else None
        if step is None or step.items is None:
            return key
        known = self._names.get((state.run.run_id, step.key))
        if known is None or known[0] is not step.items.values:
            known = self._names[state.run.run_id, step.key] = step.items.values, names_of_items(step.items)
        return place_name(key, known[1], len(state.step(step.key).do))
