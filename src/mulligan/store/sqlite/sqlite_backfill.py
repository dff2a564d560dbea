"""Fills in what runs are found by, in an SQLite file that an older release has written."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import apsw

from mulligan.store.backfill import FilledRun, StoredRun, backfill_search
from mulligan.store.encoding import encoded
from mulligan.store.statements import statements

# Not those of `sqlite_sequence`, which imports the file that calls this module.
SQL = statements("sqlite")


def backfill(db: apsw.Cursor) -> None:
    """To be called in the transaction of the migration."""
    backfill_search(_Tables(db))


class _Tables:
    def __init__(self, db: apsw.Cursor) -> None:
        self._db = db

    def _rows(self, name: str, *params: Any) -> list[Any]:
        return self._db.execute(SQL[name], params).fetchall()

    def stored_runs(self, after: int, limit: int) -> list[StoredRun]:
        rows = self._rows("stored_runs", after, limit)
        return [
            StoredRun(run_id, name, bool(failed), bool(child), first) for run_id, name, failed, child, first in rows
        ]

    def stored_attributes(self, run_ids: Collection[int]) -> list[tuple[int, str, str, str]]:
        return self._rows("stored_attributes", _array(run_ids))

    def stored_failures(self, run_ids: Collection[int]) -> list[tuple[int, bytes]]:
        return self._rows("stored_failures", _array(run_ids))

    def fill(self, runs: Iterable[FilledRun]) -> None:
        filled = list(runs)
        self._db.executemany(SQL["fill_starter"], [(run.run_id, run.started_by) for run in filled])
        codes = [(run.run_id, "failure", code, "") for run in filled for code in run.failures.codes]
        self._db.executemany(SQL["insert_attribute"], codes)
        words = [
            (run.run_id, run.start_words, run.input_words, run.failures.words) for run in filled if not run.is_child
        ]
        self._db.executemany(SQL["fill_words"], words)


def _array(values: Collection[int]) -> str:
    return encoded(list(values)).decode()
