"""Check a JSON value against a JSON Schema: the keywords that answers of agents need, with messages that help a model.

`schema_problem` finds what is wrong with a schema when a workflow is loaded, so that nothing is left unchecked later:
a keyword that is not in `KEYWORDS` is refused and never ignored. Why no library is used: docs/project/adr/0062.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from mulligan.core.deciding.bounded_regex import NotSearchable, is_found, refuse_unsearchable

# How many problems are reported at once, and how much of a wrong value is shown.
PROBLEMS_MAX = 5
_SHOWN_CHARS_MAX = 80
# How deep schemas and references may nest.
DEPTH_MAX = 50
# How many parts of a value are checked: a fraction of a second of work.
CHECKS_MAX = 50_000

_TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    # 3.0 is an integer in JSON Schema.
    "integer": lambda value: (
        isinstance(value, int | float) and not isinstance(value, bool) and float(value).is_integer()
    ),
}
_IN_WORDS = {"object": "an object", "array": "a list", "string": "a text", "boolean": "true or false", "null": "null"}
_IN_WORDS |= {"number": "a number", "integer": "a whole number"}
# Keywords that say something to people and models, and limit nothing.
_REMARKS = frozenset("$schema $id $comment title description default examples format deprecated".split())
_SCHEMAS_BY_NAME = frozenset(("properties", "$defs", "definitions"))
_LISTS_OF_SCHEMAS = frozenset(("anyOf", "oneOf", "allOf"))
_COUNTS = frozenset("minItems maxItems minLength maxLength minProperties maxProperties".split())
_LIMITS: dict[str, tuple[Callable[[float, float], bool], str]] = {
    "minimum": (operator.ge, "at least"),
    "maximum": (operator.le, "at most"),
    "exclusiveMinimum": (operator.gt, "more than"),
    "exclusiveMaximum": (operator.lt, "less than"),
}
KEYWORDS = (
    frozenset("type enum const required additionalProperties items uniqueItems pattern $ref".split())
    | _REMARKS
    | _SCHEMAS_BY_NAME
    | _LISTS_OF_SCHEMAS
    | _COUNTS
    | _LIMITS.keys()
)


# -- the schema itself -----------------------------------------------------------------------------------------------


def schema_problem(schema: Any) -> str:
    """What is wrong with the schema, with the path to it; "" if it can be used."""
    return next(_schema_problems(schema, "schema", schema, 0), "")


def _schema_problems(schema: Any, path: str, root: Any, depth: int) -> Iterator[str]:
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        yield f"'{path}' is {_shown(schema)}; a mapping such as {{type: object}} is expected"
        return
    if depth > DEPTH_MAX:
        yield f"'{path}' is nested more than {DEPTH_MAX} levels deep"
        return
    for keyword, value in schema.items():
        where = f"{path}.{keyword}"
        if keyword not in KEYWORDS:
            yield f"'{where}': the keyword '{keyword}' is not supported"
        elif keyword in _SCHEMAS_BY_NAME:
            if not isinstance(value, dict):
                yield f"'{where}' must be a mapping of schemas by name"
                continue
            for name, inner in value.items():
                yield from _schema_problems(inner, f"{where}.{name}", root, depth + 1)
        elif keyword in _LISTS_OF_SCHEMAS:
            if not isinstance(value, list) or not value:
                yield f"'{where}' must be a list of schemas"
                continue
            for index, inner in enumerate(value):
                yield from _schema_problems(inner, f"{where}[{index}]", root, depth + 1)
        elif keyword in ("items", "additionalProperties"):
            yield from _schema_problems(value, where, root, depth + 1)
        elif problem := _keyword_problem(keyword, value, root):
            yield f"'{where}' {problem}"


def _keyword_problem(keyword: str, value: Any, root: Any) -> str:
    """What is wrong with the value of a keyword that holds no schema; "" if nothing is."""
    if keyword == "type":
        wrong = [one for one in (value if isinstance(value, list) else [value]) if str(one) not in _TYPES]
        return f"must be one of {', '.join(_TYPES)}, or a list of them" if wrong or value == [] else ""
    if keyword == "enum":
        return "" if isinstance(value, list) and value else "must be a list of values"
    if keyword == "required":
        is_names = isinstance(value, list) and all(isinstance(name, str) for name in value)
        return "" if is_names else "must be a list of names"
    if keyword in _COUNTS:
        return "" if _TYPES["integer"](value) and value >= 0 else "must be a whole number, 0 or more"
    if keyword in _LIMITS:
        return "" if _TYPES["number"](value) else "must be a number"
    if keyword == "uniqueItems":
        return "" if isinstance(value, bool) else "must be true or false"
    if keyword == "pattern":
        return _pattern_problem(value)
    if keyword == "$ref":
        return _reference_problem(value, root)
    return ""


def _pattern_problem(value: Any) -> str:
    if not isinstance(value, str):
        return "must be a regular expression"
    try:
        re.compile(value)
        refuse_unsearchable(value)
    except (re.error, NotSearchable, OverflowError, RecursionError) as error:
        return f"is not a regular expression that can be searched: {error}"
    return ""


def _reference_problem(value: Any, root: Any) -> str:
    if not isinstance(value, str) or not value.startswith("#"):
        return "must point into the same schema, such as '#/$defs/item'"
    # A schema that refers to itself without going into the value would never end.
    target: Any = {"$ref": value}
    for _ in range(DEPTH_MAX):
        if not isinstance(target, dict) or "$ref" not in target:
            return ""
        try:
            target = _resolve(target["$ref"], root)
        except LookupError:
            return f"refers to '{value}', which is not there"
    return f"refers to '{value}', which refers to itself"


def _resolve(reference: Any, root: Any) -> Any:
    """The part of the schema that a reference points to; LookupError if there is none."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        raise LookupError(reference)
    found = root
    for part in reference[1:].split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and name.isdecimal():
            found = found[int(name)]
        elif isinstance(found, dict):
            found = found[name]
        else:
            raise LookupError(reference)
    return found


