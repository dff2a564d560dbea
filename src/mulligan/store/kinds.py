"""The kinds of store: how the addresses of each begin, what users call it, and which class opens it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from mulligan.store.statements import Dialect


class StoreKind(msgspec.Struct, frozen=True):
    """One kind of store. A new kind needs an entry in `KINDS`, a class, SQL, and a reader for shell completion."""

    label: str
    # The name of its SQL file and of its folder of migrations; None for a store that another process opens.
    dialect: Dialect | None
    module: str
    class_name: str
    # How its addresses begin. A kind without any is the path of a file.
    schemes: tuple[str, ...] = ()
    # What `pip install 'mulligan[…]'` needs for its driver.
    extra: str = ""


SQLITE = StoreKind(label="SQLite", dialect="sqlite", module="mulligan.store.sqlite.sqlite", class_name="SqliteStore")
POSTGRES = StoreKind(
    label="PostgreSQL",
    dialect="postgres",
    module="mulligan.store.postgres.postgres",
    class_name="PostgresStore",
    schemes=("postgresql://", "postgres://"),
    extra="postgres",
)
HTTP = StoreKind(
    label="HTTP",
    dialect=None,
    module="mulligan.store.http.http_store",
    class_name="HttpStore",
    schemes=("https://", "http://"),
)
KINDS = (POSTGRES, HTTP, SQLITE)


def kind_of(where: str) -> StoreKind:
    """The kind of store that an address names: by its scheme, otherwise a file."""
    return next((kind for kind in KINDS if where.startswith(kind.schemes)), SQLITE)
