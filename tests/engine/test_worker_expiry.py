"""Who is dead: where its lock can be seen the lock says it, elsewhere the store's clock does, or a lease of silence."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack, closing
from datetime import timedelta
from pathlib import Path

import pytest

from mulligan.core.model import events as e
from mulligan.core.model.clusters.scheduler_job import JobEnd, JobEnding, WorkerJob
from mulligan.engine.worker_expiry import SilentWorkers, expire_dead_workers
from mulligan.language import load_text
from mulligan.ports import LockState, Offer, WorkerRecord
from mulligan.service.driving.driver import machine
from mulligan.service.driving.local_worker import local_worker
from mulligan.service.home import DATABASE, Home
from mulligan.service.runs.changes.changes import Changes
from mulligan.service.runs.changes.prepared_runs import prepare
from mulligan.service.runs.stored.run_reader import RunReader
from mulligan.store import open_store
from mulligan.store.clock import PROCESS_CLOCK
from mulligan.testing.clock import START, JumpingClock
from mulligan.testing.memory.memory_store import MemoryStore

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


# -- workers of other hosts in a store of one machine, whose heartbeats a server writes ------------------------------


class Machine:
    """A machine that looks at the workers of its store once a second. The server there writes by a clock of its own."""

    def __init__(self, server_ahead_seconds: float = 0.0) -> None:
        self.ours, self.servers = JumpingClock(), JumpingClock(START + timedelta(seconds=server_ahead_seconds))
        self.store = MemoryStore(clock=self.servers, lease_seconds=30.0)
        self.silent_workers = SilentWorkers(self.ours.elapsed, 30.0)
        self.store.register(WorkerRecord("far", "there", 1))
        self.store.register(WorkerRecord("local", "here", 2, "w.lock"))

    def look(self) -> set[str]:
        return self.silent_workers.look(self.store.workers())

    def pass_time(self, seconds: int, *, beats: bool = False) -> set[str]:
        """Who was silent at any look."""
        found: set[str] = set()
        for _ in range(seconds):
            self.ours.advance(1)
            self.servers.advance(1)
            if beats:
                self.store.record_heartbeat("far")
            found |= self.look()
        return found


def test_a_worker_of_another_host_is_silent_when_no_heartbeat_came_while_we_looked_for_a_lease() -> None:
    machine = Machine()

    assert machine.pass_time(100, beats=True) == set()
    assert machine.pass_time(30) == set()
    assert machine.pass_time(1) == {"far"}


@pytest.mark.parametrize("server_ahead_seconds", [-7200, 7200])
def test_it_does_not_matter_that_the_clock_of_the_server_is_another(server_ahead_seconds: float) -> None:
    machine = Machine(server_ahead_seconds)

    assert machine.pass_time(100, beats=True) == set()
    assert machine.pass_time(31) == {"far"}


def test_who_was_suspended_gives_others_a_lease_to_be_heard_of() -> None:
    machine = Machine()
    machine.pass_time(60, beats=True)
    machine.ours.advance(3600)
    machine.servers.advance(3600)

    assert machine.look() == set()
    assert machine.pass_time(30) == set()
    assert machine.pass_time(1) == {"far"}


def test_a_worker_that_starts_expires_no_remote_worker_whose_server_was_down(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.make()
    store = open_store(tmp_path / DATABASE, clock=JumpingClock(PROCESS_CLOCK.now() - timedelta(hours=1)))
    store.register(WorkerRecord("far", "there", 1, cpus=1.0))
    store.close()

    store = home.open()
    try:
        with local_worker(home, store, machine(1), serves=True) as driver:
            names = {worker.name for worker in store.workers()}
    finally:
        store.close()

    assert names == {"far", driver.name}


def test_who_drives_one_run_expires_a_remote_worker_that_has_died_with_a_task_of_it(tmp_path: Path) -> None:
    lease_seconds = 0.3
    home = Home(tmp_path)
    text = "steps: [{step: one, shell: 'true'}, {step: two, shell: 'true'}]"
    with ExitStack() as held:
        reader = RunReader(home)
        held.callback(reader.close)
        driver = held.enter_context(local_worker(home, reader.store, machine(1), lease_seconds=lease_seconds))
        [run_id] = Changes(reader).create(prepare(load_text(text), {}, tmp_path), driver)
        driver.engine.tick(0.0)
        server = held.enter_context(closing(home.open()))
        server.register(WorkerRecord("far", "there", 1, cpus=1.0))
        [lease] = server.lease("far", Offer(1.0, 2**40, 0, labels=(), host="there", tasks_max=1))

        until = time.monotonic() + 30
        driver.turn(run_id, lambda: reader.store.run(run_id).status == "completed" or time.monotonic() > until)

        lost = [entry.fact.place for entry in reader.events(run_id) if isinstance(entry.fact, e.AttemptLost)]
        status = reader.store.run(run_id).status

    assert (lease.task.place, lost, status) == ("two", ["two"], "completed")
