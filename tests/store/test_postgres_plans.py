"""How PostgreSQL finds runs, once it knows what is in its tables and plans for any values."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mulligan.core.effects.run_lists import RunFilter
from mulligan.store.postgres.postgres import PostgresStore
from mulligan.store.postgres.postgres_pipeline import _numbered

# All runs have ended; all but one are of one workflow and were started by one user.
FILL = (
    "INSERT INTO runs (run_id, workflow, version, status, created_at, updated_at, parent_place, parent_attempt, "
    "root_run_id, holder, fence, started_by, project) "
    "SELECT n, CASE WHEN n = 7 THEN 'rare' ELSE 'nightly' END, 'v', "
    "CASE WHEN n % 4 = 1 THEN 'failed' WHEN n % 4 = 2 THEN 'cancelled' ELSE 'completed' END, "
    "n, n, '', 0, n, '', 0, CASE WHEN n = 7 THEN 'ann' ELSE 'cron' END, '' FROM generate_series(1, 8000) n",
    "INSERT INTO attributes SELECT n, 'label', 'team', CASE WHEN n = 7 THEN 'red' ELSE 'blue' END "
    "FROM generate_series(1, 8000) n",
    "ANALYZE runs",
    "ANALYZE attributes",
)
BEGIN = "UPDATE runs SET status = 'running' WHERE run_id = 7"


@pytest.fixture
def store(store_schema_url: str) -> Iterator[PostgresStore]:
    opened = PostgresStore(store_schema_url)
    for statement in FILL:
        opened._client.connection().execute(statement)
    yield opened
    opened.close()


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("candidates_by_status", "runs_by_status"),
        ("candidates_by_workflow", "runs_by_workflow"),
        ("candidates_by_starter", "runs_by_starter"),
        ("candidates_by_attribute", "attributes_by_value"),
    ],
)
def test_rare_runs_are_found_by_their_own_index_and_not_by_a_look_at_all(
    store: PostgresStore, name: str, index: str
) -> None:
    explain = b"EXPLAIN (GENERIC_PLAN) " + _numbered(name)[0]

    plan = "\n".join(line for (line,) in store._client.connection().execute(explain))

    assert f"using {index}" in plan
    assert "Sort" not in plan


@pytest.mark.parametrize(
    "wanted",
    [
        RunFilter(statuses=("running",)),
        RunFilter(workflows=("rare",)),
        RunFilter(starters=("ann",)),
        RunFilter(attributes=(("label", "team", "red"),)),
    ],
)
def test_exactly_they_are_found_at_each_time_and_between_bounds(store: PostgresStore, wanted: RunFilter) -> None:
    store._client.connection().execute(BEGIN)
    # Often enough that the statement is prepared, and planned for any values.
    assert [[run.run_id for run in store.lists.find(wanted, limit=5)] for _ in range(12)] == [[7]] * 12
    assert [run.run_id for run in store.lists.find(wanted, limit=5, before=8)] == [7]
    assert store.lists.find(wanted, limit=5, before=7) == []
