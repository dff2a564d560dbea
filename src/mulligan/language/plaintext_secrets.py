"""Secrets that a file holds in clear: refused, and never repeated by what is said about the file."""

from __future__ import annotations

from collections.abc import Iterator

from mulligan.language.nodes import Mapping, Node, Refusal, Scalar, Sequence, Source
from mulligan.language.shapes import Record

_HINT = "write where it is found: '{env: NAME}', '{file: PATH}' or '{command: …}'"
_PLACES = ("env", "file", "command")


class SecretShape(Record, frozen=True):
    """Where a secret is found; a value in its place is refused as what it is."""

    def refuse(self, node: Node, label: str, source: Source) -> Refusal:
        if isinstance(node, Scalar) and node.value is not None:
            return source.refuse("secret", f"{label} is written in clear", node, hint=_HINT)
        return super().refuse(node, label, source)


def hide_clear_secrets(root: Mapping, source: Source) -> None:
    """Hide every value under `secrets` that does not say where a secret is found, before anybody reads the file."""
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
    """Every scalar of a secret but for those that say where it is found."""
    if isinstance(secret, Scalar):
        yield secret
        return
    for child in _children(secret):
        is_place = isinstance(secret, Mapping) and any(child is secret.get(place) for place in _PLACES)
        if not (is_place and isinstance(child, Scalar)):
            yield from _values(child)
