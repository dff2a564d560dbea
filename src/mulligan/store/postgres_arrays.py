"""Columns of a batch as PostgreSQL arrays, in the server's binary format.

Each has a fixed type, so that a statement is prepared once, and nothing is quoted or parsed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

_PREFIX = struct.Struct("!i")
_HEAD = struct.Struct("!iiIii")
_BIGINT = struct.Struct("!iq")
_FLOAT = struct.Struct("!id")
_SINGLE_BIGINT = struct.Struct("!q")
_SINGLE_FLOAT = struct.Struct("!d")
_NULL = _PREFIX.pack(-1)


def without_nul(text: str) -> str:
    """The server refuses NUL in texts. Our names have none, but a reason that a user gives may."""
    return text.replace("\0", "\ufffd")


def _text(value: str) -> bytes:
    return value.replace("\0", "\ufffd").encode()


def _head(element: int, count: int, has_null: bool = False) -> bytes:
    return _HEAD.pack(1, has_null, element, count, 1)


class Array:
    """Values of one column. Subclasses have `of`, the oid of its elements."""

    of: ClassVar[int]
    # The beginning of an array with one element: most commits have one turn.
    _head_of_one: ClassVar[bytes]

    def __init__(self, values: Iterable[Any]) -> None:
        self.values: Sequence[Any] = values if isinstance(values, list) else list(values)

    def __init_subclass__(cls) -> None:
        cls._head_of_one = _head(cls.of, 1)

    def encoded(self) -> bytes:
        return self.encode(self.values)

    @classmethod
    def encode(cls, values: Sequence[Any]) -> bytes:
        """The array of these values as the server reads it."""
        if len(values) == 1 and values[0] is not None:
            return cls._head_of_one + cls.element(values[0])
        if not values:
            return struct.pack("!iiI", 0, 0, cls.of)
        element = cls.element
        parts = [_NULL if value is None else element(value) for value in values]
        return _head(cls.of, len(values), None in values) + b"".join(parts)

    @staticmethod
    def element(value: Any) -> bytes:
        raise NotImplementedError

    @staticmethod
    def single(value: Any) -> bytes | None:
        """One value alone, not as an array."""
        raise NotImplementedError


class Bigints(Array):
    of = 20

    @staticmethod
    def element(value: int) -> bytes:
        return _BIGINT.pack(8, value)

    @staticmethod
    def single(value: int | None) -> bytes | None:
        return None if value is None else _SINGLE_BIGINT.pack(value)


class Floats(Array):
    of = 701

    @staticmethod
    def element(value: float) -> bytes:
        return _FLOAT.pack(8, value)

    @staticmethod
    def single(value: float | None) -> bytes | None:
        return None if value is None else _SINGLE_FLOAT.pack(value)


class Texts(Array):
    of = 25

    @staticmethod
    def element(value: str) -> bytes:
        data = _text(value)
        return _PREFIX.pack(len(data)) + data

    @staticmethod
    def single(value: str | None) -> bytes | None:
        return None if value is None else _text(value)


class Blobs(Array):
    of = 17

    @staticmethod
    def element(value: bytes) -> bytes:
        return _PREFIX.pack(len(value)) + value

    @staticmethod
    def single(value: bytes | None) -> bytes | None:
        return value
