"""Encode what a step returns as JSON: dataclasses, dates, models and so on; tables and arrays become files.

A value is recognized by the names of its classes, so that no library is imported that the user has not imported.
"""

from __future__ import annotations

import base64
import json
import os
import re
import sys

from mulligan.values.annotations import type_name
from mulligan.values.durations import format_duration
from mulligan.values.files import KEY

# `typing` itself is not imported: a process that is about to start should not wait for it.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, Protocol

    class FileSink(Protocol):
        """Where the files of tables go: see `mulligan.step_context`."""

        def new_artifact_path(self, ending: str) -> str: ...

        def register_artifact(
            self, path: str, *, name: str, format: str, is_listed: bool, **fields: Any
        ) -> dict[str, Any]: ...


DEPTH_MAX = 100
# The name of a result in messages.
RESULT = "the result"
# A part of a result with tables that is larger becomes a file of its own: see `_split`.
PART_CHARS_MAX = 16 * 1024
# With more than this in the log, parts are split off.
INLINE_CHARS_MAX = 48 * 1024
# What the log stores: integers of 64 bits, with and without a sign.
INTEGER_MIN, INTEGER_MAX = -(2**63), 2**64 - 1
NAME_CHARS_MAX = 60
# Of how many tables in one result the first rows are recorded.
PREVIEWS_MAX = 32
# An object with this attribute stands for a file that the step has kept: see `mulligan.step_context`.
REFERENCE_ATTRIBUTE = "__mulligan_artifact__"
# What pydantic's `SecretStr` and `SecretBytes` derive from.
SECRET_SHOWN = "**********"
SECRET_TYPE = ("pydantic.types", "_SecretBase")
_ENCODER = json.JSONEncoder(allow_nan=False, ensure_ascii=False)
_PLAIN = (str, bool, type(None))
_INFINITIES = (float("inf"), float("-inf"))


class ValueRefused(Exception):
    """A value that cannot be stored; the message says where it is and why."""


def encode(value: object, open_sink: Callable[[], FileSink], *, label: str = RESULT, is_compressed: bool = True) -> str:
    """Return the value as JSON text; raise ValueRefused. Files are registered only if all of it can be stored.

    `open_sink` is called for the first table. `label` names the value in messages.
    """
    encoder = _Encoder(open_sink, label, is_compressed)
    try:
        plain = encoder.encode(value, label, 0)
        if encoder.has_files:
            plain = encoder.with_references(plain)
        text = _ENCODER.encode(plain)
        if encoder.has_files and len(text) > INLINE_CHARS_MAX:
            text = _ENCODER.encode(encoder.split(plain, "output"))
    except RecursionError:
        raise ValueRefused(f"{label} is nested too deep, or contains itself") from None
    except ValueError as error:
        raise ValueRefused(f"{label} is not JSON: {error}") from None
    return text


