"""What belongs to another host, or is not for this one: a retry with `host: other`, handlers, missing folders."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from mulligan.core.effects.tasks import Task
from mulligan.core.model import events as e
from mulligan.core.model import reports as r
from mulligan.core.model.outcome import Outcome
from mulligan.engine.engine import Engine
from mulligan.language import load_text
from mulligan.ports import Lease, Offer, WorkerRecord
from mulligan.service.driving.driver import Driver, machine
from mulligan.service.driving.local_worker import local_worker
from mulligan.service.home import Home
from mulligan.service.runs.changes.changes import Changes
from mulligan.service.runs.changes.prepared_runs import prepare
from mulligan.service.runs.stored.run_reader import RunReader
from mulligan.testing.fake_executor import FakeExecutor

from .conftest import World

# It fails on the first host that it comes to, whichever that is.
PICKY = """
name: picky
steps: [{step: a, shell: 'mkdir failed || exit 0; exit 1', retry: {max_retries: 1, host: other}}]
"""
PATIENCE_SECONDS = 30.0


def test_the_retry_runs_on_the_other_host(tmp_path: Path, schema_url: str) -> None:
    with ExitStack() as held:
        drivers: list[Driver] = []
        for host in ("n1", "n2"):
            reader = RunReader(Home(tmp_path / host, schema_url))
            held.callback(reader.close)
            drivers.append(held.enter_context(local_worker(reader.home, reader.store, machine(1), host=host)))
        for driver in drivers:
            # Each knows of the other: none is alone.
            driver.expire_dead_workers()
        changes = Changes(reader)
        [run_id] = changes.create(prepare(load_text(PICKY), {}, tmp_path), drivers[0])

        until = time.monotonic() + PATIENCE_SECONDS
        while reader.store.run(run_id).status != "completed":
            assert time.monotonic() < until, [entry.fact for entry in reader.events(run_id)]
            for driver in drivers:
                driver.engine.tick(0.01)
        hosts = [entry.fact.host for entry in reader.events(run_id) if isinstance(entry.fact, e.AttemptStarted)]

    assert sorted(hosts) == ["n1", "n2"]


# -- a worker of another host has come since this one was told that it is alone --------------------------------------

REPAIRED = "steps: [{step: busy, shell: busy}, {step: a, shell: a, on_failure: {commands: [fix], rerun: 1}}]"
FAR = "far"


def come(world: World) -> None:
    """A worker of the host 'there' registers: in a store of one machine through a server, so that it has no lock."""
    world.store.register(WorkerRecord(FAR, "there", 7, cpus=4.0))


def lease_there(world: World) -> list[Lease]:
    return world.store.lease(FAR, Offer(4.0, 2**40, 0, labels=(), host="there", tasks_max=4))


def end_there(world: World, lease: Lease, exit_code: int) -> None:
    task = lease.task
    ended = r.TaskEnded(world.clock.now(), task.place, task.attempt, outcome=Outcome(exit_code=exit_code))
    world.store.report(lease.token, ended)


def work(engine: Engine) -> None:
    engine.request_poll()
    for _ in range(5):
        engine.tick(0.0)


def started_here(engine: Engine) -> list[tuple[str, int]]:
    assert isinstance(engine.executor, FakeExecutor)
    return [(lease.task.place, lease.task.attempt) for lease in engine.executor.started]


def has_failed_there(world: World) -> tuple[Engine, int]:
    """An engine that was told that it is alone, and a run that had a step on another host, which failed."""
    engine = world.engine(slots=1, ends=lambda task: None if task.place == "busy" else Outcome(exit_code=0))
    engine.set_alone(True)
    run_id = world.start(REPAIRED, engine)
    work(engine)
    come(world)
    [lease] = lease_there(world)
    end_there(world, lease, exit_code=1)
    assert isinstance(engine.executor, FakeExecutor)
    engine.executor.slots = 4
    return engine, run_id


@pytest.mark.postgres
def test_a_handler_is_left_to_the_host_of_its_attempt_though_its_worker_has_just_come(world: World) -> None:
    engine, run_id = has_failed_there(world)

    done = []
    for _ in range(2):
        work(engine)
        for lease in lease_there(world):
            done.append((lease.task.place, lease.task.attempt))
            end_there(world, lease, exit_code=0)
    work(engine)

    assert done == [("a.on_failure@1.0", 1), ("a", 2)]
    assert started_here(engine) == [("busy", 1)]
    assert world.statuses(run_id)["a"] == "completed"


@pytest.mark.postgres
def test_a_handler_whose_host_is_gone_runs_here_at_once(world: World) -> None:
    engine, run_id = has_failed_there(world)
    world.store.retire(FAR)

    work(engine)

    found = (entry.fact for entry in world.store.log(run_id))
    [handler] = [fact for fact in found if isinstance(fact, e.AttemptStarted) and fact.place == "a.on_failure@1.0"]
    assert (handler.host, handler.instead_of) == ("here", "there")


@pytest.mark.postgres
@pytest.mark.parametrize("is_alone", [False, True])
def test_a_retry_on_another_host_waits_for_a_worker_that_has_just_come(world: World, is_alone: bool) -> None:
    engine = world.engine(ends=lambda task: Outcome(exit_code=0 if task.attempt > 1 else 1))
    engine.set_alone(True)
    if not is_alone:
        come(world)
    if (now := world.store.now()) is not None:
        # How long to wait for another host is a moment by the clock of the store.
        world.clock.advance((now - world.clock.now()).total_seconds())

    world.start("steps: [{step: a, shell: a, retry: {max_retries: 1, delay: 0s, host: other}}]", engine)
    work(engine)

    assert started_here(engine) == ([("a", 1), ("a", 2)] if is_alone else [("a", 1)])


@pytest.mark.postgres
def test_a_task_whose_folder_is_missing_here_is_given_back_to_a_worker_that_has_just_come(world: World) -> None:
    def ends(task: Task) -> Outcome:
        come(world)
        return Outcome(exit_code=None, code="INPUT_INVALID", message="no folder", lacks_folder="/project")

    engine = world.engine(ends=ends)
    engine.set_alone(True)
    run_id = world.start("steps: [{step: a, shell: a}]", engine)

    engine.tick(0.0)
    engine.tick(0.0)

    assert "AttemptInterrupted" in world.facts(run_id)
    assert "AttemptFailed" not in world.facts(run_id)
