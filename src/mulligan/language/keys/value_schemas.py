"""Describes the values that a file may contain: reading, error messages and the JSON Schema are made from one schema.

A value schema reads a node into a plain value, or raises a `Refusal`. A `Record` notes the refusals of its keys and
continues without them, so that one reading finds all problems of a file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from functools import cached_property
from sys import float_info
from typing import Any

import msgspec

from mulligan.core.model.artifacts import is_object_place
from mulligan.core.model.text.lazy_regex import lazy_regex
from mulligan.language.text import quantities
from mulligan.language.text.nodes import (
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
from mulligan.language.text.suggestions import closest_choice, closest_key, did_you_mean, key_hint, quote_list

Schema = dict[str, Any]
Definitions = dict[str, Any]

NAME = lazy_regex(r"[A-Za-z0-9_-]+")


class ValueSchema(msgspec.Struct, frozen=True):
    """What is expected at a position: in words, as a reader, and as JSON Schema."""

    @property
    def expected(self) -> str:
        raise NotImplementedError

    def read(self, node: Node, label: str, source: Source) -> Any:
        raise NotImplementedError

    def to_json_schema(self, definitions: Definitions) -> Schema:
        raise NotImplementedError

    def refuse(self, node: Node, label: str, source: Source, hint: str = "") -> Refusal:
        return source.refuse("type", f"{label} is {describe(node)}, {self.expected} is expected", node, hint=hint)


class Value(ValueSchema, frozen=True):
    """A converted scalar. A ValueError of the conversion is a refusal."""

    expected: str
    convert: Callable[[Any], Any]
    json_schema: Schema
    # Common values, for "did you mean".
    known: tuple[str, ...] = ()

    def read(self, node: Node, label: str, source: Source) -> Any:
        if not isinstance(node, Scalar):
            raise self.refuse(node, label, source)
        try:
            return self.convert(node.value)
        except ValueError:
            raise self.refuse(node, label, source, self.hint(node)) from None

    def hint(self, node: Scalar) -> str:
        """A suggestion for a refused scalar."""
        return did_you_mean(node.text, self.known)

    def to_json_schema(self, definitions: Definitions) -> Schema:
        return dict(self.json_schema)


class Size(Value, frozen=True):
    """A number with a unit. A bare number is refused: systems disagree whether it means bytes or MB."""

    def hint(self, node: Scalar) -> str:
        return f"add a unit: {node.text}MiB or {node.text}B" if node.text.isdigit() else ""


class Flag(Value, frozen=True):
    """True or false. YAML 1.1 words such as `yes` are text in YAML 1.2, and are refused with a suggestion."""

    def hint(self, node: Scalar) -> str:
        meant = _YAML_1_1_FLAGS.get(node.text.lower(), "")
        return f"write {meant}" if meant else super().hint(node)


_YAML_1_1_FLAGS = {"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false"}


def text_that(is_right: Callable[[str], object]) -> Callable[[Any], str]:
    """A conversion that leaves a text as it is. ValueError for another value, and for a text that is not right."""

    def convert(value: Any) -> str:
        if not isinstance(value, str) or not is_right(value):
            raise ValueError(value)
        return value

    return convert


_plain_text = text_that(lambda text: text.strip() and "${" not in text)


def _label(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else _plain_text(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(value)
    return value


def _name(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return _word(value)


_object_place = text_that(is_object_place)
_word = text_that(lambda text: NAME.fullmatch(text))


def whole(least: int, most: int | None = None) -> Value:
    """A whole number between bounds."""
    return _bounded("a whole number", "integer", (int,), least, most, form="")


def number(least: float, most: float | None = None) -> Value:
    """A number between bounds."""
    return _bounded("a number", "number", (int, float), least, most, form="g")


def _bounded(what: str, kind: str, types: tuple[type, ...], least: float, most: float | None, *, form: str) -> Value:
    largest = float_info.max if most is None else most

    def convert(value: Any) -> Any:
        if type(value) not in types or not least <= value <= largest:
            raise ValueError(value)
        return types[-1](value)

    bounds = f" of at least {least:{form}}" if most is None else f" from {least:{form}} to {most:{form}}"
    limits = {"minimum": least} if most is None else {"minimum": least, "maximum": most}
    return Value(what + bounds, convert, {"type": kind, **limits})


TEXT = Value("a text", text_that(str.strip), {"type": "string", "pattern": r"\S"})
# For texts in which placeholders are not replaced.
PLAIN = Value("a text without '${…}'", _plain_text, {"type": "string", "pattern": r"\S", "not": {"pattern": r"\$\{"}})
# The value of a label: a number or a flag is the text that it is written as.
LABEL = Value("a text, a number or true or false", _label, {"type": ["string", "number", "boolean"]})
OBJECT_PLACE = Value(
    "a place such as s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX",
    _object_place,
    {"type": "string", "pattern": "^(s3|gs|az)://[a-z0-9]"},
)
FLAG = Flag("true or false", _flag, {"type": "boolean"})
STEP_NAME = Value("a name of letters, digits, '_' and '-'", _name, {"type": "string", "pattern": "^[A-Za-z0-9_-]+$"})
STEP_NUMBER = Value("a step's name", _name, {"type": "integer"})


class OrMatrixValue(ValueSchema, frozen=True):
    """A value, or in a step with a matrix an expression over its values: see `matrix_limits`."""

    inner: Value

    @property
    def expected(self) -> str:
        return self.inner.expected

    def read(self, node: Node, label: str, source: Source) -> Any:
        if isinstance(node, Scalar) and "${" in node.text:
            raise self.refuse(node, label, source, _MATRIX_HINT)
        return self.inner.read(node, label, source)

    def to_json_schema(self, definitions: Definitions) -> Schema:
        return {"anyOf": [self.inner.to_json_schema(definitions), {"type": "string", "pattern": r"\$\{.*matrix.*\}"}]}


_MATRIX_HINT = "this must be known before the run starts: only a step with 'matrix' may use its values here"

SIZE = Size("a size such as 512MiB", quantities.size, {"type": "string", "pattern": quantities.SIZE_PATTERN})
FACTOR = Value(
    "a factor such as x1.5",
    quantities.factor,
    {"anyOf": [{"type": "string", "pattern": quantities.FACTOR_PATTERN}, {"type": "number", "minimum": 1}]},
)


class DurationSchema(Value, frozen=True):
    """A duration. Other spellings are refused with ours as a suggestion."""

    def hint(self, node: Scalar) -> str:
        meant = quantities.suggest_duration(node.text)
        return f"write {meant}" if meant else super().hint(node)


class LimitSchema(DurationSchema, frozen=True):
    """A duration of more than zero."""

    def read(self, node: Node, label: str, source: Source) -> Any:
        seconds = super().read(node, label, source)
        if not seconds:
            hint = f"leave {label} out, or write a time such as 30s"
            raise source.refuse("type", f"{label} is {describe(node)}, which leaves no time", node, hint=hint)
        return seconds


_DURATION_EXPECTED = "a duration such as 30s"
_DURATION_TEXT = {"type": "string", "pattern": quantities.DURATION_PATTERN}
DURATION = DurationSchema(
    _DURATION_EXPECTED, quantities.parse_duration, {"anyOf": [_DURATION_TEXT, {"type": "number", "minimum": 0}]}
)
# A text without a digit from 1 to 9 is zero.
_SOME_DURATION_TEXT = {**_DURATION_TEXT, "not": {"pattern": "^[^1-9]*$"}}
LIMIT = LimitSchema(
    _DURATION_EXPECTED,
    quantities.parse_duration,
    {"anyOf": [_SOME_DURATION_TEXT, {"type": "number", "exclusiveMinimum": 0}]},
)


class Choice(ValueSchema, frozen=True):
    """One of a few words; `flags` maps true and false to words."""

    words: tuple[str, ...]
    flags: dict[bool, str] = {}

    @property
    def expected(self) -> str:
        return quote_list(self.words) if len(self.words) <= 2 else f"one of {quote_list(self.words)}"

    def read(self, node: Node, label: str, source: Source) -> Any:
        if isinstance(node, Scalar):
            if isinstance(node.value, bool) and node.value in self.flags:
                return self.flags[node.value]
            if node.value in self.words:
                # Return our own object: msgspec omits defaults by identity, and the encoded bytes must not differ.
                return self.words[self.words.index(node.value)]
            meant = closest_choice(node.text, self.words)
            hint = f"did you mean '{meant}'?" if meant else ""
            raise source.refuse("choice", self._message(node, label), node, hint=hint)
        raise source.refuse("type", self._message(node, label), node)

    def _message(self, node: Node, label: str) -> str:
        """The message. It has a semicolon because with a comma both lists would read as one."""
        return f"{label} is {describe(node)}; {self.expected} is expected"

    def to_json_schema(self, definitions: Definitions) -> Schema:
        return {"enum": [*self.words, *self.flags]}


class Json(ValueSchema, frozen=True):
    """Any JSON value."""

    expected: str = "a value"

    def read(self, node: Node, label: str, source: Source) -> Any:
        refuse_not_json(node, source)
        return plain(node)

    def to_json_schema(self, definitions: Definitions) -> Schema:
        return {}


class Deferred(ValueSchema, frozen=True):
    """Returned as a node, for a reader that needs its scope. `of` gives the one that is described."""

    of: Callable[[], ValueSchema]

    @property
    def expected(self) -> str:
        return self.of().expected

    def read(self, node: Node, label: str, source: Source) -> Node:
        return node

    def to_json_schema(self, definitions: Definitions) -> Schema:
        return self.of().to_json_schema(definitions)


class Template(ValueSchema, frozen=True):
    """Text that may contain placeholders; read later, in its scope."""

    expected: str = "a text"
    types: tuple[str, ...] = ("string",)

    def read(self, node: Node, label: str, source: Source) -> Node:
        if not isinstance(node, Scalar) or _JSON_TYPES[type(node.value)] not in self.types:
            raise self.refuse(node, label, source)
        return node

    def to_json_schema(self, definitions: Definitions) -> Schema:
        return {"type": self.types[0] if len(self.types) == 1 else list(self.types)}


_JSON_TYPES = {str: "string", bool: "boolean", int: "number", float: "number", type(None): "null"}


class ListOf(ValueSchema, frozen=True):
    """A list; with `or_one`, a single entry needs no brackets."""

    of: ValueSchema
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

    def to_json_schema(self, definitions: Definitions) -> Schema:
        of = self.of.to_json_schema(definitions)
        several: Schema = {"type": "array", "items": of}
        if self.at_least:
            several["minItems"] = self.at_least
        return {"anyOf": [of, several]} if self.or_one else several


class MapOf(ValueSchema, frozen=True):
    """A mapping from names to values of one schema, read as a dict in the order of the file."""

    of: ValueSchema
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
                    message = f"the name '{shorten(key.text)}' in {label} may contain only {self.names}"
                    raise source.refuse("name", message, key)
                yield key.text, self.of.read(value, f"'{key.text}' in {label}", source)

    def to_json_schema(self, definitions: Definitions) -> Schema:
        return {
            "type": "object",
            "patternProperties": {f"^(?:{self.pattern})$": self.of.to_json_schema(definitions)},
            "additionalProperties": False,
        }


class Either(ValueSchema, frozen=True):
    """One schema per type of node: a list, a mapping, true or false, a number, text, or empty."""

    expected: str
    text: ValueSchema | None = None
    flag: ValueSchema | None = None
    number: ValueSchema | None = None
    list: ValueSchema | None = None
    mapping: ValueSchema | None = None
    empty: ValueSchema | None = None

    def read(self, node: Node, label: str, source: Source) -> Any:
        schema = self._schema_for(node)
        if schema is None:
            hint = self.flag.hint(node) if isinstance(node, Scalar) and isinstance(self.flag, Flag) else ""
            raise self.refuse(node, label, source, hint)
        return schema.read(node, label, source)

    def _schema_for(self, node: Node) -> ValueSchema | None:
        if isinstance(node, Sequence):
            return self.list
        if isinstance(node, Mapping):
            return self.mapping
        if isinstance(node.value, bool):
            return self.flag
        if node.value is None:
            return self.empty
        return self.text if isinstance(node.value, str) else self.number

    @property
    def forms(self) -> tuple[ValueSchema, ...]:
        forms = (self.text, self.flag, self.number, self.list, self.mapping, self.empty)
        return tuple(form for form in forms if form is not None)

    def to_json_schema(self, definitions: Definitions) -> Schema:
        schemas: list[Schema] = []
        for form in self.forms:
            if (one := form.to_json_schema(definitions)) not in schemas:
                schemas.append(one)
        return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}


class AnyOf(ValueSchema, frozen=True):
    """Several mappings that only their reader can distinguish; used for the schema only."""

    expected: str
    schemas: tuple[ValueSchema, ...]

    def to_json_schema(self, definitions: Definitions) -> Schema:
        return {"anyOf": [schema.to_json_schema(definitions) for schema in self.schemas]}


class Nothing(ValueSchema, frozen=True):
    """An empty value."""

    expected: str = "nothing"

    def read(self, node: Node, label: str, source: Source) -> None:
        return None

    def to_json_schema(self, definitions: Definitions) -> Schema:
        return {"type": "null"}


class Key(msgspec.Struct, frozen=True):
    """One key of a record. `about` is its description in editors and in the reference."""

    schema: ValueSchema
    about: str = ""
    is_required: bool = False


class Fields:
    """A record that was read: the values of its keys, and their nodes."""

    __slots__ = ("added", "get", "has_unknown_keys", "node", "values")

    def __init__(
        self, node: Mapping, values: dict[str, Any], *, has_unknown_keys: bool = False, added: tuple[str, ...] = ()
    ) -> None:
        self.node = node
        self.values = values
        # The method of the values itself: a large file asks for it a million times.
        self.get: Callable[..., Any] = values.get
        self.has_unknown_keys = has_unknown_keys
        # Keys that plugins have added.
        self.added = added

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def __getitem__(self, key: str) -> Any:
        return self.values[key]

    def at(self, key: str) -> Node:
        return self.node.entries[key][1]

    def key(self, key: str) -> Scalar:
        return self.node.key(key)

    def pick(self, *keys: str) -> dict[str, Any]:
        """The given keys that are present, as keyword arguments."""
        return {key: self.values[key] for key in keys if key in self.values}


class Record(ValueSchema, frozen=True, dict=True):
    """A mapping with known keys. An unknown key is refused with a suggestion.

    `one_of`: exactly one of these keys is required (each may be a group of keys that belong together).
    `may_extend`: keys that start with `x-` are skipped, so that a file can define YAML anchors there.
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

    @cached_property
    def _required_words(self) -> frozenset[str]:
        return frozenset(self.required)

    def read(self, node: Node, label: str, source: Source) -> Fields:
        if not isinstance(node, Mapping):
            raise self.refuse(node, label, source)
        values: dict[str, Any] = {}
        for word, (key, value) in node.entries.items():
            known = self.known(word)
            try:  # `source.noting` would take longer, and this runs for every key
                if known is not None:
                    values[word] = known.schema.read(value, f"'{word}'", source)
                elif not (self.may_extend and word.startswith("x-")):
                    raise self._refuse_unknown(key, node, label, source)
            except Refusal as refusal:
                source.note(refusal)
        words = node.entries.keys()
        if not self._required_words <= words:
            self._note_missing(node, label, source)
        if words <= self.keys.keys():
            return Fields(node, values)
        others = [word for word in words if word not in self.keys]
        added = tuple(word for word in others if self.known(word))
        return Fields(node, values, has_unknown_keys=len(added) < len(others), added=added)

    def known(self, word: str) -> Key | None:
        """The key of this name; None if neither we nor a plugin has it."""
        return self.keys.get(word)

    @property
    def words(self) -> Collection[str]:
        """The keys for suggestions."""
        return self.keys

    def _refuse_unknown(self, key: Scalar, node: Mapping, label: str, source: Source) -> Refusal:
        hint = key_hint(key.text, self.words) or self._key_choices(node)
        return source.refuse("unknown_key", f"'{shorten(key.text)}' is not a key of {label}", key, hint=hint)

    def _key_choices(self, node: Mapping) -> str:
        """The keys to choose from, if there are few or if one of a few is missing."""
        choices = [group[0] for group in self.one_of if len(group) == 1]
        if choices and not any(word in node.entries for word in choices):
            return f"there are {quote_list(choices, 'and')}"
        return f"there are {quote_list(self.keys, 'and')}" if len(self.keys) <= 8 else ""

    def _note_missing(self, node: Mapping, label: str, source: Source) -> None:
        """Note missing keys, except those that were misspelled: these are already noted."""
        missing = [word for word in self.required if word not in node.entries]
        meant = {closest_key(word, self.keys) for word in node.entries if word not in self.keys} if missing else ()
        for word in missing:
            if word not in meant:
                message = f"{label} has no '{word}'"
                source.note(source.refuse("missing_key", message, node, hint=f"add '{word}: …'"))

    def to_json_schema(self, definitions: Definitions) -> Schema:
        if self.name not in definitions:
            definitions[self.name] = {}
            definitions[self.name] = self._own_schema(definitions)
        return {"$ref": f"#/$defs/{self.name}"}

    def _own_schema(self, definitions: Definitions) -> Schema:
        properties = {
            word: {**key.schema.to_json_schema(definitions), **({"description": key.about} if key.about else {})}
            for word, key in self.keys.items()
        }
        schema: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
        if self.required:
            schema["required"] = list(self.required)
        if self.one_of:
            schema["oneOf"] = [{"required": list(group)} for group in self.one_of]
        if self.may_extend:
            schema["patternProperties"] = {"^x-": {}}
        return schema
