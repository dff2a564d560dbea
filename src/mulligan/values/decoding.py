"""Convert the arguments of a function from JSON to what its annotations say.

An annotation that names only JSON's own types (`str`, `int`, `list[dict]`, …) is not a contract: the value is passed on
as it is. An annotation with any other type is one: the value is converted, and checked to the last field.
"""

from __future__ import annotations

import base64
import collections
import collections.abc
import inspect
import json
import sys
import types
import typing
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from mulligan.values.annotations import ArgumentRefused, TableUnreadable, type_name
from mulligan.values.durations import parse_duration
from mulligan.values.encoding import ValueRefused, encode
from mulligan.values.files import KEY, StoredFile, load_files

SHOWN_CHARS_MAX = 60


class ArgumentMisfit(ArgumentRefused):
    """An argument that does not fit the annotation of its parameter; the message says which field."""


class Misfit(Exception):
    """A value that does not fit. Containers add where it is."""

    def __init__(self, expected: str, value: object = None, *, reason: str = "") -> None:
        self.expected = expected
        self.reason = reason or f"must be {expected}, and is {show(value)}"
        self.path = ""

    def within(self, step: str) -> Misfit:
        self.path = step + self.path
        return self


class Converter(typing.NamedTuple):
    """How to convert one type. If `is_plain`, JSON has the type, and `convert` only checks."""

    convert: Callable[[Any], Any]
    is_plain: bool = False


