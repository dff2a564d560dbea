"""Parses YAML 1.2 into nodes: every key and value with its line and column.

The events come from PyYAML's C parser. Scalars are resolved by `scalars`, since PyYAML implements YAML 1.1. Merge keys
(`<<`) are refused: YAML 1.2 does not have them, and a merged key has no position in the file. `defaults`,
`retry_policies` and `handlers` serve the same purpose and can be checked.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
from yaml import YAMLError
from yaml.error import MarkedYAMLError
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    StreamEndEvent,
)
from yaml.parser import Parser
from yaml.reader import Reader
from yaml.scanner import Scanner

from mulligan.core.model.text.lazy_regex import lazy_regex
from mulligan.language.cel.cel_tokens import closing_brace
from mulligan.language.text import scalars
from mulligan.language.text.nodes import Mapping, Node, Refusal, Scalar, Sequence, Source, shorten
from mulligan.language.text.suggestions import did_you_mean

try:
    from yaml import cyaml

    _c_module: Any = cyaml
except ImportError:  # PyYAML without libyaml: slower, the same events.
    _c_module = None

DEPTH_MAX = 80
# The most nodes that aliases may add: a few kilobytes of nested aliases could expand to billions.
ALIASED_NODES_MAX = 200_000

_UNPRINTABLE = lazy_regex("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]")
# Characters that an escape in double quotes can produce and that programs cannot handle.
UNUSABLE_CHARACTER = lazy_regex("[\0\ud800-\udfff]")


class _PurePythonParser(Reader, Scanner, Parser):
    def __init__(self, text: str) -> None:
        Reader.__init__(self, text)
        Scanner.__init__(self)
        Parser.__init__(self)


def decode(data: bytes, file: str) -> Source:
    """The text of a file. If it is not UTF-8, it is refused at the first bad byte."""
    try:
        return Source(data.decode("utf-8-sig"), file)
    except UnicodeDecodeError as error:
        source = Source(data.decode("utf-8", "replace"), file)
        before = data[: error.start]
        line_start = before.rfind(b"\n") + 1
        column = len(before[line_start:].decode("utf-8", "replace"))
        message = f"byte 0x{data[error.start]:02x} is not UTF-8"
        raise source.refuse_at(
            "not_utf8", message, before.count(b"\n"), column, hint="save the file as UTF-8"
        ) from None


def parse(
    source: Source,
    *,
    is_c_parser_wanted: bool = True,
    content: str = "a workflow has at least 'steps:'",
    builder: type[TreeBuilder] | None = None,
) -> Node:
    """The single document of the file. `content` is the hint for an empty file; `builder` reads other YAML."""
    refuse_unprintable(source)
    parser = _c_module.CParser(source.text) if _c_module and is_c_parser_wanted else _PurePythonParser(source.text)
    try:
        return (builder or TreeBuilder)(source, parser, content).document()
    except MarkedYAMLError as error:
        raise _refuse_syntax(source, error) from None
    except YAMLError as error:
        raise source.refuse_at("yaml", str(error).lower(), 0, 0) from None


def refuse_unprintable(source: Source) -> None:
    """Refuse a text with control characters."""
    if found := _UNPRINTABLE.search(source.text):
        before = source.text[: found.start()]
        line = Source(before, "").lines
        message = f"the character U+{ord(found.group()):04X} is not allowed in a text file"
        raise source.refuse_at("character", message, len(line) - 1, len(line[-1]), hint="remove it")


class TreeBuilder:
    """Builds nodes from parser events, with a stack instead of recursion."""

    def __init__(self, source: Source, parser: Any, content: str) -> None:
        self.source = source
        self._content = content
        self.parser = parser
        self.anchors: dict[str, tuple[Node, int]] = {}
        self.open_anchors: set[str] = set()
        self.aliased_nodes = 0

    def document(self) -> Node:
        root: Node | None = None
        while not isinstance(event := self.parser.get_event(), StreamEndEvent):
            if isinstance(event, DocumentStartEvent):
                if root is not None:
                    message = "a second document starts here"
                    raise self._refuse(event, "several_documents", message, hint="a file holds one workflow")
                root = self._node()
        if root is None or (isinstance(root, Scalar) and root.value is None):
            raise self.source.refuse_at("empty", "the file is empty", 0, 0, hint=self._content)
        return root

    def _node(self) -> Node:
        """The next node. Each open collection on the stack knows its anchor."""
        next_event = self.parser.get_event
        stack: list[OpenCollection] = []
        while True:
            event = next_event()
            kind = type(event)
            node: Node
            if kind is ScalarEvent:
                node, size = self._scalar(event), 1
            elif kind is AliasEvent:
                node, size = self._alias(event)
            elif kind is MappingEndEvent or kind is SequenceEndEvent:
                closed = stack.pop()
                self.close(closed)
                node, size = closed.node, closed.size
                if closed.anchor:
                    self._close_anchor(closed.anchor, node, size)
            else:
                stack.append(self._open(event, len(stack)))
                continue
            if not stack:
                return node
            parent = stack[-1]
            parent.size += size
            collection = parent.node
            if isinstance(collection, Sequence):
                collection.items.append(node)
            elif parent.key is None:
                parent.key = self.key(parent, collection, node)
            else:
                self.put(parent, collection, parent.key, node)
                parent.key = None

    def _open(self, event: Any, depth: int) -> OpenCollection:
        if depth >= DEPTH_MAX:
            raise self._refuse(event, "too_deep", f"lists and mappings are nested more than {DEPTH_MAX} deep")
        mark = event.start_mark
        is_mapping = isinstance(event, MappingStartEvent)
        if event.tag and event.tag not in ("!", scalars.TAG + ("map" if is_mapping else "seq")):
            raise self._refuse_tag(event)
        if event.anchor:
            self.open_anchors.add(event.anchor)
        node = Mapping(mark.line, mark.column) if is_mapping else Sequence(mark.line, mark.column)
        return OpenCollection(node, event.anchor)

    def put(self, parent: OpenCollection, mapping: Mapping, key: Scalar, value: Node) -> None:
        """Put an entry into a mapping."""
        mapping.entries[key.text] = (key, value)

    def close(self, closed: OpenCollection) -> None:
        """Called when a collection is complete."""

    def key(self, parent: OpenCollection, mapping: Mapping, node: Node) -> Scalar:
        """Check a key of a mapping."""
        if not isinstance(node, Scalar) or node.value is None:
            raise self.source.refuse("key", "a key is one word or text", node, hint="write it as 'key: value'")
        if node.text == "<<" and node.style == "":
            hint = "use 'defaults', 'retry_policies' or 'handlers', or an alias for the whole value"
            raise self.source.refuse("merge_key", "merge keys ('<<') are not part of YAML 1.2", node, hint=hint)
        if node.text in mapping.entries:
            first = mapping.key(node.text)
            message = f"'{shorten(node.text)}' appears twice: first in line {first.line + 1}"
            raise self.source.refuse("duplicate_key", message, node, hint="remove one of them")
        return node

    def _scalar(self, event: Any) -> Scalar:
        start, end, text = event.start_mark, event.end_mark, event.value
        line, column = start.line, start.column
        # The pure Python parser uses None, the C parser "".
        style = event.style or ""
        node = Scalar(text, text, style, line, column, end.column if end.line == line else column)
        if event.tag or style == "":
            node.value = self.value(event, node)
        elif style == '"' and (unusable := UNUSABLE_CHARACTER.search(event.value)):
            message = f"the text contains the character U+{ord(unusable.group()):04X}, which is not allowed"
            raise self.source.refuse("character", message, node, hint="remove it")
        if event.anchor:
            self._close_anchor(event.anchor, node, 1)
        return node

    def value(self, event: Any, node: Scalar) -> Any:
        """The value of a scalar that is not quoted, or has a tag."""
        try:
            return scalars.resolve_tagged(node.text, event.tag) if event.tag else scalars.resolve(node.text)
        except KeyError:
            raise self._refuse_tag(event) from None
        except ValueError:
            if event.tag:
                word = event.tag.removeprefix(scalars.TAG)
                message = f"'{shorten(node.text)}' is not a valid '!!{word}'"
                raise self.source.refuse("tag", message, node) from None
            message = f"the number {shorten(node.text)} does not fit into 64 bits"
            raise self.source.refuse("number", message, node, hint="quote it to keep it as text") from None

    def _alias(self, event: Any) -> tuple[Node, int]:
        if event.anchor in self.open_anchors:
            raise self._refuse(
                event, "recursive_alias", f"the alias '*{event.anchor}' is inside the value that it refers to"
            )
        if event.anchor not in self.anchors:
            hint = did_you_mean(event.anchor, self.anchors, "*{}")
            raise self._refuse(event, "unknown_alias", f"there is no anchor '&{event.anchor}' before this", hint=hint)
        node, size = self.anchors[event.anchor]
        self.aliased_nodes += size
        if self.aliased_nodes > ALIASED_NODES_MAX:
            message = f"the aliases of this file stand for more than {ALIASED_NODES_MAX:,} values"
            raise self._refuse(event, "alias_bomb", message)
        return node, size

    def _close_anchor(self, anchor: str, node: Node, size: int) -> None:
        self.open_anchors.discard(anchor)
        self.anchors[anchor] = (node, size)

    def _refuse_tag(self, event: Any) -> Refusal:
        word = event.tag.removeprefix(scalars.TAG)
        tag = f"!!{word}" if word != event.tag else event.tag
        known = "!!str, !!int, !!float, !!bool, !!null, !!seq and !!map"
        return self._refuse(event, "tag", f"the tag '{tag}' is unknown", hint=f"the known tags are {known}")

    def _refuse(self, event: Any, code: str, message: str, *, hint: str = "") -> Refusal:
        start, end = event.start_mark, event.end_mark
        length = end.column - start.column if end.line == start.line else 1
        return self.source.refuse_at(code, message, start.line, start.column, length, hint=hint)


class OpenCollection(msgspec.Struct, eq=False):
    """A collection that is being filled: its current key and its number of nodes."""

    node: Mapping | Sequence
    anchor: str | None
    key: Scalar | None = None
    size: int = 1


# How many lines of a collection with a syntax error are searched for a missing quote.
_LINES_LOOKED_AT_MAX = 50
_NEIGHBOURS = "indent it like its neighbours"
# Messages of the C and the pure Python parser, our message, and a hint.
_SYNTAX: tuple[tuple[str, str, str], ...] = (
    ("mapping values are not allowed", "a ':' is not expected here", f"{_NEIGHBOURS}, or quote the text"),
    ("cannot start any token", "this character cannot start a value", "quote the text"),
    ("did not find expected key", "a key is expected here", f"{_NEIGHBOURS}, or close the brackets above"),
    ("expected <block end>", "a key is expected here", f"{_NEIGHBOURS}, or close the brackets above"),
    ("could not find expected ':'", "a ':' is missing after the key above", "write it as 'key: value'"),
    ("did not find expected '-'", "a '-' is expected here", "indent it like the entries above"),
    ("expected ',' or ']'", "the list that starts here is not closed", "add ']' or ','"),
    ("expected ',' or '}'", "the mapping that starts here is not closed", "add '}' or ','"),
    ("unexpected end of stream", "the quotes that start here are not closed", ""),
    (
        "unknown escape character",
        "this escape is unknown in double quotes",
        "use single quotes, or write it twice",
    ),
    ("unknown document separator", "a document separator is not expected inside quotes", ""),
    ("undefined tag handle", "this tag is unknown", ""),
    ("expected <document start>", "nothing is expected after the end of the document", _NEIGHBOURS),
    ("expected '<document start>'", "nothing is expected after the end of the document", _NEIGHBOURS),
    ("block sequence entries are not allowed", "a list entry is not expected here", "start the list on a new line"),
    ("tab character", "a tab cannot indent", "indent with spaces"),
)


def _refuse_syntax(source: Source, error: MarkedYAMLError) -> Refusal:
    if unquoted := _refuse_unquoted(source, error) or _refuse_brace(source, error):
        return unquoted
    problem = str(error.problem or error.context or error)
    message, hint = next(((m, h) for words, m, h in _SYNTAX if words in problem), (problem.lower(), ""))
    mark = error.context_mark if "starts here" in message or "start here" in message else error.problem_mark
    mark = mark or error.problem_mark or error.context_mark
    line, column = (mark.line, mark.column) if mark else (0, 0)
    indent = source.line(line)[: column + 1]
    if "\t" in indent and not indent.strip():
        return source.refuse_at("tab", "a tab cannot indent", line, indent.index("\t"), hint="indent with spaces")
    return source.refuse_at("yaml", message, line, column, hint=hint)


def _refuse_unquoted(source: Source, error: MarkedYAMLError) -> Refusal | None:
    """The refusal of an unquoted text with `${`, if that caused the syntax error."""
    marks = [mark for mark in (error.context_mark, error.problem_mark) if mark]
    if not marks:
        return None
    first, last = marks[0], marks[-1]
    # Quotes right after a placeholder end a text: its collection began before.
    is_inside = source.line(first.line)[: first.column].endswith("}")
    lines = source.lines[first.line : min(last.line, first.line + _LINES_LOOKED_AT_MAX) + 1]
    unquoted = find_unquoted_text("\n".join(lines), depth=1 if is_inside else 0)
    if unquoted is None:
        return None
    before = "\n".join(lines)[: unquoted.offset]
    message = "a text with '${' needs quotes inside '{…}' and '[…]', where a brace has a meaning"
    position = first.line + before.count("\n"), len(before) - before.rfind("\n") - 1
    return source.refuse_at("yaml", message, *position, len(unquoted.text), hint=unquoted.hint)


def _refuse_brace(source: Source, error: MarkedYAMLError) -> Refusal | None:
    """The refusal of a brace inside an unquoted text, as in `[work_{i}]`, if that caused the syntax error."""
    mark = error.problem_mark
    if mark is None or mark.column == 0:
        return None
    line = source.line(mark.line)
    before = line[mark.column - 1 : mark.column]
    if not line.startswith("{", mark.column) or not (before.isalnum() or before in "_-."):
        return None
    message = "a text with '{' needs quotes inside '{…}' and '[…]', where a brace has a meaning"
    return source.refuse_at("yaml", message, mark.line, mark.column, hint="put the whole text into quotes")


# -- texts without quotes ---------------------------------------------------------------------------------------------

# The most common YAML mistake: a text with `${…}` and without quotes inside `{…}` or `[…]`. YAML ends such a text at
# the brace, and its parser then complains about brackets and quotes that are correct. So the lines are scanned again
# to find the text that was meant.


# Quotes and comments are skipped; brackets open and close collections; anything else begins a text.
_PART = lazy_regex(
    r"""(?P<quoted>"(?:[^"\\]|\\.)*"|'(?:[^']|'')*')|(?P<comment>(?<!\S)#.*)|(?P<open>[\[{])|(?P<close>[]}])"""
    r"""|(?P<between>,|:(?=\s)|-(?=\s)|\s+)|(?P<text>[^\s,\[\]{}]+)"""
)
_TEXT_END = lazy_regex(r"[,\[\]{}\n]|:\s|\s#|\$\{")


