"""Columns of a batch as PostgreSQL arrays, in the server's binary format.

Each has a fixed type, so that a statement is prepared once, and nothing is quoted or parsed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from psycopg.abc import AdaptContext
from psycopg.adapt import Dumper
from psycopg.pq import Format

_PREFIX = struct.Struct("!i")
_HEAD = struct.Struct("!iiIii")
_BIGINT = struct.Struct("!iq")
_FLOAT = struct.Struct("!id")
_NULL = _PREFIX.pack(-1)


def without_nul(text: str) -> str:
    """The server refuses NUL in texts. Our names have none, but a reason that a user gives may."""
    return text.replace("\0", "\ufffd")


class Array:
    """Values of one column. Subclasses have the oid of the array type, and `of`, the oid of its elements."""

    oid: ClassVar[int]
    of: ClassVar[int]
    _head_of_one: ClassVar[bytes]

    def __init__(self, values: Iterable[Any]) -> None:
        self.values: Sequence[Any] = values if isinstance(values, list) else list(values)

    def __init_subclass__(cls) -> None:
        # Most arrays have one element: a commit with one turn.
        cls._head_of_one = _HEAD.pack(1, 0, cls.of, 1, 1)

    def encoded(self) -> bytes:
        if len(self.values) == 1 and self.values[0] is not None:
            return self._head_of_one + self.element(self.values[0])
        if not self.values:
            return struct.pack("!iiI", 0, 0, self.of)
        head = _HEAD.pack(1, None in self.values, self.of, len(self.values), 1)
        return head + b"".join([_NULL if value is None else self.element(value) for value in self.values])

    @staticmethod
    def element(value: Any) -> bytes:
        raise NotImplementedError


class Bigints(Array):
    oid, of = 1016, 20

    @staticmethod
    def element(value: int) -> bytes:
        return _BIGINT.pack(8, value)


class Floats(Array):
    oid, of = 1022, 701

    @staticmethod
    def element(value: float) -> bytes:
        return _FLOAT.pack(8, value)


class Texts(Array):
    oid, of = 1009, 25

    @staticmethod
    def element(value: str) -> bytes:
        data = without_nul(value).encode()
        return _PREFIX.pack(len(data)) + data


class Blobs(Array):
    oid, of = 1001, 17

    @staticmethod
    def element(value: bytes) -> bytes:
        return _PREFIX.pack(len(value)) + value


class _ArrayDumper(Dumper):
    format = Format.BINARY

    def dump(self, obj: Array) -> bytes:
        return obj.encoded()


def register(context: AdaptContext) -> None:
    """Let a connection send these arrays."""
    for array in (Bigints, Floats, Texts, Blobs):
        dumper = type(f"{array.__name__}Dumper", (_ArrayDumper,), {"oid": array.oid})
        context.connection.adapters.register_dumper(array, dumper)  # type: ignore[union-attr]
