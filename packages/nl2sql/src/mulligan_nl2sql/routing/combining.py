"""Which results are one table. Nothing is added up or compared: a reader must see which database a row is from."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

DATABASE_COLUMN = "database"


class ScanColumns(msgspec.Struct, frozen=True):
    """The columns of a scan that was executed."""

    number: int
    database: str
    question: str
    columns: tuple[str, ...]


class ResultTable(msgspec.Struct, frozen=True, omit_defaults=True):
    """The rows of these scans, one below the other."""

    scans: tuple[int, ...]
    columns: tuple[str, ...]
    # The first column, which says which database a row is from; empty: all are from one scan.
    database_column: str = ""


def combine(scans: Sequence[ScanColumns]) -> tuple[ResultTable, ...]:
    """One table of scans that asked different databases the same question and got the same columns."""
    groups: dict[tuple[str, tuple[str, ...]], list[ScanColumns]] = {}
    for scan in scans:
        groups.setdefault((" ".join(scan.question.casefold().split()), scan.columns), []).append(scan)
    tables: list[ResultTable] = []
    for (_, columns), members in groups.items():
        if len(members) > 1 and len({one.database for one in members}) == len(members):
            label = _free_name(columns)
            tables.append(ResultTable(tuple(one.number for one in members), (label, *columns), label))
        else:
            tables += [ResultTable((one.number,), columns) for one in members]
    return tuple(sorted(tables, key=lambda table: table.scans))


def _free_name(columns: Sequence[str]) -> str:
    name = DATABASE_COLUMN
    while name in columns:
        name = f"_{name}"
    return name
