"""Loads the SQL files of the stores: statements by name, migrations by number."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

from mulligan.errors import StoreOvertaken

Dialect = Literal["sqlite", "postgres"]

_HERE = Path(__file__).parent
_FILES: dict[Dialect, tuple[str, ...]] = {
    "sqlite": ("sqlite.sql", "sqlite_server.sql"),
    "postgres": ("postgres.sql", "postgres_server.sql"),
}


# The migration after which the runs that are there already have to be read: `backfill`.
SEARCH = 7
# The function that a process must have to work on an SQLite file: the last migration that older ones cannot work beside
# names it in triggers. A process without it ends with its name as the error.
SQLITE_NEEDED = "a newer Mulligan has migrated it (schema 13); start this again with the newer version"


class Migration(NamedTuple):
    """One step of the schema. It is applied in the transaction that records its number."""

    number: int
    sql: str


def statements(dialect: Dialect) -> dict[str, str]:
    """The statements of the dialect, by the name in the line `-- name: …` above each."""
    text = "".join((_HERE / "sql" / name).read_text(encoding="utf-8") for name in _FILES[dialect])
    without_notes = re.sub(r"^--(?! name: ).*\n", "", text, flags=re.MULTILINE)
    _, *parts = re.split(r"^-- name: (\w+)\n", without_notes, flags=re.MULTILINE)
    return {name: sql.strip() for name, sql in zip(parts[::2], parts[1::2], strict=True)}


@cache
def migrations(dialect: Dialect) -> tuple[Migration, ...]:
    """All migrations of this version of the program, in order."""
    return tuple(Migration(number, path.read_text(encoding="utf-8")) for number, path in _paths(dialect))


def newest(dialect: Dialect) -> int:
    """The schema of a store that this version of the program has migrated."""
    return _paths(dialect)[-1][0]


@cache
def _paths(dialect: Dialect) -> list[tuple[int, Path]]:
    names = sorted(os.listdir(_HERE / "migrations" / dialect))
    return [(int(name.split("_")[0]), _HERE / "migrations" / dialect / name) for name in names if name.endswith(".sql")]


def missing(dialect: Dialect, found: int, where: str) -> list[Migration]:
    """The migrations that a store at version `found` still needs. `StoreOvertaken` if it is newer than this program."""
    last = newest(dialect)
    if found > last:
        raise StoreOvertaken(
            f"{where} was written by a newer Mulligan (schema {found}, this one knows up to {last})",
            hint="use the Mulligan that wrote it, or a newer one",
        )
    # Nearly always there is none: then no file is read.
    return [] if found == last else [migration for migration in migrations(dialect) if migration.number > found]
