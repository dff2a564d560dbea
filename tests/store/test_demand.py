"""What the queue asks for: counted by shape in one query, and what is refused leaves it."""

from __future__ import annotations

import apsw
import psycopg
import pytest
from tests.support.keeping import (
    Open,
    Place,
    PostgresSchema,
    SqliteFolder,
    commit,
    offer,
    queue,
    reports,
    started,
    task,
    worker,
)

from mulligan.core.deciding.workers.breaker import Guard
from mulligan.core.effects.run_lists import QueuedShape
from mulligan.core.model import reports as r
from mulligan.core.model.workflow import Breaker
from mulligan.ports import Store
from mulligan.store.statements import Dialect, migrations

pytestmark = pytest.mark.postgres

RULES = Breaker(failures=2, reset=60.0)
SLURM = "slurm:gpu"


def test_queued_tasks_are_counted_by_what_they_ask_for_the_oldest_first(store: Store) -> None:
    turn = started(store)
    asked = {"cpus": 4.0, "memory": 2**30, "gpus": 1, "labels": ("gpu", "big"), "timeout": 90.0, "nodes": 2}
    queue(store, turn, task(turn.run_id, "a", **asked), task(turn.run_id, "b"), task(turn.run_id, "c", **asked))
    queue(store, turn, task(turn.run_id, "d", timeout=1.5), task(turn.run_id, "e", cpus=0.1))

    assert store.queued_shapes() == [
        QueuedShape(4.0, 2**30, 1, 2, ("gpu", "big"), 90.0, 2),
        QueuedShape(count=1),
        QueuedShape(timeout=1.5, count=1),
        QueuedShape(cpus=0.1, count=1),
    ]


def test_tasks_that_a_new_worker_could_not_take_are_no_demand(store: Store) -> None:
    turn, paused = started(store), started(store)
    queue(store, turn, task(turn.run_id, "leased"))
    store.lease("w", offer())
    store.register(worker("other", host="there"))
    guard = Guard("llm", Breaker(failures=1))
    store.count_outcome("llm", guard.rules, "failure")
    queue(store, turn, task(turn.run_id, "bound", host="there"), task(turn.run_id, "held", guard=guard))
    queue(store, turn, task(turn.run_id, "free", host="gone"))
    queue(store, paused, task(paused.run_id, "paused"))
    store.commit([commit(paused, store.run(paused.run_id).seq, status="paused")])

    assert store.queued_shapes() == [QueuedShape(count=1)]


def test_demand_may_be_that_of_one_project(store: Store) -> None:
    ours, others = started(store, project="a"), started(store, project="b")
    queue(store, ours, task(ours.run_id, cpus=2.0))
    queue(store, others, task(others.run_id, cpus=3.0))

    assert [shape.cpus for shape in store.queued_shapes("a")] == [2.0]
    assert [shape.cpus for shape in store.queued_shapes()] == [2.0, 3.0]
    assert store.refuse_queued(QueuedShape(cpus=3.0), "none", "a") == 0


def test_a_refused_shape_leaves_the_queue_as_no_capacity_and_nothing_else_does(opened: Open) -> None:
    store, other = opened(), opened()
    turn = started(store)
    big = {"cpus": 64.0, "labels": ("gpu",), "timeout": 5.0}
    queue(store, turn, task(turn.run_id, "a", **big), task(turn.run_id, "b", **big), task(turn.run_id, "c", cpus=64.0))
    queue(store, turn, task(turn.run_id, "d", labels=("gpu",), timeout=5.0))
    (held,) = other.lease("w", offer(labels=("gpu",), tasks_max=1))
    shape = QueuedShape(64.0, 0, 0, 1, ("gpu",), 5.0, 2)

    assert store.refuse_queued(shape, "not available") == 1
    assert store.refuse_queued(shape, "not available") == 0

    assert held.task.place == "a"
    told = [one for one in reports(store, turn.run_id) if isinstance(one, r.TaskEnded)]
    assert [(one.place, one.attempt, one.outcome.code, one.outcome.message) for one in told] == [
        ("b", 1, "NO_CAPACITY", "not available")
    ]
    assert {lease.task.place for lease in store.lease("w", offer(labels=("gpu",), cpus=999))} == {"c", "d"}


