"""How much a query may cost."""

from __future__ import annotations

import math

import msgspec

MEBIBYTE = 1 << 20


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounds of one query. Rows and bytes beyond theirs are cut off; beyond the others the query fails."""

    seconds: float = 10.0
    # What the process of the query may use. A PostgreSQL server has limits of its own.
    memory_bytes: int = 512 * MEBIBYTE
    rows: int = 1000
    result_bytes: int = 16 * MEBIBYTE
    # Rows that are looked at, by the estimate of SQLite and DuckDB; PostgreSQL's own unit of cost.
    cost: float = 50_000_000
    # Of the statement as it is written.
    statement_chars: int = 20_000
    nodes: int = 2_000
    tables: int = 12
    # Distinct values of a column that are read for the schema, and how many rows are looked at for them.
    sample_values: int = 20
    sample_rows: int = 10_000

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if not math.isfinite(value):
                raise ValueError(f"limit '{name}' must be a number")
            if value < 0 or (value == 0 and name not in _MAY_BE_ZERO):
                raise ValueError(f"limit '{name}' must be more than 0")


_MAY_BE_ZERO = frozenset({"sample_values", "sample_rows"})
