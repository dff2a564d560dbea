"""Columns of a batch as PostgreSQL arrays, in the server's binary format.

Each has a fixed type, so that a statement is prepared once, and nothing is quoted or parsed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
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
    # Makes bytes of one value alone, not as an array; not of None.
    single: ClassVar[Callable[[Any], bytes]]
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
        if not values:
            return struct.pack("!iiI", 0, 0, cls.of)
        if len(values) == 1 and values[0] is not None:
            head = cls._head_of_one
        else:
            head = _head(cls.of, len(values), None in values)
        return head + b"".join(cls.elements(values))

    @staticmethod
    def elements(values: Sequence[Any]) -> list[bytes]:
        """The elements with their lengths. One call for all of them: a commit has a hundred."""
        raise NotImplementedError


class Bigints(Array):
    of = 20
    single = _SINGLE_BIGINT.pack

    @staticmethod
    def elements(values: Sequence[int | None]) -> list[bytes]:
        return [_NULL if value is None else _BIGINT.pack(8, value) for value in values]


class Floats(Array):
    of = 701
    single = _SINGLE_FLOAT.pack

    @staticmethod
    def elements(values: Sequence[float | None]) -> list[bytes]:
        return [_NULL if value is None else _FLOAT.pack(8, value) for value in values]


class Texts(Array):
    of = 25
    single = _text

    @staticmethod
    def elements(values: Sequence[str | None]) -> list[bytes]:
        return [
            _NULL if value is None else _PREFIX.pack(len(data := value.replace("\0", "\ufffd").encode())) + data
            for value in values
        ]


class Blobs(Array):
    of = 17
    single = bytes

    @staticmethod
    def elements(values: Sequence[bytes | None]) -> list[bytes]:
        return [_NULL if value is None else _PREFIX.pack(len(value)) + value for value in values]
