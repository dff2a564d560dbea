"""Actions that other packages add. They are looked for only when a file has a key that is none of ours.

Those that translated files use (`foreign_actions`) are found the same way, and before anything that is installed.
"""

from __future__ import annotations

import sys
from collections.abc import Collection
from functools import lru_cache
from importlib import import_module
from typing import Any

import msgspec

from mulligan.language.shapes import Deferred, Either, Json, Key, Record, Shape, Template
from mulligan.plugins import ActionPlugin

OWN_PACKAGE = "mulligan"


class Plugin(msgspec.Struct, frozen=True):
    """An action that a package adds."""

    name: str
    # What to install where it is missing.
    package: str
    definition: ActionPlugin

    @property
    def record(self) -> Record:
        said = self.definition
        keys = {key: Key(Deferred(Json), about, key in said.required) for key, about in said.keys.items()}
        return Record(f"action_{self.name}", keys)

    @property
    def shape(self) -> Shape:
        """What may stand at its key."""
        if self.definition.text_key is None:
            return self.record
        expected = f"a text, or a mapping with '{self.definition.text_key}'"
        return Either(expected, text=Template(), mapping=self.record)

    @property
    def key(self) -> Key:
        return Key(self.shape, self.definition.about)


class ActionRecord(Record, frozen=True):
    """A mapping in which an action stands: beside our keys it takes those that packages add."""

    def known(self, word: str) -> Key | None:
        return self.keys.get(word) or (_ADDED if _is_foreign(word) or word in names() else None)

    @property
    def words(self) -> Collection[str]:
        return {*self.keys, *names()}


# What stands there is read when it is known which action it is.
_ADDED = Key(Deferred(Json))


def names() -> frozenset[str]:
    """The names of all actions that packages offer, whether these can be used or not, and of the foreign ones."""
    return frozenset(_offered(tuple(sys.path))) | _foreign().keys()


def find(name: str) -> Plugin | None:
    """The action of that name; None where no package offers one, Unusable where it cannot be had."""
    if _is_foreign(name):
        return Plugin(name, OWN_PACKAGE, _foreign()[name])
    return _found(name, tuple(sys.path))


def _is_foreign(name: str) -> bool:
    return name in _foreign()


@lru_cache(maxsize=1)
def _foreign() -> dict[str, ActionPlugin]:
    found: dict[str, ActionPlugin] = import_module("mulligan.language.foreign_actions").ACTIONS
    return found


# What is installed is what is found along the path: it is looked through once for each.


@lru_cache(maxsize=8)
def _offered(path: tuple[str, ...]) -> dict[str, Any]:
    offered: dict[str, Any] = import_module("mulligan.language.entry_points").offered()
    return offered


@lru_cache(maxsize=64)
def _found(name: str, path: tuple[str, ...]) -> Plugin | None:
    entries = _offered(path).get(name)
    if entries is None:
        return None
    package, definition = import_module("mulligan.language.entry_points").loaded(name, entries)
    return Plugin(name, package, definition)
