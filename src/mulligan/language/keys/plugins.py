"""Actions that packages add, as the language reads them: searched for only where a file has a key that is not ours."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from mulligan.core.model.actions import traits_problem
from mulligan.language.keys.value_schemas import Deferred, Either, Json, Key, Record, Template, ValueSchema
from mulligan.plugins import ACTIONS, BUILT_IN, ActionPlugin, PluginError, load_plugin, offered


class Plugin(msgspec.Struct, frozen=True):
    """An action that a package adds."""

    name: str
    # What to install where it is missing.
    package: str
    definition: ActionPlugin

    @property
    def record(self) -> Record:
        required = self.definition.required
        keys = {key: Key(Deferred(Json), about, key in required) for key, about in self.definition.keys.items()}
        return Record(f"action_{self.name}", keys)

    @property
    def schema(self) -> ValueSchema:
        """What may stand at its key."""
        if self.definition.text_key is None:
            return self.record
        expected = f"a text, or a mapping with '{self.definition.text_key}'"
        return Either(expected, text=Template(), mapping=self.record)


class ActionRecord(Record, frozen=True):
    """A mapping that holds an action: beside our keys it takes those that packages add."""

    def known(self, word: str) -> Key | None:
        return self.keys.get(word) or (_ADDED if word in BUILT_IN[ACTIONS] or word in offered(ACTIONS) else None)

    @property
    def words(self) -> Collection[str]:
        return {*self.keys, *names()}


# The value is read later, when it is known which action it is of.
_ADDED = Key(Deferred(Json))


def names() -> frozenset[str]:
    """The names of our plugins and of all that packages offer, whether these can be used or not."""
    return frozenset({*BUILT_IN[ACTIONS], *offered(ACTIONS)})


def find(name: str) -> Plugin | None:
    """The action of that name; None where no package offers one, PluginError where it cannot be used."""
    loaded = load_plugin(ACTIONS, name, ActionPlugin)
    if loaded is None:
        return None
    package, definition = loaded
    if problem := traits_problem(definition.traits):
        raise PluginError(f"the action '{name}' of {package} {problem}")
    return Plugin(name, package, definition)
