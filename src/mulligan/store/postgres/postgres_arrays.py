"""Columns of a batch as PostgreSQL arrays, in the server's binary format.

Each has a fixed type, so that a statement is prepared once, and nothing is quoted or parsed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from mulligan.store.sql.sql_arrays import Array, Bigints, Blobs, Columns, Floats, Texts

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


# The elements with their lengths. One call for all of them: a commit has a hundred.


def _bigints(values: Sequence[int | None]) -> list[bytes]:
    return [_NULL if value is None else _BIGINT.pack(8, value) for value in values]


def _floats(values: Sequence[float | None]) -> list[bytes]:
    return [_NULL if value is None else _FLOAT.pack(8, value) for value in values]


def _texts(values: Sequence[str | None]) -> list[bytes]:
    return [
        _NULL if value is None else _PREFIX.pack(len(data := value.replace("\0", "\ufffd").encode())) + data
        for value in values
    ]


def _blobs(values: Sequence[bytes | None]) -> list[bytes]:
    return [_NULL if value is None else _PREFIX.pack(len(value)) + value for value in values]


class _Encoding(NamedTuple):
    """How the server reads a column: the oid of its elements, and these."""

    of: int
    elements: Callable[[Sequence[Any]], list[bytes]]
    # Makes bytes of one value alone, not as an array; not of None.
    single: Callable[[Any], bytes]
    # The beginning of an array with one element: most commits have one turn.
    head_of_one: bytes


_ENCODINGS: dict[type[Array], _Encoding] = {
    Bigints: _Encoding(20, _bigints, _SINGLE_BIGINT.pack, _head(20, 1)),
    Floats: _Encoding(701, _floats, _SINGLE_FLOAT.pack, _head(701, 1)),
    Texts: _Encoding(25, _texts, _text, _head(25, 1)),
    Blobs: _Encoding(17, _blobs, bytes, _head(17, 1)),
}


def encode(column: type[Array], values: Sequence[Any]) -> bytes:
    """The array of these values as the server reads it."""
    of, elements, _, head_of_one = _ENCODINGS[column]
    if not values:
        return struct.pack("!iiI", 0, 0, of)
    if len(values) == 1 and values[0] is not None:
        return head_of_one + elements(values)[0]
    return _HEAD.pack(1, None in values, of, len(values), 1) + b"".join(elements(values))


def arrays(columns: Columns, rows: Iterable[Sequence[Any]]) -> list[Any]:
    """The rows as one array for each column, encoded."""
    values = list(zip(*rows, strict=True)) or [()] * len(columns)
    return [encode(column, cells) for column, cells in zip(columns, values, strict=True)]


def singles(columns: Columns, row: Sequence[Any]) -> list[Any]:
    """Each cell of a row alone, encoded."""
    found: list[Any] = []
    for column, cell in zip(columns, row, strict=True):
        if column is Texts and cell is not None:
            # Written out: a row has several.
            found.append(cell.replace("\0", "\ufffd").encode())
        else:
            found.append(None if cell is None else _ENCODINGS[column].single(cell))
    return found
