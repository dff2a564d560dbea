"""Values of a type that no client of ours sends: texts with NUL, times without a zone, very long names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import inspect

LONG = "x" * 300
TIMES = ("2026-01-01T00:00:00", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999+14:00", "9999-12-31T23:59:59-23:59")
TEXTS = ("a\0b", LONG, "2026-01-01T00:00:00", "0001-01-01T00:00:00Z", "999999999999d", "")
NUMBERS = (0, -1, 2**63 - 1, -(2**63))
PLAIN = "fetch"


def objects(type_: inspect.Type, number: int) -> Iterator[dict[str, Any]]:
    """Objects of a type: one with hostile values alone, and for each field one in which only that is hostile."""
    hostile, plain = Hostile(number), Hostile(0, PLAIN)
    yield hostile.value(type_)
    if isinstance(type_, inspect.StructType):
        needed = {one.encode_name: plain.value(one.type) for one in type_.fields if one.required}
        for one in type_.fields:
            yield {**needed, one.encode_name: hostile.value(one.type)}


class Hostile:
    """Makes values of a type, as JSON has them: the n-th makes each of its texts, times and numbers the n-th one."""

    def __init__(self, number: int, text: str | None = None) -> None:
        self._text = TEXTS[number % len(TEXTS)] if text is None else text
        self._time = TIMES[number % len(TIMES)]
        self._number = NUMBERS[number % len(NUMBERS)]

    def value(self, type_: inspect.Type, depth: int = 0) -> Any:
        if isinstance(type_, inspect.UnionType):
            options = [one for one in type_.types if not isinstance(one, inspect.NoneType)]
            return self.value(options[abs(self._number) % len(options)], depth + 1)
        if isinstance(type_, inspect.StructType):
            tag = {type_.tag_field: type_.tag} if type_.tag_field else {}
            fields = (one for one in type_.fields if one.required or depth < 4)
            return {**tag, **{one.encode_name: self.value(one.type, depth + 1) for one in fields}}
        if isinstance(type_, inspect.ListType | inspect.VarTupleType | inspect.SetType | inspect.FrozenSetType):
            return [self.value(type_.item_type, depth + 1)] if depth < 5 else []
        if isinstance(type_, inspect.TupleType):
            return [self.value(one, depth + 1) for one in type_.item_types]
        if isinstance(type_, inspect.DictType):
            return {self._text: self.value(type_.value_type, depth + 1)} if depth < 5 else {}
        return self._plain(type_)

    def _plain(self, type_: inspect.Type) -> Any:
        if isinstance(type_, inspect.IntType):
            low = type_.ge if type_.ge is not None else -(2**63)
            high = type_.le if type_.le is not None else (type_.lt or 2**63) - 1
            return max(low, min(high, self._number))
        if isinstance(type_, inspect.LiteralType):
            return type_.values[0]
        known = {
            inspect.StrType: self._text,
            inspect.AnyType: self._text,
            inspect.RawType: self._text,
            inspect.DateTimeType: self._time,
            inspect.BytesType: "AAAA",
            inspect.FloatType: float(self._number),
            inspect.BoolType: bool(self._number),
            inspect.DecimalType: str(self._number),
        }
        return known.get(type(type_))
