"""Why nobody takes a queued task: what is missing, what is busy, and what can never be."""

from __future__ import annotations

from typing import Any

import pytest

from mulligan.core.effects.tasks import Demand, demand
from mulligan.core.model.workflow import Resources
from mulligan.history.obstacles import HOLDERS_NAMED_MAX, Obstacle, RunningTask, WorkerCapacity, WorkerPool
from mulligan.testing.history import History, handler, step, workflow

GIB = 1024**3


def worker(name: str = "w1", host: str = "h1", cpus: float = 4.0, memory: int = 24 * GIB, **fields: Any) -> Any:
    return WorkerCapacity(name, host, cpus, memory, **fields)


def found(demand: Demand, *workers: WorkerCapacity) -> tuple[Obstacle, ...]:
    return WorkerPool(workers).obstacles(demand)


def kinds(demand: Demand, *workers: WorkerCapacity) -> list[tuple[str, bool]]:
    return [(one.kind, one.is_impossible) for one in found(demand, *workers)]


def test_a_task_that_a_worker_has_room_for_meets_no_obstacle():
    full = worker("w1", tasks=(RunningTask(1, "a", cpus=4.0),))

    assert kinds(Demand(), full, worker("w2")) == []


def test_where_no_worker_answers_that_is_all_there_is_to_say():
    asked = Demand(cpus=64.0, labels=("big",))

    assert kinds(asked) == [("no_worker", False)]
    assert kinds(asked, worker(is_alive=False)) == [("no_worker", False)]


def test_who_drives_a_run_alone_is_missed_in_its_own_words():
    [obstacle] = WorkerPool([], no_worker="no process is driving the run").obstacles(Demand())

    assert obstacle.text == "no process is driving the run"


def test_each_label_that_no_worker_has_is_named():
    labels = found(Demand(labels=("big", "fast", "near")), worker(labels=("fast",)))

    assert [(one.labels, one.is_impossible) for one in labels] == [(["big"], True), (["near"], True)]
    assert labels[0].text == "no worker has label 'big'"


def test_labels_that_no_worker_has_together_are_named_together():
    [obstacle] = found(Demand(labels=("a", "b")), worker("w1", labels=("a",)), worker("w2", labels=("b",)))

    assert obstacle.text == "no worker has labels 'a', 'b' together"
    assert obstacle.is_impossible


def test_more_than_the_largest_worker_has_is_impossible_and_says_how_much_there_is():
    [obstacle] = found(Demand(memory=64 * GIB), worker("w1", memory=8 * GIB), worker("w2"))

    assert (obstacle.kind, obstacle.is_impossible) == ("memory", True)
    assert (obstacle.asked, obstacle.largest) == (64 * GIB, 24 * GIB)
    assert obstacle.text == "it asks for 64.0GiB of memory, and the largest worker has 24.0GiB"


def test_all_that_is_too_much_is_named_also_where_workers_have_none_of_it():
    obstacles = found(Demand(cpus=8.0, memory=64 * GIB, gpus=1), worker())

    assert [one.text for one in obstacles] == [
        "it asks for 8 cpus, and the largest worker has 4",
        "it asks for 64.0GiB of memory, and the largest worker has 24.0GiB",
        "it asks for 1 gpu, and the largest worker has none",
    ]


def test_what_no_worker_has_together_is_impossible_too():
    [obstacle] = found(Demand(cpus=4.0, memory=24 * GIB), worker(memory=GIB), worker("w2", cpus=1.0))

    assert (obstacle.text, obstacle.is_impossible) == ("no worker has 4 cpus and 24.0GiB of memory together", True)


def test_only_workers_with_the_labels_count_for_what_is_large_enough():
    [obstacle] = found(Demand(cpus=3.0, labels=("big",)), worker(), worker("w2", cpus=2.0, labels=("big",)))

    assert obstacle.text == "it asks for 3 cpus, and the largest worker with label 'big' has 2"


def test_cpus_that_are_in_use_are_no_impossibility_and_name_who_has_them():
    tasks = (RunningTask(7, "sim", cpus=3.0), RunningTask(8, "fit[2].0"))

    [obstacle] = found(Demand(cpus=2.0), worker(tasks=tasks))

    assert obstacle.text == "it asks for 2 cpus, and 4 of 4 are in use by run 7 'sim', run 8 'fit[2].0'"
    assert (obstacle.is_impossible, obstacle.free, obstacle.largest) == (False, 0, 4.0)
    assert (obstacle.used_by, obstacle.used_by_count) == ([*tasks], 2)


