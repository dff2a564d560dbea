"""Texts of a playbook: copied so that nothing of ours is filled in, searched for the names in them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from mulligan.formats.translation import literal
from mulligan.language.nodes import Mapping, Node, Scalar, Sequence

_WORD = re.compile(r"[A-Za-z0-9_-]+")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ONE_NAME = re.compile(r"\s*\{\{-?\s*(?:(?:workload|ctx)\.)?([A-Za-z_]\w*)\s*-?\}\}\s*")


def foreign(node: Node) -> Node:
    """A copy of a value of the playbook's, in which `${…}` stays what it is: text of its author's."""
    if isinstance(node, Scalar):
        return _literal(node) if isinstance(node.value, str) and "${" in node.value else node
    if isinstance(node, Sequence):
        copied = Sequence(node.line, node.column)
        copied.items = [foreign(item) for item in node.items]
        return copied
    entries = Mapping(node.line, node.column)
    entries.entries = {key: (place, foreign(value)) for key, (place, value) in node.entries.items()}
    return entries


def _literal(node: Scalar) -> Scalar:
    text = literal(node.value)
    return Scalar(text, text, node.style, node.line, node.column, node.end_column)


def texts(*nodes: Node | None) -> Iterator[str]:
    """Every text in these values; keys, too."""
    for node in nodes:
        if isinstance(node, Scalar):
            if isinstance(node.value, str):
                yield node.value
        elif isinstance(node, Sequence):
            yield from texts(*node.items)
        elif isinstance(node, Mapping):
            for key, value in node.items():
                yield key.text
                yield from texts(value)


def words(*nodes: Node | None) -> set[str]:
    """Every word in these values: a name that is none of them is not read there."""
    found: set[str] = set()
    for text in texts(*nodes):
        found.update(_WORD.findall(text))
        # A name with a hyphen may also be a difference.
        found.update(_IDENTIFIER.findall(text))
    return found


def has_templates(node: Node | None) -> bool:
    """Whether something in it is to be filled in."""
    return any("{{" in text or "{%" in text for text in texts(node))


def workload_name(text: str) -> str | None:
    """The key of the workload that a text may stand for: as `workload.NAME`, or by its name alone."""
    found = _ONE_NAME.fullmatch(text)
    return found[1] if found else None


def input_name(name: str) -> str:
    """The name of an input or a secret: letters, digits and `_`."""
    plain = re.sub(r"\W", "_", name, flags=re.ASCII)
    return plain if _IDENTIFIER.fullmatch(plain) else f"_{plain}"


def is_word(node: Node | None, word: str) -> bool:
    """Whether that is what is written there."""
    return isinstance(node, Scalar) and node.value == word


def joined_or(conditions: Iterable[str]) -> str:
    """Whether one of these holds."""
    return " or ".join(f"({condition})" for condition in conditions)
