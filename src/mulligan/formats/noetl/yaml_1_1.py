"""Parse playbooks as NoETL does: YAML 1.1, as PyYAML reads it. What YAML 1.2 would read differently is a warning.

`no` and `off` are false, `010` is eight, `1:30` is ninety, `1e3` is a text. Merge keys (`<<`) are followed, and of
a key that appears twice the last one counts. A key is always a text, and so is a date.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from yaml.constructor import SafeConstructor
from yaml.nodes import ScalarNode
from yaml.resolver import Resolver

from mulligan.language.text import document, scalars
from mulligan.language.text.document import OpenCollection, TreeBuilder
from mulligan.language.text.nodes import Mapping, Node, Scalar, Sequence, Source, describe, shorten

# The kinds of values that PyYAML finds in a plain scalar, but for dates: these stay texts.
_PYYAML = SafeConstructor()
_KINDS: dict[str, Callable[[ScalarNode], Any]] = {
    f"{scalars.TAG}null": _PYYAML.construct_yaml_null,
    f"{scalars.TAG}bool": _PYYAML.construct_yaml_bool,
    f"{scalars.TAG}int": _PYYAML.construct_yaml_int,
    f"{scalars.TAG}float": _PYYAML.construct_yaml_float,
}
# A longer whole number does not fit into 64 bits, in whatever base.
_WHOLE_CHARS_MAX = 200
_TAGGED = {f"{scalars.TAG}bool": (bool,), f"{scalars.TAG}int": (int,), f"{scalars.TAG}float": (float,)}
_MERGE = "<<"


def parse(source: Source) -> Node:
    """The tree of a playbook."""
    return document.parse(source, builder=_Builder)


def resolve(text: str) -> Any:
    """The value of a plain scalar. ValueError for a number that does not fit into 64 bits."""
    for tag, form in Resolver.yaml_implicit_resolvers.get(text[:1], ()):
        if tag in _KINDS and form.match(text):
            is_whole = tag == f"{scalars.TAG}int"
            if is_whole and len(text) > _WHOLE_CHARS_MAX:
                raise ValueError("a number of more than 64 bits")
            # PyYAML fails on a prefix without digits, such as '0x_'.
            value = _KINDS[tag](ScalarNode(tag, text if text.strip("+-0bx_") or not is_whole else "0"))
            if is_whole and not scalars.INTEGER_MIN <= value <= scalars.INTEGER_MAX:
                raise ValueError("a number of more than 64 bits")
            return value
    return text


class _Builder(TreeBuilder):
    """Builds the tree of a playbook, and warns where YAML 1.2 would read it differently."""

    def __init__(self, source: Source, parser: Any, content: str) -> None:
        super().__init__(source, parser, content)
        # Scalars that YAML 1.2 reads as another value, by their identity.
        self._different: dict[int, Scalar] = {}
        # The mappings that merge keys name, by the identity of the mapping that has the keys.
        self._merged: dict[int, list[Mapping]] = {}

    def document(self) -> Node:
        root = super().document()
        for node in self._different.values():
            self._warn(node)
        return root

    def _warn(self, node: Scalar) -> None:
        """Warn, and write the value so that YAML 1.2 reads it, too."""
        written, is_text = node.text, isinstance(node.value, str)
        node.text = written if is_text else msgspec.json.encode(node.value).decode()
        node.style = '"' if is_text else ""
        shown = "a text" if is_text else node.text
        message = f"'{shorten(written)}' is {shown}: NoETL reads YAML 1.1"
        hint = "quote it" if is_text else f"write {shown}; for a text, quote it"
        self.source.warn("yaml_1_1", message, node, hint=hint)

    def value(self, event: Any, node: Scalar) -> Any:
        types = _TAGGED.get(event.tag or "")
        try:
            value = resolve(node.text)
        except ValueError:
            message = f"the number {shorten(node.text)} does not fit into 64 bits"
            raise self.source.refuse("number", message, node, hint="quote it to keep it as text") from None
        if event.tag:
            return value if types and type(value) in types else super().value(event, node)
        usual = super().value(event, node)
        if type(value) is not type(usual) or (value != usual and value == value):
            self._different[id(node)] = node
        return value

    def key(self, parent: OpenCollection, mapping: Mapping, node: Node) -> Scalar:
        if not isinstance(node, Scalar):
            return super().key(parent, mapping, node)
        if node.text == _MERGE and not node.style:
            return node
        self._different.pop(id(node), None)
        if node.text in mapping.entries:
            first = mapping.key(node.text)
            message = f"'{shorten(node.text)}' appears twice: the last one counts, as in NoETL; "
            message += f"the first is in line {first.line + 1}"
            self.source.warn("duplicate_key", message, node, hint="remove one of them")
            return node
        return super().key(parent, mapping, node)

    def put(self, parent: OpenCollection, mapping: Mapping, key: Scalar, value: Node) -> None:
        if key.text != _MERGE or key.style:
            super().put(parent, mapping, key, value)
            return
        given = value.items if isinstance(value, Sequence) else [value]
        for one in reversed(given):
            if not isinstance(one, Mapping):
                message = f"'{_MERGE}' merges mappings, and this is {describe(one)}"
                raise self.source.refuse("merge_key", message, one, hint=f"write '{_MERGE}: *NAME'")
            self._merged.setdefault(id(mapping), []).append(one)

    def close(self, closed: OpenCollection) -> None:
        merged = self._merged.pop(id(closed.node), None)
        if merged is not None and isinstance(closed.node, Mapping):
            below = {key: entry for one in merged for key, entry in one.entries.items()}
            closed.node.entries = {**below, **closed.node.entries}
