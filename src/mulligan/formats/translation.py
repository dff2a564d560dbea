"""Make nodes that keep their place in the foreign file, and report what a translation cannot honour."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from collections.abc import Mapping as Dict
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from mulligan.core.model.workflow import Workflow
from mulligan.language.text.nodes import Mapping, Node, Scalar, Sequence, Source

# The function of a system that makes the tree of a file of ours out of the tree of its file.
Translate: TypeAlias = "Callable[[Node, Translation], Mapping]"


class Translation(msgspec.Struct, eq=False):
    """The translation of one file: what to warn about, and the comments for `convert`."""

    source: Source
    # Whether another file calls this one.
    is_included: bool = False
    # Whether any value may become part of a command or a query, as in NoETL.
    trusts_templates: bool = False
    # The folder in which called playbooks are looked up by their paths; None: found from the file.
    catalogue: Path | None = None
    # The inputs that the run will be started with, where they are known already.
    given: Dict[str, Any] = {}
    # Options of `mulligan run` for files of this system: see `FormatPlugin.options`.
    options: Dict[str, Any] = {}
    # The comments that `convert` writes above a node of the new tree, by the identity of the node.
    remarks: dict[int, list[str]] = {}
    # For `convert`: makes a shorter tree that may say the same, and compares the workflows of both trees.
    fold: Callable[[], Mapping | None] | None = None
    is_same: Callable[[Workflow, Workflow], bool] | None = None
    # These nodes stay alive, so that no other node gets the identity of one that was left out of the tree.
    _remarked: list[Node] = []

    def remark(self, node: Node, text: str) -> None:
        """Add a comment that `convert` writes above `node`, a node of the new tree."""
        self.remarks.setdefault(id(node), []).append(text)
        self._remarked.append(node)

    def warn(self, code: str, message: str, foreign: Node, *, hint: str = "", above: Node | None = None) -> None:
        """Warn that something in the file is not honoured; with `above` also in a comment above that node."""
        self.source.warn(code, message, foreign, hint=hint)
        if above is not None:
            self.remark(above, message)


def made(value: Any, at: Node) -> Node:
    """Any JSON value as a node at the place of `at`. Nodes in it stay as they are, entries that are None are left out.

    For a null in the tree pass `made(None, at)`.
    """
    if isinstance(value, Scalar | Sequence | Mapping):
        return value
    if isinstance(value, dict):
        return mapping(value, at)
    if isinstance(value, list | tuple):
        return sequence((made(item, at) for item in value), at)
    return scalar(value, at)


def mapping(entries: Dict[str, Any], at: Node) -> Mapping:
    """A mapping at the place of `at`; entries that are None are left out."""
    node = Mapping(at.line, at.column)
    for key, value in entries.items():
        if value is not None:
            node.entries[key] = (scalar(key, at), made(value, at))
    return node


def sequence(items: Iterable[Node], at: Node) -> Sequence:
    """A list of these nodes at the place of `at`."""
    node = Sequence(at.line, at.column)
    node.items = list(items)
    return node


def renewed(entries: Dict[str, tuple[Scalar, Node]], at: Node) -> Mapping:
    """A mapping at the place of `at`, of keys and values that keep their own places."""
    node = Mapping(at.line, at.column)
    node.entries = dict(entries)
    return node


def only(node: Mapping, keys: Container[str]) -> Mapping:
    """The mapping with no other keys than these."""
    return renewed({key: entry for key, entry in node.entries.items() if key in keys}, node)


def without(node: Mapping, *keys: str) -> Mapping:
    """A copy of the mapping without these keys."""
    return renewed({key: entry for key, entry in node.entries.items() if key not in keys}, node)


def scalar(value: Any, at: Node) -> Scalar:
    """A scalar at the place of `at`. A text is quoted, so that YAML does not read it as another type."""
    is_text = isinstance(value, str)
    text = value if is_text else msgspec.json.encode(value).decode()
    end_column = at.end_column if isinstance(at, Scalar) else at.column + 1
    return Scalar(value, text, '"' if is_text else "", at.line, at.column, end_column)


def scalars(node: Node | None) -> Iterator[Scalar]:
    """All values at any depth, in the order of the file."""
    if isinstance(node, Scalar):
        yield node
    elif node is not None:
        for child in node.items if isinstance(node, Sequence) else [value for _, value in node.items()]:
            yield from scalars(child)


def literal(text: str) -> str:
    """The text with `${` escaped, so that nothing is filled in. Not for shell text."""
    return text.replace("${", "$${")


def literal_value(value: Any) -> Any:
    """The JSON value with all its texts escaped like that."""
    if isinstance(value, dict):
        return {key: literal_value(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [literal_value(inner) for inner in value]
    return literal(value) if isinstance(value, str) else value
