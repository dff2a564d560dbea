"""Columns of a batch, each of one type: PostgreSQL is given them as arrays, SQLite row by row or as a list in JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


class Array:
    """Values of one column."""

    def __init__(self, values: Iterable[Any]) -> None:
        self.values: Sequence[Any] = values if isinstance(values, list) else list(values)


class Bigints(Array): ...


class Floats(Array): ...


class Texts(Array): ...


class Blobs(Array): ...


# The types of the columns of a row.
Columns = Sequence[type[Array]]
