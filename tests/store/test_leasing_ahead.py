"""Leasing ahead: a worker gets a share of the tasks that wait before it has slots for them, from a shared store."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.keeping import ended, offer, queue, reports, started, task, worker

from mulligan.core.deciding.workers.breaker import Guard
from mulligan.core.model import reports as r
from mulligan.core.model.workflow import Breaker
from mulligan.ports import Store
from mulligan.store.postgres.postgres import PostgresStore
from mulligan.store.postgres.postgres_pipeline import SQL, _numbered

pytestmark = pytest.mark.postgres


@pytest.fixture
def shared(store: Store) -> Store:
    """A store that several hosts share; the one in memory stands in for such a store in the simulator."""
    if hasattr(store, "tables"):
        store.is_shared = True
    if not store.is_shared:
        pytest.skip("a store in a file gives tasks with the turn of their run")
    return store


def leased(store: Store, **fields: Any) -> list[str]:
    return [lease.task.place for lease in store.lease("w", offer(**fields))]


def queued(store: Store, count: int, **fields: Any) -> int:
    turn = started(store)
    queue(store, turn, *(task(turn.run_id, f"s{number:02}", **fields) for number in range(count)))
    return turn.run_id


def test_a_quarter_of_what_waits_is_leased_ahead_and_the_oldest_first(shared: Store) -> None:
    run_id = queued(shared, 14)

    assert leased(shared, cpus=2, tasks_max=2, ahead=9) == ["s00", "s01", "s02", "s03", "s04"]
    assert [type(report) for report in reports(shared, run_id)] == [r.TaskStarted] * 5
    assert len(shared.leases_of("w")) == 5


def test_no_more_is_leased_ahead_than_is_wanted(shared: Store) -> None:
    queued(shared, 50)

    assert len(leased(shared, cpus=1, tasks_max=1, ahead=3)) == 4


def test_a_worker_without_a_free_slot_leases_ahead(shared: Store) -> None:
    queued(shared, 9)

    assert leased(shared, cpus=0, tasks_max=0, ahead=4) == ["s00", "s01"]
    assert leased(shared, cpus=0, tasks_max=0, ahead=0) == []


def test_few_tasks_are_left_to_workers_that_have_a_slot(shared: Store) -> None:
    queued(shared, 5)

    assert leased(shared, cpus=2, tasks_max=2, ahead=9) == ["s00", "s01"]


@pytest.mark.parametrize(
    "fields", [{"is_careful": True}, {"memory": 1}, {"gpus": 1}, {"guard": Guard("llm", Breaker(failures=1))}]
)
def test_a_task_that_must_not_wait_for_a_slot_is_not_leased_ahead(shared: Store, fields: dict[str, Any]) -> None:
    queued(shared, 20, **fields)

    assert leased(shared, cpus=0, tasks_max=0, ahead=4) == []
    assert leased(shared, cpus=1, tasks_max=1, ahead=4) == ["s00"]


def test_what_was_leased_ahead_is_lost_with_its_worker_as_any_other(shared: Store) -> None:
    run_id = queued(shared, 8)
    leased(shared, cpus=0, tasks_max=0, ahead=4)

    shared.expire("w", is_dead=True)

    assert [type(report) for report in reports(shared, run_id)] == [r.TaskStarted, r.TaskStarted] + [r.LeaseExpired] * 2


def test_who_reports_learns_whether_the_turn_of_the_run_is_free(store: Store) -> None:
    turn = started(store)
    store.register(worker("other"))
    queue(store, turn, task(turn.run_id, "a"), task(turn.run_id, "b"))
    first, second = store.lease("other", offer())

    is_free_while_held = store.report_all([(first.token, ended("a"), None)])
    store.release([turn])

    assert store.report_all([(second.token, ended("b"), None)])
    # In a file everybody looks anyway.
    assert not is_free_while_held or not (store.is_shared or hasattr(store, "tables"))


def test_a_lease_reads_the_oldest_tasks_by_their_index_however_many_wait(store_schema_url: str) -> None:
    store = PostgresStore(store_schema_url)
    try:
        connection = store._client.connection()
        with connection.transaction():
            connection.execute(SQL["read_by_index"])
            lines = connection.execute(b"EXPLAIN (GENERIC_PLAN) " + _numbered("free_tasks")[0]).fetchall()
    finally:
        store.close()
    plan = "\n".join(line for (line,) in lines)

    assert "Index Scan using tasks_free" in plan
    assert "Sort Key" not in plan
