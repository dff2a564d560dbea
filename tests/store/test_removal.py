"""Removing runs: whole trees that have ended, and nothing else; and finding what the others mention."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.keeping import T0, Open, commit, new_run, started, task, worker

from mulligan.core.model import reports as r
from mulligan.core.model.events import Entry, RunPaused
from mulligan.errors import UnknownRun
from mulligan.ports import Commit, Store, Turn

pytestmark = pytest.mark.postgres


def ended(store: Store, turn: Turn, after: int = 0, status: str = "completed") -> None:
    store.commit([commit(turn, after, 1, status=status, is_last=True)])


def with_child(store: Store) -> tuple[Turn, Turn]:
    """A run that waits for another one."""
    parent = started(store)
    (done,) = store.commit([commit(parent, children=[new_run("child", parent_place="call", parent_attempt=1)])])
    (child,) = done.children
    store.commit([commit(child, 0, 0, drained=[(message.id, None) for message in store.inbox([child.run_id])])])
    return parent, child


def is_there(store: Store, run_id: int) -> bool:
    try:
        return store.run(run_id).run_id == run_id
    except UnknownRun:
        return False


def test_a_run_that_has_ended_goes_with_all_that_was_kept_of_it(store: Store) -> None:
    gone, stays = started(store), started(store)
    store.commit([commit(gone, 0, 1, rows=[("place", "build", "", b"1")], status="failed", is_last=True)])
    store.commit([commit(stays, 0, 1, rows=[("place", "build", "", b"2")], status="failed", is_last=True)])

    assert store.remove([gone.run_id]) == [gone.run_id]

    assert [record.run_id for record in store.runs()] == [stays.run_id]
    assert store.log(gone.run_id) == []
    assert store.lists.rows([gone.run_id, stays.run_id], "place", 9) == [(stays.run_id, "build", b"2")]
    assert len(store.load(stays.run_id).rows) == 1


def test_a_tree_goes_whole(store: Store) -> None:
    parent, child = with_child(store)
    ended(store, child)
    ended(store, parent, 1)

    assert store.remove([parent.run_id]) == [parent.run_id, child.run_id]

    assert store.runs() == []


def test_a_run_that_another_one_waits_for_stays(store: Store) -> None:
    parent, child = with_child(store)
    ended(store, child)

    assert store.remove([parent.run_id, child.run_id]) == []

    assert is_there(store, parent.run_id)
    assert is_there(store, child.run_id)


def test_a_run_that_has_not_ended_stays(store: Store) -> None:
    turn = started(store)

    assert store.remove([turn.run_id]) == []

    assert is_there(store, turn.run_id)


def test_a_tree_that_has_not_ended_goes_whole_where_that_is_forced(store: Store) -> None:
    parent, child = with_child(store)
    stays = started(store)

    assert store.remove([parent.run_id], is_forced=True) == [parent.run_id, child.run_id]

    assert [record.run_id for record in store.runs()] == [stays.run_id]


def test_a_run_that_is_about_to_be_retried_stays(store: Store) -> None:
    turn = started(store)
    ended(store, turn)
    store.put(turn.run_id, r.RetryRequested(T0, "somebody"))

    assert store.remove([turn.run_id]) == []

    assert is_there(store, turn.run_id)


def test_a_run_that_somebody_holds_stays(store: Store) -> None:
    turn = started(store)
    ended(store, turn)
    store.take_turns([turn.run_id], "w")

    assert store.remove([turn.run_id]) == []


def test_removing_what_is_not_there_removes_nothing(store: Store) -> None:
    assert store.remove([]) == []
    assert store.remove([42]) == []


def test_a_workflow_stays_as_long_as_one_run_has_it(store: Store) -> None:
    first, second = started(store), started(store)
    ended(store, first)
    ended(store, second)

    store.remove([first.run_id])

    assert store.load(second.run_id).workflow == b'{"name":"nightly"}'


def test_an_id_is_never_given_twice(opened: Open) -> None:
    store = opened()
    turn = started(store)
    ended(store, turn)
    store.remove([turn.run_id])

    assert started(opened()).run_id > turn.run_id


def test_what_logs_inboxes_and_queues_mention_is_found(store: Store) -> None:
    store.register(worker())
    logged, told, queued = started(store), started(store), started(store)
    entry = Entry(1, T0, 0, RunPaused(reason="see $artifact"))
    line = {"status": "running", "round": 1, "at": T0, "rows": ()}
    store.commit(
        [written(logged, [entry], line), written(queued, [], {**line, "queued": [task(queued.run_id, "$artifact")]})]
    )
    store.put(told.run_id, r.TaskEnded(T0, "build", 1, output={"$artifact": 1}))

    found = [(run_id, b"$artifact" in data) for run_id, data in store.records_containing("$artifact")]

    assert sorted(found) == [(logged.run_id, True), (told.run_id, True), (queued.run_id, True)]
    assert list(store.records_containing("never said")) == []


def written(turn: Turn, entries: list[Entry], line: dict[str, Any]) -> Commit:
    made = commit(turn, 0, 0, **line)
    made.entries = entries
    return made


def test_numbers_that_are_skipped_are_given_to_no_run(store: Store) -> None:
    first = started(store)

    assert store.skip_run_ids(0) == first.run_id
    assert store.skip_run_ids(7) == first.run_id
    assert store.skip_run_ids(3) == 7
    assert started(store).run_id == 8


def test_of_a_new_store_no_number_was_given_out(store: Store) -> None:
    assert store.skip_run_ids(0) == 0
