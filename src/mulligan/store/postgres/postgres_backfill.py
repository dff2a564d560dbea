"""Fills in what runs are found by, on a PostgreSQL server that an older release has written to."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from mulligan.store.backfill import FilledRun, StoredRun, backfill_search
from mulligan.store.postgres.postgres_arrays import Bigints, Texts
from mulligan.store.postgres.postgres_commit import arrays


def backfill(execute: Callable[..., list[Any]]) -> None:
    """To be called in the transaction of the migration."""
    backfill_search(_Tables(execute))


class _Tables:
    def __init__(self, execute: Callable[..., list[Any]]) -> None:
        self._execute = execute

    def stored_runs(self, after: int, limit: int) -> list[StoredRun]:
        return [StoredRun(*row) for row in self._execute("stored_runs", after, limit)]

    def stored_attributes(self, run_ids: Collection[int]) -> list[tuple[int, str, str, str]]:
        return self._execute("stored_attributes", Bigints(run_ids))

    def stored_failures(self, run_ids: Collection[int]) -> list[tuple[int, bytes]]:
        return self._execute("stored_failures", Bigints(run_ids))

    def fill(self, runs: Iterable[FilledRun]) -> None:
        filled = list(runs)
        starters = [(run.run_id, run.started_by) for run in filled]
        self._execute("fill_starters", *arrays((Bigints, Texts), starters))
        codes = [(run.run_id, "failure", code, "") for run in filled for code in run.failures.codes]
        self._execute("insert_attributes", *arrays((Bigints, Texts, Texts, Texts), codes))
        listed = [run for run in filled if not run.is_child]
        words = [(run.run_id, run.start_words, run.input_words) for run in listed]
        self._execute("insert_words", *arrays((Bigints, Texts, Texts), words))
        failed = [(run.run_id, run.failures.words) for run in listed if run.failures.words]
        self._execute("set_failure_words", *arrays((Bigints, Texts), failed))
