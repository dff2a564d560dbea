"""Who is dead: where its lock can be seen the lock says it, elsewhere the store's clock does."""

from __future__ import annotations

from mulligan.engine.rescue import bury_the_dead
from mulligan.ports import LockState, WorkerRecord

from .conftest import World


def buried(world: World, state: LockState) -> list[str]:
    return [worker.name for worker in bury_the_dead(world.store, lambda worker: state, lambda name: None)]


def test_a_worker_whose_lock_is_free_is_buried_at_once(world: World) -> None:
    world.store.register(WorkerRecord("w", "here", 1, "w.lock"))

    assert buried(world, "free") == ["w"]


def test_a_worker_that_holds_its_lock_is_alive(world: World) -> None:
    world.store.register(WorkerRecord("w", "here", 1, "w.lock"))

    assert buried(world, "held") == []


def test_a_lock_that_proves_nothing_buries_nobody(world: World) -> None:
    world.store.register(WorkerRecord("w", "here", 1, "w.lock"))

    assert buried(world, "unknown") == []


def test_what_a_dead_worker_has_left_running_is_ended_before_it_is_buried_whatever_its_host_was_called(
    world: World,
) -> None:
    world.store.register(WorkerRecord("w", "another name", 1, "w.lock"))
    known: list[list[str]] = []

    bury_the_dead(
        world.store, lambda worker: "free", lambda name: known.append([w.name for w in world.store.workers()])
    )

    assert known == [["w"]]
