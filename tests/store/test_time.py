"""Timers: none lost, none early, moved when set again, by the store's own clock."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.support.keeping import Open, Place, commit, new_run, reports, started

from mulligan.core.effects.effects import SetTimer
from mulligan.core.model import reports as r
from mulligan.ports import Store, Turn

pytestmark = pytest.mark.postgres


def set_timers(store: Store, turn: Turn, *timers: SetTimer) -> None:
    store.commit([commit(turn, store.run(turn.run_id).seq, 0, timers=timers)])


def fired(store: Store, turn: Turn) -> list[tuple[str, str, int]]:
    found = reports(store, turn.run_id)
    return [(told.kind, told.place, told.number) for told in found if isinstance(told, r.TimerFired)]


def test_a_timer_fires_when_it_is_due_and_not_before(store: Store, place: Place) -> None:
    turn = started(store)
    set_timers(store, turn, SetTimer("retry", place.now() + timedelta(seconds=60), "build", 2))

    assert store.fire_timers() == 0
    place.pass_time(59)
    assert store.fire_timers() == 0
    place.pass_time(2)
    assert store.fire_timers() == 1

    assert fired(store, turn) == [("retry", "build", 2)]


def test_a_timer_fires_once(opened: Open, place: Place) -> None:
    one, two = opened(), opened()
    turn = started(one)
    set_timers(one, turn, SetTimer("run", place.now() - timedelta(seconds=1)))

    assert [store.fire_timers() for store in (one, two, one)] == [1, 0, 0]

    assert fired(two, turn) == [("run", "", 0)]


def test_the_report_has_the_time_at_which_it_fired(store: Store, place: Place) -> None:
    turn = started(store)
    due = place.now() - timedelta(hours=1)
    before = place.now()
    set_timers(store, turn, SetTimer("run", due))

    store.fire_timers()

    (told,) = reports(store, turn.run_id)
    assert before <= told.at <= place.now()


def test_a_timer_that_is_set_again_is_moved(store: Store, place: Place) -> None:
    turn = started(store)
    now = place.now()
    set_timers(store, turn, SetTimer("retry", now - timedelta(seconds=1), "build", 2))

    set_timers(store, turn, SetTimer("retry", now + timedelta(seconds=60), "build", 2))

    assert store.fire_timers() == 0
    place.pass_time(61)
    assert store.fire_timers() == 1


def test_timers_are_told_apart_by_kind_place_and_number(store: Store, place: Place) -> None:
    turn = started(store)
    due = place.now() - timedelta(seconds=10)
    keys: list[tuple[r.TimerKind, str, int]] = [
        ("retry", "a", 1),
        ("retry", "a", 2),
        ("retry", "b", 1),
        ("attempt", "a", 1),
    ]
    timers = [SetTimer(kind, due + timedelta(seconds=n), where, number) for n, (kind, where, number) in enumerate(keys)]

    set_timers(store, turn, *reversed(timers))

    assert store.fire_timers() == 4
    assert fired(store, turn) == keys


def test_of_a_timer_that_one_turn_sets_twice_the_last_counts(store: Store, place: Place) -> None:
    turn = started(store)
    now = place.now()

    set_timers(store, turn, SetTimer("run", now), SetTimer("run", now + timedelta(seconds=60)))

    assert store.next_due() == now + timedelta(seconds=60)


def test_the_next_timer_that_is_due_is_known(store: Store, place: Place) -> None:
    assert store.next_due() is None
    one, two = started(store), started(store)
    now = place.now()
    set_timers(store, one, SetTimer("run", now + timedelta(seconds=60)))

    set_timers(store, two, SetTimer("run", now + timedelta(seconds=30, microseconds=1)))

    assert store.next_due() == now + timedelta(seconds=30, microseconds=1)
    assert store.next_due(one.run_id) == now + timedelta(seconds=60)
    assert store.next_due(42) is None


def test_timers_below_one_root_fire_when_only_those_are_asked_for(store: Store, place: Place) -> None:
    top, stranger = started(store), started(store)
    (done,) = store.commit([commit(top, children=[new_run(parent_place="sub")])])
    due = place.now() - timedelta(seconds=1)
    for turn in (top, stranger, done.children[0]):
        set_timers(store, turn, SetTimer("run", due))

    assert store.fire_timers(top.run_id) == 2

    assert (fired(store, stranger), store.next_due()) == ([], due)


def test_the_timers_of_runs_that_others_hold_are_left_to_them_where_each_process_has_its_own_clock(
    store: Store, place: Place
) -> None:
    mine, other = started(store, holder="w1"), started(store, holder="w2")
    due = place.now() - timedelta(seconds=1)
    for turn in (mine, other):
        set_timers(store, turn, SetTimer("run", due))

    assert store.fire_timers(holder="w1") == (2 if store.is_shared else 1)

    assert fired(store, mine) == [("run", "", 0)]
    assert store.next_due(holder="w1") is None


def test_a_store_that_has_a_clock_for_all_processes_tells_its_time(store: Store, place: Place) -> None:
    before = place.now()
    told = store.now()

    assert (told is not None) == store.is_shared
    assert told is None or before <= told <= place.now()
