"""Tasks: handed out to one worker each, oldest first, where they fit; a result is accepted once."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
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

from mulligan.core.effects.effects import SetTimer
from mulligan.core.model import reports as r
from mulligan.core.model.event_types import AvoidedHosts
from mulligan.core.model.workflow import Secret
from mulligan.errors import StaleLease
from mulligan.ports import Store

pytestmark = pytest.mark.postgres


def leased(store: Store, **fields: Any) -> list[str]:
    return [lease.task.place for lease in store.lease("w", offer(**fields))]


def test_a_leased_task_is_the_one_that_was_queued_with_everything_in_it(store: Store) -> None:
    turn = started(store)
    whole = task(
        turn.run_id,
        "check[3].0",
        2,
        env={"A": [1, 2.5, None, "ä"]},
        home="/srv/runs",
        timeout=1.5,
        deadline=T0,
        memory=2**34,
        labels=("big",),
        secrets={"token": Secret(env="TOKEN")},
    )
    queue(store, turn, whole)

    (lease,) = store.lease("w", offer(labels=("big", "fast")))

    assert (lease.task, lease.worker) == (whole, "w")
    assert store.leases_of("w") == [lease]


def test_a_task_whose_folder_the_worker_lacks_is_left_to_others(store: Store) -> None:
    turn = started(store)
    strange = '/srv/"quoted" \\ ä'
    folders = {"here": "/srv/runs", "there": "/srv/runs2", "strange": strange, "own": "."}
    queue(store, turn, *(task(turn.run_id, place, home=folder) for place, folder in folders.items()))

    first = leased(store, tasks_max=9, lacks=("/srv/runs", strange))
    then = leased(store, tasks_max=9)

    assert (first, then) == (["there", "own"], ["here", "strange"])


def test_the_oldest_tasks_are_handed_out_first(store: Store) -> None:
    one, two = started(store), started(store)
    queue(store, two, task(two.run_id, "z"))
    queue(store, one, task(one.run_id, "y"), task(one.run_id, "x"))
    queue(store, two, task(two.run_id, "a"))

    assert leased(store, tasks_max=3) == ["z", "y", "x"]
    assert leased(store, tasks_max=3) == ["a"]


def test_nobody_is_handed_a_task_that_another_holds(opened: Open) -> None:
    one, two = opened(), opened()
    turn = started(one)
    two.register(worker("other"))
    queue(one, turn, task(turn.run_id))

    first, second = one.lease("w", offer()), two.lease("other", offer())

    assert ([lease.task.place for lease in first], second) == (["build"], [])


def test_the_run_is_told_that_its_task_has_started_and_where(store: Store) -> None:
    turn = started(store)
    queue(store, turn, task(turn.run_id))

    store.lease("w", offer(host="there"))

    (told,) = reports(store, turn.run_id)
    assert isinstance(told, r.TaskStarted)
    assert (told.place, told.attempt, told.worker, told.host) == ("build", 1, "w", "there")


def test_a_task_that_the_turn_took_itself_is_not_reported_as_started(store: Store) -> None:
    turn = started(store)

    take(store, turn, task(turn.run_id))

    assert reports(store, turn.run_id) == []


def test_tokens_grow_with_every_lease(store: Store) -> None:
    turn = started(store)
    (first,) = take(store, turn, task(turn.run_id, "a"))
    store.report(first.token, ended("a"))
    queue(store, turn, task(turn.run_id, "b"))
    (second,) = store.lease("w", offer())
    (third,) = take(store, turn, task(turn.run_id, "c"))

    assert first.token < second.token < third.token


def test_tokens_go_on_growing_when_the_store_is_opened_again(opened: Open) -> None:
    first = opened()
    turn = started(first)
    (old,) = take(first, turn, task(turn.run_id, "a"))
    first.commit([commit(turn, ended=[old.token])])
    first.close()

    (new,) = take(opened(), turn, task(turn.run_id, "b"))

    assert new.token > old.token


def test_queued_twice_a_task_is_still_one(store: Store) -> None:
    turn = started(store)
    queue(store, turn, task(turn.run_id), task(turn.run_id))
    queue(store, turn, task(turn.run_id))

    assert store.queued_tasks(turn.run_id) == [("build", 1)]
    (lease,) = store.lease("w", offer())
    queue(store, turn, task(turn.run_id))
    assert (store.queued_tasks(turn.run_id), store.leases_of("w")) == ([], [lease])


def test_a_paused_run_hands_out_no_task_until_it_goes_on(store: Store) -> None:
    paused, running = started(store), started(store)
    queue(store, paused, task(paused.run_id, "a"))
    queue(store, running, task(running.run_id, "b"))
    store.commit([commit(paused, status="paused")])

    assert leased(store) == ["b"]

    store.commit([commit(paused, 1, status="running")])
    assert leased(store) == ["a"]


def test_a_task_is_not_handed_out_when_the_time_of_its_run_is_up(store: Store, place: Place) -> None:
    turn = started(store)
    due = place.now() - timedelta(seconds=30)
    queue(store, turn, task(turn.run_id, "build", run_due=due), task(turn.run_id, "end"))
    store.commit([commit(turn, store.run(turn.run_id).seq, 0, timers=[SetTimer("run", due, "", 1)])])

    assert leased(store) == ["end"]
    # Also between the moment at which it fires and the turn that stops the run.
    assert store.fire_timers() == 1
    assert leased(store) == []

    # A pause was lifted, and the run has more time again.
    later = SetTimer("run", place.now() + timedelta(seconds=60), "", 1)
    store.commit([commit(turn, store.run(turn.run_id).seq, 0, timers=[later])])
    assert leased(store) == ["build"]


def test_tasks_below_one_root_are_handed_out_when_only_those_are_asked_for(store: Store) -> None:
    top, stranger = started(store), started(store)
    (done,) = store.commit([commit(top, children=[new_run(parent_place="sub")])])
    child = done.children[0]
    for turn, place in ((stranger, "strange"), (child, "below"), (top, "top")):
        queue(store, turn, task(turn.run_id, place))

    found = store.lease("w", offer(), root_run_id=top.run_id)

    assert [lease.task.place for lease in found] == ["below", "top"]


# -- what fits -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("needs", "offered", "is_taken"),
    [
        # to the brim
        ({"cpus": 2.0, "memory": 100, "gpus": 1}, {"cpus": 2.0, "memory": 100, "gpus": 1}, True),
        # a little too much of one
        ({"cpus": 2.5}, {"cpus": 2.0}, False),
        ({"memory": 101}, {"memory": 100}, False),
        ({"gpus": 1}, {"gpus": 0}, False),
        # no wish for memory fits everywhere
        ({"memory": None}, {"memory": 0}, True),
        # all labels, in any order, and more are no harm
        ({"labels": ("b", "a")}, {"labels": ("a", "b", "c")}, True),
        ({"labels": ("a", "b")}, {"labels": ("a",)}, False),
        ({"labels": ("a",)}, {"labels": ()}, False),
        # a label is a whole word
        ({"labels": ("a",)}, {"labels": ("ab", "A")}, False),
        ({}, {"tasks_max": 0}, False),
        # what a worker has enough of
        ({"cpus": 0.1}, {"refused_cpus": (0.1, 0.25)}, False),
        ({"cpus": 0.2}, {"refused_cpus": (0.1, 0.25)}, True),
    ],
)
def test_a_task_is_handed_out_where_it_fits(
    store: Store, needs: dict[str, Any], offered: dict[str, Any], is_taken: bool
) -> None:
    turn = started(store)
    queue(store, turn, task(turn.run_id, **needs))

    assert leased(store, **offered) == (["build"] if is_taken else [])
    assert store.queued_tasks(turn.run_id) == ([] if is_taken else [("build", 1)])


def test_tasks_are_handed_out_one_beside_the_other_until_the_offer_is_full(store: Store) -> None:
    turn = started(store)
    sizes = {"a": 2.0, "b": 3.0, "c": 0.5, "d": 1.0}
    queue(store, turn, *(task(turn.run_id, place, cpus=cpus) for place, cpus in sizes.items()))

    assert leased(store, cpus=3.0) == ["a", "c"]
    assert leased(store, cpus=3.0) == ["b"]


def test_a_task_waits_for_its_host_while_a_worker_lives_there(store: Store, place: Place) -> None:
    turn = started(store)
    store.register(worker("theirs", host="there"))
    queue(store, turn, task(turn.run_id, host="there"))

    assert leased(store, host="here") == []

    assert [lease.task.host for lease in store.lease("theirs", offer(host="there"))] == ["there"]


@pytest.mark.parametrize("how", ["never there", "buried"])
def test_a_task_runs_anywhere_when_its_host_is_gone(store: Store, how: str) -> None:
    turn = started(store)
    if how != "never there":
        store.register(worker("theirs", host="there"))
    queue(store, turn, task(turn.run_id, host="there"))
    if how == "buried":
        store.expire("theirs", is_dead=True)

    assert leased(store, host="here") == ["build"]


def test_a_task_waits_for_its_host_until_somebody_has_expired_the_last_worker_there(store: Store, place: Place) -> None:
    """An old heartbeat is not enough: after an outage of the server all are old."""
    turn = started(store)
    store.register(worker("theirs", host="there"))
    queue(store, turn, task(turn.run_id, host="there"))

    place.pass_time(LEASE_SECONDS + 1)

    assert leased(store, host="here") == []


# -- results ---------------------------------------------------------------------------------------------------------


def test_a_result_is_accepted_into_the_inbox_and_ends_the_lease(opened: Open) -> None:
    mine, other = opened(), opened()
    turn = started(mine)
    other.register(worker("other"))
    queue(mine, turn, task(turn.run_id))
    (lease,) = other.lease("other", offer())

    other.report(lease.token, ended())

    assert other.leases_of("other") == []
    assert reports(mine, turn.run_id)[1:] == [ended()]


def test_a_run_has_leases_while_somebody_has_a_task_of_it(store: Store) -> None:
    turn, other = started(store), started(store)
    queue(store, turn, task(turn.run_id))
    before = store.has_leases(turn.run_id)
    (lease,) = take(store, turn, task(turn.run_id, "deploy"))
    meanwhile = store.has_leases(turn.run_id), store.has_leases(other.run_id)
    store.report(lease.token, ended("deploy"))

    assert (before, meanwhile, store.has_leases(turn.run_id)) == (False, (True, False), False)


def test_a_result_is_accepted_once(store: Store) -> None:
    turn = started(store)
    (lease,) = take(store, turn, task(turn.run_id))
    store.report(lease.token, ended())

    with pytest.raises(StaleLease) as refused:
        store.report(lease.token, ended())

    assert refused.value.render() == (
        f"error[task.stale_lease]: lease {lease.token} is void: it has ended, or its worker has expired"
    )
    assert refused.value.data == {"token": lease.token}
    assert reports(store, turn.run_id) == [ended()]


def test_a_number_that_is_no_lease_is_refused(store: Store) -> None:
    """Also that of a task which is queued: its place in the queue is no right to it."""
    turn = started(store)
    queue(store, turn, task(turn.run_id))

    for token in range(-1, 100):
        with pytest.raises(StaleLease):
            store.report(token, ended())

    assert store.queued_tasks(turn.run_id) == [("build", 1)]


def test_several_reports_are_one_transaction_and_void_leases_are_left_out(store: Store) -> None:
    turn = started(store)
    leases = take(store, turn, task(turn.run_id), task(turn.run_id, "deploy"))
    store.report(leases[0].token, ended())

    store.report_all([(leases[0].token, ended(), None), (leases[1].token, ended("deploy"), None)])

    assert [one.place for one in reports(store, turn.run_id) if isinstance(one, r.TaskEnded)] == ["build", "deploy"]
    assert store.leases_of("w") == []


def test_the_last_reports_and_new_leases_come_together(store: Store) -> None:
    turn = started(store)
    leases = take(store, turn, task(turn.run_id), task(turn.run_id, "deploy"))
    store.report(leases[0].token, ended())
    queue(store, turn, task(turn.run_id, "check"), task(turn.run_id, "late"))

    done = [(lease.token, ended(lease.task.place), None) for lease in leases]
    _, found = store.report_and_lease("w", done, offer(tasks_max=1))

    assert [lease.task.place for lease in found] == ["check"]
    assert store.leases_of("w") == found
    assert [one.place for one in reports(store, turn.run_id) if isinstance(one, r.TaskEnded)] == ["build", "deploy"]
    assert store.report_and_lease("w", [(found[0].token, ended("check"), None)], offer(tasks_max=0))[1] == []
    assert store.report_and_lease("nobody", [], offer()) == (False, [])
    assert store.leases_of("w") == []


# -- hosts that a retry avoids ---------------------------------------------------------------------------------------


def test_a_task_is_kept_from_hosts_that_failed_it_until_it_has_waited_long_enough(place: Place, store: Store) -> None:
    turn = started(store)
    later, before = (place.now() + timedelta(seconds=seconds) for seconds in (60, -1))
    waits = AvoidedHosts(("n1", "n2"), later)
    queue(store, turn, *(task(turn.run_id, f"kept{n}", avoids=waits) for n in range(3)))
    queue(store, turn, task(turn.run_id, "free", avoids=AvoidedHosts(("n1",), before)))
    queue(store, turn, task(turn.run_id, "plain", env={"text": '"avoids":{'}))

    # The first tasks of the queue do not hide those that it may have.
    assert leased(store, tasks_max=2, host="n1") == ["free", "plain"]
    assert leased(store, tasks_max=2, host="n2") == []
    assert leased(store, tasks_max=2, host="n3") == ["kept0", "kept1"]


def test_a_retry_on_another_host_may_be_given_any_text(place: Place, store: Store) -> None:
    """PostgreSQL refuses JSON with a NUL in it: one such task would keep all workers from all tasks."""
    turn = started(store)
    waits = AvoidedHosts(("n1",), place.now() + timedelta(seconds=60))
    texts = {"nul": "a\0b", "backslash": "\\\\u0000\\", "quote": '\\"', "like": '"avoids":{"hosts":["n2"]}'}
    for name, text in texts.items():
        queue(store, turn, task(turn.run_id, name, env={"text": text}, avoids=waits))

    assert leased(store, tasks_max=4, host="n1") == []
    assert leased(store, tasks_max=4, host="n2") == list(texts)


# -- workers that end ------------------------------------------------------------------------------------------------


def test_a_worker_that_ends_soon_gets_no_task_whose_timeout_is_longer(store: Store) -> None:
    turn = started(store)
    queue(store, turn, *(task(turn.run_id, f"long{n}", timeout=3600.0) for n in range(5)))
    queue(store, turn, task(turn.run_id, "short", timeout=60.0), task(turn.run_id, "endless"))

    # The first tasks of the queue do not hide those that it has time for.
    assert leased(store, tasks_max=2, seconds_left=60.0) == ["short", "endless"]
    assert leased(store, tasks_max=2, seconds_left=59.0) == []
    assert leased(store, tasks_max=1, seconds_left=3600.0) == ["long0"]
    assert leased(store, tasks_max=1) == ["long1"]


def test_a_worker_that_ends_soon_gets_no_task_that_has_shown_to_need_longer(store: Store) -> None:
    turn = started(store)
    queue(store, turn, *(task(turn.run_id, f"long{n}", seconds_min=540.0) for n in range(5)))
    queue(store, turn, task(turn.run_id, "short", seconds_min=5.0, timeout=60.0))

    assert leased(store, tasks_max=2, seconds_left=59.0) == []
    assert leased(store, tasks_max=2, seconds_left=60.0) == ["short"]
    assert leased(store, tasks_max=1, seconds_left=539.0) == []
    assert leased(store, tasks_max=1, seconds_left=540.0) == ["long0"]
    assert leased(store, tasks_max=1) == ["long1"]
