"""Lists of runs and of work, from a database."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Any

from mulligan.core.effects.run_lists import Attribute, LeasedTask, OpenTasks, OpenTimer, OutcomeCount, RunFilter
from mulligan.ports import RunRecord
from mulligan.store.columns import (
    attribute_from,
    kept_row,
    leased_task_from,
    open_tasks_from,
    open_timer_from,
    run_from,
)
from mulligan.store.encoding import micros
from mulligan.store.run_filters import Lookup, Words, lookups, micros_or_none, parameters
from mulligan.store.run_search import search
from mulligan.store.sql.sql_arrays import Bigints
from mulligan.store.sql.sql_database import SqlDatabase


class SqlRunLists:
    def __init__(self, database: SqlDatabase) -> None:
        self._db = database

    # -- what differs

    def _candidates_by_words(self, words: tuple[str, ...], before: int, after: int, limit: int) -> list[int]:
        raise NotImplementedError

    def _words(self, words: tuple[str, ...]) -> Any:
        """These words as the statement takes them that looks for them in given runs."""
        raise NotImplementedError

    def _places(self, keys: Collection[tuple[int, str]]) -> list[Any]:
        raise NotImplementedError

    # -- runs

    def find(self, wanted: RunFilter, *, limit: int, before: int | None = None) -> list[RunRecord]:
        return self.records(search(self, wanted, limit=limit, before=before))

    def records(self, run_ids: Collection[int]) -> list[RunRecord]:
        return [run_from(row) for row in self._db.query("runs_with_ids", Bigints(run_ids))] if run_ids else []

    def count(self, wanted: RunFilter, *, limit: int) -> int:
        return len(search(self, wanted, limit=limit))

    def status_counts(self, project: str | None = None) -> dict[str, int]:
        if project is None:
            return dict(self._db.query("status_counts"))
        return dict(self._db.query("status_counts_of_project", project))

    def outcome_counts(self, since: datetime, until: datetime, project: str | None = None) -> list[OutcomeCount]:
        rows = self._db.query("outcome_counts", since=micros(since), until=micros(until), project=project)
        return [OutcomeCount(workflow, status, bool(degraded), count) for workflow, status, degraded, count in rows]

    def projects(self) -> list[str]:
        return [project for (project,) in self._db.query("projects")]

    def candidates(self, source: str, params: dict[str, Any], before: int, after: int, limit: int) -> list[int]:
        if source == "candidates_by_words":
            return self._candidates_by_words(params["words"], before, after, limit)
        rows = self._db.query(source, **params, before=before, after=after, limit=limit)
        return [run_id for (run_id,) in rows]

    def matching(self, wanted: RunFilter, run_ids: Collection[int]) -> list[int]:
        # First what is found in the fewest pages: entries of one value stand together, rows of runs are spread.
        found = self._looked_up(run_ids, lookups(wanted, is_slow=False))
        if found:
            rows = self._db.query("matching_runs", run_ids=Bigints(found), **parameters(wanted))
            found = [run_id for (run_id,) in rows]
        return self._looked_up(found, lookups(wanted, is_slow=True))

    def _looked_up(self, run_ids: Collection[int], asked: Iterable[Lookup]) -> list[int]:
        """Those of these runs that all these statements find, the newest first if one was asked."""
        found = list(run_ids)
        for statement, params in asked:
            if found:
                given = [self._words(one) if isinstance(one, Words) else one for one in params]
                found = [run_id for (run_id,) in self._db.query(statement, Bigints(found), *given)]
        return found

    def time_bounds(self, since: datetime | None, until: datetime | None) -> tuple[int | None, int | None]:
        ((highest, lowest),) = self._db.query("time_bounds", since=micros_or_none(since), until=micros_or_none(until))
        return highest, lowest

    def attributes(self, run_ids: Collection[int]) -> list[tuple[int, Attribute]]:
        return [attribute_from(row) for row in self._db.query("attributes", Bigints(run_ids))]

    def rows(self, run_ids: Collection[int], kind: str, limit: int) -> list[tuple[int, str, bytes]]:
        return [kept_row(row) for row in self._db.query("rows_of_kind", Bigints(run_ids), kind, limit)]

    def places(self, keys: Collection[tuple[int, str]]) -> list[tuple[int, str, bytes]]:
        return [kept_row(row) for row in self._places(keys)]

    # -- work

    def open_tasks(self, root_run_ids: Collection[int]) -> list[OpenTasks]:
        # SQLite has one more column, by which it chooses the row.
        return [open_tasks_from(row[:7]) for row in self._db.query("open_tasks", Bigints(root_run_ids))]

    def open_timers(self, root_run_ids: Collection[int]) -> list[OpenTimer]:
        return [open_timer_from(row) for row in self._db.query("open_timers", Bigints(root_run_ids))]

    def leased_tasks(self) -> list[LeasedTask]:
        return [leased_task_from(row) for row in self._db.query("leased_tasks")]

    def holders(self) -> list[tuple[str, int, int]]:
        return [(name, count, run_id) for name, count, run_id in self._db.query("holders")]