class _Encoder:
    """Encodes one value."""

    def __init__(self, open_sink: Callable[[], FileSink], label: str, is_compressed: bool) -> None:
        self._open_sink = open_sink
        self._label = label
        self._is_compressed = is_compressed
        # By the token that stands for a file until it is registered: its path, the name of its value, its fields.
        self._files: dict[str, tuple[str, str, dict[str, Any]]] = {}

    @property
    def has_files(self) -> bool:
        return bool(self._files)

    def with_references(self, plain: Any) -> Any:
        """Register the files, and put references to them into the value."""
        sink = self._open_sink()
        references = {
            token: sink.register_artifact(path, name=name, is_listed=False, **fields)
            for token, (path, name, fields) in self._files.items()
        }
        return _replace(plain, references)

    def split(self, plain: Any, name: str) -> Any:
        """Move large parts without tables to files: the log has the references, and it should stay small."""
        if isinstance(plain, dict) and not _is_reference(plain):
            return {key: self._split_part(inner, str(key)) for key, inner in plain.items()}
        return [self._split_part(inner, name) for inner in plain] if isinstance(plain, list) else plain

    def _split_part(self, part: Any, name: str) -> Any:
        if not isinstance(part, (dict, list, str)) or len(text := _ENCODER.encode(part)) <= PART_CHARS_MAX:
            return part
        if f'"{KEY}"' in text:
            return self.split(part, name)
        sink = self._open_sink()
        path = sink.new_artifact_path(".json")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return sink.register_artifact(path, name=_file_name(name, ".json"), format="json", is_listed=False)

    # -- values

    def encode(self, value: Any, path: str, depth: int) -> Any:
        """Return the value as JSON's types."""
        kind = type(value)
        if kind in _PLAIN:
            return _checked_text(value, path) if kind is str else value
        if kind is int or kind is float:
            return _checked_number(value, path)
        if depth > DEPTH_MAX:
            raise ValueRefused(f"{self._label} is nested too deep, or contains itself")
        if hasattr(kind, REFERENCE_ATTRIBUTE) and isinstance(found := getattr(value, REFERENCE_ATTRIBUTE), dict):
            return found
        if hasattr(kind, "__dataclass_fields__"):
            fields = kind.__dataclass_fields__.values()
            return self._fields(value, [one.name for one in fields if one._field_type.name == "_FIELD"], path, depth)
        if hasattr(kind, "__attrs_attrs__"):
            return self._fields(value, [one.name for one in kind.__attrs_attrs__], path, depth)
        for base in kind.__mro__:
            encode = _ENCODERS.get((base.__module__.partition(".")[0], base.__qualname__))
            if encode is not None:
                return encode(self, value, path, depth)
        raise ValueRefused(f"{path} is of type '{_type_name(kind)}', which cannot be stored; {_hint(value)}")

    def _fields(self, value: Any, names: Iterable[str], path: str, depth: int) -> dict[str, Any]:
        return {name: self.encode(getattr(value, name), f"{path}.{name}", depth + 1) for name in names}

    def mapping(self, value: Any, path: str, depth: int) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key, inner in value.items():
            text = self._key(key, path, depth)
            if text in result:
                raise ValueRefused(f"{path} has two keys that are {text!r} as JSON")
            result[text] = self.encode(inner, f"{path}[{key!r}]", depth + 1)
        return result

    def _key(self, key: Any, path: str, depth: int) -> str:
        if type(key) is str:
            return _checked_text(key, path)
        name = _type_name(type(key))
        if isinstance(key, (dict, list, tuple, set, frozenset, bytes)):
            raise ValueRefused(f"{path} has a key of type '{name}', which is not JSON")
        try:
            plain = self.encode(key, path, depth + 1)
        except ValueRefused:
            raise ValueRefused(f"{path} has a key of type '{name}', which is not JSON") from None
        if isinstance(plain, (dict, list)):
            raise ValueRefused(f"{path} has a key of type '{name}', which is not JSON")
        return plain if isinstance(plain, str) else _ENCODER.encode(plain)

    def sequence(self, value: Any, path: str, depth: int) -> list[Any]:
        return [self.encode(inner, f"{path}[{at}]", depth + 1) for at, inner in enumerate(value)]

    def unordered(self, value: Any, path: str, depth: int) -> list[Any]:
        """A set in an order that does not depend on the process, so that equal results are equal."""
        plain = [self.encode(inner, f"{path}[…]", depth + 1) for inner in value]
        try:
            return sorted(plain)
        except TypeError:
            return sorted(plain, key=_ENCODER.encode)

    def text(self, value: Any, path: str, _depth: int) -> str:
        return _checked_text(str(value), path)

    def subclassed_text(self, value: Any, path: str, _depth: int) -> str:
        """An instance of a subclass of `str`, which may have another `__str__`."""
        return _checked_text(str.__str__(value), path)

    def integer(self, value: Any, path: str, _depth: int) -> Any:
        return _checked_number(int.__int__(value), path)

    def real(self, value: Any, path: str, _depth: int) -> Any:
        return _checked_number(float.__float__(value), path)

    def iso(self, value: Any, path: str, _depth: int) -> str:
        _refuse_missing(value, path)
        return str(value.isoformat())

    def duration(self, value: Any, path: str, _depth: int) -> str:
        _refuse_missing(value, path)
        if getattr(value, "nanoseconds", 0):
            raise ValueRefused(f"{path} is {value}, and a duration is stored to the microsecond; round it")
        return format_duration(value)

    def binary(self, value: Any, _path: str, _depth: int) -> str:
        return base64.b64encode(value).decode()

    def member(self, value: Any, path: str, depth: int) -> Any:
        """An Enum by its value."""
        return self.encode(value.value, path, depth + 1)

    # -- values of libraries

    def numpy_scalar(self, value: Any, path: str, depth: int) -> Any:
        if value.dtype.kind == "M":
            _refuse_missing(value, path)
            return str(value)
        if value.dtype.kind == "m":
            exact = value.astype("timedelta64[us]")
            if exact.astype(value.dtype) != value or not hasattr(exact.item(), "microseconds"):
                raise ValueRefused(f"{path} is {value!r}, which is not a whole number of microseconds, or too long")
            value = exact
        plain = value.item()
        if type(plain) is type(value):
            plain = float(value)  # a long double
        return self.encode(plain, path, depth + 1)

    def struct(self, value: Any, path: str, depth: int) -> Any:
        """As msgspec encodes it; other values in it as everywhere."""
        msgspec = sys.modules["msgspec"]
        try:
            plain = msgspec.to_builtins(
                value, str_keys=True, enc_hook=lambda one: self.encode(one, path + _path_to(one, value, 0), depth + 1)
            )
        except (TypeError, ValueError) as error:
            raise ValueRefused(f"{path} cannot be stored: {error}") from None
        return self.encode(plain, path, depth + 1)

    def model(self, value: Any, path: str, depth: int) -> Any:
        """As pydantic dumps it for JSON; other values in it as everywhere."""
        try:
            plain = value.model_dump(
                mode="json",
                by_alias=True,
                round_trip=True,
                fallback=lambda one: self.encode(one, path + _path_to(one, value, 0), depth + 1),
            )
        except ValueRefused:
            raise
        except Exception as error:
            raise ValueRefused(f"{path} cannot be stored: {str(error).splitlines()[0]}") from None
        if SECRET_SHOWN in str(plain) and (hidden := _find_hidden(value, 0)):
            raise ValueRefused(
                f"{path}{hidden} is a secret, of which pydantic would keep only asterisks; "
                "leave it out, and read it in the step that needs it"
            )
        return self.encode(plain, path, depth + 1)

    def table(self, value: Any, path: str, _depth: int) -> dict[str, Any]:
        """Write a table or an array to a file; return what stands for it until it is registered."""
        from mulligan.values.pandas_tables import TableRefused

        try:
            from mulligan.values import tables

            written, fields = tables.write(
                value, self._open_sink().new_artifact_path, is_compressed=self._is_compressed
            )
        except TableRefused as problem:
            raise ValueRefused(
                f"{path} is of type '{_type_name(type(value))}' and cannot be stored: {problem}"
            ) from None
        if len(self._files) >= PREVIEWS_MAX:
            fields["preview"] = None
        token = f"{os.urandom(8).hex()}-{len(self._files)}"
        # The last field or index in the path below the value.
        last = re.search(r"([^\[\].'\"]+)['\"\]]*$", path[len(self._label) :])
        name = _file_name(last[1] if last else "", os.path.splitext(written)[1])
        self._files[token] = written, name, fields
        return {KEY: token}


