"""Lists of runs and of work, from the SQLite file."""

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
from mulligan.store.encoding import encoded, micros
from mulligan.store.run_search import NEAR_RUNS, search
from mulligan.store.sqlite.sqlite_file import SqliteFile
from mulligan.store.sqlite.sqlite_sequence import SQL

# The longest beginning of a word that the full-text index has as such: `prefix` of its table.
_BEGINNING_CHARS_MAX = 4


class SqliteRunLists:
    def __init__(self, file: SqliteFile) -> None:
        self._file = file

    def find(self, wanted: RunFilter, *, limit: int, before: int | None = None) -> list[RunRecord]:
        return self.records(search(self, wanted, limit=limit, before=before))

    def records(self, run_ids: Collection[int]) -> list[RunRecord]:
        return [run_from(row) for row in self._file.read(SQL["runs_with_ids"], _array(run_ids))] if run_ids else []

    def count(self, wanted: RunFilter, *, limit: int) -> int:
        return len(search(self, wanted, limit=limit))

    def status_counts(self, project: str | None = None) -> dict[str, int]:
        if project is None:
            return dict(self._file.read(SQL["status_counts"]))
        return dict(self._file.read(SQL["status_counts_of_project"], project))

    def outcome_counts(self, since: datetime, until: datetime, project: str | None = None) -> list[OutcomeCount]:
        rows = self._file.read(SQL["outcome_counts"], micros(since), micros(until), project)
        return [OutcomeCount(workflow, status, bool(degraded), count) for workflow, status, degraded, count in rows]

    def projects(self) -> list[str]:
        return [project for (project,) in self._file.read(SQL["projects"])]

    def candidates(self, source: str, value: tuple[Any, ...], before: int, after: int, limit: int) -> list[int]:
        if source == "candidates_by_words":
            return self._candidates_by_words(value, before, after, limit)
        return [run_id for (run_id,) in self._file.read(SQL[source], before, after, limit, *value)]

    def _candidates_by_words(self, words: tuple[str, ...], before: int, after: int, limit: int) -> list[int]:
        """The newest runs are not in the index yet. They are asked first: meanwhile they may be moved there."""
        newest = self._file.read(SQL["candidates_by_new_words"], before, after, limit, _array(words))
        if newest:
            before = newest[-1][0]
        missing = limit - len(newest)
        older = self._candidates_by_index(words, before, after, missing) if missing else []
        return [run_id for (run_id,) in newest] + older

    def _candidates_by_index(self, words: tuple[str, ...], before: int, after: int, limit: int) -> list[int]:
        """Beginnings of words are in the index, so the newest runs with them come first; whole words are not."""
        beginnings = _match(word[:_BEGINNING_CHARS_MAX] for word in words)
        if all(len(word) <= _BEGINNING_CHARS_MAX for word in words):
            rows = self._file.read(SQL["candidates_by_words"], before, after, limit, beginnings)
        else:
            asked = (before, after, limit, beginnings, NEAR_RUNS, _array(words))
            rows = self._file.read(SQL["candidates_by_words_near"], *asked)
            if len(rows) < limit:
                rows = self._file.read(SQL["candidates_by_words"], before, after, limit, _match(words))
        return [run_id for (run_id,) in rows]

    def matching(self, wanted: RunFilter, run_ids: Collection[int]) -> list[int]:
        # First what is found in the fewest pages: entries of one value stand together, rows of runs are spread.
        found, name = list(run_ids), "runs_with_attribute" if wanted.with_children else "top_runs_with_attribute"
        for attribute in wanted.attributes:
            found = self._ids(name, found, *attribute)
        if wanted.failure_codes:
            found = self._ids("runs_with_failure", found, _array(wanted.failure_codes))
        found = self._ids(
            "matching_runs",
            found,
            _array(wanted.statuses),
            _array(wanted.workflows),
            None if wanted.since is None else micros(wanted.since),
            None if wanted.until is None else micros(wanted.until),
            wanted.with_children,
            _array(wanted.starters),
            wanted.project,
        )
        return self._ids("runs_with_words", found, _array(wanted.words)) if wanted.words else found

    def _ids(self, statement: str, run_ids: Collection[int], *params: Any) -> list[int]:
        """Those of these runs that the statement finds, the newest first."""
        if not run_ids:
            return []
        return [run_id for (run_id,) in self._file.read(SQL[statement], _array(run_ids), *params)]

    def time_bounds(self, since: datetime | None, until: datetime | None) -> tuple[int | None, int | None]:
        times = (None if since is None else micros(since), None if until is None else micros(until))
        ((highest, lowest),) = self._file.read(SQL["time_bounds"], *times)
        return highest, lowest

    def attributes(self, run_ids: Collection[int]) -> list[tuple[int, Attribute]]:
        return [attribute_from(row) for row in self._file.read(SQL["attributes"], _array(run_ids))]

    def rows(self, run_ids: Collection[int], kind: str, limit: int) -> list[tuple[int, str, bytes]]:
        return [kept_row(row) for row in self._file.read(SQL["rows_of_kind"], _array(run_ids), kind, limit)]

    def places(self, keys: Collection[tuple[int, str]]) -> list[tuple[int, str, bytes]]:
        return [kept_row(row) for row in self._file.read(SQL["places_at"], _array(keys))]

    def open_tasks(self, root_run_ids: Collection[int]) -> list[OpenTasks]:
        return [open_tasks_from(row[:-1]) for row in self._file.read(SQL["open_tasks"], _array(root_run_ids))]

    def open_timers(self, root_run_ids: Collection[int]) -> list[OpenTimer]:
        return [open_timer_from(row) for row in self._file.read(SQL["open_timers"], _array(root_run_ids))]

    def leased_tasks(self) -> list[LeasedTask]:
        return [leased_task_from(row) for row in self._file.read(SQL["leased_tasks"])]

    def holders(self) -> list[tuple[str, int, int]]:
        return [(name, count, run_id) for name, count, run_id in self._file.read(SQL["holders"])]


def _match(words: Iterable[str]) -> str:
    """The query of the full-text index for runs that have a word beginning with each of these."""
    return " ".join(f'"{word}"*' for word in words)


def _array(values: Collection[object]) -> str:
    return encoded(list(values)).decode()
