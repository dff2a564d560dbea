"""A foreign file on its way into one of ours: making nodes that know where they came from, and saying what was lost."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping as Dict
from typing import Any, TypeAlias

import msgspec

from mulligan.language.nodes import Mapping, Node, Scalar, Sequence, Source

# One per system, `translate` in its package: the tree of its file into the tree of one of ours.
Translate: TypeAlias = "Callable[[Node, Translation], Mapping]"


class Translation:
    """One file being translated. What a reader makes stands where the thing stood that it was made of."""

    def __init__(self, source: Source, *, is_included: bool = False, trusts_templates: bool = False) -> None:
        self.source = source
        # Whether any value may become part of a command or a query, where the system has it so.
        self.trusts_templates = trusts_templates
        # Whether another file calls it.
        self.is_included = is_included
        # By the identity of a node of the new tree: what `convert` writes above it.
        self.remarks: dict[int, list[str]] = {}
        # Kept, so that no other node gets the identity of one that was left out of the tree.
        self._remarked: list[Node] = []

    def remark(self, node: Node, text: str) -> None:
        """Have `convert` say this above `node`, which is part of the new tree."""
        self.remarks.setdefault(id(node), []).append(text)
        self._remarked.append(node)

    def warn(self, code: str, message: str, foreign: Node, *, hint: str = "", above: Node | None = None) -> None:
        """Say that something of the file is not honoured: when it is read, and above a node of the new tree."""
        self.source.warn(code, message, foreign, hint=hint)
        if above is not None:
            self.remark(above, message)


def made(value: Any, at: Node) -> Node:
    """Any JSON value as a node that stands at `at`. Nodes in it stay as they are, entries that are None are left out.

    A null that is meant is `made(None, at)`.
    """
    if isinstance(value, Scalar | Sequence | Mapping):
        return value
    if isinstance(value, dict):
        return mapping(value, at)
    if isinstance(value, list | tuple):
        sequence = Sequence(at.line, at.column)
        sequence.items = [made(item, at) for item in value]
        return sequence
    return scalar(value, at)


def mapping(entries: Dict[str, Any], at: Node) -> Mapping:
    """A mapping of ours; what is None is left out."""
    node = Mapping(at.line, at.column)
    for key, value in entries.items():
        if value is not None:
            node.entries[key] = (scalar(key, at), made(value, at))
    return node


def scalar(value: Any, at: Node) -> Scalar:
    """One value. A text is quoted, so that nobody asks what YAML makes of it."""
    is_text = isinstance(value, str)
    text = value if is_text else msgspec.json.encode(value).decode()
    end_column = at.end_column if isinstance(at, Scalar) else at.column + 1
    return Scalar(value, text, '"' if is_text else "", at.line, at.column, end_column)


def literal(text: str) -> str:
    """A text in which nothing is filled in, for every place but shell text."""
    return text.replace("${", "$${")


def literal_value(value: Any) -> Any:
    """A JSON value in whose texts nothing is filled in."""
    if isinstance(value, dict):
        return {key: literal_value(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [literal_value(inner) for inner in value]
    return literal(value) if isinstance(value, str) else value
