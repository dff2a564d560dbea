"""Workers: known, alive, buried once, and what their death leaves behind."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace
from tests.support.keeping import (
    LEASE_SECONDS,
    T0,
    Open,
    Place,
    commit,
    ended,
    new_run,
    offer,
    queue,
    reports,
    started,
    take,
    task,
    worker,
)

from mulligan.core.model import reports as r
from mulligan.core.model.clusters.scheduler_job import JobEnd, WorkerJob
from mulligan.errors import Conflict, StaleLease
from mulligan.ports import Store, WorkerRecord

pytestmark = pytest.mark.postgres

JOB = WorkerJob(
    "17", "n3", array_id="16", array_task=2, profile="long", is_one_task=True, life_seconds=600.0, restarts=1
)


def test_a_registered_worker_is_known_with_all_it_said_of_itself(store: Store) -> None:
    said = WorkerRecord(
        *("w", "here", 7, "w.lock", 4.0, 2**33, 1, ("big", "fast")), started_at=T0, ends_at=T0 + timedelta(1), job=JOB
    )

    store.register(said)

    assert [replace(known, beat_at=None) for known in store.workers()] == [said]


def test_the_last_heartbeat_of_a_worker_is_known(store: Store, place: Place) -> None:
    store.register(worker())
    place.pass_time(5)
    before = place.now()

    store.record_heartbeat("w")

    (known,) = store.workers()
    assert known.beat_at is not None
    assert before <= known.beat_at <= place.now()


def test_workers_are_listed_by_name(store: Store) -> None:
    for name in ("b", "a", "c"):
        store.register(worker(name))

    assert [known.name for known in store.workers()] == ["a", "b", "c"]


def test_a_worker_expires_when_it_has_not_been_heard_of_for_longer_than_the_lease(store: Store, place: Place) -> None:
    store.register(worker("quiet"))
    place.pass_time(LEASE_SECONDS + 1)
    store.register(worker("fresh"))

    assert {known.name: known.is_expired for known in store.workers()} == {"fresh": False, "quiet": True}


def test_a_heartbeat_keeps_a_worker_alive(store: Store, place: Place) -> None:
    store.register(worker())
    place.pass_time(LEASE_SECONDS - 5)

    assert store.record_heartbeat("w")

    place.pass_time(LEASE_SECONDS - 5)
    assert not store.workers()[0].is_expired


def test_a_worker_that_is_alive_is_not_expired(store: Store, place: Place) -> None:
    turn = started(store)
    place.pass_time(LEASE_SECONDS - 5)

    assert not store.expire("w")

    assert store.run(turn.run_id).holder == "w"
    assert store.record_heartbeat("w")


def test_nobody_is_expired_who_is_not_known(store: Store) -> None:
    assert not store.expire("nobody", is_dead=True)


@pytest.mark.parametrize("is_dead", [True, False], ids=["its lock is free", "its heartbeat is too old"])
def test_an_expired_worker_loses_its_turns_and_leases(store: Store, place: Place, is_dead: bool) -> None:
    turn = started(store)
    (lease,) = take(store, turn, task(turn.run_id))
    if not is_dead:
        place.pass_time(LEASE_SECONDS + 1)

    assert store.expire("w", is_dead=is_dead)

    assert store.workers() == []
    assert store.leases_of("w") == []
    assert store.run(turn.run_id).holder == ""
    (told,) = reports(store, turn.run_id)
    assert isinstance(told, r.LeaseExpired)
    assert (told.place, told.attempt, told.worker) == ("build", 1, "w")
    with pytest.raises(StaleLease):
        store.report(lease.token, ended())


def test_a_lost_task_is_reported_with_the_job_of_its_worker(store: Store) -> None:
    turn = started(store)
    take(store, turn, task(turn.run_id))

    store.expire("w", is_dead=True, job=JobEnd(JOB, "NODE_FAIL"))

    (told,) = reports(store, turn.run_id)
    assert isinstance(told, r.LeaseExpired)
    assert told.job == JobEnd(JOB, "NODE_FAIL")


def test_an_expired_worker_is_told_so_by_its_next_heartbeat(store: Store) -> None:
    store.register(worker())
    store.expire("w", is_dead=True)

    assert not store.record_heartbeat("w")


def test_a_lost_task_is_reported_once_however_many_expire_its_worker(opened: Open) -> None:
    one, two = opened(), opened()
    turn = started(one)
    take(one, turn, task(turn.run_id))

    assert [store.expire("w", is_dead=True) for store in (one, two, one)] == [True, False, False]

    assert len(reports(one, turn.run_id)) == 1


def test_a_queued_task_is_not_lost_with_the_worker_that_queued_it(store: Store) -> None:
    turn = started(store)
    queue(store, turn, task(turn.run_id))

    store.expire("w", is_dead=True)

    assert store.queued_tasks(turn.run_id) == [("build", 1)]
    assert reports(store, turn.run_id) == []


def test_the_death_of_one_worker_is_nothing_to_another(store: Store) -> None:
    mine, other = started(store, holder="mine"), started(store, holder="other")
    take(store, mine, task(mine.run_id))
    (kept,) = take(store, other, task(other.run_id))

    store.expire("mine", is_dead=True)

    assert store.leases_of("other") == [kept]
    assert store.run(other.run_id).holder == "other"


def test_a_worker_that_retires_gives_its_turns_back_and_reports_what_it_still_has_as_lost(store: Store) -> None:
    turn = started(store)
    take(store, turn, task(turn.run_id))

    store.retire("w")

    assert store.workers() == []
    assert store.run(turn.run_id).holder == ""
    assert [type(told) for told in reports(store, turn.run_id)] == [r.LeaseExpired]


def test_the_dead_get_nothing(store: Store) -> None:
    """A worker that was buried while it slept finds out before it has anything that nobody could take from it."""
    turn = started(store)
    queue(store, turn, task(turn.run_id))
    store.expire("w", is_dead=True)

    assert store.take_turns([turn.run_id], "w") == []
    assert store.lease("w", offer()) == []
    with pytest.raises(Conflict) as refused:
        store.create([new_run()], "w")
    assert refused.value.render() == ("error[store.conflict]: worker 'w' is not registered, so it cannot hold a turn")
    with pytest.raises(Conflict):
        store.commit([commit(turn)])
    assert [record.run_id for record in store.runs()] == [turn.run_id]


def test_the_trouble_of_a_worker_is_in_its_record_until_it_is_over(store: Store) -> None:
    store.register(worker("w"))
    before = next(one for one in store.workers() if one.name == "w")

    store.set_trouble("w", "the disk is full")
    store.set_trouble("gone", "the disk is full")

    during = next(one for one in store.workers() if one.name == "w")
    assert replace(during, trouble="", beat_at=None) == replace(before, beat_at=None)
    assert during.trouble == "the disk is full"
    assert "gone" not in {one.name for one in store.workers()}
    store.set_trouble("w", "")
    assert next(one for one in store.workers() if one.name == "w").trouble == ""
