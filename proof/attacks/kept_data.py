"""All that a store and a home keep of one project, byte for byte, read past the code that is attacked."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Collection, Iterator
from typing import Any

import psycopg
from psycopg import sql

from mulligan.service.home import DATABASE
from proof.stage import Stage

# Who holds the turn of a run is the business of workers, which come and go.
NOT_KEPT = {"holder", "fence"}
_SEQUENCE_BITS = 32
# By which words a run is found is written later, and has tables of its own in SQLite.
_SEARCH = ("run_words", "new_words")

Row = tuple[Any, ...]


class KeptData:
    """What a project has now, to be compared with what it has later: the runs that there are, and all its records.

    Those who belong to it go on meanwhile: new runs do not count, nor does what the audit says of their tokens.
    """

    def __init__(self, stage: Stage, project: str, run_ids: set[int], token_ids: Collection[str]) -> None:
        self._stage, self._project = stage, project
        self._tokens = ", ".join(f"'{one}'" for one in token_ids)
        self._run_ids = sorted(run_ids)
        self._first = self._read()

    def differences(self) -> Iterator[str]:
        """What is not as it was."""
        now = self._read()
        for what in sorted(self._first.keys() | now.keys()):
            before, after = self._first.get(what), now.get(what)
            if before != after:
                gone = [row for row in before or () if row not in (after or ())]
                new = [row for row in after or () if row not in (before or ())]
                yield f"other_data_is_kept: {what}: was {str(gone)[:500]}, is {str(new)[:500]}"

    def _read(self) -> dict[str, list[Row]]:
        url = self._stage.home.store_url
        found = self._read_postgres(url) if url else self._read_sqlite()
        return {**found, **dict(self._files())}

    # -- tables: every one, also those that a later version adds

    def _read_sqlite(self) -> dict[str, list[Row]]:
        ids = ", ".join(map(str, self._run_ids))
        with sqlite3.connect(f"file:{self._stage.home.folder / DATABASE}?mode=ro", uri=True, timeout=30) as database:
            try:
                names = [row[0] for row in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
                found = {}
                for table in sorted(name for name in names if not name.startswith(("sqlite_", *_SEARCH))):
                    columns = [row[1] for row in database.execute(f"SELECT * FROM pragma_table_info('{table}')")]
                    if table == "events":
                        where = f"id >> {_SEQUENCE_BITS} IN ({ids})"
                    else:
                        where = self._where(table, columns, ids, "record")
                    if where:
                        shown = ", ".join(f'"{one}"' for one in columns if one not in NOT_KEPT)
                        found[table] = sorted(
                            database.execute(f'SELECT {shown} FROM "{table}" WHERE {where}'),
                            key=repr,
                        )
                return found
            finally:
                database.rollback()

    def _read_postgres(self, url: str) -> dict[str, list[Row]]:
        ids = ", ".join(map(str, self._run_ids))
        with psycopg.connect(url) as connection:
            columns: dict[str, list[str]] = {}
            for table, column in connection.execute(
                "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = current_schema() "
                "AND table_name IN (SELECT tablename FROM pg_tables WHERE schemaname = current_schema()) "
                "ORDER BY table_name, ordinal_position"
            ).fetchall():
                columns.setdefault(table, []).append(column)
            found = {}
            for table, names in columns.items():
                where = self._where(table, names, ids, "convert_from(record, 'UTF8')")
                if where:
                    shown = sql.SQL(", ").join(sql.Identifier(one) for one in names if one not in NOT_KEPT)
                    query = sql.SQL("SELECT {} FROM {} WHERE {}").format(shown, sql.Identifier(table), sql.SQL(where))
                    found[table] = sorted((tuple(map(_plain, row)) for row in connection.execute(query)), key=repr)
            return found

    def _where(self, table: str, columns: list[str], ids: str, record: str) -> str:
        """Which rows of a table belong to the project; "" if none do."""
        if table in _SEARCH:
            return ""
        if table == "tokens":
            return f"""CAST({record} AS TEXT) LIKE '%"project":"{self._project}"%'"""
        if table == "audit":
            return f"project = '{self._project}' AND token_id NOT IN ({self._tokens})"
        if table == "workflows":
            return f"version IN (SELECT version FROM runs WHERE run_id IN ({ids}))"
        if table == "artifacts" and "name" in columns:
            return " OR ".join(f"name LIKE '{run_id}/%'" for run_id in self._run_ids)
        if table == "documents":
            # Links to log in, and notes of who reads logs, come and go.
            return f"project = '{self._project}' AND kind NOT IN ('login', 'log_watch')"
        if "run_id" in columns:
            return f"run_id IN ({ids})"
        return f"project = '{self._project}'" if "project" in columns else ""

    # -- files

    def _files(self) -> Iterator[tuple[str, list[Row]]]:
        """What lies in a folder that is called as a run is: logs, artifacts, inputs of steps."""
        home = self._stage.home.folder
        for run_id in self._run_ids:
            for folder in sorted(home.glob(f"*/{run_id}")):
                for path in sorted(folder.rglob("*")):
                    if path.is_file() and not path.is_symlink():
                        digest = hashlib.sha256(path.read_bytes()).hexdigest()
                        yield f"file {path.relative_to(home)}", [(oct(path.stat().st_mode), digest)]


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, memoryview) else value