def convert_arguments(function: Callable[..., Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments as the annotations of the parameters say; raise ArgumentMisfit."""
    converters = _converters_of(function)
    converted: dict[str, Any] = {}
    for name, value in arguments.items():
        converter = converters.get(name)
        try:
            converted[name] = load_files(value) if converter is None else converter.convert(value)
        except Misfit as misfit:
            raise ArgumentMisfit(f"argument '{name}' does not fit: {name}{misfit.path} {misfit.reason}") from None
        except TableUnreadable as problem:
            raise ArgumentMisfit(f"argument '{name}' cannot be read: {problem}") from None
    return converted


def convert_value(value: Any, annotation: Any) -> Any:
    """Return a value as what the annotation says; raise ArgumentMisfit or TableUnreadable."""
    converter = compile_type(annotation)
    try:
        return load_files(value) if converter.is_plain else converter.convert(value)
    except Misfit as misfit:
        raise ArgumentMisfit(f"the value{misfit.path} {misfit.reason}") from None


# -- the annotations of a function ------------------------------------------------------------------------------------

_cached: weakref.WeakKeyDictionary[Callable[..., Any], dict[str, Converter]] = weakref.WeakKeyDictionary()


def _converters_of(function: Callable[..., Any]) -> dict[str, Converter]:
    """Return the converters of the parameters whose annotations are contracts. Each annotation is resolved alone."""
    function = inspect.unwrap(getattr(function, "__func__", function))
    if not isinstance(function, types.FunctionType):
        return {}
    found = _cached.get(function)
    if found is None:
        hints = {name: _resolve(name, hint, function) for name, hint in _annotations_of(function) if name != "return"}
        compiled = {name: compile_type(hint) for name, hint in hints.items()}
        found = {name: converter for name, converter in compiled.items() if not converter.is_plain}
        _cached[function] = found
    return found


def result_hint(function: Callable[..., Any]) -> Any:
    """The annotation of what a function returns; Any if it has none, or none that can be resolved."""
    function = getattr(function, "__func__", function)
    if not isinstance(function, types.FunctionType):
        return Any
    hint = dict(_annotations_of(function)).get("return", Any)
    return _resolve("return", hint, function)


def _annotations_of(function: types.FunctionType) -> Iterable[tuple[str, Any]]:
    if sys.version_info >= (3, 14):
        # Names that are not defined become forward references.
        annotationlib: Any = __import__("annotationlib")
        hints: dict[str, Any] = annotationlib.get_annotations(function, format=annotationlib.Format.FORWARDREF)
        return hints.items()
    return function.__annotations__.items()


def _resolve(name: str, hint: Any, function: types.FunctionType) -> Any:
    """Return the annotation itself for a text; Any if it names something that is not there, as under TYPE_CHECKING."""
    holder = types.SimpleNamespace(__annotations__={name: hint})
    try:
        return typing.get_type_hints(holder, function.__globals__, include_extras=True)[name]
    except Exception:
        return Any


# -- types ------------------------------------------------------------------------------------------------------------


_ANY = Converter(load_files, is_plain=True)


def compile_type(hint: Any) -> Converter:
    """Return the converter of an annotation. What is not known here is left as it is."""
    hint = unwrap_type(hint)
    if hint in _SCALARS:
        return _SCALARS[hint]
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return _literal(args)
    if origin in UNIONS:
        return _union([compile_type(one) for one in args], hint)
    kind = origin or hint
    if not isinstance(kind, type):
        return _ANY
    if kind in _SEQUENCES:
        return _sequence(list, args, is_plain=True)
    if kind in _SETS:
        return _sequence(_SETS[kind], args, is_plain=False)
    if kind is tuple:
        return _tuple(args)
    if kind in _MAPPINGS:
        return _mapping(args)
    return _class(kind, hint if args else kind)


def unwrap_type(hint: Any) -> Any:
    """Return what is behind `Annotated`, `NewType`, `Required` and aliases."""
    while True:
        if typing.get_origin(hint) in _WRAPPERS:
            hint = typing.get_args(hint)[0]
        elif hasattr(hint, "__supertype__"):
            hint = hint.__supertype__
        elif type(hint).__name__ == "TypeAliasType":
            hint = hint.__value__
        else:
            return hint


def _scalar(expected: str, *kinds: type) -> Converter:
    def check(value: Any) -> Any:
        if type(value) not in kinds:
            raise Misfit(expected, value)
        return value

    return Converter(check, is_plain=True)


def _to_float(value: Any) -> float:
    if type(value) not in (int, float):
        raise Misfit("a number", value)
    return float(value)


_SCALARS: dict[Any, Converter] = {
    Any: _ANY,
    object: _ANY,
    None: _scalar("null", type(None)),
    type(None): _scalar("null", type(None)),
    bool: _scalar("true or false", bool),
    int: _scalar("an integer", int),
    float: Converter(_to_float, is_plain=True),
    str: _scalar("text", str),
}
# `X | Y` is a type from Python 3.10 on.
UNIONS = (typing.Union, getattr(types, "UnionType", typing.Union))
_WRAPPERS = tuple(
    getattr(typing, name)
    for name in ("Annotated", "Required", "NotRequired", "ReadOnly", "Final", "ClassVar")
    if hasattr(typing, name)
)
_ABC = collections.abc
_SEQUENCES = (list, _ABC.Sequence, _ABC.MutableSequence, _ABC.Iterable, _ABC.Collection)
_SETS: dict[Any, Callable[..., Any]] = {
    set: set,
    frozenset: frozenset,
    _ABC.Set: frozenset,
    _ABC.MutableSet: set,
    collections.deque: collections.deque,
}
_MAPPINGS = (dict, _ABC.Mapping, _ABC.MutableMapping, collections.OrderedDict, collections.defaultdict)


def _literal(allowed: tuple[Any, ...]) -> Converter:
    def check(value: Any) -> Any:
        for one in allowed:
            # `Literal[Color.RED]` is the member; 1 is not true.
            if type(one) is type(value) and one == value:
                return one
            if hasattr(one, "value") and hasattr(type(one), "__members__") and one.value == value:
                return one
        raise Misfit(f"one of {', '.join(map(show, allowed))}", value)

    return Converter(check, is_plain=all(type(one) in (str, int, bool, type(None)) for one in allowed))


def _union(members: list[Converter], hint: Any) -> Converter:
    """A text that may be a text stays one; otherwise the first member that the value fits, constructed types first."""
    is_plain = all(member.is_plain for member in members)
    plain = [member for member in members if member.is_plain]
    typed = [member for member in members if not member.is_plain]

    def convert(value: Any) -> Any:
        if isinstance(value, StoredFile) and (kind := _kind_of_file(value, hint)):
            return compile_type(kind).convert(value)
        order = [*plain, *typed] if isinstance(value, (str, int, float, type(None))) else [*typed, *plain]
        reasons, found = [], []
        for member in order:
            try:
                found.append((member, member.convert(value)))
            except Misfit as misfit:
                reasons.append(misfit)
            else:
                if member.is_plain or len(typed) == 1:
                    break
        if found:
            return found[0][1] if len(found) == 1 else _only_one(found, value)
        deepest = max(reasons, key=lambda misfit: len(misfit.path))
        raise deepest if deepest.path else Misfit(name_of_type(hint), value)

    return Converter(convert, is_plain)


def _kind_of_file(file: StoredFile, hint: Any) -> Any:
    """The member of a union that the table in the file was; None if it was another."""
    recorded = file.reference[KEY].get("type")
    kinds = [one for one in typing.get_args(hint) if isinstance(one, type)]
    return next((one for one in kinds if type_name(one) == recorded), None)


def _only_one(found: list[tuple[Converter, Any]], value: Any) -> Any:
    """Of several types that a value fits: the one that is stored as this value."""
    made = [one for member, one in found if not member.is_plain]
    exact = [one for one in made if _is_stored_as(one, value)]
    kinds = list(dict.fromkeys(type(one).__name__ for one in exact))
    if len(kinds) > 1:
        reason = f"fits {' and '.join(kinds)}, so it is not known which it was; let them differ in a field"
        raise Misfit("", reason=reason)
    return (exact or made)[0]


def _items(convert: Callable[[Any], Any], values: Iterable[Any]) -> Iterator[Any]:
    for at, value in enumerate(values):
        try:
            yield convert(value)
        except Misfit as misfit:
            raise misfit.within(f"[{at}]") from None


def _sequence(make: Callable[..., Any], args: tuple[Any, ...], *, is_plain: bool) -> Converter:
    item = compile_type(args[0]) if args else _ANY

    def convert(value: Any) -> Any:
        if not isinstance(value, list):
            raise Misfit("a list", value)
        return make(_items(item.convert, value))

    return Converter(convert, is_plain and item.is_plain)


def _tuple(args: tuple[Any, ...]) -> Converter:
    if not args or (len(args) == 2 and args[1] is ...):
        return _sequence(tuple, args[:1], is_plain=False)
    members = [compile_type(one) for one in args if one != ()]

    def convert(value: Any) -> Any:
        if not isinstance(value, list) or len(value) != len(members):
            raise Misfit(f"a list of {len(members)} values", value)
        parts = iter(members)
        return tuple(_items(lambda one: next(parts).convert(one), value))

    return Converter(convert)


def _mapping(args: tuple[Any, ...]) -> Converter:
    if len(args) != 2:
        return Converter(_check_mapping, is_plain=True)
    key, inner = compile_type(args[0]), compile_type(args[1])
    convert_key = _KEYS.get(args[0], key.convert)
    is_plain = args[0] in (str, Any, object) and inner.is_plain

    def convert(value: Any) -> Any:
        result = {}
        for name, one in _check_mapping(value).items():
            try:
                result[convert_key(name)] = inner.convert(one)
            except Misfit as misfit:
                raise misfit.within(f"[{name!r}]") from None
        return result

    return Converter(convert, is_plain)


def _check_mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Misfit("a mapping", value)
    return value


def _number_key(kind: Callable[[str], Any], expected: str) -> Callable[[Any], Any]:
    def convert(key: Any) -> Any:
        try:
            return kind(key)
        except ValueError:
            raise Misfit("", reason=f"has a key that must be {expected}") from None

    return convert


# JSON has only texts as keys.
_KEYS: dict[Any, Callable[[Any], Any]] = {
    int: _number_key(int, "an integer"),
    float: _number_key(float, "a number"),
    bool: lambda key: key == "true",
}


# -- classes ----------------------------------------------------------------------------------------------------------


def _class(kind: type, hint: Any) -> Converter:
    """The converter of a class; `_ANY` for a class that we do not know how to make.

    `hint` is the class itself, or the class with its type parameters: `Page[date]`.
    """
    for base in kind.__mro__:
        make = _CLASSES.get((base.__module__.partition(".")[0], base.__qualname__))
        if make is not None:
            return _struct(kind, hint) if make is _struct else make(kind)
    if getattr(kind, "__pydantic_validator__", None) is not None and "pydantic" in sys.modules:
        return _pydantic(kind)
    if hasattr(kind, "__dataclass_fields__"):
        return _dataclass(kind, hint)
    if hasattr(kind, "__attrs_attrs__"):
        return _attrs(kind, hint)
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return _named_tuple(kind, hint)
    if issubclass(kind, dict) and hasattr(kind, "__required_keys__"):
        return _typed_dict(kind, hint)
    return _ANY


class _Field(typing.NamedTuple):
    hint: Any
    is_required: bool
    # Otherwise it is set afterwards.
    is_argument: bool = True


class _Fields:
    """The fields of a class, compiled when the first value comes: a class may refer to itself."""

    def __init__(self, kind: type, fields: Mapping[str, _Field]) -> None:
        self._kind, self._fields = kind, fields
        self.arguments = {name for name, field in fields.items() if field.is_argument}
        self._compiled: dict[str, Converter] = {}

    def convert(self, value: Any, *, is_closed: bool = True) -> dict[str, Any]:
        """Return the fields of an object as keyword arguments."""
        if not isinstance(value, dict):
            raise Misfit(f"an object for {self._kind.__name__}", value)
        result: dict[str, Any] = {}
        for name, one in value.items():
            if name not in self._fields:
                if is_closed:
                    raise Misfit("", reason=f"has the field '{name}', which {self._kind.__name__} does not have")
                result[name] = load_files(one)
            else:
                try:
                    result[name] = self._converter(name).convert(one)
                except Misfit as misfit:
                    raise misfit.within(f".{name}") from None
        for name, field in self._fields.items():
            if field.is_required and name not in value:
                raise Misfit("", reason=f"lacks the field '{name}' of {self._kind.__name__}")
        return result

    def _converter(self, name: str) -> Converter:
        if name not in self._compiled:
            self._compiled[name] = compile_type(self._fields[name].hint)
        return self._compiled[name]


def hints_of_class(kind: type, hint: Any = None) -> dict[str, Any]:
    """Return the annotations of the fields, with the type parameters that `hint` gives: `Page[date]`."""
    try:
        hints = typing.get_type_hints(kind, include_extras=True)
    except Exception:
        return {}
    given = dict(zip(getattr(kind, "__parameters__", ()), typing.get_args(hint)))  # noqa: B905 - not before 3.10
    for base in (one for ancestor in kind.__mro__ for one in getattr(ancestor, "__orig_bases__", ())):
        # `class Orders(Page[date])`
        for parameter, one in zip(getattr(typing.get_origin(base), "__parameters__", ()), typing.get_args(base)):  # noqa: B905
            given.setdefault(parameter, _with_parameters(one, given))
    return {name: _with_parameters(one, given) for name, one in hints.items()} if given else hints


def _with_parameters(hint: Any, given: dict[Any, Any]) -> Any:
    if isinstance(hint, typing.TypeVar):
        return given.get(hint, hint)
    parameters = getattr(hint, "__parameters__", ())
    if isinstance(hint, type) or not parameters:
        return hint
    return hint[tuple(given.get(one, one) for one in parameters)]


def _construct(kind: type, fields: _Fields, names: Mapping[str, str] | None = None) -> Converter:
    """Calls the class; `names` are the arguments of fields whose names differ."""

    def convert(value: Any) -> Any:
        if isinstance(value, kind):
            return value
        values = fields.convert(value)
        arguments = {(names or {}).get(name, name): one for name, one in values.items() if name in fields.arguments}
        made = _call(kind, arguments)
        for name in values.keys() - fields.arguments:
            # Not an argument, so it may have changed since. What the class has made itself is as good.
            if not _is_stored_as(getattr(made, name, None), value[name]):
                object.__setattr__(made, name, values[name])
        return made

    return Converter(convert)


def _is_stored_as(value: Any, stored: Any) -> bool:
    """Whether a value would be stored as this JSON. A table never is."""
    try:
        return bool(json.loads(encode(value, _open_no_sink)) == stored)
    except Exception:
        return False


def _open_no_sink() -> typing.NoReturn:
    raise ValueRefused


def _call(kind: Callable[..., Any], values: dict[str, Any]) -> Any:
    try:
        return kind(**values)
    except (ValueError, TypeError) as error:
        name = getattr(kind, "__name__", "it")
        raise Misfit("", reason=f"is refused by {name}: {_first_line(error)}") from None


def _dataclass(kind: Any, generic: Any) -> Converter:
    hints, fields = hints_of_class(kind, generic), {}
    for name, field in kind.__dataclass_fields__.items():
        # A pseudo-field has another type: ClassVar fields are no fields, an InitVar is only an argument.
        role = field._field_type.name
        if role == "_FIELD_CLASSVAR":
            continue
        missing = type(field.default).__name__ == "_MISSING_TYPE"
        has_default = not missing or type(field.default_factory).__name__ != "_MISSING_TYPE"
        hint = hints.get(name, Any)
        fields[name] = _Field(getattr(hint, "type", hint), field.init and not has_default, field.init)
    return _construct(kind, _Fields(kind, fields))


def _attrs(kind: Any, generic: Any) -> Converter:
    hints = hints_of_class(kind, generic)
    fields = {
        one.name: _Field(hints.get(one.name, Any), one.init and type(one.default).__name__ == "_Nothing", one.init)
        for one in kind.__attrs_attrs__
    }
    aliases = {one.name: getattr(one, "alias", None) or one.name.lstrip("_") for one in kind.__attrs_attrs__}
    return _construct(kind, _Fields(kind, fields), aliases)


def _named_tuple(kind: Any, generic: Any) -> Converter:
    hints, defaults = hints_of_class(kind, generic), kind._field_defaults
    fields = _Fields(kind, {name: _Field(hints.get(name, Any), name not in defaults) for name in kind._fields})

    def convert(value: Any) -> Any:
        if isinstance(value, list) and len(value) <= len(kind._fields):
            value = dict(zip(kind._fields, value))  # noqa: B905 - not before Python 3.10
        return _call(kind, fields.convert(value))

    return Converter(convert)


# Typed dictionaries that are being compiled: one that refers to itself is converted, which is always right.
_open_dicts: set[type] = set()


def _typed_dict(kind: Any, generic: Any) -> Converter:
    hints = hints_of_class(kind, generic)
    fields = _Fields(kind, {name: _Field(hint, name in kind.__required_keys__) for name, hint in hints.items()})
    is_plain = False
    if kind not in _open_dicts:
        _open_dicts.add(kind)
        try:
            is_plain = all(compile_type(hint).is_plain for hint in hints.values())
        finally:
            _open_dicts.discard(kind)
    return Converter(lambda value: fields.convert(value, is_closed=False), is_plain)


def _enum(kind: Any) -> Converter:
    def convert(value: Any) -> Any:
        for member in kind:
            if (member.value == value and type(value) is not bool) or member.value is value:
                return member
        try:
            return kind(tuple(value) if isinstance(value, list) else value)
        except (ValueError, TypeError):
            for member in kind:
                # A Decimal, a date: texts in JSON. A number may be the key of a mapping.
                if str(member.value) == str(value) or _is_stored_as(member.value, value):
                    return member
            raise Misfit(f"one of {', '.join(show(member.value) for member in kind)}", value) from None

    return Converter(convert)


def _struct(kind: Any, generic: Any = None) -> Converter:
    wanted = generic or kind
    msgspec: Any = sys.modules["msgspec"]

    def convert_other(hint: Any, value: Any) -> Any:
        return compile_type(hint).convert(value)

    def convert(value: Any) -> Any:
        if isinstance(value, kind):
            return value
        try:
            return msgspec.convert(value, wanted, str_keys=True, dec_hook=convert_other)
        except msgspec.ValidationError as error:
            reason, _, path = str(error).partition(" - at `$")
            reason = reason[:1].lower() + reason[1:]
            raise Misfit("", reason=f"does not fit {kind.__name__}: {reason}").within(path.rstrip("`")) from None

    return Converter(convert)


def _pydantic(kind: Any) -> Converter:
    pydantic: Any = sys.modules["pydantic"]
    adapter = pydantic.TypeAdapter(kind)

    def convert(value: Any) -> Any:
        if isinstance(value, kind):
            return value
        loaded = load_files(value)
        try:
            try:
                text = json.dumps(loaded)
            except TypeError:
                return adapter.validate_python(loaded)  # there is a table in it
            # As it was dumped: strict models accept a date that is text in JSON.
            return adapter.validate_json(text)
        except pydantic.ValidationError as error:
            first = error.errors()[0]
            path = "".join(f"[{one}]" if isinstance(one, int) else f".{one}" for one in first["loc"])
            reason = first["msg"][:1].lower() + first["msg"][1:]
            raise Misfit("", reason=f"does not fit {kind.__name__}: {reason}").within(path) from None

    return Converter(convert)


def _from_text(expected: str, make: Callable[[Any, str], Any], *others: type) -> Callable[[Any], Converter]:
    """A class that is made from a text: `make(kind, text)` raises ValueError or ArithmeticError."""

    def converter(kind: Any) -> Converter:
        def convert(value: Any) -> Any:
            if type(value) is not str and type(value) not in others:
                if isinstance(value, kind):
                    return value
                raise Misfit(expected, value)
            try:
                return make(kind, value)
            except (ValueError, ArithmeticError):
                raise Misfit(expected, value) from None

        return Converter(convert)

    return converter


def _to_datetime(kind: Any, text: str) -> Any:
    if kind.__module__.startswith("pandas"):
        return kind(text)  # which reads nanoseconds
    # Before Python 3.11 there is no Z.
    return kind.fromisoformat(f"{text[:-1]}+00:00" if text.endswith("Z") else text)


def _to_duration(kind: Any, value: Any) -> Any:
    return kind(**parse_duration(value)) if isinstance(value, str) else kind(seconds=value)


def _path(kind: Any) -> Converter:
    """A path; a file that was stored is given as the path of its local copy."""

    def convert(value: Any) -> Any:
        if isinstance(value, StoredFile):
            found = value.as_path()
            return found if isinstance(found, kind) else kind(value.path)
        if type(value) is not str:
            raise Misfit("the text of a path", value)
        return kind(value)

    return Converter(convert)


def _bytes(kind: Any) -> Converter:
    def convert(value: Any) -> Any:
        if isinstance(value, StoredFile):
            return kind(value.read_bytes())
        try:
            return kind(base64.b64decode(value, validate=True))
        except (ValueError, TypeError):
            raise Misfit("bytes as base64 text", value) from None

    return Converter(convert)


def _table(kind: Any) -> Converter:
    name = type_name(kind)

    def convert(value: Any) -> Any:
        if isinstance(value, StoredFile):
            return value.load(name)
        if isinstance(value, kind):
            return value
        raise Misfit(f"a {name}", value)

    return Converter(convert)


_CLASSES: dict[tuple[str, str], Callable[[Any], Converter]] = {
    ("datetime", "datetime"): _from_text("a date and time in ISO 8601", _to_datetime),
    ("datetime", "date"): _from_text("a date in ISO 8601", lambda kind, text: kind.fromisoformat(text)),
    ("datetime", "time"): _from_text("a time in ISO 8601", _to_datetime),
    ("datetime", "timedelta"): _from_text("a duration in ISO 8601 or seconds", _to_duration, int, float),
    ("decimal", "Decimal"): _from_text("a decimal number", lambda kind, value: kind(str(value)), int, float),
    ("fractions", "Fraction"): _from_text("a fraction", lambda kind, value: kind(value), int),
    ("uuid", "UUID"): _from_text("a UUID", lambda kind, text: kind(text)),
    ("ipaddress", "_IPAddressBase"): _from_text("an IP address", lambda kind, text: kind(text)),
    ("pathlib", "PurePath"): _path,
    ("builtins", "bytes"): _bytes,
    ("builtins", "bytearray"): _bytes,
    ("enum", "Enum"): _enum,
    ("msgspec", "Struct"): _struct,
    ("pydantic", "BaseModel"): _pydantic,
    ("numpy", "ndarray"): _table,
    ("pandas", "DataFrame"): _table,
    ("pandas", "Series"): _table,
    ("polars", "DataFrame"): _table,
    ("polars", "LazyFrame"): _table,
    ("polars", "Series"): _table,
    ("pyarrow", "Table"): _table,
    ("pyarrow", "RecordBatch"): _table,
}


def show(value: object) -> str:
    """The value as JSON, shortened."""
    if isinstance(value, StoredFile):
        return value.describe()
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        text = f"a {type(value).__name__}"
    return text if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]}…"


def name_of_type(hint: Any) -> str:
    if typing.get_origin(hint) in UNIONS:
        return " or ".join(map(name_of_type, typing.get_args(hint)))
    return "null" if hint is type(None) else str(getattr(hint, "__name__", hint))


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
