"""Runs: made all or none, listed, loaded as they were written."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.support.keeping import T0, Open, commit, entries, new_run, reports, started, worker

from mulligan.core.model import reports as r
from mulligan.errors import KeyUsed, UnknownRun
from mulligan.ports import LoadedRun, NewRun, RunRecord, Store, Turn, WaitingPlace
from mulligan.store import view_project

pytestmark = pytest.mark.postgres


def test_a_new_run_has_its_request_with_its_own_id_in_its_inbox(store: Store) -> None:
    (turn,) = store.create([new_run()])

    assert turn == Turn(turn.run_id, "", 0)
    assert reports(store, turn.run_id) == [r.RunRequested(T0, turn.run_id, {"a": 1}, by="somebody")]
    assert store.run(turn.run_id) == RunRecord(
        run_id=turn.run_id,
        workflow="nightly",
        version="v1",
        status="running",
        round=1,
        seq=0,
        created_at=T0,
        updated_at=T0,
        root_run_id=turn.run_id,
        started_by="somebody",
    )


def test_a_run_made_with_a_holder_has_its_turn_at_once(store: Store) -> None:
    store.register(worker())

    (turn,) = store.create([new_run()], "w")

    assert store.run(turn.run_id).holder == "w"
    store.commit([commit(turn)])
    assert store.run(turn.run_id).seq == 1


def test_many_runs_are_made_together_with_ids_that_grow(store: Store) -> None:
    turns = store.create([new_run(f"n{number}") for number in range(20)])

    ids = [turn.run_id for turn in turns]
    assert ids == sorted(set(ids))
    assert [store.run(run_id).workflow for run_id in ids] == [f"n{number}" for number in range(20)]


def test_no_runs_are_made_of_none(store: Store) -> None:
    assert store.create([]) == []


def test_ids_go_on_where_they_were_when_the_store_is_opened_again(opened: Open) -> None:
    first = opened()
    (before,) = first.create([new_run()])
    first.close()

    (after,) = opened().create([new_run()])

    assert after.run_id > before.run_id


@pytest.mark.parametrize("ask", ["run", "load"])
def test_a_run_that_is_not_there_is_said_to_be_unknown(store: Store, ask: str) -> None:
    with pytest.raises(UnknownRun) as unknown:
        getattr(store, ask)(42)

    assert unknown.value.render() == "error[run.unknown]: there is no run 42"
    assert unknown.value.data == {"run_id": 42}


def test_runs_are_listed_from_the_newest_in_pages(store: Store) -> None:
    ids = [turn.run_id for turn in store.create([new_run() for _ in range(5)])]

    first = [record.run_id for record in store.runs(limit=2)]
    second = [record.run_id for record in store.runs(limit=2, before=first[-1])]

    assert (first, second) == ([ids[4], ids[3]], [ids[2], ids[1]])


def test_runs_are_listed_by_status(store: Store) -> None:
    done, failed, _ = (started(store) for _ in range(3))
    store.commit([commit(done, status="completed"), commit(failed, status="failed")])

    found = store.runs(statuses=["failed", "completed"])

    assert [record.run_id for record in found] == [failed.run_id, done.run_id]


def test_what_a_turn_says_of_the_run_stands_in_its_record(store: Store) -> None:
    turn = started(store)
    at = T0 + timedelta(hours=1, microseconds=1)

    store.commit([commit(turn, status="paused", round=3, at=at, degraded=True, reason="so it is")])

    record = store.run(turn.run_id)
    assert (record.status, record.round, record.seq, record.created_at) == ("paused", 3, 1, T0)
    assert (record.updated_at, record.degraded, record.reason) == (at, True, "so it is")


def test_a_run_is_loaded_with_its_pinned_workflow_and_its_rows(store: Store) -> None:
    turn = started(store)
    rows = [("run", "", "", b"\x00\xff"), ("place", "b", "parked", b"2"), ("place", "a", "", b"1")]

    store.commit([commit(turn, rows=rows)])

    loaded = store.load(turn.run_id)
    assert loaded == LoadedRun(
        store.run(turn.run_id),
        b'{"name":"nightly"}',
        [("place", "a", "", b"1"), ("place", "b", "parked", b"2"), ("run", "", "", b"\x00\xff")],
    )


def test_each_run_keeps_the_version_it_was_made_with(store: Store) -> None:
    request = r.RunRequested(T0, 0)
    one, two = store.create([NewRun(b"{1}", "v1", "n", request), NewRun(b"{2}", "v2", "n", request)])

    assert (store.load(one.run_id).workflow, store.load(two.run_id).workflow) == (b"{1}", b"{2}")


def test_rows_are_replaced_and_go(store: Store) -> None:
    turn = started(store)
    store.commit([commit(turn, rows=[("place", "a", "", b"1"), ("place", "b", "", b"1"), ("item", "a", "", b"1")])])

    store.commit([commit(turn, 1, rows=[("place", "a", "", b"2"), ("place", "b", "", None), ("place", "c", "", None)])])

    assert list(store.load(turn.run_id).rows) == [("item", "a", "", b"1"), ("place", "a", "", b"2")]


def test_of_a_row_that_a_turn_writes_twice_the_last_counts(store: Store) -> None:
    turn = started(store)

    store.commit([commit(turn, rows=[("place", "a", "", b"1"), ("place", "a", "parked", b"2")])])

    assert list(store.load(turn.run_id).rows) == [("place", "a", "parked", b"2")]


def test_the_log_is_read_in_order_behind_a_seq_and_up_to_a_limit(store: Store) -> None:
    turn = started(store)
    store.commit([commit(turn, 0, 3)])
    store.commit([commit(turn, 3, 2)])

    assert store.log(turn.run_id) == entries(0, 5)
    assert store.log(turn.run_id, 2) == entries(2, 3)
    assert store.log(turn.run_id, 2, 1) == entries(2, 1)
    assert store.log(turn.run_id, 5) == []
    assert store.log(42) == []


def test_what_waits_for_a_person_is_found_over_all_runs_that_have_not_ended(store: Store) -> None:
    one, two, over = (started(store) for _ in range(3))
    store.commit(
        [
            commit(one, rows=[("place", "deploy", "approval", b"1"), ("place", "build", "", b"1")]),
            commit(two, rows=[("place", "b", "parked", b"1"), ("place", "a", "parked", b"1")]),
            commit(over, rows=[("place", "c", "parked", b"1")], status="failed"),
        ]
    )

    assert store.waiting_places() == [
        WaitingPlace(one.run_id, "deploy", "approval", one.run_id),
        WaitingPlace(two.run_id, "a", "parked", two.run_id),
        WaitingPlace(two.run_id, "b", "parked", two.run_id),
    ]


def test_what_waits_for_an_event_is_found_with_it_and_is_not_for_a_person(store: Store) -> None:
    turn = started(store)
    store.commit([commit(turn, rows=[("place", "pay", "event", b"1"), ("place", "go", "approval", b"1")])])

    found = store.waiting_places()

    assert [(one.place, one.kind, one.is_for_a_person) for one in found] == [
        ("go", "approval", True),
        ("pay", "event", False),
    ]


def test_runs_are_found_by_the_end_of_their_keys(store: Store) -> None:
    one, two, _ = (store.create([new_run(key=key)])[0].run_id for key in ("a: k", "b: k", "a: kk"))

    assert store.runs_under(": k") == [("a: k", one), ("b: k", two)]
    assert store.runs_under(": %") == []


def test_what_no_longer_waits_is_not_found(store: Store) -> None:
    turn = started(store)
    store.commit([commit(turn, rows=[("place", "a", "parked", b"1"), ("place", "b", "parked", b"1")])])

    store.commit([commit(turn, 1, rows=[("place", "a", "", b"2"), ("place", "b", "", None)])])

    assert store.waiting_places() == []


def test_what_was_counted_is_found_over_all_runs_the_newest_first_and_by_workflow_time_and_project(
    store: Store,
) -> None:
    one, two, over = started(store), started(store, name="other"), started(store, project="blue")
    store.commit(
        [
            commit(two, rows=[("tallies", "b", "", b"3"), ("tallies", "a", "", b"\x00\xff"), ("place", "a", "", b"9")]),
            commit(one, rows=[("tallies", "c", "", b"1"), ("run", "", "", b"9")]),
            commit(over, rows=[("tallies", "a", "", b"4")], status="completed"),
        ]
    )

    name, version = store.run(one.run_id).workflow, store.run(one.run_id).version
    found = [tuple(row) for row in store.tallies()]
    assert found == [
        (over.run_id, name, version, "a", b"4"),
        (two.run_id, "other", version, "a", b"\x00\xff"),
        (two.run_id, "other", version, "b", b"3"),
        (one.run_id, name, version, "c", b"1"),
    ]
    assert [tuple(row) for row in store.tallies("other")] == found[1:3]
    assert [tuple(row) for row in store.tallies(project="blue")] == found[:1]
    assert [tuple(row) for row in view_project(store, "blue").tallies()] == found[:1]
    assert view_project(store, "blue").tallies(project="") == []
    assert store.tallies(since=store.run(over.run_id).created_at + timedelta(microseconds=1)) == []


def test_one_row_is_found_in_the_newest_runs_of_a_workflow_where_nobody_is_waited_for(store: Store) -> None:
    turns = [started(store, name=name) for name in ("nightly", "nightly", "other", "nightly", "nightly")]
    one, parked, other, two, without = turns
    store.commit(
        [
            commit(one, rows=[("places", "a", "", b"1"), ("places", "b", "", b"9")], status="failed"),
            commit(parked, rows=[("places", "a", "parked", b"2")]),
            commit(other, rows=[("places", "a", "", b"3")]),
            commit(two, rows=[("places", "a", "", b"\x00\xff"), ("arcs", "a", "", b"9")]),
            commit(without, rows=[("places", "b", "", b"9")]),
        ]
    )

    assert store.recent_rows("nightly", "places", "a", 20) == [(two.run_id, b"\x00\xff"), (one.run_id, b"1")]
    assert store.recent_rows("nightly", "places", "a", 1) == [(two.run_id, b"\x00\xff")]
    assert store.recent_rows("nightly", "places", "c", 20) == []
    assert store.recent_rows("weekly", "places", "a", 20) == []


def test_a_tally_that_was_removed_is_not_counted(store: Store) -> None:
    turn = started(store)
    store.commit([commit(turn, rows=[("tallies", "a", "", b"1"), ("run", "", "", b"9")])])
    store.commit([commit(turn, 1, rows=[("tallies", "a", "", None)])])

    assert store.tallies() == []


def test_everything_is_found_again_when_the_store_is_opened_again(opened: Open) -> None:
    first = opened()
    turn = started(first)
    first.commit([commit(turn, 0, 3, rows=[("place", "a", "parked", b"1")])])
    first.put(turn.run_id, r.PauseRequested(T0, by="somebody"))
    seen = (first.run(turn.run_id), first.load(turn.run_id), first.log(turn.run_id), first.inbox([turn.run_id]))
    first.close()

    again = opened()

    assert seen == (again.run(turn.run_id), again.load(turn.run_id), again.log(turn.run_id), again.inbox([turn.run_id]))
    again.commit([commit(turn, 3)])


# -- a key, for who asks again


def test_a_start_under_a_key_that_was_used_is_refused_and_names_the_run(opened: Open) -> None:
    (turn,) = opened().create([new_run(key="order-7")])

    with pytest.raises(KeyUsed) as refused:
        opened().create([new_run(key="order-7")])

    assert refused.value.message == f"run {turn.run_id} was started under the key 'order-7'"
    assert refused.value.run_id == turn.run_id


def test_of_runs_that_are_made_together_none_is_made_if_the_key_of_one_was_used(store: Store) -> None:
    store.create([new_run(key="order-7")])

    with pytest.raises(KeyUsed):
        store.create([new_run(), new_run(key="order-8"), new_run(key="order-7")])

    assert len(store.runs()) == 1
    assert len(store.create([new_run(key="order-8"), new_run()])) == 2


def test_the_key_of_a_run_that_was_removed_is_free_again(store: Store) -> None:
    turn = started(store, key="order-7")
    store.commit([commit(turn, status="completed", is_last=True)])
    assert store.remove([turn.run_id]) == [turn.run_id]

    (again,) = store.create([new_run(key="order-7")])

    assert again.run_id != turn.run_id


def test_rows_are_found_by_their_tag_the_newest_run_first_with_how_it_stands(store: Store) -> None:
    store.register(worker())
    turns = store.create([new_run(), new_run(), new_run()], "w")
    for turn, tag in zip(turns, ("f1", "f1", "f2"), strict=True):
        rows = [("places", "a", tag, b"row"), ("places", "b", "", b"other")]
        store.commit([commit(turn, rows=rows, status="running" if turn is turns[0] else "completed")])

    found = store.tagged_rows("f1", 10)

    assert found == [
        (turns[1].run_id, "completed", "a", b"row"),
        (turns[0].run_id, "running", "a", b"row"),
    ]
    assert store.tagged_rows("f1", 1) == found[:1]
    assert store.tagged_rows("", 10) == store.tagged_rows("f3", 10) == []


def test_a_row_whose_tag_changes_is_found_by_the_new_one_alone_and_not_at_all_when_it_goes(store: Store) -> None:
    store.register(worker())
    (turn,) = store.create([new_run()], "w")
    store.commit([commit(turn, rows=[("places", "a", "f1", b"1"), ("places", "b", "f1", b"1")])])

    store.commit([commit(turn, after=1, rows=[("places", "a", "", b"2"), ("places", "b", "f1", None)])])

    assert store.tagged_rows("f1", 10) == []


def test_what_may_be_taken_over_waits_for_nobody_and_counts_among_the_latest(store: Store) -> None:
    store.register(worker())
    turns = store.create([new_run(), new_run(), new_run()], "w")
    for turn, tag in zip(turns, ("f1", "parked", ""), strict=True):
        store.commit([commit(turn, rows=[("places", "a", tag, tag.encode())])])

    assert [(one.run_id, one.kind) for one in store.waiting_places()] == [(turns[1].run_id, "parked")]
    assert store.recent_rows("nightly", "places", "a", 10) == [(turns[2].run_id, b""), (turns[0].run_id, b"f1")]
