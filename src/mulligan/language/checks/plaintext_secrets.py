"""Secrets written into the file in plain text: they are refused, and no message repeats them."""

from __future__ import annotations

from collections.abc import Iterator

from mulligan.language.keys.value_schemas import Record
from mulligan.language.text.nodes import Mapping, Node, Refusal, Scalar, Sequence, Source

_HINT = "write where workers find it: '{env: NAME}', '{file: PATH}' or '{command: …}'"
_SOURCES = ("env", "file", "command")


class SecretSchema(Record, frozen=True):
    """Where workers find a secret. A plain value is refused as a secret in plain text."""

    def refuse(self, node: Node, label: str, source: Source, hint: str = "") -> Refusal:
        if isinstance(node, Scalar) and node.value is not None:
            return source.refuse("secret", f"{label} is written in plain text", node, hint=_HINT)
        return super().refuse(node, label, source, hint)


def hide_plaintext_secrets(root: Mapping, source: Source) -> None:
    """Hide every value under `secrets` that is not a source of a secret. Runs before anything else reads the tree."""
    section = root.get("secrets")
    secrets = _children(section) if section is not None else []
    for secret in secrets:
        for scalar in _values(secret):
            source.hide(scalar)


def _children(node: Node) -> list[Node]:
    if isinstance(node, Scalar):
        return [node]
    return node.items if isinstance(node, Sequence) else [value for _, value in node.items()]


def _values(secret: Node) -> Iterator[Scalar]:
    """Every scalar of a secret except its sources."""
    if isinstance(secret, Scalar):
        yield secret
        return
    for child in _children(secret):
        is_source = isinstance(secret, Mapping) and any(child is secret.get(key) for key in _SOURCES)
        if not (is_source and isinstance(child, Scalar)):
            yield from _values(child)
