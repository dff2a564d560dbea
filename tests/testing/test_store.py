"""The memory store: all or nothing, one writer at a time, one holder per task, no timer lost."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from mulligan.core import effects as fx
from mulligan.core import events as e
from mulligan.core import reports as r
from mulligan.core.state import State
from mulligan.errors import Conflict, StaleLease, UnknownRun
from mulligan.testing.clock import START
from mulligan.testing.history import step, workflow
from mulligan.testing.store import (
    LEASE_SECONDS,
    TURN_SECONDS,
    Commit,
    Lease,
    MemoryStore,
    StoreFailed,
    Task,
    Turn,
)

WORKFLOW = workflow(step("a"))


def later(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


@pytest.fixture
def store() -> MemoryStore:
    made = MemoryStore()
    made.create(1, WORKFLOW)
    return made


def turn_of(store: MemoryStore, holder: str = "one", now: datetime = START) -> Turn:
    turn = store.take_turn(1, holder, now)
    assert turn is not None
    return turn


def entry(seq: int) -> e.Entry:
    return e.Entry(seq, START, 0, e.ReportRefused("a", 1, "stale_attempt"))


def commit(
    seq: int = 1, effects: tuple[fx.Effect, ...] = (), drained: tuple[int, ...] = (), status: str = "running"
) -> Commit:
    state = State(WORKFLOW)
    state.run.status = status
    return Commit((entry(seq),), effects, drained, state)


def queue(store: MemoryStore, *tasks: fx.Effect, status: str = "running") -> None:
    store.commit(turn_of(store), commit(len(store.log(1)) + 1, tasks, status=status))


def lease_of(store: MemoryStore, now: datetime = START) -> Lease:
    lease = store.lease("w1", now)
    assert lease is not None
    return lease


def everything(store: MemoryStore) -> tuple[Any, ...]:
    row = store.row(1)
    return (list(row.log), dict(row.inbox), dict(row.tasks), dict(row.timers), dict(row.children), row.status)


# -- runs ------------------------------------------------------------------------------------------------------------


def test_a_run_that_is_not_there_is_unknown(store: MemoryStore) -> None:
    with pytest.raises(UnknownRun) as caught:
        store.log(7)

    assert caught.value.message == "there is no run 7"


def test_a_run_is_created_once(store: MemoryStore) -> None:
    with pytest.raises(Conflict) as caught:
        store.create(1, WORKFLOW)

    assert caught.value.message == "run 1 is there already"


def test_reports_wait_in_the_inbox_in_the_order_they_came(store: MemoryStore) -> None:
    first = store.put(1, r.PauseRequested(START))
    second = store.put(1, r.ResumeRequested(START))

    assert [(m.id, type(m.report)) for m in store.inbox(1)] == [(first, r.PauseRequested), (second, r.ResumeRequested)]


def test_a_commit_writes_log_status_tasks_timers_and_drains_the_inbox(store: MemoryStore) -> None:
    drained = store.put(1, r.PauseRequested(START))
    kept = store.put(1, r.ResumeRequested(START))

    store.commit(turn_of(store), commit(1, (fx.QueueTask("a", 1), fx.SetTimer("run", later(5))), (drained,), "paused"))

    row = store.row(1)
    assert store.log(1) == [entry(1)]
    assert row.status == "paused"
    assert list(row.tasks) == [("a", 1)]
    assert [(t.kind, t.due) for t in row.timers.values()] == [("run", later(5))]
    assert [message.id for message in store.inbox(1)] == [kept]


def test_the_log_can_be_read_from_where_one_was(store: MemoryStore) -> None:
    store.commit(turn_of(store), commit(1))
    store.commit(turn_of(store), commit(2))

    assert [found.seq for found in store.log(1, after=1)] == [2]


# -- turns -----------------------------------------------------------------------------------------------------------


def test_one_holder_at_a_time_has_the_turn(store: MemoryStore) -> None:
    turn_of(store, "one")

    assert store.take_turn(1, "two", START) is None


def test_a_turn_that_ran_out_can_be_taken_and_its_old_holder_is_refused(store: MemoryStore) -> None:
    old = turn_of(store, "one")
    new = turn_of(store, "two", later(TURN_SECONDS))

    with pytest.raises(Conflict) as caught:
        store.commit(old, commit())

    assert caught.value.message == "the turn of run 1 is no longer held by 'one'"
    assert new.fence > old.fence
    assert store.log(1) == []


def test_a_turn_that_was_given_back_can_be_taken_at_once(store: MemoryStore) -> None:
    store.release_turn(turn_of(store, "one"))

    assert store.take_turn(1, "two", START) is not None


def test_giving_back_a_void_turn_takes_nothing_from_its_new_holder(store: MemoryStore) -> None:
    old = turn_of(store, "one")
    turn_of(store, "two", later(TURN_SECONDS))

    store.release_turn(old)

    assert store.take_turn(1, "one", later(TURN_SECONDS)) is None


def test_a_commit_that_does_not_go_on_where_the_log_ends_is_refused(store: MemoryStore) -> None:
    store.commit(turn_of(store), commit(1))

    with pytest.raises(Conflict) as caught:
        store.commit(turn_of(store), commit(1))

    assert caught.value.message == "the log of run 1 goes on with 2, not 1"


# -- faults ----------------------------------------------------------------------------------------------------------


def test_an_error_before_the_write_leaves_everything_as_it_was(store: MemoryStore) -> None:
    turn, before = turn_of(store), everything(store)
    store.faults.append("error_before")

    with pytest.raises(StoreFailed) as caught:
        store.commit(turn, commit(1, (fx.QueueTask("a", 1),)))

    assert caught.value.message == "the connection broke before the write"
    assert everything(store) == before


def test_an_error_after_the_write_says_nothing_about_what_was_written(store: MemoryStore) -> None:
    turn = turn_of(store)
    store.faults.append("error_after")

    with pytest.raises(StoreFailed) as caught:
        store.commit(turn, commit(1, (fx.QueueTask("a", 1),)))

    assert caught.value.message == "the connection broke after the write"
    assert store.log(1) == [entry(1)]
    assert list(store.row(1).tasks) == [("a", 1)]


def test_a_conflict_leaves_everything_as_it_was_and_voids_the_turn(store: MemoryStore) -> None:
    turn, before = turn_of(store), everything(store)
    store.faults.append("conflict")

    with pytest.raises(Conflict):
        store.commit(turn, commit(1, (fx.QueueTask("a", 1),)))
    with pytest.raises(Conflict):
        store.commit(turn, commit(1))

    assert everything(store) == before


def test_faults_happen_one_per_commit_in_their_order(store: MemoryStore) -> None:
    store.faults.extend(("error_before", "conflict"))

    with pytest.raises(StoreFailed):
        store.commit(turn_of(store), commit(1))
    with pytest.raises(Conflict):
        store.commit(turn_of(store), commit(1))
    store.commit(turn_of(store), commit(1))

    assert len(store.log(1)) == 1


# -- timers ----------------------------------------------------------------------------------------------------------


def test_a_timer_fires_when_it_is_due_and_once(store: MemoryStore) -> None:
    queue(store, fx.SetTimer("retry", later(10), "a", 2))

    assert store.fire_timers(later(9)) == 0
    assert store.fire_timers(later(10)) == 1
    assert store.fire_timers(later(11)) == 0
    assert [m.report for m in store.inbox(1)] == [r.TimerFired(later(10), "retry", "a", 2)]


def test_a_timer_set_again_is_moved(store: MemoryStore) -> None:
    queue(store, fx.SetTimer("run", later(10), "", 1), fx.SetTimer("run", later(20), "", 1))

    assert store.fire_timers(later(15)) == 0
    assert store.fire_timers(later(20)) == 1


def test_timers_fire_in_the_order_they_are_due(store: MemoryStore) -> None:
    queue(store, fx.SetTimer("retry", later(5), "b", 2), fx.SetTimer("retry", later(1), "a", 2))

    store.fire_timers(later(9))

    assert [m.report.place for m in store.inbox(1) if isinstance(m.report, r.TimerFired)] == ["a", "b"]


# -- tasks -----------------------------------------------------------------------------------------------------------


def test_no_two_workers_hold_the_same_task(store: MemoryStore) -> None:
    queue(store, fx.QueueTask("a", 1))

    first = lease_of(store)

    assert first.task == Task(1, "a", 1)
    assert store.lease("w2", START) is None


def test_a_task_queued_twice_is_one_task(store: MemoryStore) -> None:
    queue(store, fx.QueueTask("a", 1), fx.QueueTask("a", 1))

    lease_of(store)

    assert store.lease("w2", START) is None


def test_a_paused_run_hands_out_nothing(store: MemoryStore) -> None:
    queue(store, fx.QueueTask("a", 1), status="paused")

    assert store.lease("w1", START) is None


def test_a_result_is_accepted_once(store: MemoryStore) -> None:
    queue(store, fx.QueueTask("a", 1))
    lease = lease_of(store)
    report = r.TaskEnded(START, "a", 1)

    store.report(lease.token, report)
    with pytest.raises(StaleLease) as caught:
        store.report(lease.token, report)

    assert caught.value.message == f"lease {lease.token} is void"
    assert [m.report for m in store.inbox(1)] == [report]


def test_a_lease_that_ran_out_is_reported_and_its_token_is_void(store: MemoryStore) -> None:
    queue(store, fx.QueueTask("a", 1))
    lease = lease_of(store)

    expired = store.expire(later(LEASE_SECONDS))

    assert expired == [lease]
    assert [m.report for m in store.inbox(1)] == [r.LeaseExpired(later(LEASE_SECONDS), "a", 1, "w1")]
    with pytest.raises(StaleLease):
        store.report(lease.token, r.TaskEnded(START, "a", 1))
    with pytest.raises(StaleLease):
        store.renew(lease.token, START)


def test_a_lease_that_is_renewed_does_not_run_out(store: MemoryStore) -> None:
    queue(store, fx.QueueTask("a", 1))
    lease = lease_of(store)

    store.renew(lease.token, later(LEASE_SECONDS - 1))

    assert store.expire(later(LEASE_SECONDS)) == []
    assert len(store.expire(later(2 * LEASE_SECONDS - 1))) == 1


def test_each_lease_has_a_token_of_its_own_and_they_grow(store: MemoryStore) -> None:
    queue(store, fx.QueueTask("a", 1), fx.QueueTask("b", 1))

    assert lease_of(store).token < lease_of(store).token


def test_stopping_a_queued_task_takes_it_out_of_the_queue(store: MemoryStore) -> None:
    queue(store, fx.QueueTask("a", 1), fx.StopTask("a", 1, 10.0))

    assert store.lease("w1", START) is None


def test_stopping_a_leased_task_tells_its_worker_which_still_reports(store: MemoryStore) -> None:
    queue(store, fx.QueueTask("a", 1))
    lease = lease_of(store)

    queue(store, fx.StopTask("a", 1, 3.0))

    queued = store.row(1).tasks["a", 1]
    assert (queued.is_stopping, queued.stop_grace_seconds) == (True, 3.0)
    store.report(lease.token, r.TaskEnded(START, "a", 1))


# -- child runs ------------------------------------------------------------------------------------------------------


def _child(store: MemoryStore) -> Any:
    return store.row(1).children["a", 1]


@pytest.mark.parametrize(
    ("effects", "holds"),
    [
        ((fx.StartChild("a", 1),), lambda child: not child.is_stopping and not child.is_paused),
        ((fx.StartChild("a", 1), fx.StopChild("a", 1)), lambda child: child.is_stopping),
        ((fx.StartChild("a", 1), fx.PauseChildren()), lambda child: child.is_paused),
        ((fx.StartChild("a", 1), fx.PauseChildren(), fx.ResumeChildren()), lambda child: not child.is_paused),
        # asked for twice, it is one run
        ((fx.StartChild("a", 1), fx.StopChild("a", 1), fx.StartChild("a", 1)), lambda child: child.is_stopping),
    ],
)
def test_a_child_run_hears_what_its_parent_says(
    store: MemoryStore, effects: tuple[fx.Effect, ...], holds: Callable[[Any], bool]
) -> None:
    queue(store, *effects)

    assert holds(_child(store))


def test_stopping_what_is_not_there_is_nothing(store: MemoryStore) -> None:
    queue(store, fx.StopTask("a", 1), fx.StopChild("a", 1))

    assert store.row(1).tasks == {}
    assert store.row(1).children == {}
