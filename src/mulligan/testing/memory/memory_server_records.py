"""What a server keeps in a store in memory beside the runs: in tables of SQLite, which are in memory too."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from pathlib import Path

import apsw

from mulligan.ports import Answer, TableSize
from mulligan.store.sql.sql_arrays import Bigints
from mulligan.store.sql.sql_server_records import SqlServerRecords
from mulligan.store.sqlite.sqlite_file import SqliteFile

_BUSY_SECONDS = 5.0


class MemoryServerRecords(SqlServerRecords):
    """Several memory stores share one of it. `answers` are those of the runs, which are in dicts."""

    def __init__(self, answers: dict[int, Answer]) -> None:
        file = _MemoryFile(Path("records"), _BUSY_SECONDS, "memdb")
        super().__init__(file)
        self.connection = file.connection
        self._answers = answers

    def newest_answer(self) -> int:
        return max(self._answers, default=0)

    def remove_answers(self, up_to: int, limit: int) -> int:
        gone = sorted(one for one in self._answers if one <= up_to)[:limit]
        for one in gone:
            del self._answers[one]
        return len(gone)

    def table_sizes(self) -> list[TableSize]:
        return []

    def remove_with_runs(self, run_ids: Collection[int]) -> None:
        """Remove the logs and notices of runs. What waits is sent all the same."""
        wanted = [Bigints(run_ids)]
        self._db.execute_batch([("remove_notices_of_runs", wanted), ("remove_log_chunks", wanted)])


class _MemoryFile(SqliteFile):
    def _connect(self, vfs: str) -> apsw.Connection:
        connection = super()._connect(vfs)
        # To copy the tables takes a tenth of the time of creating them.
        connection.deserialize("main", _empty_tables())
        return connection


@cache
def _empty_tables() -> bytes:
    return SqliteFile(Path("empty"), _BUSY_SECONDS, "memdb").connection.serialize("main")
