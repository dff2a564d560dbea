"""Shapes of values that files of several other systems have, and ours do not."""

from __future__ import annotations

from typing import Any

from mulligan.language.nodes import Node, Scalar, Source
from mulligan.language.shapes import Definitions, Key, Schema, Shape, Value


class OrNull(Shape, frozen=True):
    """A value of another shape, or null, which means the same as no value."""

    of: Shape

    @property
    def expected(self) -> str:
        """The other shape alone: messages do not suggest null."""
        return self.of.expected

    def read(self, node: Node, label: str, source: Source) -> Any:
        """The value, or None."""
        is_null = isinstance(node, Scalar) and node.value is None
        return None if is_null else self.of.read(node, label, source)

    def schema(self, definitions: Definitions) -> Schema:
        """The other shape, or null."""
        return {"anyOf": [self.of.schema(definitions), {"type": "null"}]}


def optional(shape: Shape, about: str) -> Key:
    """A key that may be missing or null."""
    return Key(OrNull(shape), about)


def _some_text(value: Any) -> str:
    """A text that may be empty, as forms send it for an empty field."""
    if not isinstance(value, str):
        raise ValueError(value)
    return value


ANY_TEXT = Value("a text", _some_text, {"type": "string"})
