"""What may stand in files of several other systems, and in none of ours."""

from __future__ import annotations

from typing import Any

from mulligan.language.nodes import Node, Scalar, Source
from mulligan.language.shapes import Definitions, Key, Schema, Shape, Value


class OrNull(Shape, frozen=True):
    """What it is of, or null, which says as much as nothing."""

    of: Shape

    @property
    def expected(self) -> str:
        """What it is of: nobody is told to write null."""
        return self.of.expected

    def read(self, node: Node, label: str, source: Source) -> Any:
        """The value, or None."""
        is_null = isinstance(node, Scalar) and node.value is None
        return None if is_null else self.of.read(node, label, source)

    def schema(self, definitions: Definitions) -> Schema:
        """Either of both."""
        return {"anyOf": [self.of.schema(definitions), {"type": "null"}]}


def optional(shape: Shape, about: str) -> Key:
    """A key that may be left out, or be null."""
    return Key(OrNull(shape), about)


def _some_text(value: Any) -> str:
    """A text that may be empty: what a form sends for a field that nobody filled in."""
    if not isinstance(value, str):
        raise ValueError(value)
    return value


ANY_TEXT = Value("a text", _some_text, {"type": "string"})