_ENCODERS: dict[tuple[str, str], Callable[..., Any]] = {
    ("builtins", "str"): _Encoder.subclassed_text,
    ("builtins", "int"): _Encoder.integer,
    ("builtins", "float"): _Encoder.real,
    ("builtins", "dict"): _Encoder.mapping,
    ("builtins", "mappingproxy"): _Encoder.mapping,
    ("collections", "UserDict"): _Encoder.mapping,
    ("builtins", "list"): _Encoder.sequence,
    ("builtins", "tuple"): _Encoder.sequence,
    ("builtins", "range"): _Encoder.sequence,
    ("collections", "deque"): _Encoder.sequence,
    ("collections", "UserList"): _Encoder.sequence,
    ("builtins", "set"): _Encoder.unordered,
    ("builtins", "frozenset"): _Encoder.unordered,
    ("builtins", "bytes"): _Encoder.binary,
    ("builtins", "bytearray"): _Encoder.binary,
    ("builtins", "memoryview"): _Encoder.binary,
    ("datetime", "datetime"): _Encoder.iso,
    ("datetime", "date"): _Encoder.iso,
    ("datetime", "time"): _Encoder.iso,
    ("datetime", "timedelta"): _Encoder.duration,
    ("pandas", "NaTType"): _Encoder.iso,
    ("decimal", "Decimal"): _Encoder.text,
    ("fractions", "Fraction"): _Encoder.text,
    ("pathlib", "PurePath"): _Encoder.text,
    ("uuid", "UUID"): _Encoder.text,
    ("ipaddress", "_IPAddressBase"): _Encoder.text,
    ("enum", "Enum"): _Encoder.member,
    ("numpy", "generic"): _Encoder.numpy_scalar,
    ("msgspec", "Struct"): _Encoder.struct,
    ("pydantic", "BaseModel"): _Encoder.model,
    ("numpy", "ndarray"): _Encoder.table,
    ("pandas", "DataFrame"): _Encoder.table,
    ("pandas", "Series"): _Encoder.table,
    ("polars", "DataFrame"): _Encoder.table,
    ("polars", "Series"): _Encoder.table,
    ("pyarrow", "Table"): _Encoder.table,
    ("pyarrow", "RecordBatch"): _Encoder.table,
}
# What to return instead, by package and name of a class.
_HINTS = {
    ("polars", "LazyFrame"): "return a DataFrame: call .collect()",
    ("pandas", "Index"): "return a Series: call .to_series()",
    ("pandas", "NAType"): "return None for a missing value",
    ("pyarrow", "Array"): "return a Table or a list",
    ("pyarrow", "ChunkedArray"): "return a Table or a list",
    ("builtins", "generator"): "return list(…)",
    ("builtins", "map"): "return list(…)",
    ("builtins", "filter"): "return list(…)",
    ("builtins", "zip"): "return list(…)",
    ("builtins", "dict_keys"): "return list(…)",
    ("builtins", "dict_values"): "return list(…)",
    ("builtins", "dict_items"): "return list(…)",
    ("mulligan", "Call"): "write await before the call",
    ("builtins", "complex"): "return [z.real, z.imag]",
}
_HINT = "return JSON values, a dataclass, a model, a table or an array"


