"""Quick reads for shell completion: they create nothing, change nothing, and wait for no lock.

Errors of the database driver are raised as they are: completion shows nothing then.
"""

from __future__ import annotations

import os
from typing import Any

import apsw

from mulligan.store.kinds import kind_of
from mulligan.store.read_only import is_read_only

# The smallest value that libpq accepts.
_CONNECT_SECONDS = 2

# The same text for both dialects. '?' is a parameter.
_RUNS = "SELECT run_id, workflow, status FROM runs WHERE parent_run_id IS NULL ORDER BY run_id DESC LIMIT ?"
_DEFINITION = (
    "SELECT w.body FROM runs r JOIN workflows w ON w.version IN (r.version, '@' || r.project || '/' || r.version) "
    "WHERE r.run_id = ? ORDER BY length(w.version) DESC LIMIT 1"
)
_NAMES = {
    "breakers": "SELECT name FROM breakers ORDER BY name LIMIT ?",
    "workers": "SELECT name FROM workers ORDER BY name LIMIT ?",
    "workflows": "SELECT DISTINCT workflow FROM runs ORDER BY workflow LIMIT ?",
}


def newest_runs(where: str, limit: int) -> list[tuple[int, str, str]]:
    """Id, workflow and status of the newest runs without a parent, newest first."""
    return _rows(where, _RUNS, limit)


def definition(where: str, run_id: int) -> bytes:
    """The stored workflow of a run; empty if there is no such run."""
    found = _rows(where, _DEFINITION, run_id)
    return bytes(found[0][0]) if found else b""


def names(where: str, what: str, limit: int) -> list[str]:
    """The names of all 'breakers', 'workers' or 'workflows' in the store."""
    return [name for (name,) in _rows(where, _NAMES[what], limit)]


def _rows(where: str, sql: str, value: int) -> list[Any]:
    read = _READERS.get(kind_of(where).dialect or "")
    # A server is not asked: completion must not wait for a network.
    return [] if read is None else read(where, sql, value)


def _file_rows(path: str, sql: str, value: int) -> list[Any]:

    if not os.path.isfile(path):
        return []
    from mulligan.store.sqlite.sqlite_read_only import connect_to_read

    db = connect_to_read(path)[0] if is_read_only(path) else apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
    try:
        # The file may come from someone else: its schema must not call functions with side effects.
        db.execute("PRAGMA trusted_schema = OFF")
        return db.execute(sql, (value,)).fetchall()
    finally:
        db.close()


def _server_rows(url: str, sql: str, value: int) -> list[Any]:

    name = "mulligan completion"
    import psycopg

    with psycopg.connect(url, autocommit=True, connect_timeout=_CONNECT_SECONDS, application_name=name) as connection:
        connection.read_only = True
        return list(connection.execute(sql.replace("?", "%s"), (value,)).fetchall())


_READERS = {"sqlite": _file_rows, "postgres": _server_rows}
