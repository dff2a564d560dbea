"""Queries and bodies into the types of a route, with errors that name the field."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any, Literal, NamedTuple
from urllib.parse import parse_qsl

import msgspec
from msgspec import inspect

from mulligan.errors import InputInvalid, RequestRefused
from mulligan.language.text.suggestions import did_you_mean

PARAMETERS_MAX = 200
# How much is read of what msgspec says is wrong: a name in it may have megabytes, and the loop of the server waits.
REFUSAL_CHARS_MAX = 2_000
# Of any length, with items of one type.
ARRAYS = (inspect.ListType, inspect.VarTupleType, inspect.SetType, inspect.FrozenSetType)
_SEQUENCES = (*ARRAYS, inspect.TupleType)
# The parts of `decisions[0].memory`.
_STEPS = re.compile(r"\[[^\]]*\]|[^.\[\]]+")
# How msgspec says what is wrong, and where.
_REFUSAL = re.compile(r"(?P<what>.*?)(?: - at `(?P<where>(?:key in )?`?[^`]*)`)?", re.DOTALL)
_EXPECTED = re.compile(r"Expected `(?P<expected>[^`]+)`, got `(?P<got>[^`]+)`")
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<name>.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(?P<name>.*)`", re.DOTALL)
_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "a text",
    "array": "a list",
    "object": "an object",
    "null": "null",
    "datetime": "a time such as 2026-01-31T09:30:00Z",
}


# The query of a route that somebody else chooses.
ANY_QUERY = dict[str, str]


@cache
def _parameters(type_: Any) -> tuple[frozenset[str], frozenset[str]]:
    """The names of the parameters, and of those that may be repeated. Many routes have the same type."""
    fields = msgspec.structs.fields(type_) if type_ not in (None, ANY_QUERY) else ()
    names = frozenset(one.encode_name for one in fields)
    return names, frozenset(one.encode_name for one in fields if is_sequence(one.type))


class QueryDecoder:
    """Reads the part behind `?` into a struct, or into a dict whatever its parameters are."""

    def __init__(self, type_: Any) -> None:
        self._type = type_
        self._names, self._repeated = _parameters(type_)

    def decode(self, text: str) -> Any:
        """The parameters as the struct; None if the route has none. `InputInvalid`, `RequestRefused`."""
        if not text:
            pairs = []
        else:
            try:
                pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=PARAMETERS_MAX)
            except UnicodeDecodeError:
                raise RequestRefused("the query is not UTF-8", hint="percent-encode the bytes of UTF-8") from None
            except ValueError:
                raise RequestRefused(f"the query has more than {PARAMETERS_MAX} parameters") from None
        values: dict[str, Any] = {}
        for name, value in pairs:
            self._refuse_unknown(name)
            refuse_nul(value, f"query parameter '{name}'")
            if name in self._repeated:
                values.setdefault(name, []).append(value)
            elif name in values:
                raise InputInvalid(f"query parameter '{name}' is given twice", hint="give it once", parameter=name)
            else:
                values[name] = value
        if self._type is None:
            return None
        try:
            return msgspec.convert(values, self._type, strict=False)
        except msgspec.ValidationError as error:
            raise self._refusal(error, values) from None

    def _refuse_unknown(self, name: str) -> None:
        if name in self._names or self._type == ANY_QUERY:
            return
        known = ", ".join(sorted(self._names))
        hint = did_you_mean(name, self._names) or (f"it may be one of: {known}" if known else "this address takes none")
        raise InputInvalid(f"there is no query parameter '{name}' here", hint=hint, parameter=name)

    def _refusal(self, error: msgspec.ValidationError, values: dict[str, Any]) -> InputInvalid:
        what, where = _parts(error)
        if match := _MISSING.fullmatch(what):
            name = match["name"]
            return InputInvalid(
                f"query parameter '{name}' is missing", hint=f"add it: ?{name}={name.upper()}", parameter=name
            )
        name = where.partition("[")[0]
        value = values.get(name)
        shown = f" '{value}'" if isinstance(value, str) else ""
        return InputInvalid(f"query parameter '{name}'{shown}: {_reason(what, is_text=True)}", parameter=name)


class BodyDecoder:
    """Reads a JSON body into the type of a route."""

    def __init__(self, type_: Any) -> None:
        self._decoder = msgspec.json.Decoder(type_)
        self._type = type_

    def decode(self, data: bytes) -> Any:
        """The body. `RequestRefused` where it is not JSON, `InputInvalid` where it is not what the route takes."""
        try:
            return self._decoder.decode(data)
        except msgspec.ValidationError as error:
            raise self._refusal(error) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            if not data:
                message, hint = "the body is missing", "send a JSON object"
            elif isinstance(error, UnicodeDecodeError):
                message, hint = "the body is not UTF-8", "send a JSON object, as UTF-8"
            else:
                reason = str(error).removeprefix("JSON is malformed: ")
                message, hint = f"the body is not JSON: {reason}", "send a JSON object, as UTF-8"
            raise RequestRefused(message, hint=hint) from None

    def _refusal(self, error: msgspec.ValidationError) -> InputInvalid:
        found = parse_refusal(error)
        name, where = found.name, found.where
        inside = f" in '{where}'" if where else ""
        if found.kind == "unknown":
            known = _names_at(self._type, where)
            hint = did_you_mean(name, known) or (f"it may have: {', '.join(sorted(known))}" if known else "")
            return InputInvalid(f"the body has an unknown field '{name}'{inside}", hint=hint, field=name)
        if found.kind == "missing":
            needed = _names_at(self._type, where, only_needed=True)
            hint = f"needed: {', '.join(sorted(needed))}" if len(needed) > 1 else "add it"
            return InputInvalid(f"the body lacks the field '{name}'{inside}", hint=hint, field=name)
        about = f"field '{where}' of the body" if where else "the body"
        return InputInvalid(f"{about}: {found.reason}", field=where)


class FieldRefusal(NamedTuple):
    """What is wrong with a value that was sent, and where."""

    kind: Literal["unknown", "missing", "invalid"]
    # Of the unknown or missing field.
    name: str
    # The path of the object that has it not, or of the field that is invalid; "" for the whole.
    where: str
    # Why it is invalid.
    reason: str


def parse_refusal(error: msgspec.ValidationError) -> FieldRefusal:
    """What msgspec says is wrong, as data."""
    what, where = _parts(error)
    if match := _UNKNOWN.fullmatch(what):
        return FieldRefusal("unknown", match["name"], where, "")
    if match := _MISSING.fullmatch(what):
        return FieldRefusal("missing", match["name"], where, "")
    return FieldRefusal("invalid", "", where, _reason(what))


def refuse_nul(text: str, where: str) -> None:
    """`InputInvalid` for a NUL, which no database keeps in a text."""
    if "\0" in text:
        raise InputInvalid(f"{where} contains a NUL character", hint="remove it")


def _parts(error: msgspec.ValidationError) -> tuple[str, str]:
    """What is wrong, and the path of the field, without `$`."""
    said = _shortened(str(error))
    match = _REFUSAL.fullmatch(said)
    what, where = (match["what"], match["where"] or "") if match else (said, "")
    return what, where.removeprefix("key in `").removeprefix("$").removeprefix(".")


def _shortened(text: str) -> str:
    """Its begin and its end, where the path of the field is."""
    half = REFUSAL_CHARS_MAX // 2
    return text if len(text) <= REFUSAL_CHARS_MAX else f"{text[:half]}…{text[-half:]}"


def _reason(what: str, *, is_text: bool = False) -> str:
    match = _EXPECTED.search(what)
    if match is None:
        return what[:1].lower() + what[1:].replace("`", "'")
    expected = " or ".join(_WORDS.get(one.strip(), one.strip()) for one in match["expected"].split("|"))
    return f"expected {expected}" + ("" if is_text else f", got {_WORDS.get(match['got'], match['got'])}")


def _names_at(type_: Any, where: str, *, only_needed: bool = False) -> set[str]:
    """The fields of the object at a place of the body; none if it is not known which one that is."""
    try:
        found: inspect.Type = inspect.type_info(type_)
    except TypeError:
        return set()
    for step in _STEPS.findall(where):
        structs = list(structs_in(found, is_inside=step.startswith("[")))
        fields = [one.type for struct in structs for one in struct.fields if one.encode_name == step]
        found = structs[0] if step.startswith("[") and structs else fields[0] if fields else inspect.NoneType()
    struct = next(structs_in(found, is_inside=False), None)
    fields_there = struct.fields if struct is not None else ()
    return {one.encode_name for one in fields_there if one.required or not only_needed}


def structs_in(type_: inspect.Type, *, is_inside: bool = True) -> Iterator[inspect.StructType]:
    """The objects with known fields that a value may be, or (`is_inside`) may contain as items or values."""
    if isinstance(type_, inspect.StructType):
        yield type_
    elif isinstance(type_, inspect.UnionType):
        for one in type_.types:
            yield from structs_in(one, is_inside=is_inside)
    elif is_inside and isinstance(type_, ARRAYS):
        yield from structs_in(type_.item_type)
    elif is_inside and isinstance(type_, inspect.DictType):
        yield from structs_in(type_.value_type)


def is_sequence(type_: Any) -> bool:
    """Whether a field may have several values."""
    found = inspect.type_info(type_)
    options = found.types if isinstance(found, inspect.UnionType) else (found,)
    return any(isinstance(one, _SEQUENCES) for one in options)