def test_of_many_workers_the_room_of_all_is_said_and_no_more_than_a_few_holders():
    workers = [worker(f"w{n}", tasks=(RunningTask(n, "a", cpus=3.0),)) for n in range(5)]

    [obstacle] = found(Demand(cpus=2.0), *workers)

    assert obstacle.text.startswith("it asks for 2 cpus, and 15 of 20 on 5 workers are in use by run 0 'a', run 1 'a'")
    assert obstacle.text.endswith(" and 2 more")
    assert (len(obstacle.used_by), obstacle.used_by_count, obstacle.free) == (HOLDERS_NAMED_MAX, 5, 1.0)


def test_memory_that_is_in_use_is_said_of_memory_alone():
    [obstacle] = found(Demand(memory=8 * GIB), worker(tasks=(RunningTask(1, "load", memory=20 * GIB),)))

    assert obstacle.text == "it asks for 8.0GiB of memory, and 20.0GiB of 24.0GiB is in use by run 1 'load'"


def test_where_one_worker_lacks_this_and_another_that_both_are_said():
    first = worker("w1", tasks=(RunningTask(1, "a", cpus=4.0),))
    second = worker("w2", tasks=(RunningTask(2, "b", cpus=0.5, memory=24 * GIB),))

    assert kinds(Demand(memory=GIB), first, second) == [("cpus", False), ("memory", False)]


def test_tasks_that_were_taken_ahead_use_no_more_than_there_is():
    [obstacle] = found(Demand(), worker(cpus=2.0, tasks=tuple(RunningTask(1, f"s{n}") for n in range(5))))

    assert (obstacle.free, obstacle.text.split(" are")[0]) == (0, "it asks for 1 cpu, and 2 of 2")


def test_shares_of_a_processor_that_add_up_to_all_of_it_leave_room():
    tasks = tuple(RunningTask(1, f"s{n}", cpus=0.1) for n in range(9))

    assert kinds(Demand(cpus=0.1), worker(cpus=1.0, tasks=tasks)) == []


def test_a_task_that_is_bound_to_a_host_looks_at_the_workers_of_that_host_alone():
    full = worker("w1", "render1", tasks=(RunningTask(1, "a", cpus=4.0),))

    [busy] = found(Demand(host="render1"), full, worker("w2", "render2"))

    assert busy.text == "it asks for 1 cpu, and 4 of 4 on host 'render1' are in use by run 1 'a'"


def test_a_host_that_does_not_answer_is_waited_for_until_it_is_given_up():
    silent, other = worker("w1", "render1", is_alive=False), worker("w2", "render2")

    [obstacle] = found(Demand(host="render1"), silent, other)

    assert (obstacle.kind, obstacle.host, obstacle.is_impossible) == ("host", "render1", False)
    # Once nobody knows the host any more, the task may run anywhere.
    assert kinds(Demand(host="render1"), other) == []


@pytest.mark.parametrize(
    ("resources", "asked"),
    [
        (None, Demand()),
        (Resources(cpus=0), Demand(cpus=0)),
        (Resources(cpus=2.0, memory=GIB, gpus=1, labels=("big",)), Demand(2.0, GIB, 1, ("big",))),
    ],
)
def test_a_place_asks_for_what_its_step_says(resources: Resources | None, asked: Demand):
    run = History(workflow(step("a", resources=resources))).start()

    assert demand(run.state, run["a"]) == asked


def test_a_handler_asks_for_the_host_on_which_the_attempt_ran():
    run = History(workflow(step("a", on_failure=handler()))).start().started("a", host="render1").fail("a")

    assert demand(run.state, run["a.on_failure@1.0"]) == Demand(host="render1")


def test_a_task_of_several_nodes_needs_an_allocation_of_so_many_for_itself():
    wide = Demand(nodes=3)

    [too_few] = found(wide, worker(nodes=2))
    assert (too_few.kind, too_few.is_impossible) == ("nodes", True)
    assert too_few.text == "it asks for 3 nodes, and the largest allocation of a worker has 2"
    [busy] = found(wide, worker(nodes=4, tasks=(RunningTask(1, "a"),)))
    assert (busy.kind, busy.is_impossible) == ("nodes", False)
    assert found(wide, worker(nodes=3, nodes_min=2)) == ()


def test_workers_for_several_nodes_are_not_there_for_others():
    [obstacle] = found(Demand(), worker(nodes=3, nodes_min=2))

    assert obstacle.text == "every worker is for steps that ask for several nodes"
    assert found(Demand(), worker(nodes=3)) == ()


def test_a_step_that_asks_for_nodes_demands_them():
    wide = step("wide", resources=Resources(nodes=4))
    history = History(workflow(wide)).start()

    assert demand(history.state, history.state.places["wide"]).nodes == 4
