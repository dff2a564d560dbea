"""Stores: SQLite, PostgreSQL, memory. All make the promises of `mulligan.ports.Store`."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import cast

from ..errors import StoreRefused
from ..ports import Clock, Store

MEMORY = "memory:"


def open_store(where: str | Path, *, clock: Clock | None = None, lease_seconds: float = 30.0) -> Store:
    """Open the store that `where` names: a `postgresql://` URL, `memory:`, or the path of an SQLite file.

    Only the one that is opened is imported: a driver for a database that nobody uses costs start-up time.
    """
    scheme, has_scheme, _ = str(where).partition("://")
    if has_scheme and scheme not in ("postgresql", "postgres"):
        raise StoreRefused(
            f"'{scheme}' is no kind of store", hint="use a 'postgresql://' URL, or the path of an SQLite file"
        )
    if has_scheme:
        return cast(Store, _class("postgres", "PostgresStore")(str(where), lease_seconds=lease_seconds))
    if str(where) == MEMORY:
        return cast(Store, _class("memory", "MemoryStore")(clock=clock, lease_seconds=lease_seconds))
    return cast(Store, _class("sqlite", "SqliteStore")(where, clock=clock, lease_seconds=lease_seconds))


def _class(module: str, name: str) -> type:
    found: type = getattr(import_module(f"{__name__}.{module}"), name)
    return found
