"""Which Dask worker gets a task."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from mulligan.core.effects.tasks import Task
from mulligan.core.model.events import AvoidedHosts
from mulligan.dask_executor.cluster_capacity import AHEAD_PER_CPU, ClusterCapacity, Slots, slots_of

NOW = datetime(2026, 11, 17, tzinfo=UTC)
GIB = 1 << 30


def task(place: str = "a", **fields: Any) -> Task:
    known = {"run_id": 1, "attempt": 1, "kind": "python", "params": {}, "workflow": "w", "version": "v", "visit": 1}
    return Task(place=place, step=place, **{**known, **fields})


def cluster(**workers: Slots) -> ClusterCapacity:
    found = ClusterCapacity()
    for name, slots in workers.items():
        found.add(name, slots, f"host of {name}")
    return found


def reserve(capacity: ClusterCapacity, *tasks: Task) -> list[str]:
    for one in tasks:
        capacity.reserve(one, NOW)
    return [capacity.place_of(one) for one in tasks]


def test_processors_of_two_workers_do_not_add_up_for_one_task() -> None:
    capacity = cluster(a=Slots(2, GIB), b=Slots(2, GIB))

    assert not capacity.can_ever_fit(task(cpus=4))
    assert capacity.missing_resources(task(cpus=4)) == "4 cpus (the largest Dask worker has 2)"
    assert [capacity.fits(task(str(n)), NOW) and reserve(capacity, task(str(n))) for n in range(5)] == [
        *(["a"], ["b"], ["a"], ["b"]),
        False,
    ]


def test_a_task_needs_everything_on_one_worker() -> None:
    capacity = cluster(cpus=Slots(8, GIB), memory=Slots(1, 64 * GIB))

    assert not capacity.can_ever_fit(task(cpus=4, memory=8 * GIB))
    assert "single Dask worker" in capacity.missing_resources(task(cpus=4, memory=8 * GIB))


def test_without_a_worker_a_task_waits_and_nobody_says_that_it_can_never_run() -> None:
    capacity = cluster()

    assert capacity.can_ever_fit(task(cpus=64))
    assert not capacity.fits(task(), NOW)
    assert reserve(capacity, task()) == [""]
    capacity.add("late", Slots(2, GIB), "there")
    assert capacity.move(task(), NOW) == "late"


def test_gpus_are_left_to_those_who_ask_for_them() -> None:
    capacity = cluster(gpu=Slots(8, GIB, gpus=1), plain=Slots(1, GIB))

    assert reserve(capacity, task("plain"), task("gpu", gpus=1)) == ["plain", "gpu"]


def test_a_bound_task_goes_to_its_host_and_one_that_avoids_a_host_does_not() -> None:
    capacity = cluster(a=Slots(2, GIB), b=Slots(4, GIB))
    avoiding = task("avoiding", avoids=AvoidedHosts(("host of b",), NOW + timedelta(minutes=1)))

    assert reserve(capacity, task("bound", host="host of a"), avoiding) == ["a", "a"]
    assert not capacity.fits(avoiding, NOW)
    assert capacity.fits(avoiding, NOW + timedelta(minutes=1))
    assert capacity.fits(task("elsewhere", host="a host that is gone"), NOW)


def test_small_tasks_are_sent_ahead_only_while_tasks_are_short() -> None:
    capacity = cluster(a=Slots(1, GIB))
    reserve(capacity, task("first"))

    assert not capacity.fits(task("second"), NOW)
    capacity.record_duration(0.001)
    assert capacity.fits(task("second"), NOW)
    assert not capacity.fits(task("careful", is_careful=True), NOW)
    assert not capacity.fits(task("large", memory=1), NOW)
    reserve(capacity, *(task(f"ahead {number}") for number in range(AHEAD_PER_CPU)))
    assert not capacity.fits(task("second"), NOW)


def test_a_task_that_was_sent_ahead_takes_the_place_of_one_that_ends() -> None:
    capacity = cluster(a=Slots(1, GIB))
    capacity.record_duration(0.001)
    reserve(capacity, task("first"), task("ahead"))

    capacity.release(task("first"))

    assert capacity.misplaced() == {}
    capacity.release(task("ahead"))
    assert capacity.offer("here").tasks_max == 1


def test_tasks_that_wait_at_one_worker_are_misplaced_once_another_has_nothing_to_do() -> None:
    capacity = cluster(a=Slots(1, GIB))
    capacity.record_duration(0.001)
    reserve(capacity, task("runs"), task("older"), task("younger"))
    assert capacity.misplaced() == {}

    capacity.add("b", Slots(1, GIB), "there")

    assert capacity.misplaced() == {"a": [task("younger")]}
    assert capacity.move(task("younger"), NOW) == "b"
    assert capacity.misplaced() == {}


def test_parallel_bounds_the_processors_of_the_whole_cluster() -> None:
    capacity = ClusterCapacity(cpus_max=2)
    capacity.add("a", Slots(8, GIB), "there")
    reserve(capacity, task("one"), task("two"))

    assert not capacity.fits(task("three"), NOW)
    assert capacity.offer("here").tasks_max == 0


def test_what_a_worker_has_is_read_from_its_description() -> None:
    described = {"nthreads": 4, "memory_limit": 8 * GIB, "resources": {"GPU": 2.0, "fast": 1.0}, "name": "alice"}

    assert slots_of(described, GIB) == Slots(4.0, 8 * GIB, 2, ("dask", "fast", "alice"))
    assert slots_of({"nthreads": 1, "memory_limit": 0, "resources": {}, "name": 0}, GIB) == Slots(
        1.0, GIB, labels=("dask",)
    )
    assert slots_of({"nthreads": 1, "memory_limit": 1, "name": "tcp://127.0.0.1:1"}, GIB).labels == ("dask",)
