"""Reports that a hostile client could send: each of the right types, and with values that ours never have."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, get_args

import msgspec
from msgspec import inspect

from mulligan.core.model import reports as r
from mulligan.core.model.workflow import decode, encode, version
from mulligan.core.state.state import State
from mulligan.errors import CodecError
from mulligan.store.http.http_calls import ControlReport, DecisionReport, TaskReport

# What reaches a run from outside: from people and programs, and from workers.
FROM_PEOPLE: tuple[type[r.Report], ...] = (*get_args(ControlReport), *get_args(DecisionReport))
FROM_WORKERS: tuple[type[r.Report], ...] = get_args(TaskReport)

_TEXTS = ("", " ", "end", "a", "é\u202e", "../..", "x" * 2_000, "[0]", "a[0].0", "${inputs.x}", "__class__", "why")
_NUMBERS = (0, 1, 2, 3, -1)
_FLOATS = (0.0, 1.5, 0.5, -1.0)
# These are refused at the door, so that most reports have none of them.
_REFUSED_TEXTS, _REFUSED_FLOATS = ("\0", "x" * 200_000), (-0.0, 1e308, 5e-324, 1e-9)
_REFUSED_NUMBERS = (2**31, 2**63 - 1, -(2**63), 2**64, 10**30)
_REFUSED_SHARE = 0.02
_AMOUNTS = ("0", "-1", "1.5", "NaN", "sNaN", "Infinity", "1E+999999", "1E-999999")
_DATES = ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "2026-01-02T03:04:05Z", "2026-01-02T03:04:05+14:00")
_KEYS = ("", "a", "peak_memory", "cost", "tokens", "type", "code", "message", "$artifact", "memory", "details")
DEPTH_MAX = 5


class HostileReports:
    """Random reports about one run, the same ones for the same `random.Random`."""

    def __init__(self, chance: random.Random, names: Sequence[str] = (), definition: Any = None) -> None:
        self._chance = chance
        self._texts = (*_TEXTS, *names, *names, *names)
        self._definition = definition

    @classmethod
    def about(cls, chance: random.Random, state: State) -> HostileReports:
        """Reports that know the names of places of a run, and its definition."""
        return cls(chance, list(state.places)[:20], msgspec.json.decode(encode(state.workflow)))

    def one(self, kinds: Sequence[type[r.Report]] = FROM_PEOPLE) -> r.Report:
        """A report as a server decodes it. What is not well typed is refused before it is one."""
        while True:
            kind = self._chance.choice(kinds)
            plain = self.plain(kind)
            try:
                return msgspec.json.decode(msgspec.json.encode(plain), type=kind)
            except (msgspec.MsgspecError, OverflowError):
                continue

    def plain(self, kind: Any) -> Any:
        """The same as plain data, for a body of a request."""
        return self._value(inspect.type_info(kind), 0)

    def _value(self, type_: inspect.Type, depth: int) -> Any:
        chance = self._chance
        if isinstance(type_, inspect.StructType):
            return self._struct(type_, depth)
        if isinstance(type_, inspect.UnionType):
            return self._value(chance.choice(type_.types), depth)
        if isinstance(type_, inspect.LiteralType):
            return chance.choice(type_.values)
        if isinstance(type_, inspect.CollectionType):
            return [self._value(type_.item_type, depth + 1) for _ in range(self._count(depth))]
        if isinstance(type_, inspect.TupleType):
            return [self._value(one, depth + 1) for one in type_.item_types]
        if isinstance(type_, inspect.DictType):
            keys = [self._key() for _ in range(self._count(depth))]
            return {key: self._value(type_.value_type, depth + 1) for key in keys}
        return self._plain_value(type_, depth)

    def _struct(self, type_: inspect.StructType, depth: int) -> dict[str, Any]:
        found = {type_.tag_field: type_.tag} if type_.tag_field else {}
        for field in type_.fields:
            if field.required or (depth <= DEPTH_MAX and self._chance.random() < 0.4):
                is_definition = field.encode_name == "definition" and self._chance.random() < 0.7
                found[field.encode_name] = self._changed() if is_definition else self._value(field.type, depth + 1)
        if type_.cls is r.Revised:
            found["version"] = _version_of(found["definition"]) or found["version"]
        return found

    def _changed(self) -> Any:
        """The definition of the run, with something in it that is other than it was."""
        if not isinstance(self._definition, dict):
            return {}
        found = msgspec.json.decode(msgspec.json.encode(self._definition))
        if self._chance.random() < 0.2:
            return found
        at = found
        for _ in range(self._chance.randrange(1, 6)):
            if isinstance(at, dict) and at:
                key: Any = self._chance.choice(sorted(at))
            elif isinstance(at, list) and at:
                key = self._chance.randrange(len(at))
            else:
                break
            if not isinstance(at[key], dict | list) or self._chance.random() < 0.3:
                at[key] = self._anything(3)
                break
            at = at[key]
        return found

    def _plain_value(self, type_: inspect.Type, depth: int) -> Any:
        chance = self._chance
        if isinstance(type_, inspect.StrType):
            return self._one_of(self._texts, _REFUSED_TEXTS)
        if isinstance(type_, inspect.BoolType):
            return chance.random() < 0.5
        if isinstance(type_, inspect.IntType):
            return self._one_of(_NUMBERS, _REFUSED_NUMBERS)
        if isinstance(type_, inspect.FloatType):
            return self._one_of(_FLOATS, _REFUSED_FLOATS)
        if isinstance(type_, inspect.DateTimeType):
            return chance.choice(_DATES)
        if isinstance(type_, inspect.DecimalType):
            return chance.choice(_AMOUNTS)
        if isinstance(type_, inspect.BytesType):
            return "YQ=="
        return None if isinstance(type_, inspect.NoneType) else self._anything(depth)

    def _anything(self, depth: int) -> Any:
        kind = self._chance.randrange(8 if depth <= DEPTH_MAX else 6)
        if kind < 2:
            return self._one_of(self._texts, _REFUSED_TEXTS)
        if kind < 6:
            numbers = self._one_of(_NUMBERS, _REFUSED_NUMBERS), self._one_of(_FLOATS, _REFUSED_FLOATS)
            return (*numbers, None, True)[kind - 2]
        many = range(self._count(depth))
        if kind == 6:
            return [self._anything(depth + 1) for _ in many]
        return {self._key(): self._anything(depth + 1) for _ in many}

    def _key(self) -> str:
        return self._chance.choice((*_KEYS, *self._texts))

    def _one_of(self, usual: Sequence[Any], refused: Sequence[Any]) -> Any:
        return self._chance.choice(refused if self._chance.random() < _REFUSED_SHARE else usual)

    def _count(self, depth: int) -> int:
        return 0 if depth > DEPTH_MAX else self._chance.randrange(4)


def _version_of(definition: Any) -> str:
    """The version that a server computes for a definition; "" if it cannot be one."""
    try:
        return version(encode(decode(msgspec.json.encode(definition))))
    except (CodecError, OverflowError):
        return ""
