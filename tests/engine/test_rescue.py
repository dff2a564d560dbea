"""Who is dead: where its lock can be seen the lock says it, elsewhere the store's clock does."""

from __future__ import annotations

from pathlib import Path

import pytest

from mulligan.engine.rescue import bury_the_dead
from mulligan.ports import WorkerRecord

from .conftest import World


def buried(world: World, *, is_free: bool = True, host: str = "here") -> list[str]:
    return [worker.name for worker in bury_the_dead(world.store, host, lambda path: is_free, lambda name: None)]


@pytest.fixture
def lock(tmp_path: Path) -> str:
    path = tmp_path / "w.lock"
    path.touch()
    return str(path)


def test_a_worker_whose_lock_is_free_is_buried_at_once(world: World, lock: str) -> None:
    world.store.register(WorkerRecord("w", "here", 1, lock))

    assert buried(world) == ["w"]


def test_a_worker_that_holds_its_lock_is_alive(world: World, lock: str) -> None:
    world.store.register(WorkerRecord("w", "here", 1, lock))

    assert buried(world, is_free=False) == []


def test_a_lock_that_is_not_there_says_nothing_where_another_host_may_have_the_same_name(world: World) -> None:
    world.store.register(WorkerRecord("w", "here", 1, "elsewhere.lock"))

    assert buried(world) == ([] if world.store.is_shared else ["w"])


def test_a_lock_of_another_host_is_not_looked_at_where_hosts_share_the_store(world: World, lock: str) -> None:
    world.store.register(WorkerRecord("w", "there", 1, lock))

    assert buried(world) == ([] if world.store.is_shared else ["w"])


def test_what_a_dead_worker_has_left_running_is_ended_before_it_is_buried(world: World, lock: str) -> None:
    world.store.register(WorkerRecord("w", "here", 1, lock))
    known: list[list[str]] = []

    bury_the_dead(
        world.store, "here", lambda path: True, lambda name: known.append([w.name for w in world.store.workers()])
    )

    assert known == [["w"]]
