"""`mulligan slurm auto` and `drain`, over a fake Slurm and a real store."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from tests.support.commands import mulligan
from tests.support.forked_cli import forked_cli
from tests.support.keeping import queue, reports, started, task, worker

from mulligan.core.deciding.workers.breaker import Guard
from mulligan.core.model import reports as r
from mulligan.core.model.clusters.scheduler_job import WorkerJob
from mulligan.core.model.workflow import Breaker
from mulligan.errors import StoreUnavailable
from mulligan.ports import Store, Turn
from mulligan.service.host.slurm.allocator import Allocator
from mulligan.service.host.slurm.client import about, is_unreachable, sentence_of
from mulligan.service.host.slurm.profiles import Profiles, find_profiles
from mulligan.service.host.slurm.submission import Cluster
from mulligan.service.service import open_service
from mulligan.store.open_store import open_store

from .fake_slurm import FakeSlurm

PROFILES = """
[slurm.default]
cpus = 2
memory = "1GiB"
walltime = "1h"

[slurm.gpu]
gpus = 1
labels = ["gpu"]
"""


@pytest.fixture
def url(folder: Path, store_schema_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("MULLIGAN_STORE", store_schema_url)
    (folder / "mulligan.toml").write_text(PROFILES)
    return store_schema_url


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    store = open_store(url, lease_seconds=30.0)
    yield store
    store.close()


@pytest.fixture
def turn(store: Store) -> Turn:
    """The turn of a run, held by a process that runs no tasks."""
    return started(store)


def queued(store: Store, turn: Turn, count: int, prefix: str = "t", **asked: Any) -> None:
    queue(store, turn, *(task(turn.run_id, f"{prefix}{number}", **asked) for number in range(count)))


def auto(most: int, *words: object) -> str:
    said = mulligan("slurm", "auto", "--max", most, "--once", *words)
    assert said.code == 0, said.err
    return said.err


def numbers(slurm: FakeSlurm) -> list[int]:
    return [number for _, number in slurm.active]


# -- demand and supply ------------------------------------------------------------------------------------------------


def test_an_empty_queue_asks_slurm_for_nothing(slurm: FakeSlurm, turn: Turn) -> None:
    auto(5)

    assert slurm.calls("squeue") == slurm.calls("sbatch") == []


def test_pilots_come_for_tasks_in_one_array_and_not_twice(slurm: FakeSlurm, store: Store, turn: Turn) -> None:
    queued(store, turn, 7)

    said = auto(9)
    again = auto(9)

    assert "submitted 4 pilots with profile 'default': job 101" in said
    assert "submitted" not in again
    assert [call[3] for call in slurm.calls("sbatch")] == ["--array=1-4"]


def test_more_tasks_than_the_maximum_has_room_for_wait(slurm: FakeSlurm, store: Store, turn: Turn) -> None:
    queued(store, turn, 100)

    auto(3)
    auto(3)
    slurm.change(2, state="COMPLETED")
    auto(3)

    assert numbers(slurm) == [1, 2, 3]
    assert [call[3] for call in slurm.calls("sbatch")] == ["--array=1-3", "--array=2"]


def test_a_pilot_whose_worker_has_joined_is_busy_and_one_that_has_not_will_take_tasks(
    slurm: FakeSlurm, store: Store, turn: Turn
) -> None:
    queued(store, turn, 2)
    auto(5)
    slurm.change(1, state="RUNNING", node="n1")
    auto(5)
    assert numbers(slurm) == [1]

    store.register(worker("joined", cpus=2.0, memory=1 << 30, job=WorkerJob(id="101", node="n1")))
    auto(5)

    assert numbers(slurm) == [1, 2]


def test_a_worker_that_has_just_joined_is_given_time_to_take_tasks(slurm: FakeSlurm, store: Store, turn: Turn) -> None:
    queued(store, turn, 2)
    auto(5)
    slurm.change(1, state="RUNNING", node="n1")

    job = WorkerJob(id="101", node="n1")
    store.register(worker("joined", cpus=2.0, memory=1 << 30, job=job, started_at=store.now()))
    auto(5)

    assert numbers(slurm) == [1]


def test_labels_choose_the_profile_and_a_profile_may_be_chosen_alone(
    slurm: FakeSlurm, store: Store, turn: Turn
) -> None:
    queued(store, turn, 1)
    queued(store, turn, 2, "g", gpus=1, labels=("gpu",))

    auto(9, "--profile", "gpu")
    assert [name.split("-")[2] for name, _ in slurm.active] == ["gpu", "gpu"]

    auto(9)
    assert [name.split("-")[2] for name, _ in slurm.active] == ["default", "gpu", "gpu"]


def test_tasks_without_a_profile_are_named(slurm: FakeSlurm, store: Store, turn: Turn) -> None:
    queued(store, turn, 2, labels=("tape",))

    assert "2 tasks without pilots: no profile has label 'tape'" in auto(9)
    assert slurm.calls("sbatch") == []


def test_tasks_that_wait_for_a_breaker_are_no_demand(slurm: FakeSlurm, store: Store, turn: Turn) -> None:
    rules = Breaker(failures=1)
    store.count_outcome("llm", rules, "failure")
    queued(store, turn, 3, guard=Guard("llm", rules))

    auto(9)

    assert slurm.calls("sbatch") == []


# -- what Slurm refuses -----------------------------------------------------------------------------------------------

NODE = "sbatch: error: Memory specification can not be satisfied\n"
NODE += "sbatch: error: Batch job submission failed: Requested node configuration is not available\n"


def ends(store: Store, turn: Turn) -> list[tuple[str, str]]:
    found = (one for one in reports(store, turn.run_id) if isinstance(one, r.TaskEnded))
    return [(one.place, one.outcome.message) for one in found]


def test_a_shape_that_slurm_refuses_is_no_capacity_with_its_own_sentence(
    slurm: FakeSlurm, store: Store, turn: Turn
) -> None:
    queued(store, turn, 2, "big", gpus=64, labels=("gpu",))
    queued(store, turn, 1, "small")
    (Path("mulligan.toml")).write_text(PROFILES.replace("gpus = 1\n", ""))
    slurm.refuse("sbatch", NODE, "gres=gpu:64")

    said = auto(9)

    assert "ended 2 tasks as NO_CAPACITY" in said
    assert [place for place, _ in ends(store, turn)] == ["big0", "big1"]
    assert "Requested node configuration is not available" in ends(store, turn)[0][1]
    assert [name.split("-")[2] for name, _ in slurm.active] == ["default"]


def test_a_worker_that_is_up_may_still_take_what_slurm_refuses(slurm: FakeSlurm, store: Store, turn: Turn) -> None:
    queued(store, turn, 1, "big", memory=1 << 30)
    store.register(worker("fat", cpus=99.0, memory=1 << 50))
    slurm.refuse("sbatch", NODE)

    auto(9)

    assert ends(store, turn) == []


def test_another_profile_gets_what_one_cannot_have(slurm: FakeSlurm, store: Store, turn: Turn) -> None:
    Path("mulligan.toml").write_text(PROFILES + '[slurm.other]\npartition = "other"\n')
    queued(store, turn, 1)
    slurm.refuse("sbatch", NODE, "default-")

    auto(9)

    assert [name.split("-")[2] for name, _ in slurm.active] == ["other"]
    assert ends(store, turn) == []


def test_a_limit_of_slurm_ends_no_task(slurm: FakeSlurm, store: Store, turn: Turn) -> None:
    queued(store, turn, 1)
    limit = "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"
    slurm.refuse("sbatch", f"sbatch: error: Batch job submission failed: {limit}\n")

    said = auto(9, "--profile", "default")

    assert f"Slurm does not take pilots of profile 'default' now: {limit}" in said
    assert (ends(store, turn), store.breakers()) == ([], [])


@pytest.mark.parametrize(
    ("sentence", "kind"),
    [
        ("Requested node configuration is not available", "shape"),
        ("Node count specification invalid", "shape"),
        ("Memory required by task is not available", "shape"),
        ("Invalid generic resource (gres) specification", "shape"),
        ("QOSMaxSubmitJobPerUserLimit", "limit"),
        ("Invalid job array specification", "limit"),
        ("Requested time limit is invalid (missing or exceeds some limit)", "profile"),
        ("Invalid account or account/partition combination specified", "profile"),
        ("Invalid partition name specified", "profile"),
        ("something that no version has said before", "profile"),
    ],
)
def test_what_a_refusal_is_about(sentence: str, kind: str) -> None:
    said = f"sbatch: error: Batch job submission failed: {sentence}\n"

    assert sentence_of(said) == sentence
    assert about(sentence_of(said)) == kind
    assert not is_unreachable(said)


def test_of_a_wrong_option_the_option_is_named_and_not_the_help() -> None:
    said = "sbatch: unrecognized option '--fast=1'\nTry \"sbatch --help\" for more information\n"

    assert sentence_of(said) == "unrecognized option '--fast=1'"


# -- who cannot be reached ---------------------------------------------------------------------------------------------

AWAY = "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)\n"


@pytest.mark.parametrize("program", ["squeue", "sbatch"])
def test_an_unreachable_controller_harms_nothing_and_is_asked_again(
    slurm: FakeSlurm, store: Store, turn: Turn, program: str
) -> None:
    queued(store, turn, 1)
    slurm.refuse(program, AWAY)

    said = mulligan("slurm", "auto", "--max", 3, "--once")

    assert (said.code, "Unable to contact slurm controller" in said.err) == (1, True)
    assert (ends(store, turn), store.breakers(), slurm.active) == ([], [], [])
    slurm.accept(program)
    auto(3)
    assert numbers(slurm) == [1]


def test_it_waits_longer_each_time_slurm_or_the_store_is_away(
    slurm: FakeSlurm, store: Store, turn: Turn, folder: Path
) -> None:
    queued(store, turn, 1)
    slurm.refuse("squeue", AWAY)
    said: list[str] = []
    clock = SteppedClock(said, end_after=4)
    answers = iter([StoreUnavailable("the server is away")])

    def opened() -> Store:
        for error in answers:
            raise error
        return store

    found = allocator(opened, 3, said.append, clock)
    clock.allocator = found
    found.serve(10.0)

    assert [line.partition("looking again in ")[2] for line in said] == ["20s", "40s", "80s", "160s"]


class SteppedClock:
    """Passes all of a pause at once, and ends the allocator after so many of them."""

    def __init__(self, said: list[str], end_after: int) -> None:
        self.said, self.end_after, self.time = said, end_after, 0.0
        self.allocator: Allocator | None = None

    def __call__(self) -> float:
        self.time += 1000.0
        if len(self.said) >= self.end_after:
            assert self.allocator is not None
            self.allocator._is_ending = True
        return self.time


def profiles() -> Profiles:
    return find_profiles(Path.cwd(), {}, "")


def allocator(opened: Any, most: int, say: Any, monotonic: Any) -> Allocator:
    with open_service() as service:
        cluster = Cluster(service.home)
    return Allocator(cluster, opened, profiles().by_name, pilots_max=most, say=say, monotonic=monotonic)


# -- pilots that fail --------------------------------------------------------------------------------------------------


def fail(slurm: FakeSlurm, folder: Path, number: int, said: str) -> None:
    """The pilot ends by itself, with this output."""
    (job,) = (one for one in slurm.jobs if one["index"] == number and one["state"] == "PENDING")
    output = folder / ".mulligan/slurm" / f"{job['name']}.{job['array_id']}_{number}.out"
    output.write_text(said)
    slurm.change(number, state="FAILED", node="n1")


def test_pilots_that_fail_before_their_worker_joins_open_the_breaker_of_their_profile(
    slurm: FakeSlurm, store: Store, turn: Turn, folder: Path
) -> None:
    queued(store, turn, 1)
    for _ in range(3):
        auto(5)
        fail(slurm, folder, 1, "module: command not found\n")

    said = auto(5)
    auto(5)

    assert "ended before its worker joined (FAILED): module: command not found" in said
    assert "no pilots of profile 'default' until" in said
    assert len(slurm.calls("sbatch")) == 3
    (breaker,) = store.breakers()
    assert (breaker.name, breaker.status, breaker.failures) == ("slurm:default", "open", 3)
    assert ends(store, turn) == []
    assert "breaker 'slurm:default' is open" in mulligan("slurm", "status").out
    mulligan("breakers", "--reset", "slurm:default")
    auto(5)
    assert numbers(slurm) == [1]


def test_a_pilot_whose_worker_was_up_does_not_count_as_failed(
    slurm: FakeSlurm, store: Store, turn: Turn, folder: Path
) -> None:
    queued(store, turn, 1)
    for _ in range(4):
        auto(5)
        fail(slurm, folder, 1, "worker n1.17.abc is up: 2 cpus, 1GiB\nKilled\n")

    assert len(slurm.calls("sbatch")) == 4
    assert store.breakers() == []


# -- drain -------------------------------------------------------------------------------------------------------------


def test_drain_cancels_what_waits_and_asks_what_runs_to_finish(slurm: FakeSlurm, store: Store, turn: Turn) -> None:
    queued(store, turn, 6)
    auto(3)
    slurm.change(2, state="RUNNING")

    said = mulligan("slurm", "drain")

    assert said.out == (
        "cancelled 2 pilots before the start: 101_1, 101_3\nasked 1 pilot to end after its tasks: 101_2\n"
    )
    assert [call[1:] for call in slurm.calls("scancel")] == [
        ["--quiet", "--state=PENDING", "101_1", "101_3"],
        ["--quiet", "--signal=USR1", "--batch", "101_2"],
    ]


def test_drain_now_ends_what_runs(slurm: FakeSlurm, store: Store, turn: Turn) -> None:
    queued(store, turn, 4)
    auto(2)
    slurm.change(2, state="RUNNING")

    assert mulligan("slurm", "drain", "--now", "--json").json == {
        "cancelled": ["101_1"],
        "asked": [],
        "interrupted": ["101_2"],
    }
    assert slurm.active == []


def test_an_allocator_that_was_drained_submits_nothing_more_and_ends(
    slurm: FakeSlurm, store: Store, turn: Turn
) -> None:
    queued(store, turn, 2)
    said: list[str] = []
    running = allocator(lambda: store, 3, said.append, lambda: 0.0)
    only_gpu = allocator(lambda: store, 3, said.append, lambda: 0.0)

    mulligan("slurm", "drain", "--profile", "gpu")
    assert only_gpu.poll().submitted
    mulligan("slurm", "drain")

    assert running.poll().submitted == ()
    assert running.serve(0.0) == "it was drained"


# -- crashes and rivals -----------------------------------------------------------------------------------------------


Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture(scope="module")
def forking() -> Iterator[str]:
    """The text of a program that calls `mulligan` in a process of its own."""
    with forked_cli(os.environ) as text:
        yield text


@pytest.fixture
def process(forking: str, folder: Path) -> Start:
    """Starts `mulligan` with these words."""
    program = folder / "mulligan"
    program.write_text(forking)
    program.chmod(0o755)
    null = subprocess.DEVNULL
    return lambda *words: subprocess.Popen([str(program), *map(str, words)], stdin=null, stdout=null, stderr=null)


@pytest.mark.parametrize(
    ("at_call", "when"),
    [
        # By day: nothing is submitted yet; one profile has been, and its pilots are not recorded.
        (2, "before"),
        (2, "after"),
        *(pytest.param(*row, marks=pytest.mark.nightly) for row in product((1, 3), ("before", "after"))),
    ],
)
def test_an_allocator_that_is_killed_at_any_of_its_calls_leaves_no_duplicate(
    slurm: FakeSlurm, store: Store, turn: Turn, process: Start, at_call: int, when: str
) -> None:
    queued(store, turn, 4)
    queued(store, turn, 2, "g", gpus=1, labels=("gpu",))
    # squeue, sbatch of one profile, sbatch of the other.
    slurm.kill_caller(at_call=at_call, when=when)

    killed = process("slurm", "auto", "--max", 4, "--once")
    assert killed.wait(30) == -signal.SIGKILL
    auto(4)

    assert len(slurm.active) == len(set(slurm.active)) == 4
    assert len([job for job in slurm.jobs if job["state"] == "PENDING"]) == 4


def test_nobody_looks_while_the_sbatch_of_a_killed_allocator_is_still_at_work(
    slurm: FakeSlurm, store: Store, turn: Turn, process: Start
) -> None:
    queued(store, turn, 4)
    slurm.kill_caller(at_call=1, when="before", program="sbatch", linger=1.0)

    killed = process("slurm", "auto", "--max", 4, "--once")
    assert killed.wait(30) == -signal.SIGKILL
    auto(4)

    assert numbers(slurm) == [1, 2]
    assert len(slurm.calls("sbatch")) == 1


def test_allocators_at_the_same_time_submit_as_much_as_one(
    slurm: FakeSlurm, store: Store, turn: Turn, process: Start
) -> None:
    queued(store, turn, 20)

    several = [process("slurm", "auto", "--max", 5, "--once") for _ in range(3)]

    assert [one.wait(60) for one in several] == [0, 0, 0]
    assert numbers(slurm) == [1, 2, 3, 4, 5]
    assert len(slurm.calls("sbatch")) == 1


@pytest.mark.nightly
def test_a_pilot_is_known_by_its_name_whoever_submitted_it(slurm: FakeSlurm, store: Store, turn: Turn) -> None:
    queued(store, turn, 4)

    mulligan("slurm", "submit", 2)
    auto(5)

    assert len(slurm.calls("sbatch")) == 1
    with open_service() as service:
        store_id = Cluster(service.home).store
    assert {name for name, _ in slurm.active} == {f"mulligan-{store_id}-default-c2m1024"}
