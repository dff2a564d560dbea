"""Who is dead: where its lock can be seen the lock says it, elsewhere the store's clock does."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from mulligan.core.model.clusters.scheduler_job import JobEnd, JobEnding, WorkerJob
from mulligan.engine.worker_expiry import expire_dead_workers
from mulligan.ports import LockState, WorkerRecord
from mulligan.store.memory.memory import MemoryStore
from mulligan.testing.clock import JumpingClock

from .conftest import World


def expired_workers(world: World, state: LockState, *, may_expire_others: bool = True) -> list[str]:
    found = expire_dead_workers(
        world.store, lambda worker: state, lambda name: None, may_expire_others=may_expire_others
    )
    return [worker.name for worker in found]


@pytest.mark.postgres
def test_a_worker_whose_lock_is_free_is_expired_at_once(world: World) -> None:
    world.store.register(WorkerRecord("w", "here", 1, "w.lock"))

    assert expired_workers(world, "free") == ["w"]


def test_a_worker_that_holds_its_lock_is_alive(world: World) -> None:
    world.store.register(WorkerRecord("w", "here", 1, "w.lock"))

    assert expired_workers(world, "held") == []


def test_a_lock_that_proves_nothing_buries_nobody(world: World) -> None:
    world.store.register(WorkerRecord("w", "here", 1, "w.lock"))

    assert expired_workers(world, "unknown") == []


def test_what_a_dead_worker_has_left_running_is_ended_before_it_is_expired_whatever_its_host_was_called(
    world: World,
) -> None:
    world.store.register(WorkerRecord("w", "another name", 1, "w.lock"))
    known: list[list[str]] = []

    expire_dead_workers(
        world.store, lambda worker: "free", lambda name: known.append([w.name for w in world.store.workers()])
    )

    assert known == [["w"]]


def test_a_scheduler_is_asked_once_about_the_jobs_of_all_dead_workers_before_they_are_expired(world: World) -> None:
    first, second = WorkerJob("17", "n3"), WorkerJob("18", "n4")
    for name, job in (("alive", WorkerJob("16")), ("a", first), ("b", second), ("elsewhere", None)):
        world.store.register(WorkerRecord(name, "here", 1, f"{name}.lock", job=job))
    asked: list[object] = []

    def ask(jobs: Mapping[WorkerJob, bool]) -> dict[WorkerJob, JobEnd]:
        asked.append((dict(jobs), len(world.store.workers())))
        return {job: JobEnd(job) for job in jobs}

    expire_dead_workers(
        world.store,
        lambda worker: "held" if worker.name == "alive" else "free",
        lambda name: None,
        ask_jobs=ask,
    )

    assert asked == [({first: True, second: True}, 4)]
    assert [worker.name for worker in world.store.workers()] == ["alive"]


def test_no_scheduler_is_asked_without_a_dead_worker_in_a_job(world: World) -> None:
    world.store.register(WorkerRecord("w", "here", 1, "w.lock"))

    def ask(jobs: Mapping[WorkerJob, bool]) -> dict[WorkerJob, JobEnd]:
        raise AssertionError

    assert expire_dead_workers(world.store, lambda worker: "free", lambda name: None, ask_jobs=ask)


class Silent(MemoryStore):
    """A store that hosts share, in which a worker on another host was heard of too long ago."""

    def __init__(self) -> None:
        self.clock = JumpingClock()
        super().__init__(clock=self.clock, is_shared=True)
        self.register(WorkerRecord("w", "there", 1, "there.lock"))
        self.clock.advance(31)


def test_a_worker_with_an_old_heartbeat_is_expired_by_one_that_had_contact_all_the_time() -> None:
    world = World(Silent(), JumpingClock())

    assert expired_workers(world, "unknown") == ["w"]


def test_a_worker_with_an_old_heartbeat_is_not_expired_by_one_that_was_cut_off_itself() -> None:
    world = World(Silent(), JumpingClock())

    assert expired_workers(world, "unknown", may_expire_others=False) == []


def test_a_free_lock_says_that_its_worker_is_dead_also_to_one_that_was_cut_off(world: World) -> None:
    world.store.register(WorkerRecord("w", "here", 1, "w.lock"))

    assert expired_workers(world, "free", may_expire_others=False) == ["w"]


class Noting(MemoryStore):
    """A store that notes how the job of an expired worker has ended."""

    ends: JobEnd | None = None

    def expire(self, name: str, *, is_dead: bool = False, job: JobEnd | None = None) -> bool:
        self.ends = job
        return super().expire(name, is_dead=is_dead, job=job)


@pytest.mark.parametrize(
    ("known", "ending", "life"), [(None, "time", 600.0), (300.0, "time", 300.0), (None, "", None), (None, "free", None)]
)
def test_the_life_of_a_worker_that_knew_no_end_is_what_was_seen_of_it(
    known: float | None, ending: JobEnding, life: float | None
) -> None:
    clock = JumpingClock()
    store = Noting(clock=clock)
    store.register(WorkerRecord("w", "here", 1, started_at=clock.now(), job=WorkerJob("17", life_seconds=known)))
    clock.advance(600)
    store.record_heartbeat("w")
    clock.advance(31)

    expire_dead_workers(
        store,
        lambda worker: "free",
        lambda name: None,
        ask_jobs=lambda jobs: {job: JobEnd(job, ending=ending) for job in jobs},
    )

    assert store.ends == JobEnd(WorkerJob("17", life_seconds=life), ending=ending)
