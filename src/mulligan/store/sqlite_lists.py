"""Lists of runs and of work, from the SQLite file."""

from __future__ import annotations

from collections.abc import Collection

from mulligan.core.effects.run_lists import Attribute, LeasedTask, OpenTasks, OpenTimer, RunFilter
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
from mulligan.store.sqlite_file import SqliteFile
from mulligan.store.sqlite_tickets import SQL

_NO_LIMIT = 2**63 - 1


class SqliteRunLists:
    def __init__(self, file: SqliteFile) -> None:
        self._file = file

    def find(self, wanted: RunFilter, *, limit: int, before: int | None = None) -> list[RunRecord]:
        rows = self._file.read(
            SQL["find_runs"],
            _NO_LIMIT if before is None else before,
            _array(wanted.statuses),
            _array(wanted.workflows),
            None if wanted.since is None else micros(wanted.since),
            None if wanted.until is None else micros(wanted.until),
            wanted.with_children,
            _array(wanted.attributes),
            limit,
        )
        return [run_from(row) for row in rows]

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


def _array(values: Collection[object]) -> str:
    return encoded(list(values)).decode()
