"""The simulated world is what it says: stores that fail as asked, processes that die, are stopped, leave, are found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mulligan.core.model.reports import TaskEnded
from mulligan.core.model.workflow import Action
from mulligan.errors import StoreUnavailable
from mulligan.ports import WorkerRecord
from mulligan.testing.clock import START, JumpingClock, WallClock
from mulligan.testing.faults import Crash
from mulligan.testing.history import step, workflow
from proof.simulator.cluster.databases import DATABASES, LEASE_SECONDS
from proof.simulator.cluster.simulated_cluster import SimulatedCluster
from proof.simulator.cluster.simulated_worker import SimulatedWorker
from proof.simulator.fault_budget import STORE_KINDS, FaultBudget, StoreKind
from proof.simulator.fault_injection import FAULTS, with_faults

TWO = workflow(step("a"), step("b", needs=["a"]))


# -- clocks ----------------------------------------------------------------------------------------------------------


def test_a_clock_that_is_set_shows_another_time_and_as_much_time_passes() -> None:
    common = JumpingClock()
    wall = WallClock(common)

    wall.set_wrong(-50)
    common.advance(10)

    assert (wall.now() - START).total_seconds() == -40
    assert wall.monotonic() == 10


# -- the store in between --------------------------------------------------------------------------------------------


class FaultPlan:
    """One kind of weather for every call; notes what it was asked for."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.seen: list[str] = []

    def next_fault(self, method: str) -> str:
        return self.kind

    def run_others(self) -> None:
        self.seen.append("meanwhile")

    def delay(self) -> None:
        self.seen.append("held up")

    def run_while_locked(self, call: Callable[[], Any]) -> Any:
        self.seen.append("busy")
        return call()


@pytest.mark.parametrize(
    ("kind", "error", "is_written", "seen"),
    [
        ("", None, True, []),
        ("lost_call", StoreUnavailable, False, []),
        ("lost_answer", StoreUnavailable, True, []),
        ("crash_before", Crash, False, []),
        ("crash_after", Crash, True, []),
        ("busy", None, True, ["busy"]),
        ("slow", None, True, ["held up", "meanwhile"]),
        ("late", None, True, ["held up", "meanwhile"]),
        ("meanwhile", None, True, ["meanwhile", "meanwhile"]),
    ],
)
def test_a_fault_plan_injects_what_its_name_says(kind: str, error: Any, is_written: bool, seen: list[str]) -> None:
    fault_plan, plain = FaultPlan(kind), DATABASES["memory"]().open(JumpingClock())
    store = with_faults(plain, fault_plan)

    if error is None:
        store.register(WorkerRecord("w", "here", 1))
    else:
        with pytest.raises(error):
            store.register(WorkerRecord("w", "here", 1))

    assert bool(plain.workers()) == is_written
    assert fault_plan.seen == seen


def test_every_fault_plan_is_tested() -> None:
    tested = {"lost_call", "lost_answer", "crash_before", "crash_after", "busy", "slow", "late", "meanwhile"}

    assert set(FAULTS) == tested


def test_sqlite_that_is_busy_says_so_itself() -> None:
    database = DATABASES["sqlite"]()
    store = database.open(JumpingClock())

    with pytest.raises(StoreUnavailable, match="locked by another process"), database.hold_lock():
        store.register(WorkerRecord("w", "here", 1))

    store.register(WorkerRecord("w", "here", 1))
    assert [one.name for one in store.workers()] == ["w"]


@pytest.mark.parametrize("kind", STORE_KINDS)
def test_who_opens_a_database_sees_what_others_have_written(kind: StoreKind) -> None:
    database = DATABASES[kind]()
    one, other = database.open(JumpingClock()), database.open(JumpingClock())
    before = database.version()

    one.register(WorkerRecord("w", "here", 1))

    assert [worker.name for worker in other.workers()] == ["w"]
    assert database.version() != before
    assert list(database.read_contents().workers) == ["w"]


def test_two_worlds_on_sqlite_know_nothing_of_each_other() -> None:
    one, other = DATABASES["sqlite"](), DATABASES["sqlite"]()

    one.open(JumpingClock()).register(WorkerRecord("w", "here", 1))

    assert other.read_contents().workers == {}


# -- processes -------------------------------------------------------------------------------------------------------


def make(kind: StoreKind) -> SimulatedCluster:
    return SimulatedCluster(7, FaultBudget(store=kind))


def started(cluster: SimulatedCluster, **fields: Any) -> SimulatedWorker:
    process = cluster.start(4, **fields)
    cluster.act(process)
    return process


def act_until_gone(cluster: SimulatedCluster, process: SimulatedWorker, rounds: int = 20) -> None:
    while not process.has_left and (rounds := rounds - 1):
        cluster.act(process)


def run_for(cluster: SimulatedCluster, process: SimulatedWorker, rounds: int = 10) -> None:
    for _ in range(rounds):
        cluster.act(process)
        cluster.check()


