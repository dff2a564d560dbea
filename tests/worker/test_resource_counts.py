"""What a worker counts, without a process: what fits, what it offers, which GPUs a task has, what it takes ahead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mulligan.core.deciding.workers.breaker import Guard
from mulligan.core.effects.tasks import Task
from mulligan.core.model.actions import AGENT_CPUS, REQUEST_CPUS
from mulligan.ports import Lease, Offer
from mulligan.worker.slots.resource_pool import VISIBLE_GPUS, Prefetch, ResourcePool, visible_gpus

GIB = 2**30
MIB = 2**20
numbers = iter(range(1, 10_000))


def task(**fields: Any) -> Task:
    fields.setdefault("kind", "shell")
    return Task(1, "a", next(numbers), params={}, workflow="w", version="v", step="a", visit=1, **fields)


def request(**fields: Any) -> Task:
    """A task that waits for another machine."""
    return task(**{"waits": True, "cpus": REQUEST_CPUS, **fields})


def pool(cpus: float = 4.0, memory: int = 64 * GIB, gpus: int = 0, labels: Any = (), **fields: Any) -> ResourcePool:
    return ResourcePool(cpus, memory, gpus, labels, **fields)


def filled(found: ResourcePool, one: Any, count_max: int = 10_000) -> int:
    """How many such tasks are reserved until no more fit."""
    count = 0
    while count < count_max and found.fits(new := one()):
        found.reserve(new)
        count += 1
    return count


# -- what fits -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "count"),
    [
        ({}, 4),
        ({"cpus": 0.1}, 40),
        ({"cpus": 3.0}, 1),
        ({"cpus": 4.0}, 1),
        ({"cpus": 4.1}, 0),
        ({"memory": 32 * GIB}, 2),
        ({"memory": 33 * GIB}, 1),
        ({"memory": 65 * GIB}, 0),
        ({"gpus": 1}, 2),
        ({"gpus": 2}, 1),
        ({"gpus": 3}, 0),
        ({"labels": ("big",)}, 4),
        ({"labels": ("big", "late")}, 4),
        ({"labels": ("other",)}, 0),
    ],
)
def test_tasks_fit_until_something_is_used_up_and_one_that_never_fits_can_never_be_taken(
    asked: dict[str, Any], count: int
) -> None:
    found = pool(gpus=2, labels=("big",), more_labels=lambda: ("late",))

    assert found.can_ever_fit(task(**asked)) == (count > 0)
    assert filled(found, lambda: task(**asked)) == count


def test_a_worker_that_is_full_offers_nothing_and_one_without_a_limit_of_memory_takes_what_asks_for_none() -> None:
    found = pool(4.0, 0)

    assert found.can_ever_fit(task())
    assert filled(found, task) == 4
    assert (found.offer("h").cpus, found.offer("h").tasks_max) == (0.0, 0)


def test_what_ends_makes_room_for_another() -> None:
    found = pool(1.0, GIB, 1)
    one = task(memory=GIB, gpus=1)

    found.reserve(one)
    assert not found.fits(task(cpus=0.1)) and not found.fits(task(cpus=0.0, memory=1))
    assert found.offer("h") == Offer(AGENT_CPUS, 0, 0, (), host="h", tasks_max=1)
    found.release(one)

    assert found.fits(one)
    assert found.offer("h") == Offer(1.0, GIB, 1, (), host="h", tasks_max=1)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"cpus": 4.5}, "4.5 cpus (there are 4; --parallel 5 allows it)"),
        ({"memory": 2 * GIB}, "2.0GiB of memory (there is 1.0GiB; --memory 2GiB allows it)"),
        ({"memory": GIB + 3 * MIB}, "1.0GiB of memory (there is 1.0GiB; --memory 1027MiB allows it)"),
        ({"memory": GIB + 1}, "1.0GiB of memory (there is 1.0GiB; --memory 1025MiB allows it)"),
        ({"gpus": 2}, "2 gpus (there is 1; --gpus 2 allows it)"),
        ({"nodes": 2}, "2 nodes (there is 1; a Slurm job with --nodes 2 has them)"),
        (
            {"labels": ("big", "a", "b")},
            "label 'a' (it has none; a worker with --labels a has it), "
            "label 'b' (it has none; a worker with --labels b has it)",
        ),
        ({"cpus": 4.0, "memory": GIB, "gpus": 1, "labels": ("big",)}, ""),
    ],
)
def test_what_is_lacking_is_said_with_the_option_that_helps(asked: dict[str, Any], words: str) -> None:
    assert pool(4.0, GIB, 1, ("big",)).missing_resources(task(**asked)) == words


def test_without_a_gpu_there_is_none() -> None:
    assert pool().missing_resources(task(gpus=1)) == "1 gpu (there is none; --gpus 1 allows it)"


def test_what_asks_for_no_memory_lacks_none_where_there_is_none() -> None:
    assert pool(4.0, 0).missing_resources(task()) == ""


# -- tasks that wait -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("worker", "asked", "count"),
    [
        # Half of the processors, ten requests or four agents for each.
        ({"cpus": 4.0}, {}, 20),
        ({"cpus": 4.0}, {"cpus": AGENT_CPUS}, 8),
        # At least one processor, also where that is all.
        ({"cpus": 1.0}, {}, 10),
        ({"cpus": 0.5}, {}, 10),
        # Each counts as a whole one if the user has said how many run at once.
        ({"cpus": 4.0, "counts_waiting": True}, {}, 4),
        # More if there is little memory: 640 MiB for ten requests; and never more than half a processor.
        ({"cpus": 4.0, "memory": 4 * 320 * MIB}, {}, 10),
        ({"cpus": 4.0, "memory": 64 * MIB}, {}, 4),
        ({"cpus": 4.0, "memory": 0}, {}, 4),
        ({"cpus": 4.0, "memory": 4 * 640 * MIB}, {}, 20),
        ({"cpus": 4.0, "memory": 4 * 1280 * MIB}, {}, 20),
    ],
)
def test_so_many_tasks_wait_at_once(worker: dict[str, Any], asked: dict[str, Any], count: int) -> None:
    assert filled(pool(**worker), lambda: request(**asked)) == count


def test_tasks_that_wait_leave_half_of_the_processors_to_others_and_ask_for_no_more() -> None:
    found = pool(4.0)
    waiting = request()
    found.reserve(waiting)
    before = found.offer("h")
    filled(found, request)

    assert (before.refused_cpus, found.offer("h").refused_cpus) == ((), (REQUEST_CPUS, AGENT_CPUS))
    assert filled(found, task) == 2
    found.release(waiting)
    assert found.offer("h").refused_cpus == ()
    assert filled(found, request) == 1


def test_while_others_compute_on_all_of_several_processors_no_task_waits_beside_them() -> None:
    found = pool(4.0)
    filled(found, task)

    assert not found.fits(request())


def test_on_one_processor_tasks_that_wait_and_others_do_not_keep_each_other_waiting() -> None:
    found = pool(1.0)
    found.reserve(task())

    assert found.offer("h").cpus == AGENT_CPUS
    assert found.offer("h").tasks_max == 1
    assert filled(found, request, 9) == 9
    assert found.offer("h").cpus == pytest.approx(0.1)
    assert filled(found, request) == 1
    assert (found.offer("h").cpus, found.offer("h").tasks_max) == (0.0, 0)
    assert not found.fits(task(cpus=0.1))


def test_waiting_tasks_of_a_user_who_counts_them_are_offered_whole_processors_and_none_is_refused() -> None:
    found = pool(1.0, counts_waiting=True)
    found.reserve(request())

    assert (found.offer("h").cpus, found.offer("h").refused_cpus) == (0.0, ())
    assert not found.fits(task())


@pytest.mark.parametrize(("cpus", "apart"), [(1.9, True), (2.0, False)])
def test_from_two_processors_on_waiting_tasks_take_from_those_of_others(cpus: float, apart: bool) -> None:
    found = pool(cpus)
    filled(found, request)

    assert found.fits(task(cpus=cpus)) == apart


# -- nodes -----------------------------------------------------------------------------------------------------------


def test_a_task_of_several_nodes_needs_an_idle_worker_and_offers_say_so() -> None:
    found = pool(4.0, nodes=3, nodes_min=2)
    wide = task(nodes=2)

    assert (found.offer("h").nodes, found.offer("h").nodes_min) == (3, 2)
    found.reserve(wide)
    assert (found.offer("h").nodes, found.offer("h").tasks_max) == (1, 0)
    alone = pool(4.0, nodes=3)
    alone.reserve(wide)
    assert not alone.fits(task())
    found.release(wide)
    assert (found.offer("h").tasks_max, found.can_ever_fit(task(nodes=4)), found.can_ever_fit(task())) == (
        4,
        False,
        False,
    )


def test_a_worker_of_several_nodes_takes_a_task_for_them_only_while_nothing_else_runs() -> None:
    found = pool(4.0, nodes=3)
    small, wide = task(), task(nodes=2)

    assert found.can_ever_fit(wide) and found.fits(wide)
    assert not found.fits(task(nodes=4))
    found.reserve(small)
    assert (found.can_ever_fit(wide), found.fits(wide), found.fits(task())) == (True, False, True)
    found.release(small)
    assert found.fits(wide)


# -- GPUs ------------------------------------------------------------------------------------------------------------


def test_each_task_has_gpus_of_its_own_by_their_names() -> None:
    found = pool(gpus=2, environ={VISIBLE_GPUS: "GPU-a,GPU-b,GPU-c"})
    one, other = task(gpus=1), task(gpus=1)

    def named(which: Task) -> str:
        return found.assign_gpus(Lease(which, "w", 1)).task.env[VISIBLE_GPUS]

    found.reserve(one)
    found.reserve(other)
    assert (named(one), named(other)) == ("GPU-a", "GPU-b")
    found.release(one)
    third = task(gpus=1)
    found.reserve(third)
    assert (named(other), named(third)) == ("GPU-b", "GPU-a")


def test_a_task_has_several_gpus_by_number_and_may_name_them_itself() -> None:
    both, own, plain = task(gpus=2), task(gpus=1, env={VISIBLE_GPUS: "7"}), task(env={"A": "1"})
    found = pool(gpus=3, environ={VISIBLE_GPUS: "GPU-a"})
    for one in (both, own, plain):
        found.reserve(one)

    envs = [found.assign_gpus(Lease(one, "w", 1)).task.env for one in (both, own, plain)]

    assert envs == [{"CUDA_VISIBLE_DEVICES": "0,1"}, {VISIBLE_GPUS: "7"}, {"A": "1"}]
    found.release(plain)
    assert not found.fits(task(gpus=1))


@pytest.mark.parametrize("visible", ["GPU-a,GPU-b", "GPU-a,GPU-b,GPU-c"])
def test_a_worker_hands_out_no_gpu_beyond_those_that_it_counts(visible: str) -> None:
    found = pool(gpus=2, environ={VISIBLE_GPUS: visible})
    greedy = task(gpus=3)

    found.reserve(greedy)

    assert found.assign_gpus(Lease(greedy, "w", 1)).task.env == {VISIBLE_GPUS: "GPU-a,GPU-b"}


@pytest.mark.parametrize(
    ("said", "count"), [("", 0), ("0,1", 2), (" 0 , MIG-x", 2), ("0,-1,2", 1), ("GPU-a,NoDevFiles,1", 1)]
)
def test_gpus_are_counted_as_cuda_does(said: str, count: int, tmp_path: Path) -> None:
    (tmp_path / "nvidia0").touch()

    assert visible_gpus({VISIBLE_GPUS: said}, tmp_path) == count
    assert visible_gpus({}, tmp_path) == 1


def test_only_devices_with_a_number_are_gpus(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia12", "nvidiactl", "nvidia-uvm", "sda1", "xvidia00"):
        (tmp_path / name).touch()

    assert visible_gpus({}, tmp_path) == 2
    assert visible_gpus({}, tmp_path / "gone") == 0
    assert visible_gpus({}) == visible_gpus({}, "/dev")


# -- tasks that are taken ahead --------------------------------------------------------------------------------------


def prefetch(average: float | None = 0.001, slots: int = 2, **fields: Any) -> Prefetch:
    found = Prefetch(slots, **fields)
    if average is not None:
        found.record_duration(average)
    return found


def test_nothing_is_taken_ahead_before_it_is_known_how_long_tasks_take() -> None:
    assert not prefetch(None).has_room(task())
    assert not prefetch(None).fits(task())
    assert prefetch(None, is_ahead=True).room_ahead == 0


@pytest.mark.parametrize(
    ("average", "fields", "has_room", "fits"),
    [
        (0.0, {}, True, True),
        (0.001, {}, True, True),
        (0.049, {}, True, True),
        (0.05, {}, False, False),
        (0.05, {"is_ahead": True}, True, False),
        (0.3, {"is_ahead": True}, False, False),
    ],
)
def test_only_short_tasks_are_taken_ahead(average: float, fields: Any, has_room: bool, fits: bool) -> None:
    found = prefetch(average, **fields)

    assert (found.has_room(task()), found.fits(task())) == (has_room, fits)


@pytest.mark.parametrize(
    ("one", "is_plain", "is_ahead"),
    [
        (task(), True, True),
        (task(kind="python"), False, True),
        (task(kind="agent"), False, False),
        (task(cpus=2.0), False, False),
        (task(is_careful=True), False, False),
        (task(guard=Guard("b", "k")), False, False),
    ],
)
def test_only_tasks_that_fit_into_any_slot_are_taken_ahead(one: Task, is_plain: bool, is_ahead: bool) -> None:
    assert prefetch().has_room(one) == is_plain
    assert prefetch(is_ahead=True).has_room(one) == is_ahead


def test_so_many_are_held_and_one_that_starts_makes_room() -> None:
    found = prefetch(slots=2)
    held = [task() for _ in range(12)]
    for one in held:
        assert found.has_room(one)
        found.reserve(one)

    assert not found.has_room(task())
    assert found.contains(held[3]) and not found.contains(task())
    assert (found.release(held[3]), found.release(held[3]), found.release(task())) == (True, False, False)
    assert found.has_room(task()) and not found.contains(held[3])


def test_a_worker_that_takes_few_tasks_in_all_holds_no_more() -> None:
    found = prefetch(tasks_max=1)
    found.reserve(task())

    assert not found.has_room(task())
    assert not prefetch(tasks_max=0).has_room(task())


def test_some_are_asked_for_at_a_time() -> None:
    found = prefetch(slots=1, is_ahead=True)
    asked = [found.room_ahead]
    for _ in range(6):
        found.reserve(task())
        asked.append(found.room_ahead)

    assert asked == [6, 5, 4, 3, 0, 0, 0]
    assert prefetch(slots=1).room_ahead == 0


def test_the_average_follows_the_newest_slowly_and_a_slot_that_stays_taken_at_once() -> None:
    found = prefetch(0.0, is_ahead=True)
    found.record_duration(0.4)
    assert found.fits(task())
    found.record_duration(0.4)
    assert not found.fits(task())

    for _ in range(4):
        found.record_duration(0.0)
    assert found.fits(task())

    overdue = prefetch(0.001, is_ahead=True)
    overdue.record_overdue(1.0)
    assert not overdue.has_room(task())
    overdue.record_overdue(0.01)
    assert not overdue.has_room(task())
    first = prefetch(None, is_ahead=True)
    first.record_overdue(0.001)
    assert first.has_room(task())