class UnquotedText(NamedTuple):
    """An unquoted text and its offset. `is_whole` is False if an earlier brace already cut it."""

    text: str
    offset: int
    is_whole: bool

    @property
    def hint(self) -> str:
        if not self.is_whole:
            return "quote the whole text"
        if "\\" not in self.text and '"' not in self.text:
            return f'write "{self.text}"'
        doubled = self.text.replace("'", "''")
        return f"write '{doubled}'"


def find_unquoted_text(lines: str, depth: int = 0) -> UnquotedText | None:
    """The first unquoted text with `${` in a collection, or None.

    `depth` is how many collections are open at the start of `lines`.
    """
    position = 0
    while match := _PART.match(lines, position):
        position = match.end()
        if match.lastgroup in ("open", "close"):
            depth += 1 if match.lastgroup == "open" else -1
        elif match.lastgroup == "text":
            position = _text_end(lines, match.start())
            text = lines[match.start() : position].rstrip()
            if text.startswith(('"', "'")):
                return None  # unclosed quotes: the rest may be inside them
            if depth > 0 and "${" in text:
                return UnquotedText(text, match.start(), not lines[: match.start()].rstrip().endswith(("}", "]")))
    return None


def _text_end(lines: str, start: int) -> int:
    """Where the text was meant to end: at a YAML indicator outside placeholders."""
    position = start
    while match := _TEXT_END.search(lines, position):
        if match.group() != "${":
            return match.start()
        close = closing_brace(lines, match.end())
        position = match.end() if close < 0 else close + 1
    return len(lines)
