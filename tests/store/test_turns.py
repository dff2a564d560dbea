"""Turns: one holder at a time, an older one is refused, whatever it tries."""

from __future__ import annotations

import pytest

from mulligan.errors import Conflict
from mulligan.ports import Store, Turn

from .keeping import Open, commit, new_run, started, worker


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
