"""Loads the SQL files of the stores: statements by name, migrations by number."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from mulligan.errors import StoreOvertaken
from mulligan.store.columns import RUN_COLUMNS
from mulligan.store.run_filters import CONDITIONS

Dialect = Literal["sqlite", "postgres"]

_HERE = Path(__file__).parent
_SHARED = "shared"
# How a database says what the shared statements, written for PostgreSQL, say in another way: patterns and templates.
_WORDS: dict[Dialect, tuple[tuple[str, str], ...]] = {
    "postgres": ((r" INDEXED BY \w+", ""), (r"CROSS (JOIN \w+(?: \w+)? (?:ON|USING)\b)", r"\1")),
    "sqlite": (
        # An array is a list in JSON; the rows of a batch are given one by one.
        (r"= ANY ?\((%s|%\(\w+\)s)::\w+\[\]\)", r"IN (SELECT value FROM json_each(\1))"),
        (r"cardinality\((%\(\w+\)s)::\w+\[\]\) = 0", r"\1 = '[]'"),
        (r"SELECT \* FROM unnest(\([^)]*\))", r"VALUES \1"),
        (r"''::bytea", "x''"),
        (r"::\w+(\[\])?", ""),
        # One transaction writes at a time.
        (r" FOR UPDATE( OF \w+)?( SKIP LOCKED)?", ""),
        (r' COLLATE "C"', ""),
        (r"now_micros\(\)", ":now"),
        (r"%\((\w+)\)s", r":\1"),
        (r"%s", "?"),
    ),
}


# The migration after which the runs that are there already have to be read: `backfill`.
SEARCH = 7
# The function that a process must have to work on an SQLite file: the last migration that older ones cannot work beside
# names it in triggers. A process without it ends with its name as the error.
SQLITE_NEEDED = "a newer Mulligan has migrated it (schema 13); start this again with the newer version"


class Migration(msgspec.Struct, frozen=True):
    """One step of the schema. It is applied in the transaction that records its number."""

    number: int
    sql: str


def statements(dialect: Dialect) -> dict[str, str]:
    """The statements of the dialect, by the name in the line `-- name: …` above each."""
    shared, own = ((_HERE / "sql" / f"{name}.sql").read_text(encoding="utf-8") for name in (_SHARED, dialect))
    shared = shared.replace("{filters}", CONDITIONS).replace("{run_columns}", ", ".join(RUN_COLUMNS))
    for pattern, template in _WORDS[dialect]:
        shared = re.sub(pattern, template, shared)
    # Without regular expressions: a command reads more than a thousand lines before it does anything.
    _, *parts = f"{shared}\n{own}".split("-- name: ")
    named = (part.partition("\n") for part in parts)
    return {name: _without_notes(sql) for name, _, sql in named}


def _without_notes(sql: str) -> str:
    return (
        "\n".join(line for line in sql.split("\n") if not line.startswith("--")).strip()
        if "\n--" in sql
        else sql.strip()
    )


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
