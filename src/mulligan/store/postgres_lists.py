"""Lists of runs and of work, from a PostgreSQL server."""

from __future__ import annotations

from collections.abc import Collection

from mulligan.core.effects.run_lists import Attribute, LeasedTask, OpenTasks, OpenTimer, RunFilter
from mulligan.ports import RunRecord
from mulligan.store.columns import attribute_from, leased_task_from, open_tasks_from, open_timer_from, run_from
from mulligan.store.encoding import micros
from mulligan.store.postgres_arrays import Bigints, Texts
from mulligan.store.postgres_client import PostgresClient

_NO_LIMIT = 2**63 - 1


class PostgresRunLists:
    def __init__(self, client: PostgresClient) -> None:
        self._client = client

    def find(self, wanted: RunFilter, *, limit: int, before: int | None = None) -> list[RunRecord]:
        rows = self._client.query(
            "find_runs",
            before=_NO_LIMIT if before is None else before,
            statuses=Texts(wanted.statuses),
            workflows=Texts(wanted.workflows),
            since=None if wanted.since is None else micros(wanted.since),
            until=None if wanted.until is None else micros(wanted.until),
            with_children=wanted.with_children,
            kinds=Texts(kind for kind, _, _ in wanted.attributes),
            names=Texts(name for _, name, _ in wanted.attributes),
            values=Texts(value for _, _, value in wanted.attributes),
            limit=limit,
        )
        return [run_from(row) for row in rows]

    def attributes(self, run_ids: Collection[int]) -> list[tuple[int, Attribute]]:
        return [attribute_from(row) for row in self._client.query("attributes", Bigints(run_ids))]

    def rows(self, run_ids: Collection[int], kind: str, limit: int) -> list[tuple[int, str, bytes]]:
        return self._client.query("rows_of_kind", Bigints(run_ids), kind, limit)

    def places(self, keys: Collection[tuple[int, str]]) -> list[tuple[int, str, bytes]]:
        run_ids, names = Bigints(run_id for run_id, _ in keys), Texts(key for _, key in keys)
        return self._client.query("places_at", run_ids, names)

    def open_tasks(self, root_run_ids: Collection[int]) -> list[OpenTasks]:
        return [open_tasks_from(row) for row in self._client.query("open_tasks", Bigints(root_run_ids))]

    def open_timers(self, root_run_ids: Collection[int]) -> list[OpenTimer]:
        return [open_timer_from(row) for row in self._client.query("open_timers", Bigints(root_run_ids))]

    def leased_tasks(self) -> list[LeasedTask]:
        return [leased_task_from(row) for row in self._client.query("leased_tasks")]

    def holders(self) -> list[tuple[str, int, int]]:
        return [(name, count, run_id) for name, count, run_id in self._client.query("holders")]
