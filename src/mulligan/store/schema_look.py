"""Reads which schema a store has, and its workers, without migrating it: `doctor` says what to open it would do."""

from __future__ import annotations

import os
import time
from typing import Any

import apsw
import msgspec

from mulligan.errors import CodecError
from mulligan.ports import WorkerRecord
from mulligan.store.encoding import worker_from
from mulligan.store.kinds import kind_of
from mulligan.store.read_only import is_read_only
from mulligan.store.statements import newest

_CONNECT_SECONDS = 5
# Not `now_micros()`: that of a newer store refuses us.
_NOW = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"


class StoreSchema(msgspec.Struct, frozen=True):
    """The schema of a store, that of a store which this version has migrated, and the workers that it knows."""

    found: int
    known: int
    workers: tuple[WorkerRecord, ...] = ()

    @property
    def is_older(self) -> bool:
        """Whether opening the store migrates it."""
        return 0 < self.found < self.known


def look_at_schema(where: str, lease_seconds: float) -> StoreSchema | None:
    """The schema of a store, 0 if it has no tables. None if that cannot be read: to open it says why."""
    dialect = kind_of(where).dialect
    if dialect is None:
        return None
    known, lease = newest(dialect), round(lease_seconds * 1_000_000)
    try:
        found, rows = _READERS[dialect](where, lease)
        workers = [msgspec.structs.replace(worker_from(bytes(data)), is_expired=bool(late)) for data, late in rows]
    except (_CannotBeRead, CodecError):
        return None
    return StoreSchema(found, known, tuple(workers))


class _CannotBeRead(Exception):
    pass


def _look_at_file(path: str, lease: int) -> tuple[int, list[Any]]:
    if not os.path.isfile(path):
        return 0, []
    try:
        from mulligan.store.sqlite.sqlite_read_only import connect_to_read

        db = connect_to_read(path)[0] if is_read_only(path) else apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            # The file may come from someone else: its schema must not call functions with side effects.
            db.execute("PRAGMA trusted_schema = OFF")
            found = db.pragma("user_version")
            since = time.time_ns() // 1000 - lease
            rows = db.execute("SELECT record, beat_at < ? FROM workers ORDER BY name", (since,)) if found else ()
            return found, list(rows)
        finally:
            db.close()
    except apsw.Error as error:
        raise _CannotBeRead from error


def _look_at_server(url: str, lease: int) -> tuple[int, list[Any]]:
    try:
        import psycopg

    except ImportError as error:
        raise _CannotBeRead from error
    try:
        with psycopg.connect(url, autocommit=True, connect_timeout=_CONNECT_SECONDS) as connection:
            connection.read_only = True
            if connection.execute("SELECT to_regclass('schema_version')").fetchone() == (None,):
                return 0, []
            [(found,)] = connection.execute("SELECT version FROM schema_version").fetchall()
            late = f"SELECT record, beat_at < {_NOW} - %s FROM workers ORDER BY name"
            return found, connection.execute(late, [lease]).fetchall()
    except (psycopg.Error, ValueError) as error:
        raise _CannotBeRead from error


_READERS = {"sqlite": _look_at_file, "postgres": _look_at_server}