@pytest.mark.parametrize(
    "shape", [QueuedShape(timeout=2.0), QueuedShape(nodes=2), QueuedShape(memory=5), QueuedShape(gpus=1)]
)
def test_a_shape_is_refused_only_if_all_of_it_is_the_same(store: Store, shape: QueuedShape) -> None:
    turn = started(store)
    queue(store, turn, task(turn.run_id))

    assert store.refuse_queued(shape, "none") == 0
    assert store.queued_shapes() == [QueuedShape(count=1)]


def test_failed_jobs_in_a_row_open_a_breaker_and_one_that_works_closes_it(store: Store, place: Place) -> None:
    def status() -> tuple[str, int]:
        (found,) = store.breakers()
        return found.status, found.failures

    store.count_outcome(SLURM, RULES, "failure")
    assert status() == ("closed", 1)
    store.count_outcome(SLURM, RULES, "failure")
    assert status() == ("open", 2)
    # Jobs that were submitted before it opened say nothing.
    store.count_outcome(SLURM, RULES, "success")
    assert status() == ("open", 2)
    place.pass_time(61)
    store.count_outcome(SLURM, RULES, "failure")
    assert status() == ("open", 3)
    place.pass_time(61)
    store.count_outcome(SLURM, RULES, "success")
    assert status() == ("closed", 0)


# -- tasks that ask for several nodes ----------------------------------------------------------------------------------


def test_a_task_of_several_nodes_has_a_worker_that_is_large_enough_for_itself(store: Store) -> None:
    turn = started(store)
    queue(store, turn, task(turn.run_id, "small"), task(turn.run_id, "wide", nodes=3), task(turn.run_id, "last"))

    assert [one.task.place for one in store.lease("w", offer(nodes=2, nodes_min=2))] == []
    assert [one.task.place for one in store.lease("w", offer(nodes=4, nodes_min=2))] == ["wide"]
    assert [one.task.place for one in store.lease("w", offer())] == ["small", "last"]


def test_a_worker_with_several_nodes_that_has_taken_a_small_task_takes_no_wide_one(store: Store) -> None:
    turn = started(store)
    queue(store, turn, task(turn.run_id, "small"), task(turn.run_id, "wide", nodes=2), task(turn.run_id, "last"))

    assert [one.task.place for one in store.lease("w", offer(nodes=2))] == ["small", "last"]
    assert [one.task.place for one in store.lease("w", offer(nodes=2))] == ["wide"]


def test_tasks_that_were_queued_before_timeouts_were_stored_have_theirs(place: Place) -> None:
    """The migration reads the tasks. A text that PostgreSQL cannot read as JSON does not stop it."""
    if not isinstance(place, SqliteFolder | PostgresSchema):
        pytest.skip("a store in memory is never older than the program")
    store = place.open()
    turn = started(store)
    queue(store, turn, task(turn.run_id, "a", timeout=90.0, env={"text": "a\0b"}), task(turn.run_id, "b"))
    store.close()

    migrate_again(place)

    store = place.open()
    assert [shape.timeout for shape in store.queued_shapes()] == [90.0, None]
    store.close()


def migrate_again(place: SqliteFolder | PostgresSchema) -> None:
    """Bring the store back to what it was before the columns, and add them."""
    undo = [f"ALTER TABLE tasks DROP COLUMN {column}" for column in ("nodes", "timeout")]
    if isinstance(place, SqliteFolder):
        db = apsw.Connection(str(place.path))
        for sql in [*undo, migration("sqlite")]:
            db.execute(sql)
        db.close()
        return
    with psycopg.connect(place.url) as connection:
        for sql in [*undo, migration("postgres")]:
            connection.execute(sql.encode())


def migration(dialect: Dialect) -> str:
    return next(one.sql for one in migrations(dialect) if "ADD COLUMN nodes" in one.sql)
