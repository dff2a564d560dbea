"""A plain value of any type that requests and arguments have: what the seeds of requests are made of."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import inspect

DEPTH_MAX = 6
_PLAIN: dict[type[inspect.Type], Any] = {
    inspect.StrType: "a",
    inspect.IntType: 1,
    inspect.FloatType: 0.5,
    inspect.BoolType: True,
    inspect.BytesType: "YQ==",
    inspect.DateTimeType: "2026-01-02T03:04:05Z",
    inspect.AnyType: {"a": [1, "b", None]},
}


def example_of(type_: Any) -> Any:
    """A value as JSON has it, with every field that there is."""
    return _value(inspect.type_info(type_), 0)


def fields_of(type_: type[msgspec.Struct] | None) -> dict[str, Any]:
    """Each field of a struct with a value for it."""
    found = {} if type_ is None else example_of(type_)
    return found if isinstance(found, dict) else {}


def _value(type_: inspect.Type, depth: int) -> Any:
    if depth > DEPTH_MAX:
        return None
    if isinstance(type_, inspect.Metadata):
        return _value(type_.type, depth)
    if isinstance(type_, inspect.StructType):
        tag = {type_.tag_field: type_.tag} if type_.tag_field else {}
        return tag | {one.encode_name: _value(one.type, depth + 1) for one in type_.fields}
    if isinstance(type_, inspect.UnionType):
        options = [one for one in type_.types if not isinstance(one, inspect.NoneType)]
        return _value(options[0], depth) if options else None
    if isinstance(type_, inspect.LiteralType | inspect.EnumType):
        values = type_.values if isinstance(type_, inspect.LiteralType) else [one.value for one in type_.cls]
        return sorted(values, key=str)[0]
    if isinstance(type_, inspect.CollectionType):
        return [_value(type_.item_type, depth + 1)]
    if isinstance(type_, inspect.TupleType):
        return [_value(one, depth + 1) for one in type_.item_types]
    if isinstance(type_, inspect.DictType):
        return {"a": _value(type_.value_type, depth + 1)}
    return next((plain for kind, plain in _PLAIN.items() if isinstance(type_, kind)), None)
