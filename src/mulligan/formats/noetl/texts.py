"""Texts of a playbook: copied so that nothing of ours is filled in, searched for the names in them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator

from mulligan.formats.translation import literal
from mulligan.language.nodes import Mapping, Node, Scalar, Sequence

_WORD = re.compile(r"[A-Za-z0-9_-]+")
_UNFIT = re.compile(r"[^A-Za-z0-9_-]+")
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
    return any("{{" in text or "{%" in text for text in texts(node))


def workload_name(text: str) -> str | None:
    """The key of the workload that a text may stand for: as `workload.NAME`, or by its name alone."""
    found = _ONE_NAME.fullmatch(text)
    return found[1] if found else None


def fitted(name: str, taken: Collection[str]) -> str:
    """A name as ours are: other characters become `_`, and one that is taken gets a number."""
    plain = _UNFIT.sub("_", name) or "_"
    return next(one for one in _numbered(plain) if one not in taken)


def input_name(name: str) -> str:
    """The name of an input or a secret: letters, digits and `_`."""
    plain = re.sub(r"\W", "_", name, flags=re.ASCII)
    return plain if _IDENTIFIER.fullmatch(plain) else f"_{plain}"


def _numbered(name: str) -> Iterator[str]:
    yield name
    number = 2
    while True:
        yield f"{name}_{number}"
        number += 1


def output_of(step: str) -> str:
    """The expression for what a step of ours gave."""
    return f"{path_to(step)}.output"


def path_to(step: str) -> str:
    return f"steps.{step}" if _IDENTIFIER.fullmatch(step) and step not in _RESERVED else f'steps["{step}"]'


def quoted(text: str) -> str:
    """A text in an expression of ours."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return f"'{escaped}'"


def joined_or(conditions: Iterable[str]) -> str:
    return " or ".join(f"({condition})" for condition in conditions)


# Words that an expression of ours cannot have as a field.
_RESERVED = frozenset(
    {
        *("as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in", "let", "loop"),
        *("package", "namespace", "null", "return", "true", "var", "void", "while"),
    }
)
