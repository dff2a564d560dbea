"""Write a tree as YAML, in the style of a file that a person wrote.

One entry per line, short flat mappings and lists of words in brackets, texts of several lines as blocks. A text is
unquoted only where readers of YAML 1.2 and of YAML 1.1 both read it as that text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from textwrap import wrap
from typing import Any

from yaml.resolver import Resolver

from mulligan.core.model.text.lazy_regex import lazy_regex
from mulligan.language.text import scalars
from mulligan.language.text.nodes import Mapping, Node, Scalar, Sequence

WIDTH = 120
_REMARK_WIDTH = 118
# Longer texts get a separate line, and so does each entry of a larger mapping.
_FLOW_TEXT_MAX, _FLOW_ENTRIES_MAX = 72, 6
# A longer key needs an explicit `? `: YAML looks no further for the colon.
_KEY_MAX = 1000

_PLAIN = lazy_regex(
    r"(?![\s\-?:,\[\]{}#&*!|>'\"%@`=])[^\x00-\x1f\x7f-\xa0\u2028\u2029\ufeff\ud800-\udfff\ufffe\uffff]+(?<!\s)"
)
_NOT_PLAIN = lazy_regex(r":\s|:$|\s#")
_NOT_PLAIN_IN_FLOW = lazy_regex(r"[,\[\]{}:?#]")
_ESCAPED = lazy_regex(r"[\x7f-\xa0\u2028\u2029\ufeff\ud800-\udfff\ufffe\uffff]")
_NOT_IN_A_BLOCK = lazy_regex(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff\ufffe\uffff]")
_UNPRINTABLE = lazy_regex(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ufeff\ud800-\udfff\ufffe\uffff]")
_NUMBER = lazy_regex(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?")
# Booleans of YAML 1.1 that PyYAML does not know, but other readers do.
_YAML11_BOOLEANS = frozenset("yYnN")


def write_yaml(root: Node, remarks: dict[int, list[str]], header: str = "") -> str:
    """The YAML text of a tree. Remarks, by the id of their node, become comments above it."""
    writer = _Writer(remarks)
    lines = writer.document(root)
    # Remarks on nodes that are not in the tree go to the head of the file.
    lost = [text for texts in writer.remarks.values() for text in texts]
    head = [*_comment_lines([header] if header else [], 0), *_comment_lines(lost, 0)]
    return "\n".join([*head, *([""] if head else []), *lines]) + "\n"


class _Writer:
    """Writes one tree, node by node, into lines. Removes each remark from `remarks` when it is written."""

    def __init__(self, remarks: dict[int, list[str]]) -> None:
        self.remarks = {node: list(texts) for node, texts in remarks.items()}

    def document(self, root: Node) -> list[str]:
        above = _comment_lines(self._remarks(root), 0)
        if isinstance(root, Mapping) and root.entries:
            return [*above, *_separate_entries([self._section(*entry) for entry in root.items()])]
        if isinstance(root, Sequence) and root.items:
            return [*above, *_separate_entries([self._item(item, 0) for item in root.items])]
        return [*above, *self._value(root, 0, 0)]

    def _section(self, key: Scalar, value: Node) -> list[str]:
        """A top-level entry. Blank lines separate the entries of its lists, which are the steps."""
        if not isinstance(value, Sequence) or self._on_one_line(value, WIDTH - len(key.text) - 2):
            return self._entry(key, value, 0)
        items = _separate_entries([self._item(item, 2, is_block=True) for item in value.items])
        return [*_comment_lines(self._remarks(key, value), 0), *_with_key(_key(key.text), [""], 0), *items]

    def _entry(self, key: Scalar, value: Node, indent: int) -> list[str]:
        above = _comment_lines(self._remarks(key, value), indent)
        name = _key(key.text)
        return [*above, *_with_key(name, self._value(value, indent, indent + len(name) + 2), indent)]

    def _value(self, node: Node, indent: int, column: int) -> list[str]:
        """The text after a colon, and the lines below it."""
        if isinstance(node, Scalar):
            return _text(node, indent, WIDTH - column).split("\n")
        if flow := self._on_one_line(node, WIDTH - column):
            return [flow]
        return ["", *self._block(node, indent + 2)]

    def _block(self, node: Node, indent: int) -> list[str]:
        lines: list[str] = []
        if isinstance(node, Sequence):
            for item in node.items:
                lines += self._item(item, indent)
        elif isinstance(node, Mapping):
            for key, value in node.entries.values():
                lines += self._entry(key, value, indent)
        return lines

    def _item(self, node: Node, indent: int, *, is_block: bool = False) -> list[str]:
        """An entry of a list. A mapping begins after the dash."""
        above = _comment_lines(self._remarks(node), indent)
        dash = " " * indent + "- "
        if isinstance(node, Mapping) and node.entries and (is_block or not self._is_short(node, indent)):
            above += _comment_lines(self._remarks(*next(iter(node.entries.values()))), indent)
            first, *rest = self._block(node, indent + 2)
            return [*above, dash + first[indent + 2 :], *rest]
        first, *rest = self._value(node, indent, indent + 2)
        return [*above, dash + first if first else dash.rstrip(), *rest]

    def _is_short(self, node: Mapping, indent: int) -> bool:
        return len(node.entries) > 1 and self._on_one_line(node, WIDTH - indent - 2) is not None

    def _on_one_line(self, node: Node, room: int) -> str | None:
        """A collection in brackets; None where something in it needs separate lines."""
        if self.remarks and any(id(child) in self.remarks for child in _children(node)):
            return None
        return _flow(node, room)

    def _remarks(self, *nodes: Node) -> list[str]:
        return [text for node in nodes for text in self.remarks.pop(id(node), ())] if self.remarks else []


def _children(node: Node) -> list[Node]:
    if isinstance(node, Sequence):
        return node.items
    return [each for entry in node.entries.values() for each in entry] if isinstance(node, Mapping) else []


def _separate_entries(groups: list[list[str]]) -> list[str]:
    """The lines of all entries, with a blank line before and after each that has several."""
    lines: list[str] = []
    before = 0
    for group in groups:
        if before and max(before, len(group)) > 1:
            lines.append("")
        lines += group
        before = len(group)
    return lines


def _comment_lines(texts: list[str], indent: int) -> list[str]:
    """Texts as comments, wrapped."""
    start = " " * indent + "# "
    cleaned = [_UNPRINTABLE.sub("\ufffd", line) for text in texts for line in text.splitlines()]
    room = _REMARK_WIDTH - len(start)
    parts = (wrap(line, room, break_long_words=False, break_on_hyphens=False) or [""] for line in cleaned)
    return [(start + part).rstrip() for lines in parts for part in lines]


def _with_key(key: str, value: list[str], indent: int) -> list[str]:
    start = " " * indent
    first = f" {value[0]}" if value[0] else ""
    if len(key) > _KEY_MAX:
        return [f"{start}? {key}", f"{start}:{first}", *value[1:]]
    return [f"{start}{key}:{first}", *value[1:]]


@lru_cache(maxsize=1_000)
def _key(text: str) -> str:
    # `on` is a word of our language, and of half the world's files, whatever YAML 1.1 makes of it.
    return "on" if text == "on" else _in_flow(text) or _quote(text)


# -- in brackets -------------------------------------------------------------------------------------------------------


def _flow(node: Node, room: int) -> str | None:
    """A short flat collection on one line; None where it is better written line by line."""
    if isinstance(node, Sequence):
        return _bracketed("[", (_flow_scalar(item) for item in node.items), "]", room)
    if isinstance(node, Mapping) and len(node.entries) <= _FLOW_ENTRIES_MAX:
        return _bracketed("{", (_flow_entry(key, value) for key, value in node.entries.values()), "}", room)
    return None


def _flow_entry(key: Scalar, value: Node) -> str | None:
    if isinstance(value, Scalar):
        text = _flow_scalar(value)
    else:
        text = None if isinstance(value, Mapping) and value.entries else _flow(value, WIDTH)
    return None if text is None else f"{_key(key.text)}: {text}"


def _bracketed(start: str, parts: Iterator[str | None], end: str, room: int) -> str | None:
    """The parts in brackets; None as soon as one is None, or they are too long."""
    joined: list[str] = []
    left = room - 2
    for part in parts:
        if part is None or (left := left - len(part) - 2) < -2:
            return None
        joined.append(part)
    return start + ", ".join(joined) + end


def _flow_scalar(node: Node) -> str | None:
    if not isinstance(node, Scalar):
        return None
    if not isinstance(node.value, str):
        return _not_text(node)
    text = node.value
    return None if len(text) > _FLOW_TEXT_MAX or "\n" in text else _in_flow(text) or _quote_without_escapes(text)


def _in_flow(text: str) -> str | None:
    """The text without quotes; None where that is not safe in brackets or as a key."""
    return text if _is_plain(text) and not _NOT_PLAIN_IN_FLOW.search(text) else None


# -- scalars -----------------------------------------------------------------------------------------------------------


def _text(node: Scalar, indent: int, room: int) -> str:
    """A scalar that may use the rest of its line and the lines below it."""
    if not isinstance(node.value, str):
        return _not_text(node)
    text = node.value
    below = " " * (indent + 2)
    if "\n" in text:
        return _literal_block(text, below) or _quote(text)
    if len(text) > room and (folded := _folded_block(text, below)):
        return folded
    return text if _is_plain(text) else _quote(text)


def _is_plain(text: str) -> bool:
    """Whether every reader of YAML reads the unquoted text as that text."""
    return bool(_PLAIN.fullmatch(text)) and not _NOT_PLAIN.search(text) and _is_text_without_quotes(text)


def _is_text_without_quotes(text: str) -> bool:
    try:
        if not isinstance(scalars.resolve(text), str):
            return False
    except ValueError:
        return False
    implicit = Resolver.yaml_implicit_resolvers.get(text[0], ())
    return text not in _YAML11_BOOLEANS and not any(form.match(text) for _, form in implicit)


def _not_text(node: Scalar) -> str:
    """A value that is not a text. A number stays as it was written where all readers agree on it."""
    value: Any = node.value
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    if not node.style and _NUMBER.fullmatch(node.text):
        return node.text
    return _float(value) if isinstance(value, float) else str(value)


def _float(value: float) -> str:
    """A float with a point: YAML 1.1 needs one in a number with an exponent."""
    if value != value or abs(value) == float("inf"):
        return ".nan" if value != value else f"{'-' if value < 0 else ''}.inf"
    text = repr(value)
    return text if "." in text else text.replace("e", ".0e")


def _quote(text: str) -> str:
    return _quote_without_escapes(text) or _ESCAPED.sub(_escape, json.dumps(text, ensure_ascii=False))


def _quote_without_escapes(text: str) -> str | None:
    """The text in quotes that need no escapes; None where there are none such."""
    if _NOT_IN_A_BLOCK.search(text) or "\n" in text or "\t" in text:
        return None
    if '"' not in text and "\\" not in text:
        return f'"{text}"'
    return f"'{text}'" if "'" not in text else None


def _escape(found: Any) -> str:
    return f"\\u{ord(found.group()):04x}"


def _folded_block(text: str, indent: str) -> str | None:
    """A long line as a folded block; None where YAML would not join its lines to the same text."""
    lines = wrap(text, max(1, WIDTH - len(indent)), break_long_words=False, break_on_hyphens=False)
    if len(lines) < 2 or " ".join(lines) != text or _NOT_IN_A_BLOCK.search(text):
        return None
    return "\n".join([">-", *(indent + line for line in lines)])


def _literal_block(text: str, indent: str) -> str | None:
    """A text as a literal block; None where YAML cannot write it as one."""
    if _NOT_IN_A_BLOCK.search(text) or text.endswith("\n\n") or not text.strip():
        return None
    lines = text.removesuffix("\n").split("\n")
    first = next(line for line in lines if line)
    # Where the first line begins with a blank, an indicator says how much of it is indentation.
    indicator = "2" if first[0] in " \t" else ""
    chomping = "" if text.endswith("\n") else "-"
    return "\n".join([f"|{indicator}{chomping}", *(indent + line if line else "" for line in lines)])
