"""Values of any type that a call takes, as a hostile client would write them: it reads the types and not our code."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from functools import cache
from random import Random
from typing import Any

import msgspec
from msgspec import inspect

DEPTH_MAX = 7
ITEMS_MAX = 3
# Nothing here does harm where a worker runs it as a command, or takes it for the name of a file.
TEXTS: tuple[str, ...] = (
    *("", " ", "a", "0", "-1", "nan", "1e400", "null", "true", "[", "{}", "🦊", "ﬀẞİ", "\u202e", "\ufeff", "\x7f"),
    *("\0", "a\0b", "\ud800", "a\udfffb", "\n", "a\r\nb: c", "\x1b[2J", "'", '"', "'; SELECT 1; --", "%", "%00", "_%"),
    *("../../nonexistent/x", "/nonexistent/x", "..", ".", "a/../b", "C:\\x", "a@b", "a:b", "step[0].0", "end"),
    *("${inputs.x}", "${", "${{", "${1/0}", "{{ x }}", "$(true)", "(" * 200, "[" * 200, "{" * 60, "*", "a*" * 50),
    *(
        "x" * 201,
        "x" * 1001,
        "x" * 70_000,
        "9" * 30,
        "é" * 300,
        "2026-02-30",
        "1h",
        "-1s",
        "100000d",
        "http://127.0.0.1:9/",
    ),
)
INTEGERS = (0, 1, -1, 2, 7, 100, 2**31 - 1, 2**31, 2**32, 2**53, 2**63 - 1, -(2**63), 2**63, 2**64, -(10**30))
FLOATS = (0.0, -0.0, 0.5, 1.0, -1.0, 1e-320, 1e308, 2.0**63, float("nan"), float("inf"), float("-inf"))
DECIMALS = ("0", "-1", "NaN", "sNaN", "Infinity", "1e999999", "1e-999999", "9" * 400, 1e308)
MOMENTS = (
    *("2026-01-02T03:04:05Z", "2026-01-02T03:04:05", "2026-01-02T03:04:05.999999+23:59", "1969-12-31T23:59:59Z"),
    *("0001-01-01T00:00:00Z", "0001-01-01T00:00:00+23:00", "0001-01-01T00:00:00", "9999-12-31T23:59:59.999999Z"),
    *("9999-12-31T23:59:59-23:59", "2026-01-02", "2026-13-02T03:04:05Z", ""),
)
BYTES = (b"", b"{}", b"[]", b"null", b"\0", b"\xff\xfe", b"{", b'{"name":"a","steps":[]}', b"[" * 5_000)
Pool = Callable[[Random], Any]
# By the name of a field and the Python type of its values.
Pools = Mapping[tuple[str, type], Pool]
_KINDS: dict[type[inspect.Type], type] = {
    inspect.StrType: str,
    inspect.IntType: int,
    inspect.FloatType: float,
    inspect.BytesType: bytes,
    inspect.StructType: dict,
    inspect.DictType: dict,
}


class TypedValues:
    """Makes values. `pools` has what a field of a name usually has; `hostility` says how often it has something else.

    With a hostility of 0 and no pools each value is plain: what any client might send.
    """

    def __init__(self, random: Random, pools: Pools | None = None, hostility: float = 0.0) -> None:
        self._random, self._pools, self._hostility = random, pools or {}, hostility

    def of(self, type_: Any, name: str = "") -> Any:
        """A value as JSON has it."""
        return self._value(_info(type_), name, 0)

    def fields(self, type_: type[msgspec.Struct] | None) -> dict[str, Any]:
        """Some of the fields of a struct, with a value for each."""
        return {} if type_ is None else self._struct(_info(type_), 0)

    def is_hostile(self) -> bool:
        return self._random.random() < self._hostility

    def _value(self, type_: inspect.Type, name: str, depth: int) -> Any:
        while isinstance(type_, inspect.Metadata):
            type_ = type_.type
        pool = self._pools.get((name, _KINDS.get(type(type_), object)))
        if pool is not None and not self.is_hostile():
            found = pool(self._random)
            return base64.b64encode(found).decode() if isinstance(found, bytes) else found
        if self._random.random() < self._hostility / 20:
            return self._wrong()
        if isinstance(type_, inspect.StructType | inspect.TypedDictType | inspect.DataclassType):
            return self._struct(type_, depth)
        if isinstance(type_, inspect.UnionType):
            options = [one for one in type_.types if depth < DEPTH_MAX or isinstance(one, inspect.NoneType)]
            return self._value(self._random.choice(options or list(type_.types)), name, depth)
        if isinstance(type_, inspect.LiteralType):
            return self._random.choice(sorted(type_.values, key=str))
        if isinstance(type_, inspect.EnumType):
            return self._random.choice([one.value for one in type_.cls])
        if isinstance(type_, inspect.CollectionType):
            count = 0 if depth >= DEPTH_MAX else self._count()
            return [self._value(type_.item_type, _singular(name), depth + 1) for _ in range(count)]
        if isinstance(type_, inspect.TupleType):
            return [self._value(one, name, depth + 1) for one in type_.item_types]
        if isinstance(type_, inspect.DictType):
            count = 0 if depth >= DEPTH_MAX else self._count()
            return {
                str(self._value(type_.key_type, "", depth + 1)): self._value(type_.value_type, "", depth + 1)
                for _ in range(count)
            }
        return self._leaf(type_)

    def _struct(self, type_: Any, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if getattr(type_, "tag_field", None):
            found[type_.tag_field] = type_.tag
        for field in type_.fields:
            # What may be left out often is: so deep types are met in more ways, and end.
            if field.required or self._random.random() < (0.7 if depth < 3 else 0.3):
                found[field.encode_name] = self._value(field.type, field.name, depth + 1)
        if self._random.random() < self._hostility / 20:
            found["unknown"] = self._wrong()
        return found

    def _leaf(self, type_: inspect.Type) -> Any:
        is_hostile = self.is_hostile()
        choose = self._random.choice
        if isinstance(type_, inspect.StrType):
            return choose(TEXTS) if is_hostile else choose(("a", "b", "retry"))
        if isinstance(type_, inspect.IntType):
            # Most types have bounds, and what is beyond them is refused at once: go to them as well.
            bounds = [one for one in (type_.ge, type_.le) if one is not None]
            return choose((*INTEGERS, *bounds)) if is_hostile else choose((1, 2, *bounds[:1]))
        if isinstance(type_, inspect.FloatType):
            return choose(FLOATS) if is_hostile else choose((0.5, 1.0))
        if isinstance(type_, inspect.BoolType):
            return choose((True, False))
        if isinstance(type_, inspect.BytesType):
            return base64.b64encode(choose(BYTES)).decode()
        if isinstance(type_, inspect.DateTimeType):
            return choose(MOMENTS) if is_hostile else MOMENTS[0]
        if isinstance(type_, inspect.DecimalType):
            return choose(DECIMALS) if is_hostile else "1.5"
        if isinstance(type_, inspect.NoneType):
            return None
        return self._wrong() if is_hostile else choose((1, "a", None, [1], {"a": "b"}))

    def _wrong(self) -> Any:
        """Of no type in particular."""
        kind = self._random.randrange(8)
        if kind < 4:
            return self._random.choice((None, True, -1, 1.5, "a", [], {}, [[]], {"a": {"a": 1}}, {"$artifact": {}}))
        if kind == 4:
            return _nested(self._random.choice((50, 400)), self._random.random() < 0.5)
        if kind == 5:
            return ["a"] * self._random.choice((100, 10_000))
        return self._random.choice((*TEXTS, *INTEGERS, *FLOATS))

    def _count(self) -> int:
        return self._random.choice((0, 1, 1, 2, ITEMS_MAX))


def choice(*values: Any) -> Pool:
    """A pool of these."""
    return lambda random: random.choice(values)


def _nested(depth: int, is_list: bool) -> Any:
    found: Any = 1
    for _ in range(depth):
        found = [found] if is_list else {"a": found}
    return found


def _singular(name: str) -> str:
    return name[:-1] if name.endswith("s") else name


@cache
def _info(type_: Any) -> inspect.Type:
    return inspect.type_info(type_)
