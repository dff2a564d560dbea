"""Turns: one holder at a time, an older one is refused, whatever it tries."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.support.keeping import T0, Open, commit, new_run, queue, started, take, task, worker

from mulligan.core.effects.effects import SetTimer
from mulligan.core.model import reports as r
from mulligan.errors import Conflict
from mulligan.ports import Store, Turn

pytestmark = pytest.mark.postgres


def test_a_free_turn_is_taken_and_its_fence_grows_with_each_holder(store: Store) -> None:
    store.register(worker("a"))
    store.register(worker("b"))
    (new,) = store.create([new_run()])

    (first,) = store.take_turns([new.run_id], "a")
    store.release([first])
    (second,) = store.take_turns([new.run_id], "b")

    assert first == Turn(new.run_id, "a", 1)
    assert second == Turn(new.run_id, "b", 2)
    assert store.run(new.run_id).holder == "b"


def test_a_turn_that_another_has_is_not_given(opened: Open) -> None:
    one, two = opened(), opened()
    turn = started(one)
    two.register(worker("other"))

    assert two.take_turns([turn.run_id], "other") == []
    one.commit([commit(turn)])


def test_who_has_the_turn_may_take_it_again_and_both_are_good(store: Store) -> None:
    turn = started(store)

    (again,) = store.take_turns([turn.run_id], "w")

    store.commit([commit(turn)])
    store.commit([commit(again, 1)])
    assert store.run(turn.run_id).seq == 2


def test_of_many_turns_those_are_given_that_are_free(store: Store) -> None:
    store.register(worker("mine"))
    held = started(store, holder="other")
    free = store.create([new_run(), new_run()])

    got = store.take_turns([held.run_id, *(turn.run_id for turn in free), 42], "mine")

    assert got == [Turn(turn.run_id, "mine", 1) for turn in free]
    assert store.take_turns([], "mine") == []


def test_a_turn_that_was_given_back_is_void(store: Store) -> None:
    turn = started(store)
    store.release([turn])

    with pytest.raises(Conflict) as refused:
        store.commit([commit(turn)])

    assert refused.value.render() == (
        f"error[store.conflict]: the turn of run {turn.run_id} is void: 'w' no longer has it, "
        "or its log has grown behind 0"
    )
    assert refused.value.data == {"run_id": turn.run_id}


def test_giving_back_a_void_turn_is_nothing(store: Store) -> None:
    old = started(store)
    store.release([old])
    (new,) = store.take_turns([old.run_id], "w")

    store.release([old, Turn(42, "w", 1)])

    store.commit([commit(new)])


def test_an_old_turn_of_the_same_holder_is_refused(store: Store) -> None:
    old = started(store)
    store.release([old])
    store.take_turns([old.run_id], "w")

    with pytest.raises(Conflict):
        store.commit([commit(old)])

    assert store.log(old.run_id) == []


def test_a_commit_is_refused_when_the_log_has_grown_behind_it(store: Store) -> None:
    turn = started(store)
    store.commit([commit(turn, 0, 2)])

    for after in (0, 1, 3):
        with pytest.raises(Conflict):
            store.commit([commit(turn, after)])

    assert len(store.log(turn.run_id)) == 2


def test_a_commit_to_a_run_that_is_not_there_is_refused(store: Store) -> None:
    with pytest.raises(Conflict):
        store.commit([commit(Turn(42, "w", 1))])


def test_the_last_commit_of_a_round_gives_the_turn_back(store: Store) -> None:
    turn = started(store)

    store.commit([commit(turn, status="completed", is_last=True)])

    assert store.run(turn.run_id).holder == ""
    with pytest.raises(Conflict):
        store.commit([commit(turn, 1)])
    (again,) = store.take_turns([turn.run_id], "w")
    store.commit([commit(again, 1)])


def test_a_worker_finds_page_by_page_the_unfinished_runs_that_it_may_hold(opened: Open) -> None:
    one, two = opened(), opened()
    if one.is_shared:
        pytest.skip("there any worker gets tasks and timers of any run, without its turn")
    own, others = started(one), started(two, holder="other")
    free = two.create([new_run(), new_run()])
    over = started(one)
    one.commit([commit(over, status="completed", is_last=True)])

    first = one.idle_runs("w", (0, 0), 3)
    assert first.after is not None
    second = one.idle_runs("w", first.after, 3)

    assert first.run_ids + second.run_ids == [own.run_id, *(turn.run_id for turn in free)]
    assert second.after is None
    assert two.run(others.run_id).holder == "other"


def test_a_run_has_work_if_it_has_a_message_a_queued_task_or_no_reason_to_wait(store: Store) -> None:
    if store.is_shared:
        pytest.skip("there any worker gets tasks and timers of any run, without its turn")
    asked = started(store)
    store.put(asked.run_id, r.CancelRequested(T0))
    queued, running, timed, paused, person, lost = (started(store) for _ in range(6))
    queue(store, queued, task(queued.run_id))
    take(store, running, task(running.run_id))
    due = SetTimer("wait", T0 + timedelta(hours=1), "a", 1)
    store.commit([commit(timed, timers=[due])])
    store.commit([commit(paused, status="paused", queued=[task(paused.run_id)])])
    store.commit([commit(person, rows=[("places", "ask", "approval", b"{}")])])
    ahead = started(store)
    store.commit([commit(ahead, at=T0 + timedelta(hours=1), timers=[due])])
    everyone = (asked, queued, running, timed, paused, person, lost, ahead)

    found = store.runs_with_work([turn.run_id for turn in everyone])

    assert found == [turn.run_id for turn in (asked, queued, lost, ahead)]
