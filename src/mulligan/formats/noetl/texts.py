"""Copy texts of a playbook without filling in values of ours, and search them for names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from mulligan.formats.translation import literal, renewed, sequence
from mulligan.language.text.nodes import Mapping, Node, Scalar, Sequence

_WORD = re.compile(r"[A-Za-z0-9_-]+")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ONE_NAME = re.compile(r"\s*\{\{-?\s*(?:(?:workload|ctx)\.)?([A-Za-z_]\w*)\s*-?\}\}\s*")


def foreign(node: Node) -> Node:
    """A copy of a value of the playbook in which `${…}` is escaped: there it is plain text."""
    if isinstance(node, Sequence):
        return sequence(map(foreign, node.items), node)
    if isinstance(node, Mapping):
        return renewed({key: (place, foreign(value)) for key, (place, value) in node.entries.items()}, node)
    if not isinstance(node.value, str) or "${" not in node.value:
        return node
    text = literal(node.value)
    return Scalar(text, text, node.style, node.line, node.column, node.end_column)


def copied(node: Node | None) -> Node | None:
    """Such a copy of what may not be there."""
    return None if node is None else foreign(node)


def texts(*nodes: Node | None) -> Iterator[str]:
    """Every text in these values, including keys."""
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
    """Every word in these values. A name that is not among them is not read there."""
    found: set[str] = set()
    for text in texts(*nodes):
        found.update(_WORD.findall(text))
        # A name with a hyphen may also be a difference.
        found.update(_IDENTIFIER.findall(text))
    return found


def has_templates(node: Node | None) -> bool:
    """Whether it contains a template."""
    return any("{{" in text or "{%" in text for text in texts(node))


def has_key(node: Node | None, key: str) -> bool:
    """Whether a mapping in it has this key."""
    if isinstance(node, Mapping):
        return key in node.entries or any(has_key(value, key) for _, value in node.items())
    return isinstance(node, Sequence) and any(has_key(item, key) for item in node.items)


def workload_name(text: str) -> str | None:
    """The key of the workload if the whole text is `{{ workload.NAME }}` or `{{ NAME }}`."""
    match = _ONE_NAME.fullmatch(text)
    return match[1] if match else None


def input_name(name: str) -> str:
    """A valid name of an input or a secret: letters, digits and `_`."""
    plain = re.sub(r"\W", "_", name, flags=re.ASCII)
    return plain if _IDENTIFIER.fullmatch(plain) else f"_{plain}"


def is_word(node: Node | None, word: str) -> bool:
    """Whether the node is this text."""
    return isinstance(node, Scalar) and node.value == word


def any_of(conditions: Iterable[str]) -> str:
    """A condition that holds where one of these does."""
    return " or ".join(f"({condition})" for condition in conditions)