@pytest.mark.parametrize("kind", STORE_KINDS)
def test_what_a_process_that_died_had_is_found_and_taken_over(kind: StoreKind) -> None:
    cluster = make(kind)
    dead = started(cluster)
    cluster.check()
    cluster.create(TWO, dead)
    run_for(cluster, dead, 2)
    assert [task.worker for task in cluster.database.read_contents().leases] == [dead.name]

    cluster.drop(dead)
    cluster.clock.advance(LEASE_SECONDS + 1)
    heir = started(cluster)
    run_for(cluster, heir)

    assert [task.worker for task in cluster.contents.leases] == [heir.name]
    assert list(cluster.contents.workers) == [heir.name]


@pytest.mark.parametrize("kind", STORE_KINDS)
def test_a_process_that_leaves_takes_its_name_with_it(kind: StoreKind) -> None:
    cluster = make(kind)
    process = started(cluster)

    process.is_leaving = True
    act_until_gone(cluster, process)

    assert process.has_left
    assert (cluster.workers, cluster.database.read_contents().workers) == ([], {})


def test_a_process_that_was_stopped_for_too_long_comes_back_under_another_name() -> None:
    cluster = make("shared")
    stopped, other = started(cluster), started(cluster)
    name = stopped.name

    stopped.frozen_until = 2 * LEASE_SECONDS
    cluster.advance(LEASE_SECONDS + 1)
    cluster.act(other)
    assert name not in cluster.database.read_contents().workers
    cluster.act(stopped)
    cluster.act(stopped)

    assert stopped.name != name
    assert stopped.name in cluster.database.read_contents().workers


def test_after_an_outage_that_was_longer_than_a_lease_nobody_is_taken_for_dead() -> None:
    cluster = make("shared")
    processes = [started(cluster) for _ in range(3)]
    names = [process.name for process in processes]

    cluster.begin_outage(2 * LEASE_SECONDS)
    cluster.advance(2 * LEASE_SECONDS + 1)
    for process in (*processes, *processes):
        cluster.act(process)

    assert [process.name for process in processes] == names
    assert sorted(cluster.database.read_contents().workers) == sorted(names)


def test_one_that_does_not_come_back_after_an_outage_is_given_up_a_lease_later() -> None:
    cluster = make("shared")
    back, hung = started(cluster), started(cluster)
    name = hung.name
    hung.frozen_until = 10 * LEASE_SECONDS

    cluster.begin_outage(2 * LEASE_SECONDS)
    cluster.advance(2 * LEASE_SECONDS + 1)
    run_for(cluster, back, 2)
    cluster.advance(LEASE_SECONDS - 2)
    run_for(cluster, back, 2)
    assert name in cluster.database.read_contents().workers
    cluster.advance(6)
    run_for(cluster, back, 2)

    assert name not in cluster.database.read_contents().workers


def test_a_worker_that_alone_was_cut_off_is_given_up_by_those_that_were_not() -> None:
    cluster = make("shared")
    other, cut_off, fault_plan = started(cluster), cluster.start(4), FaultPlan("")
    cut_off.store = with_faults(cut_off.store, fault_plan)
    cluster.act(cut_off)
    name = cut_off.name
    assert name in cluster.database.read_contents().workers

    fault_plan.kind = "lost_call"
    cluster.advance(LEASE_SECONDS + 1)
    run_for(cluster, other, 2)

    assert name not in cluster.database.read_contents().workers


def test_what_runs_in_an_outage_goes_again_and_what_has_ended_counts_and_no_loss_is_spent() -> None:
    cluster = make("shared")
    process = started(cluster)
    cluster.check()
    run_id = cluster.create(workflow(step("ends"), step("runs")), process)
    run_for(cluster, process, 3)
    assert process.executor is not None
    running = {lease.task.place: lease for lease in process.executor.unfinished}

    cluster.begin_outage(2 * LEASE_SECONDS)
    process.executor.end(running["ends"], TaskEnded(cluster.clock.now(), "ends", 1))
    for _ in range(13):
        cluster.clock.advance(LEASE_SECONDS / 6)
        cluster.act(process)
    run_for(cluster, process, 3)

    state = cluster.checker.runs[run_id].state
    assert (state.places["ends"].status, state.places["runs"].attempt) == ("completed", 2)
    assert state.places["runs"].climb.losses == 0
    assert [lease.task.place for lease in process.executor.unfinished] == ["runs"]


def test_a_process_that_drives_one_run_leaves_when_that_has_ended() -> None:
    cluster = make("memory")
    run_id = cluster.create(workflow(step("a", action=Action("wait", {"seconds": 0}))))
    process = started(cluster, root_run_id=run_id)

    act_until_gone(cluster, process)

    assert process.has_left
    assert cluster.database.read_contents().runs[run_id].has_ended