def _hint(value: object) -> str:
    found = (_HINTS.get((base.__module__.partition(".")[0], base.__qualname__)) for base in type(value).__mro__)
    return next(filter(None, found), _HINT)


def _path_to(target: object, value: Any, depth: int) -> str:
    """Return where an object is in a model, for a library that does not say it; "" if it is not found."""
    if value is target or depth > DEPTH_MAX:
        return ""
    if isinstance(value, dict):
        inner = ((f"[{key!r}]", one) for key, one in value.items())
    elif isinstance(value, (list, tuple, set, frozenset)):
        inner = ((f"[{at}]", one) for at, one in enumerate(value))
    else:
        names: Iterable[str] = getattr(value, "__struct_fields__", ()) or getattr(value, "__dict__", ())
        inner = ((f".{name}", getattr(value, name, None)) for name in names)
    for step, one in inner:
        if one is target:
            return step
        if type(one) not in (str, int, float, bool, type(None)) and (found := _path_to(target, one, depth + 1)):
            return step + found
    return ""


def _find_hidden(value: Any, depth: int) -> str:
    """Return where a `SecretStr` is in a model of pydantic; "" if there is none."""
    if depth > DEPTH_MAX or type(value) in (str, int, float, bool, type(None)):
        return ""
    inner: Iterable[tuple[str, Any]]
    if isinstance(value, dict):
        inner = ((f"[{key!r}]", one) for key, one in value.items())
    elif isinstance(value, (list, tuple, set, frozenset)):
        inner = ((f"[{at}]", one) for at, one in enumerate(value))
    elif hasattr(type(value), "model_fields"):
        inner = ((f".{name}", getattr(value, name, None)) for name in type(value).model_fields)
    else:
        is_hidden = any((base.__module__, base.__name__) == SECRET_TYPE for base in type(value).__mro__)
        return " " if is_hidden else ""
    for step, one in inner:
        if found := _find_hidden(one, depth + 1):
            return (step + found).rstrip()
    return ""


def _type_name(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ in ("builtins", "__mulligan__") else type_name(kind)


def _refuse_missing(value: Any, path: str) -> None:
    """Refuse a time or a duration that is NaT."""
    if value != value:
        raise ValueRefused(f"{path} is {value}, which is not JSON; return None for a missing value")


def _checked_text(text: str, path: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueRefused(f"{path} contains a lone surrogate, which is not JSON") from None
    return text


def _checked_number(number: Any, path: str) -> Any:
    if type(number) is float:
        if number != number or number in _INFINITIES:
            raise ValueRefused(f"{path} is {number}, which is not JSON")
    elif not INTEGER_MIN <= number <= INTEGER_MAX:
        raise ValueRefused(f"{path} is a number of more than 64 bits, which cannot be stored; write it as a text")
    return number


def _is_reference(value: Any) -> bool:
    return isinstance(value, dict) and len(value) == 1 and KEY in value


def _replace(value: Any, references: dict[str, Any]) -> Any:
    """Return the value with references in place of tokens."""
    if isinstance(value, dict):
        if _is_reference(value) and isinstance(value[KEY], str):
            return references.get(value[KEY], value)
        return {key: _replace(inner, references) for key, inner in value.items()}
    return [_replace(inner, references) for inner in value] if isinstance(value, list) else value


def _file_name(name: str, ending: str) -> str:
    """Return a file name for people, in letters that every system has."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "_", name)[:NAME_CHARS_MAX].strip("_-")
    return f"{plain or 'output'}{ending}"
