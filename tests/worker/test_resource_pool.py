"""What a worker takes: by its room, and a few short tasks ahead."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.work import GIB, Announcements, Work

from mulligan.core.effects.tasks import Task
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.reports import TaskEnded, TaskInterrupted
from mulligan.ports import Lease, Offer
from mulligan.worker.slots.resource_pool import ResourcePool

# By day: none of these tests is about how a child starts.
pytestmark = pytest.mark.usefixtures("forked_children")


def filled(work: Work, **fields: object) -> int:
    """How many such tasks fit."""
    count = 0
    while work.executor.fits(task := work.shell("true", **fields).task):
        work.executor.reserve(task)
        count += 1
        assert count < 100
    return count


@pytest.mark.parametrize(
    ("fields", "count"),
    [
        ({}, 4),
        ({"cpus": 0.1}, 40),
        ({"cpus": 3.0}, 1),
        ({"memory": GIB}, 2),
        ({"gpus": 1}, 1),
        ({"labels": ("ssd",)}, 4),
    ],
)
def test_tasks_fit_until_something_is_used_up(tmp_path: Path, fields: dict[str, object], count: int) -> None:
    work = Work(tmp_path, cpus=4, memory=2 * GIB, gpus=1, labels=("ssd", "fast"))

    assert filled(work, **fields) == count
    work.close()


@pytest.mark.parametrize("fields", [{"cpus": 2.5}, {"memory": 5 * GIB}, {"gpus": 1}, {"labels": ("ssd",)}])
def test_what_is_more_than_there_is_can_never_be_taken(work: Work, fields: dict[str, object]) -> None:
    assert not work.executor.can_ever_fit(work.shell("true", **fields).task)
    assert not work.executor.fits(work.shell("true", **fields).task)


def test_what_is_lacking_is_said_with_what_there_is(tmp_path: Path) -> None:
    work = Work(tmp_path, cpus=1, memory=GIB, gpus=2, labels=("ssd",))
    task = work.shell("true", cpus=2.5, memory=2 * GIB, gpus=3, labels=("ssd", "fast")).task

    assert work.executor.missing_resources(task) == (
        "2.5 cpus (there is 1; --parallel 3 allows it), "
        "2.0GiB of memory (there is 1.0GiB; --memory 2GiB allows it), "
        "3 gpus (there are 2; --gpus 3 allows it), "
        "label 'fast' (it has none; a worker with --labels fast has it)"
    )
    work.close()


def waiting_tasks(work: Work, cpus: float = 0.1) -> int:
    """How many tasks fit that wait for another machine."""
    return filled(work, cpus=cpus, waits=True)


@pytest.mark.parametrize(
    ("options", "cpus", "count"),
    [
        # half of the processors, and one at least
        ({"cpus": 2}, 0.1, 10),
        ({"cpus": 8, "memory": 64 * GIB}, 0.1, 40),
        ({"cpus": 1}, 0.1, 10),
        ({"cpus": 8, "memory": 64 * GIB}, 0.25, 16),
        # there is no memory for as many processes; but never fewer than processors
        ({"cpus": 2, "memory": GIB // 2}, 0.1, 4),
        ({"cpus": 2, "memory": 1}, 0.1, 2),
        # the user has said how many
        ({"cpus": 3, "counts_waiting": True}, 0.1, 3),
    ],
)
def test_so_many_tasks_wait_at_once(tmp_path: Path, options: dict[str, object], cpus: float, count: int) -> None:
    work = Work(tmp_path, **options)

    assert waiting_tasks(work, cpus) == count
    work.close()


def test_tasks_that_wait_leave_half_of_the_processors_to_others(work: Work) -> None:
    waiting_tasks(work)

    assert work.executor.offer() == Offer(1.0, 4 * GIB, 0, (), "here", 1, refused_cpus=(0.1, 0.25))
    assert filled(work) == 1


@pytest.mark.parametrize("cpus", [1, 1.5])
def test_fewer_than_two_processors_are_offered_to_others_whatever_waits(tmp_path: Path, cpus: float) -> None:
    """Otherwise each request that ends makes room for another request only, and a computation starts after the last."""
    work = Work(tmp_path, cpus=cpus)
    waiting_tasks(work)

    offered = work.executor.offer()

    assert (offered.cpus, offered.tasks_max, offered.refused_cpus) == (cpus, math.ceil(cpus), (0.1, 0.25))
    assert filled(work) == 1
    work.close()


def test_one_processor_that_computes_is_offered_to_tasks_that_wait(tmp_path: Path) -> None:
    work = Work(tmp_path, cpus=1)
    assert filled(work) == 1

    offered = work.executor.offer()

    assert (offered.cpus, offered.tasks_max, offered.refused_cpus) == (0.25, 1, ())
    assert (waiting_tasks(work), filled(work)) == (10, 0)
    assert work.executor.offer().tasks_max == 0
    work.close()


def test_a_task_that_asks_for_a_share_itself_is_not_one_that_waits(work: Work) -> None:
    assert filled(work, cpus=0.1) == 20


def test_room_that_was_kept_for_nothing_is_given_back(work: Work) -> None:
    task = work.shell("true", cpus=2.0, memory=GIB).task

    work.executor.reserve(task)
    kept = work.executor.offer()
    work.executor.unreserve(task)

    assert kept == Offer(0.0, 3 * GIB, 0, (), "here", 0)
    assert work.executor.offer() == Offer(2.0, 4 * GIB, 0, (), "here", 2)


def test_room_is_free_again_when_the_end_is_told(work: Work) -> None:
    work.run_shell("true", cpus=2.0)

    assert work.executor.offer().cpus == 2.0


def test_room_is_free_again_when_a_task_could_not_start(work: Work) -> None:
    work.run_shell("true", cwd="/nowhere")
    work.run_shell("true", env={"a": "\0"})

    assert work.executor.offer().cpus == 2.0


# -- ahead -----------------------------------------------------------------------------------------------------------


def blocked(work: Work, name: str) -> Lease:
    return work.shell(f"read x < {work.folder}/{name}; echo {name}")


@pytest.fixture
def short(tmp_path: Path) -> Work:
    """A worker with one slot that has seen a short task."""
    work = Work(tmp_path, cpus=1, prefetch=2)
    work.run_shell("true")
    os.mkfifo(work.folder / "go")
    return work


def test_nothing_is_taken_ahead_before_a_short_task_was_seen(work: Work) -> None:
    assert filled(work) == 2


def test_after_a_short_task_some_more_fit_than_there_are_slots(short: Work) -> None:
    assert filled(short) == 3
    short.close()


@pytest.mark.parametrize("fields", [{"cpus": 0.5}, {"memory": 1}, {"labels": ("a",)}])
def test_only_plain_tasks_are_taken_ahead(short: Work, fields: dict[str, object]) -> None:
    short.executor.reserve(short.shell("true").task)

    assert not short.executor.fits(short.shell("true", **fields).task)
    short.close()


def test_what_was_taken_ahead_starts_when_another_one_ends_and_in_order(short: Work) -> None:
    leases = [blocked(short, "go"), short.shell("echo a >> order"), short.shell("echo b >> order")]
    short.start(*leases)
    is_full = not short.executor.fits(short.shell("true").task)
    (short.folder / "go").write_text("\n")

    reports = short.reports(3)

    assert is_full
    assert [report.place for report in reports] == [lease.task.place for lease in leases]
    assert (short.folder / "order").read_text() == "a\nb\n"
    assert (short.executor.offer().cpus, filled(short)) == (1.0, 3)
    short.close()


def test_what_waits_starts_also_when_a_python_step_makes_room(short: Work) -> None:
    python = short.python("def main(go): open(go).read()", {"go": str(short.folder / "go")})
    short.start(python, short.shell("echo after"))
    (short.folder / "go").write_text("")

    reports = short.reports(2)

    assert [report.output for report in reports if isinstance(report, TaskEnded)] == [None, "after"]
    short.close()


def test_what_waits_does_not_start_in_the_place_of_one_that_had_less_than_a_cpu(tmp_path: Path) -> None:
    work = Work(tmp_path, cpus=1.5, prefetch=1)
    work.run_shell("true")
    for name in ("go", "half"):
        os.mkfifo(work.folder / name)
    half = work.shell("read x < half", cpus=0.5)
    work.start(blocked(work, "go"), half, work.shell("echo after >> order"))

    (work.folder / "half").write_text("\n")
    work.reports()
    is_waiting = not (work.folder / "order").exists()
    (work.folder / "go").write_text("\n")
    work.reports(2)

    assert is_waiting
    assert (work.folder / "order").read_text() == "after\n"
    assert work.executor.offer().cpus == 1.5
    work.close()


def test_one_that_waits_and_cannot_start_keeps_nobody_waiting(short: Work) -> None:
    short.start(blocked(short, "go"), short.shell("true", cwd="gone"), short.shell("echo last"))
    (short.folder / "go").write_text("\n")

    reports = short.reports(3)

    assert [getattr(report, "output", None) for report in reports] == ["go", None, "last"]
    assert short.executor.offer().cpus == 1.0
    short.close()


def test_one_that_waits_can_be_stopped_and_never_starts(short: Work) -> None:
    waiting = short.shell("touch started")
    short.start(blocked(short, "go"), waiting)

    short.executor.stop(waiting.token, 10.0)
    (report,) = short.reports()
    (short.folder / "go").write_text("\n")
    short.reports()

    assert isinstance(report, TaskEnded)
    assert report.outcome == Outcome(exit_code=None, signal=15, is_stopped=True)
    assert not (short.folder / "started").exists()
    short.close()


def test_when_all_is_stopped_those_that_wait_are_interrupted_too(short: Work) -> None:
    short.start(blocked(short, "go"), short.shell("touch started"))

    short.executor.stop_all(0.0)
    reports = short.reports(2)

    assert [type(report) for report in reports] == [TaskInterrupted, TaskInterrupted]
    assert not (short.folder / "started").exists()
    short.close()


def test_what_waits_counts_as_running(short: Work) -> None:
    leases = [blocked(short, "go"), short.shell("true")]
    short.start(*leases)

    assert list(short.executor.running) == leases
    short.executor.drop_all()
    assert list(short.executor.running) == []
    short.close()


def test_collect_returns_when_what_is_watched_has_something(work: Work) -> None:
    reading, writing = os.pipe()
    work.executor.watch(reading)
    os.write(writing, b"x")

    assert work.executor.collect(None) == []
    work.executor._selector.unregister(reading)
    os.close(reading)
    os.close(writing)


def test_a_watched_descriptor_may_be_closed_and_its_number_be_used_again(work: Work) -> None:
    reading, writing = os.pipe()
    work.executor.watch(reading)
    work.executor.watch(reading)
    os.close(reading)
    os.close(writing)

    # A child's socket takes the number.
    report = work.run_python("def main(): return 1")

    assert report.output == 1


def test_a_hundred_short_tasks_all_end_once(work: Work, announcements: Announcements) -> None:
    leases = [work.shell(f"echo {number}") for number in range(100)]
    waiting, outputs = list(leases), []

    while len(outputs) < 100:
        while waiting and work.executor.fits(waiting[0].task):
            work.start(waiting.pop(0))
        outputs += [report.output for report in work.reports() if isinstance(report, TaskEnded)]

    assert sorted(outputs, key=int) == [str(number) for number in range(100)]
    assert work.executor.offer().cpus == 2.0


def test_a_task_of_several_nodes_waits_until_the_worker_is_idle_and_then_has_it_for_itself():
    pool = ResourcePool(4.0, GIB, 0, (), nodes=3)
    small, wide = shaped(), shaped(nodes=3)

    pool.reserve(small)
    assert (pool.fits(wide), pool.fits(small), pool.offer("h").nodes) == (False, True, 1)
    pool.release(small)
    assert (pool.fits(wide), pool.offer("h").nodes) == (True, 3)
    pool.reserve(wide)
    assert (pool.fits(small), pool.fits(wide), pool.offer("h").tasks_max) == (False, False, 0)
    pool.release(wide)
    assert pool.fits(small)


def test_more_nodes_than_the_allocation_has_can_never_be_taken():
    pool = ResourcePool(4.0, GIB, 0, (), nodes=2)

    assert pool.can_ever_fit(shaped(nodes=2)) and not pool.can_ever_fit(shaped(nodes=3))
    assert pool.missing_resources(shaped(nodes=3)) == "3 nodes (there are 2; a Slurm job with --nodes 3 has them)"


def test_a_worker_for_several_nodes_leaves_small_tasks_to_others():
    pool = ResourcePool(4.0, GIB, 0, (), nodes=2, nodes_min=2)

    assert not pool.can_ever_fit(shaped()) and not pool.fits(shaped())
    assert (pool.fits(shaped(nodes=2)), pool.offer("h").nodes_min) == (True, 2)


def shaped(**fields: object) -> Task:
    return Task(1, "a", 1, "shell", {}, "w", "v", "a", 1, **fields)  # type: ignore[arg-type]


SHARES = (0.05, 0.1, 0.2, 0.25, 0.3, 0.5, 0.7, 1.0, 1.1, 2.0)


def part(number: int, cpus: float) -> Task:
    known = {"run_id": 1, "attempt": 1, "kind": "shell", "params": {}, "workflow": "w", "version": "v", "visit": 1}
    return Task(place=str(number), step="a", cpus=cpus, **known)  # type: ignore[arg-type]


def test_shares_of_processors_that_were_taken_and_given_back_leave_all_of_them() -> None:
    """0.05 + 1 + 0.1 - 1 - 0.05 - 0.1 is not 0: a task for all processors would never fit into what is offered."""
    pool = ResourcePool(2, GIB, 0, ())
    first, second, third = (part(number, cpus) for number, cpus in enumerate((0.05, 1.0, 0.1)))
    for task in (first, second, third):
        pool.reserve(task)
    for task in (second, first, third):
        pool.release(task)

    assert pool.offer("here").cpus == 2.0


@given(st.lists(st.tuples(st.sampled_from(SHARES), st.integers(0, 30)), max_size=40))
def test_what_fits_is_offered(steps: list[tuple[float, int]]) -> None:
    """The store compares what a task asks for with the offer, and knows of no tolerance."""
    pool, taken = ResourcePool(4, GIB, 0, ()), list[Task]()
    for number, (cpus, which) in enumerate(steps):
        task = part(number, cpus)
        if pool.fits(task):
            assert cpus <= pool.offer("here").cpus
            pool.reserve(task)
            taken.append(task)
        elif taken:
            pool.release(taken.pop(which % len(taken)))
    while taken:
        pool.release(taken.pop(0))

    assert pool.offer("here").cpus == 4.0