# -- a value ---------------------------------------------------------------------------------------------------------


class _TooComplex(Exception):
    """A value needs more checks than are made."""


def value_problems(schema: Any, value: Any, name: str = "answer") -> list[str]:
    """What is wrong with the value, at most PROBLEMS_MAX problems, each with the path to it; [] if it matches.

    The schema has no `schema_problem`.
    """
    try:
        return list(islice(_Checker(schema).problems(schema, value, name), PROBLEMS_MAX))
    except _TooComplex:
        return [f"{name} is too complex to be checked against its schema"]


class _Checker:
    """Checks one value. A schema that refers to itself in several forms could otherwise be tried for ever."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._checks_left = CHECKS_MAX

    def problems(self, schema: Any, value: Any, path: str, depth: int = 0) -> Iterator[str]:
        self._checks_left -= 1
        if self._checks_left < 0:
            raise _TooComplex
        if schema is True:
            return
        if schema is False:
            yield f"{path} is not allowed"
            return
        if depth > DEPTH_MAX:
            yield f"{path} is nested more than {DEPTH_MAX} levels deep"
            return
        if "$ref" in schema:
            yield from self.problems(_resolve(schema["$ref"], self._root), value, path, depth + 1)
        if problem := _own_problem(schema, value):
            # The other keywords would only repeat it.
            yield f"{path} {problem}"
            return
        if isinstance(value, dict):
            yield from self._object_problems(schema, value, path, depth)
        elif isinstance(value, list):
            yield from self._list_problems(schema, value, path, depth)
        for inner in schema.get("allOf", ()):
            yield from self.problems(inner, value, path, depth + 1)
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                yield from self._choice_problems(schema[keyword], value, path, depth, is_one=keyword == "oneOf")

    def _object_problems(self, schema: dict[str, Any], value: dict[str, Any], path: str, depth: int) -> Iterator[str]:
        properties = schema.get("properties", {})
        for name in schema.get("required", ()):
            if name not in value:
                yield f"{path} has no '{name}'"
        yield from _count_problem(schema, len(value), path, "Properties", "names")
        others = schema.get("additionalProperties", True)
        for name, inner in value.items():
            where = f"{path}.{_short(name)}"
            if name in properties:
                yield from self.problems(properties[name], inner, where, depth + 1)
            elif others is False:
                known = f"; its names are {', '.join(map(repr, properties))}" if properties else ""
                yield f"{path} has '{_short(name)}', which is not allowed{known}"
            else:
                yield from self.problems(others, inner, where, depth + 1)

    def _list_problems(self, schema: dict[str, Any], value: list[Any], path: str, depth: int) -> Iterator[str]:
        yield from _count_problem(schema, len(value), path, "Items", "items")
        if schema.get("uniqueItems") and len(set(map(_canonical, value))) < len(value):
            yield f"{path} has an item twice"
        if "items" in schema:
            for index, inner in enumerate(value):
                yield from self.problems(schema["items"], inner, f"{path}[{index}]", depth + 1)

    def _choice_problems(self, schemas: list[Any], value: Any, path: str, depth: int, *, is_one: bool) -> Iterator[str]:
        first = [next(self.problems(inner, value, path, depth + 1), "") for inner in schemas]
        count = first.count("")
        if count == 0:
            yield f"{path} matches none of {len(schemas)} forms: {'; or '.join(first[:PROBLEMS_MAX])}"
        elif is_one and count > 1:
            yield f"{path} matches {count} of {len(schemas)} forms, and must match one"


def _own_problem(schema: dict[str, Any], value: Any) -> str:
    """What is wrong with the value itself, whatever is in it; "" if nothing is."""
    if "type" in schema:
        types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        if not any(_TYPES[one](value) for one in types):
            return f"is {_shown(value)}, and must be {' or '.join(_IN_WORDS[one] for one in types)}"
    if "const" in schema and not _equal(value, schema["const"]):
        return f"is {_shown(value)}, and must be {_shown(schema['const'])}"
    if "enum" in schema and not any(_equal(value, one) for one in schema["enum"]):
        return f"is {_shown(value)}, and must be one of {', '.join(map(_shown, schema['enum']))}"
    if isinstance(value, str):
        return _text_problem(schema, value)
    if _TYPES["number"](value):
        return _number_problem(schema, value)
    return ""


def _text_problem(schema: dict[str, Any], text: str) -> str:
    if len(text) < schema.get("minLength", 0):
        return f"has {len(text)} characters, and must have at least {schema['minLength']}"
    if len(text) > schema.get("maxLength", len(text)):
        return f"has {len(text)} characters, and must have at most {schema['maxLength']}"
    if "pattern" in schema and not is_found(schema["pattern"], text):
        return f"is {_shown(text)}, and must match the pattern {schema['pattern']}"
    return ""


def _number_problem(schema: dict[str, Any], number: float) -> str:
    for keyword, (is_met, words) in _LIMITS.items():
        if keyword in schema and not is_met(number, schema[keyword]):
            return f"is {_shown(number)}, and must be {words} {_shown(schema[keyword])}"
    return ""


def _count_problem(schema: dict[str, Any], count: int, path: str, keyword: str, words: str) -> Iterator[str]:
    if count < schema.get(f"min{keyword}", 0):
        yield f"{path} has {count} {words}, and must have at least {schema[f'min{keyword}']}"
    if count > schema.get(f"max{keyword}", count):
        yield f"{path} has {count} {words}, and must have at most {schema[f'max{keyword}']}"


def _equal(one: Any, other: Any) -> bool:
    return _canonical(one) == _canonical(other)


def _canonical(value: Any) -> str:
    """The same text for equal JSON values: 1 is 1.0, and `true` is not 1."""
    return json.dumps(_with_integers(value), sort_keys=True)


def _is_integer(value: Any) -> bool:
    return value.is_integer() if isinstance(value, float) else isinstance(value, int) and not isinstance(value, bool)


def _with_integers(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _with_integers(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_with_integers(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _shown(value: Any) -> str:
    return _short(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def _short(text: str) -> str:
    """The beginning of a text, as Unicode: JSON may hold halves of characters."""
    shown = text if len(text) <= _SHOWN_CHARS_MAX else f"{text[:_SHOWN_CHARS_MAX]}…"
    return shown.encode("utf-8", "replace").decode()
