"""Shapes of values that files of several other systems have, and ours do not."""

from __future__ import annotations

from typing import Any

from mulligan.language.keys.value_schemas import Definitions, Fields, Key, Record, Schema, Value, ValueSchema
from mulligan.language.text.nodes import Mapping, Node, Scalar, Source, shorten
from mulligan.language.text.suggestions import closest_key, key_hint


class OrNull(ValueSchema, frozen=True):
    """A value of another schema, or null, which means the same as no value."""

    of: ValueSchema

    @property
    def expected(self) -> str:
        """The other schema alone: messages do not suggest null."""
        return self.of.expected

    def read(self, node: Node, label: str, source: Source) -> Any:
        """The value, or None."""
        is_null = isinstance(node, Scalar) and node.value is None
        return None if is_null else self.of.read(node, label, source)

    def to_json_schema(self, definitions: Definitions) -> Schema:
        """The other schema, or null."""
        return {"anyOf": [self.of.to_json_schema(definitions), {"type": "null"}]}


def optional(schema: ValueSchema, about: str) -> Key:
    """A key that may be missing or null."""
    return Key(OrNull(schema), about)


def _some_text(value: Any) -> str:
    """A text that may be empty, as forms send it for an empty field."""
    if not isinstance(value, str):
        raise ValueError(value)
    return value


ANY_TEXT = Value("a text", _some_text, {"type": "string"})


class LenientRecord(Record, frozen=True):
    """A mapping of a system that ignores unknown keys: here each one is a warning, and is left out. So is a null.

    A misspelled key is an error only if the mapping cannot do without it: if it is required, or if none of
    `needed` is there and it was meant as one of them. `foreign` are keys by which the file shows that it belongs to
    another system: they are errors as well.
    """

    needed: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()

    def read(self, node: Node, label: str, source: Source) -> Fields:
        """Read the known keys, and warn of all others."""
        if not isinstance(node, Mapping):
            return super().read(node, label, source)
        known = Mapping(node.line, node.column)
        # The keys that the mapping cannot do without, and does not have.
        lacking = {word for word in self.required if word not in node.entries}
        if node.entries.keys().isdisjoint(self.needed):
            lacking |= set(self.needed)
        for word, (key, value) in node.entries.items():
            if self._is_absent(word, value):
                continue
            if self.known(word) or self.is_foreign(word) or closest_key(word, self.keys) in lacking:
                known.entries[word] = (key, value)
            elif not (self.may_extend and word.startswith("x-")):
                message = f"'{shorten(word)}' is not a key of {label} and is ignored"
                source.warn("unknown_key", message, key, hint=self.hint(word))
        return super().read(known, label, source)

    def is_foreign(self, word: str) -> bool:
        """Whether an unknown key is an error."""
        return word in self.foreign

    def hint(self, word: str) -> str:
        """What to write instead of an unknown key."""
        return key_hint(word, self.keys)

    def _is_absent(self, word: str, value: Node) -> bool:
        """Whether a known key has no value, and may have none."""
        is_null = isinstance(value, Scalar) and value.value is None
        return is_null and word in self.keys and not self.keys[word].is_required and word not in self.needed
