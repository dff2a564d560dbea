"""Shapes: what may stand at a place of the file. One description reads it, refuses it and makes its JSON Schema.

A shape reads a node into a plain value, or raises a `Refusal`. A `Record` notes the refusals of its keys and goes
on without them, so that one reading finds all problems of a file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from functools import cached_property
from sys import float_info
from typing import Any

import msgspec

from mulligan.core.model.lazy_regex import lazy_regex
from mulligan.language import quantities
from mulligan.language.nodes import (
    Mapping,
    Node,
    Refusal,
    Scalar,
    Sequence,
    Source,
    describe,
    plain,
    refuse_not_json,
    shorten,
)
from mulligan.language.suggestions import closest_choice, closest_key, did_you_mean, key_hint, listed

Schema = dict[str, Any]
Definitions = dict[str, Any]

NAME = lazy_regex(r"[A-Za-z0-9_-]+")


class Shape(msgspec.Struct, frozen=True):
    """What is expected at a place: in words, as a reader, and as JSON Schema."""

    @property
    def expected(self) -> str:
        raise NotImplementedError

    def read(self, node: Node, label: str, source: Source) -> Any:
        raise NotImplementedError

    def schema(self, definitions: Definitions) -> Schema:
        raise NotImplementedError

    def refuse(self, node: Node, label: str, source: Source) -> Refusal:
        return source.refuse("type", f"{label} is {describe(node)}, {self.expected} is expected", node)


class Value(Shape, frozen=True):
    """One scalar, converted. A ValueError of the conversion is a refusal."""

    expected: str
    convert: Callable[[Any], Any]
    json_schema: Schema
    # Words that are often meant; for "did you mean".
    known: tuple[str, ...] = ()

    def read(self, node: Node, label: str, source: Source) -> Any:
        if isinstance(node, Scalar):
            try:
                return self.convert(node.value)
            except ValueError:
                pass
            message = f"{label} is {describe(node)}, {self.expected} is expected"
            raise source.refuse("type", message, node, hint=self.hint(node))
        raise self.refuse(node, label, source)

    def hint(self, node: Scalar) -> str:
        """What was probably meant by a scalar that is refused."""
        return did_you_mean(node.text, self.known)

    def schema(self, definitions: Definitions) -> Schema:
        return dict(self.json_schema)


class Size(Value, frozen=True):
    """A number with its unit. One without is refused: where we come from it means bytes to some, and MB to others."""

    def hint(self, node: Scalar) -> str:
        return f"say of what: {node.text}MiB, or {node.text}B" if node.text.isdigit() else ""


class Flag(Value, frozen=True):
    """True or false. What was a flag before YAML 1.2 is a text, and refused with what to write."""

    def hint(self, node: Scalar) -> str:
        meant = _FLAGS_ONCE.get(node.text.lower(), "")
        return f"write {meant}" if meant else super().hint(node)


_FLAGS_ONCE = {"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false"}


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(value)
    return value


def _plain_text(value: Any) -> str:
    if "${" in _text(value):
        raise ValueError(value)
    return _text(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(value)
    return value


def _name(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str) or not NAME.fullmatch(value):
        raise ValueError(value)
    return value


def whole(least: int, most: int | None = None) -> Value:
    """A whole number between bounds."""

    def convert(value: Any) -> int:
        if type(value) is not int or value < least or (most is not None and value > most):
            raise ValueError(value)
        return value

    bounds = f" from {least} to {most}" if most is not None else f" of at least {least}"
    limits = {"minimum": least} if most is None else {"minimum": least, "maximum": most}
    return Value(f"a whole number{bounds}", convert, {"type": "integer", **limits})


def number(least: float, most: float | None = None) -> Value:
    """A number between bounds."""

    def convert(value: Any) -> float:
        if type(value) not in (int, float) or not least <= value <= (float_info.max if most is None else most):
            raise ValueError(value)
        return float(value)

    bounds = f" from {least:g} to {most:g}" if most is not None else f" of at least {least:g}"
    limits = {"minimum": least} if most is None else {"minimum": least, "maximum": most}
    return Value(f"a number{bounds}", convert, {"type": "number", **limits})


TEXT = Value("a text", _text, {"type": "string", "pattern": r"\S"})
# Where nothing is filled in: taken literally, a value would be looked for under the name '${…}'.
PLAIN = Value("a text without '${…}'", _plain_text, {"type": "string", "pattern": r"\S", "not": {"pattern": r"\$\{"}})
FLAG = Flag("true or false", _flag, {"type": "boolean"})
STEP_NAME = Value("a name of letters, digits, '_' and '-'", _name, {"type": "string", "pattern": "^[A-Za-z0-9_-]+$"})
STEP_NUMBER = Value("a step's name", _name, {"type": "integer"})


class OrOfMatrix(Shape, frozen=True):
    """A value; or, in a step with a matrix, an expression over its values, which is read before: see `varying`."""

    inner: Value

    @property
    def expected(self) -> str:
        return self.inner.expected

    def read(self, node: Node, label: str, source: Source) -> Any:
        if isinstance(node, Scalar) and "${" in node.text:
            message = f"{label} is {describe(node)}, {self.expected} is expected"
            raise source.refuse("type", message, node, hint=_OF_MATRIX)
        return self.inner.read(node, label, source)

    def schema(self, definitions: Definitions) -> Schema:
        return {"anyOf": [self.inner.schema(definitions), {"type": "string", "pattern": r"\$\{.*matrix.*\}"}]}


_OF_MATRIX = "it is known before the run starts: only a step with 'matrix' may have its values here"

SIZE = Size("a size such as 512MiB", quantities.size, {"type": "string", "pattern": quantities.SIZE_PATTERN})
FACTOR = Value(
    "a factor such as x1.5",
    quantities.factor,
    {"anyOf": [{"type": "string", "pattern": quantities.FACTOR_PATTERN}, {"type": "number", "minimum": 1}]},
)


class DurationShape(Value, frozen=True):
    """A duration; one in another spelling is refused with ours."""

    def hint(self, node: Scalar) -> str:
        meant = quantities.meant_duration(node.text)
        return f"write {meant}" if meant else super().hint(node)


class LimitShape(DurationShape, frozen=True):
    """How long something may take: with no time at all it would be over before it began."""

    def read(self, node: Node, label: str, source: Source) -> Any:
        seconds = super().read(node, label, source)
        if not seconds:
            hint = f"leave {label} out, or write a time such as 30s"
            raise source.refuse("type", f"{label} is {describe(node)}, which leaves no time", node, hint=hint)
        return seconds


_DURATION_EXPECTED = "a duration such as 30s"
_DURATION_TEXT = {"type": "string", "pattern": quantities.DURATION_PATTERN}
DURATION = DurationShape(
    _DURATION_EXPECTED, quantities.duration, {"anyOf": [_DURATION_TEXT, {"type": "number", "minimum": 0}]}
)
# A text without a digit from 1 to 9 is nothing.
_SOME_DURATION_TEXT = {**_DURATION_TEXT, "not": {"pattern": "^[^1-9]*$"}}
LIMIT = LimitShape(
    _DURATION_EXPECTED, quantities.duration, {"anyOf": [_SOME_DURATION_TEXT, {"type": "number", "exclusiveMinimum": 0}]}
)


class Choice(Shape, frozen=True):
    """One of a few words; `flags` says which of them true and false stand for."""

    words: tuple[str, ...]
    flags: dict[bool, str] = {}

    @property
    def expected(self) -> str:
        return listed(self.words) if len(self.words) <= 2 else f"one of {listed(self.words)}"

    def read(self, node: Node, label: str, source: Source) -> Any:
        if isinstance(node, Scalar):
            if isinstance(node.value, bool) and node.value in self.flags:
                return self.flags[node.value]
            if node.value in self.words:
                # Our own word: an encoder that leaves out defaults knows them by identity, and bytes must not differ.
                return self.words[self.words.index(node.value)]
            meant = closest_choice(node.text, self.words)
            hint = f"did you mean '{meant}'?" if meant else ""
            raise source.refuse("choice", self._sentence(node, label), node, hint=hint)
        raise source.refuse("type", self._sentence(node, label), node)

    def _sentence(self, node: Node, label: str) -> str:
        """A semicolon, since what is there and what is expected would otherwise read as one list."""
        return f"{label} is {describe(node)}; {self.expected} is expected"

    def schema(self, definitions: Definitions) -> Schema:
        return {"enum": [*self.words, *self.flags]}


class Json(Shape, frozen=True):
    """Any value that JSON has too."""

    expected: str = "a value"

    def read(self, node: Node, label: str, source: Source) -> Any:
        refuse_not_json(node, source)
        return plain(node)

    def schema(self, definitions: Definitions) -> Schema:
        return {}


class Deferred(Shape, frozen=True):
    """Handed on as a node, for a reader that needs to know where it stands. `of` says its schema."""

    of: Callable[[], Shape]

    @property
    def expected(self) -> str:
        return self.of().expected

    def read(self, node: Node, label: str, source: Source) -> Node:
        return node

    def schema(self, definitions: Definitions) -> Schema:
        return self.of().schema(definitions)


class Template(Shape, frozen=True):
    """Text that may hold `${…}`; read later, in its scope."""

    expected: str = "a text"
    types: tuple[str, ...] = ("string",)

    def read(self, node: Node, label: str, source: Source) -> Node:
        if not isinstance(node, Scalar) or _json_type(node.value) not in self.types:
            raise self.refuse(node, label, source)
        return node

    def schema(self, definitions: Definitions) -> Schema:
        return {"type": self.types[0] if len(self.types) == 1 else list(self.types)}


def _json_type(value: Any) -> str:
    names = {str: "string", bool: "boolean", int: "number", float: "number", type(None): "null"}
    return names[type(value)]


class ListOf(Shape, frozen=True):
    """A list; with `or_one`, one entry may stand without the brackets."""

    of: Shape
    or_one: bool = False
    at_least: int = 0

    @property
    def expected(self) -> str:
        return f"{self.of.expected} or a list of them" if self.or_one else "a list"

    def read(self, node: Node, label: str, source: Source) -> tuple[Any, ...]:
        if isinstance(node, Sequence):
            if len(node.items) < self.at_least:
                raise source.refuse("type", f"{label} is an empty list", node)
            return tuple(self._entries(node, f"an entry of {label}", source))
        if self.or_one and not (isinstance(node, Scalar) and node.value is None):
            return (self.of.read(node, label, source),)
        raise self.refuse(node, label, source)

    def _entries(self, node: Sequence, label: str, source: Source) -> Iterator[Any]:
        for item in node.items:
            with source.noting:
                yield self.of.read(item, label, source)

    def schema(self, definitions: Definitions) -> Schema:
        of = self.of.schema(definitions)
        several: Schema = {"type": "array", "items": of}
        if self.at_least:
            several["minItems"] = self.at_least
        return {"anyOf": [of, several]} if self.or_one else several


class MapOf(Shape, frozen=True):
    """A mapping from names to values of one shape; read as a dict in the order of the file."""

    of: Shape
    pattern: str = r"[A-Za-z_][A-Za-z0-9_]*"
    expected: str = "a mapping"
    names: str = "letters, digits and '_'"

    def read(self, node: Node, label: str, source: Source) -> dict[str, Any]:
        if not isinstance(node, Mapping):
            raise self.refuse(node, label, source)
        return dict(self._entries(node, label, source))

    def _entries(self, node: Mapping, label: str, source: Source) -> Iterator[tuple[str, Any]]:
        for key, value in node.items():
            with source.noting:
                if not re.fullmatch(self.pattern, key.text):
                    message = f"the name '{shorten(key.text)}' in {label} has more than {self.names}"
                    raise source.refuse("name", message, key)
                yield key.text, self.of.read(value, f"'{key.text}' in {label}", source)

    def schema(self, definitions: Definitions) -> Schema:
        return {
            "type": "object",
            "patternProperties": {f"^(?:{self.pattern})$": self.of.schema(definitions)},
            "additionalProperties": False,
        }


class Either(Shape, frozen=True):
    """What fits the kind of node that is there: a list, a mapping, true or false, a number, or text."""

    expected: str
    text: Shape | None = None
    flag: Shape | None = None
    number: Shape | None = None
    list: Shape | None = None
    mapping: Shape | None = None
    empty: Shape | None = None

    def read(self, node: Node, label: str, source: Source) -> Any:
        shape = self._fitting(node)
        if shape is None and isinstance(node, Scalar) and isinstance(self.flag, Flag):
            message = f"{label} is {describe(node)}, {self.expected} is expected"
            raise source.refuse("type", message, node, hint=self.flag.hint(node))
        if shape is None:
            raise self.refuse(node, label, source)
        return shape.read(node, label, source)

    def _fitting(self, node: Node) -> Shape | None:
        if isinstance(node, Sequence):
            return self.list
        if isinstance(node, Mapping):
            return self.mapping
        if isinstance(node.value, bool):
            return self.flag
        if node.value is None:
            return self.empty
        return self.text if isinstance(node.value, str) else self.number

    def schema(self, definitions: Definitions) -> Schema:
        shapes = (self.text, self.flag, self.number, self.list, self.mapping, self.empty)
        schemas: list[Schema] = []
        for shape in shapes:
            one = shape.schema(definitions) if shape else None
            if one is not None and one not in schemas:
                schemas.append(one)
        return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}


class AnyOf(Shape, frozen=True):
    """Several mappings that only their reader can tell apart; for the schema alone."""

    expected: str
    shapes: tuple[Shape, ...]

    def schema(self, definitions: Definitions) -> Schema:
        return {"anyOf": [shape.schema(definitions) for shape in self.shapes]}


class Nothing(Shape, frozen=True):
    """An empty value."""

    expected: str = "nothing"

    def read(self, node: Node, label: str, source: Source) -> None:
        return None

    def schema(self, definitions: Definitions) -> Schema:
        return {"type": "null"}


class Key(msgspec.Struct, frozen=True):
    """One key of a record. `about` is its sentence in editors."""

    shape: Shape
    about: str = ""
    is_required: bool = False


class Fields:
    """What a record says: the values of its keys, and the node of each."""

    __slots__ = ("added", "has_strangers", "node", "values")

    def __init__(
        self, node: Mapping, values: dict[str, Any], *, has_strangers: bool = False, added: tuple[str, ...] = ()
    ) -> None:
        self.node = node
        self.values = values
        self.has_strangers = has_strangers
        # Those of its keys that are not in our tables.
        self.added = added

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def __getitem__(self, key: str) -> Any:
        return self.values[key]

    def get(self, key: str, default: Any = None) -> Any:
        return self.values.get(key, default)

    def at(self, key: str) -> Node:
        return self.node.entries[key][1]

    def key(self, key: str) -> Scalar:
        return self.node.key(key)

    def pick(self, *keys: str) -> dict[str, Any]:
        """The keys that are there, as keyword arguments."""
        return {key: self.values[key] for key in keys if key in self.values}


class Record(Shape, frozen=True, dict=True):
    """A mapping with known keys. An unknown one is refused with the one that was meant.

    `one_of`: exactly one of these keys is there (each may be a group of keys that go together).
    `may_extend`: keys that start with `x-` are skipped, so that a file has a place for its anchors.
    """

    name: str
    keys: dict[str, Key]
    one_of: tuple[tuple[str, ...], ...] = ()
    may_extend: bool = False

    @property
    def expected(self) -> str:
        return f"a mapping with keys such as '{next(iter(self.required or self.keys))}'"

    @cached_property
    def required(self) -> tuple[str, ...]:
        return tuple(word for word, key in self.keys.items() if key.is_required)

    def read(self, node: Node, label: str, source: Source) -> Fields:
        if not isinstance(node, Mapping):
            raise self.refuse(node, label, source)
        values: dict[str, Any] = {}
        for word, (key, value) in node.entries.items():
            known = self.known(word)
            with source.noting:
                if known is not None:
                    values[word] = known.shape.read(value, f"'{word}'", source)
                elif not (self.may_extend and word.startswith("x-")):
                    raise self._refuse_unknown(key, node, label, source)
        self._note_missing(node, label, source)
        others = [word for word in node.entries if word not in self.keys]
        if not others:
            return Fields(node, values)
        added = tuple(word for word in others if self.known(word))
        return Fields(node, values, has_strangers=len(added) < len(others), added=added)

    def known(self, word: str) -> Key | None:
        """What a word of the mapping is; None where it is no key of ours, nor of anybody's."""
        return self.keys.get(word)

    @property
    def words(self) -> Collection[str]:
        """The keys that may have been meant."""
        return self.keys

    def _refuse_unknown(self, key: Scalar, node: Mapping, label: str, source: Source) -> Refusal:
        hint = key_hint(key.text, self.words) or self._what_there_is(node)
        return source.refuse("unknown_key", f"'{shorten(key.text)}' is not a key of {label}", key, hint=hint)

    def _what_there_is(self, node: Mapping) -> str:
        """The keys to choose from, where they are few or one of a few is missing."""
        choices = [group[0] for group in self.one_of if len(group) == 1]
        if choices and not any(word in node.entries for word in choices):
            return f"there are {listed(choices, 'and')}"
        return f"there are {listed(self.keys, 'and')}" if len(self.keys) <= 8 else ""

    def _note_missing(self, node: Mapping, label: str, source: Source) -> None:
        """A required key that is there under another name was noted as that."""
        missing = [word for word in self.required if word not in node.entries]
        meant = {closest_key(word, self.keys) for word in node.entries if word not in self.keys} if missing else ()
        for word in missing:
            if word not in meant:
                message = f"{label} has no '{word}'"
                source.note(source.refuse("missing_key", message, node, hint=f"add '{word}: …'"))

    def schema(self, definitions: Definitions) -> Schema:
        if self.name not in definitions:
            definitions[self.name] = {}
            definitions[self.name] = self._own_schema(definitions)
        return {"$ref": f"#/$defs/{self.name}"}

    def _own_schema(self, definitions: Definitions) -> Schema:
        properties = {word: {**key.shape.schema(definitions), **_about(key)} for word, key in self.keys.items()}
        schema: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
        if self.required:
            schema["required"] = list(self.required)
        if self.one_of:
            schema["oneOf"] = [{"required": list(group)} for group in self.one_of]
        if self.may_extend:
            schema["patternProperties"] = {"^x-": {}}
        return schema


def _about(key: Key) -> Schema:
    return {"description": key.about} if key.about else {}
