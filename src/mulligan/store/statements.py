"""The SQL of the stores, which stands in files: statements by name, and migrations by number."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal, NamedTuple

from ..errors import StoreRefused

Dialect = Literal["sqlite", "postgres"]

_HERE = Path(__file__).parent


class Migration(NamedTuple):
    """One step of the schema, to be applied in a transaction with its number."""

    number: int
    sql: str


def statements(dialect: Dialect) -> dict[str, str]:
    """The dialect's statements, each under the name on the line `-- name: …` above it."""
    text = (_HERE / "sql" / f"{dialect}.sql").read_text(encoding="utf-8")
    without_notes = re.sub(r"^--(?! name: ).*\n", "", text, flags=re.MULTILINE)
    _, *parts = re.split(r"^-- name: (\w+)\n", without_notes, flags=re.MULTILINE)
    return {name: sql.strip() for name, sql in zip(parts[::2], parts[1::2], strict=True)}


def migrations(dialect: Dialect) -> list[Migration]:
    """Every step that this version of the program knows, in order."""
    paths = sorted((_HERE / "migrations" / dialect).glob("*.sql"))
    return [Migration(int(path.name.split("_")[0]), path.read_text(encoding="utf-8")) for path in paths]


def missing(dialect: Dialect, found: int, where: str) -> list[Migration]:
    """What a store at version `found` still needs; one that is ahead of this program is refused."""
    known = migrations(dialect)
    if found > known[-1].number:
        raise StoreRefused(
            f"{where} was written by a newer Mulligan (schema {found}, this one knows up to {known[-1].number})",
            hint="use the Mulligan that wrote it, or a newer one",
        )
    return [migration for migration in known if migration.number > found]
