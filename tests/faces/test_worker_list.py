"""`mulligan workers`: who is there, what each can take, and what it runs now."""

from __future__ import annotations

import os
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.support.commands import mulligan

from mulligan.core.effects.tasks import Task
from mulligan.core.model import reports as r
from mulligan.ports import Commit, NewRun, WorkerRecord
from mulligan.service.driving.driver import Capacity, WorkerLimits
from mulligan.service.driving.workers import Resources, worker_lines
from mulligan.service.home import find_home
from mulligan.service.service import Service
from mulligan.testing.clock import START, JumpingClock
from mulligan.testing.memory.memory_store import MemoryStore

GIB = 2**30


def test_a_worker_is_listed_with_what_it_has_what_is_in_use_and_what_it_runs():
    clock = JumpingClock()
    store = MemoryStore(clock=clock, is_shared=True)
    store.register(WorkerRecord("w", "render1", 7, "", 8.0, 16 * GIB, 2, ("big",), started_at=START))
    (turn,) = store.create([NewRun(b"{}", "v1", "nightly", r.RunRequested(START, 0))], "w")
    tasks = [
        Task(turn.run_id, place, attempt, "shell", {}, "nightly", "v1", place, 1, cpus=2.0, memory=GIB, gpus=1)
        for place, attempt in (("fetch", 1), ("build", 3))
    ]
    store.commit([Commit(turn=turn, after=0, entries=[], rows=(), status="running", round=1, at=START, taken=tasks)])
    clock.advance(90)

    (line,) = worker_lines(store, lambda worker: True, clock.now())

    assert (line.name, line.host, line.pid, line.is_alive, line.labels) == ("w", "render1", 7, True, ["big"])
    assert (line.started_at, line.last_contact) == (START, START)
    assert (line.capacity, line.in_use) == (Resources(8.0, 16 * GIB, 2), Resources(4.0, 2 * GIB, 2))
    assert (line.runs, line.first_run_id) == (1, turn.run_id)
    assert [(task.run_id, task.step, task.attempt, task.since, task.seconds) for task in line.tasks] == [
        (turn.run_id, "fetch", 1, START, 90.0),
        (turn.run_id, "build", 3, START, 90.0),
    ]


def test_in_a_store_on_one_machine_the_lock_is_the_sign_of_life():
    clock = JumpingClock()
    store = MemoryStore(clock=clock)
    store.register(WorkerRecord("w", "here", 7))
    clock.advance(3600)

    assert worker_lines(store, lambda worker: True, clock.now())[0].last_contact == START + timedelta(hours=1)
    assert worker_lines(store, lambda worker: False, clock.now())[0].last_contact == START


def test_the_process_that_drives_a_run_here_is_such_a_worker(folder: Path):
    service = Service(find_home())
    with service.driving.driver(Capacity(2.0, 4 * GIB, labels=("fast",))) as driver:
        said = mulligan("workers")
        (found,) = mulligan("workers", "--json").json
    service.close()

    assert said.plain == (
        0,
        "WORKER  STATUS  UP  SEEN  CPUS  MEMORY\n"
        f"{driver.name}  alive  Ns  Ns  0 of 2  0 of 4.0GiB  label fast; idle\n",
        "",
    )
    assert (found["pid"], found["host"], found["is_alive"]) == (os.getpid(), socket.gethostname(), True)
    assert mulligan("workers").out == ""


def test_a_worker_in_a_job_of_slurm_is_listed_with_it_and_with_its_end(folder: Path, monkeypatch: pytest.MonkeyPatch):
    for name, value in {"SLURM_JOB_ID": "17", "SLURMD_NODENAME": "n3", "MULLIGAN_SLURM_PROFILE": "long"}.items():
        monkeypatch.setenv(name, value)
    service = Service(find_home())
    limits = WorkerLimits(until=datetime.now(UTC) + timedelta(hours=2), tasks_max=1)
    with service.driving.driver(Capacity(2.0, 4 * GIB, limits=limits)):
        said = mulligan("workers").plain[1]
        (found,) = mulligan("workers", "--json").json
    service.close()

    assert "  Slurm job 17 on node n3, profile long; ends in 1h" in said
    job = found["job"]
    assert (job["id"], job["node"], job["profile"], job["is_one_task"]) == ("17", "n3", "long", True)
    # The last ten seconds are for tasks that have to be stopped.
    assert 7180 < job["life_seconds"] <= 7190
    assert found["ends_at"] > found["started_at"]


def test_a_worker_that_died_is_said_to_be_dead_until_another_one_takes_over(folder: Path):
    service = Service(find_home())
    service.reader.store.register(
        WorkerRecord("gone", "here", 1, str(folder / ".mulligan/workers/gone.lock"), 1.0, GIB)
    )
    service.close()

    said = mulligan("workers")

    assert [line.split()[:2] for line in said.out.splitlines()[1:]] == [["gone", "dead"]]
    assert "mulligan resume" in said.err


def test_where_nothing_was_run_there_are_no_workers_and_nothing_is_made(folder: Path):
    said = mulligan("workers")

    assert tuple(said) == (0, "", f"no worker is running in '{folder}/.mulligan'; to start one: mulligan worker\n")
    assert mulligan("workers", "--json").json == []
    assert not (folder / ".mulligan").exists()


def test_workers_of_a_shared_store_are_seen_by_their_heartbeats(
    folder: Path, schema_url: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MULLIGAN_STORE", schema_url)
    service = Service(find_home())
    service.reader.store.register(WorkerRecord("far", "render1", 7, "", 1.0, GIB))

    (found,) = mulligan("workers", "--json").json

    assert (found["name"], found["is_alive"]) == ("far", True)
    assert found["last_contact"] is not None
    service.close()
