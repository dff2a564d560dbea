"""Commits: everything a turn writes is there together, or nothing of it, whatever else is in the batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.keeping import (
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

from mulligan.core.effects.effects import SetTimer, StopTask
from mulligan.core.model import events as e
from mulligan.core.model import reports as r
from mulligan.errors import Conflict, UnknownRun
from mulligan.ports import Answer, ChildReport, Commit, NoticeRecord, Store, Turn

pytestmark = pytest.mark.postgres

CANCEL = r.CancelRequested(T0, by="somebody")


def everything(turn: Turn, message_id: int, other_id: int) -> dict[str, Any]:
    """One of each thing that a turn can write."""
    return {
        "rows": [("place", "a", "parked", b"1")],
        "queued": [task(turn.run_id, "queued")],
        "taken": [task(turn.run_id, "taken")],
        "timers": [SetTimer("retry", T0, "a", 2)],
        "drained": [(message_id, Answer())],
        "children": [new_run("child", parent_place="sub", parent_attempt=1)],
        "outgoing": [(other_id, CANCEL)],
        "child_reports": [ChildReport(CANCEL)],
        "notices": [NoticeRecord(key="k", target="ops", body=b"{}", created_at=T0, run_id=turn.run_id)],
        "status": "paused",
    }


def written(store: Store, turn: Turn, message_id: int, other_id: int) -> dict[str, Any]:
    """What of it is there."""
    return {
        "log": len(store.log(turn.run_id)),
        "rows": list(store.load(turn.run_id).rows),
        "queued": store.queued_tasks(turn.run_id),
        "held": [lease.task.place for lease in store.leases_of("w")],
        "due": store.next_due(turn.run_id),
        "inbox": reports(store, turn.run_id),
        "answer": store.answer(message_id),
        "children": [record.workflow for record in store.children(turn.run_id)],
        "told": reports(store, other_id),
        "notices": [(notice.key, notice.run_id) for notice in store.server_records.notices()],
        "status": store.run(turn.run_id).status,
    }


NOTHING = {
    **{"log": 0, "rows": [], "queued": [], "held": [], "due": None, "inbox": [CANCEL], "answer": None},
    **{"children": [], "told": [], "notices": [], "status": "running"},
}


def test_everything_that_a_turn_writes_is_there_afterwards(store: Store) -> None:
    turn, other = started(store), started(store)
    message_id = store.put(turn.run_id, CANCEL, is_asking=True)

    store.commit([commit(turn, **everything(turn, message_id, other.run_id))])

    assert written(store, turn, message_id, other.run_id) == {
        "log": 1,
        "rows": [("place", "a", "parked", b"1")],
        "queued": [("queued", 1)],
        "held": ["taken"],
        "due": T0,
        "inbox": [],
        "answer": Answer(),
        "children": ["child"],
        "told": [CANCEL],
        "notices": [("k", turn.run_id)],
        "status": "paused",
    }


def void_turn(turn: Turn) -> Commit:
    return commit(Turn(turn.run_id, "w", turn.fence + 1))


def grown_log(turn: Turn) -> Commit:
    return commit(turn, 7)


def void_lease(turn: Turn) -> Commit:
    return commit(turn, ended=[10**9])


def leased_task(turn: Turn) -> Commit:
    return commit(turn, taken=[task(turn.run_id, "held by another")])


def ordinary(turn: Turn, **fields: Any) -> Commit:
    """What the end of an ordinary step writes: its lease has ended, and the next task is taken."""
    about: dict[str, Any] = {
        "entries": [e.Entry(1, T0, 0, e.AttemptScheduled("next", 1)), e.Entry(2, T0, 0, e.AttemptStarted("next", 1))],
        "rows": [("run", "", "", b"1"), ("places", "build", "", b"2"), ("places", "next", "", b"3")],
        "taken": [task(turn.run_id, "next")],
    }
    return replace(commit(turn), **{**about, **fields})


def test_an_ordinary_turn_is_written_as_any_other(store: Store) -> None:
    plain, turn = started(store), started(store)
    found = []

    for one, is_ordinary in ((plain, False), (turn, True)):
        (lease,) = take(store, one, task(one.run_id, "build"))
        (done,) = store.commit([ordinary(one, ended=[lease.token], is_ordinary=is_ordinary)])
        loaded = store.load(one.run_id)
        places = [lease.task.place for lease in store.leases_of("w") if lease.task.run_id == one.run_id]
        found.append((store.log(one.run_id), sorted(loaded.rows), loaded.record.seq, places, len(done.leases)))

    assert found[0] == found[1]
    assert found[1][3] == ["next"]


def test_a_turn_that_deletes_a_row_is_written_at_length_whatever_it_is_called(store: Store) -> None:
    turn = started(store)
    store.commit([ordinary(turn)])
    gone = [("run", "", "", b"{}"), ("places", "build", "", None), ("places", "next", "", b"4")]

    store.commit(
        [ordinary(turn, after=2, entries=[e.Entry(3, T0, 0, e.RunPaused())], rows=gone, taken=(), is_ordinary=True)]
    )

    assert [row for row in store.load(turn.run_id).rows if row[0] == "places"] == [("places", "next", "", b"4")]


@pytest.mark.parametrize("how", ["void turn", "grown log", "void lease"])
def test_an_ordinary_turn_that_is_void_is_refused_and_leaves_nothing(store: Store, how: str) -> None:
    turn = started(store)
    bad: dict[str, Any] = {
        "void turn": {"turn": Turn(turn.run_id, "w", turn.fence + 1)},
        "grown log": {"after": 7},
        "void lease": {"ended": [10**9]},
    }[how]
    entries = [e.Entry(8, T0, 0, e.AttemptScheduled("next", 1))] if how == "grown log" else ordinary(turn).entries

    refusals = []
    for is_ordinary in (False, True):
        with pytest.raises(Conflict) as refused:
            store.commit([replace(ordinary(turn, entries=entries, is_ordinary=is_ordinary), **bad)])
        refusals.append(refused.value.message)

    assert refusals[0] == refusals[1]
    assert (store.log(turn.run_id), store.leases_of("w")) == ([], [])


@pytest.mark.parametrize("bad", [void_turn, grown_log, void_lease, leased_task], ids=lambda bad: bad.__name__)
@pytest.mark.parametrize("is_first", [True, False], ids=["bad one first", "bad one last"])
def test_a_bad_commit_leaves_nothing_of_the_others_in_its_batch(
    store: Store, bad: Callable[[Turn], Commit], is_first: bool
) -> None:
    good, spoiled, other = started(store), started(store), started(store)
    message_id = store.put(good.run_id, CANCEL, is_asking=True)
    store.register(worker("another"))
    queue(store, spoiled, task(spoiled.run_id, "held by another"))
    store.lease("another", offer())
    batch = [commit(good, **everything(good, message_id, other.run_id)), bad(spoiled)]

    with pytest.raises(Conflict):
        store.commit(batch[::-1] if is_first else batch)

    assert written(store, good, message_id, other.run_id) == NOTHING
    assert len(store.runs()) == 3


def test_the_good_ones_of_a_bad_batch_can_be_committed_one_at_a_time(store: Store) -> None:
    good, bad = started(store), started(store)
    batch = [commit(good), void_turn(bad)]
    with pytest.raises(Conflict):
        store.commit(batch)

    store.commit(batch[:1])

    with pytest.raises(Conflict):
        store.commit(batch[1:])
    assert len(store.log(good.run_id)) == 1


def test_turns_of_many_runs_are_committed_together_and_each_gets_its_own(store: Store) -> None:
    turns = [started(store) for _ in range(30)]
    batch = [
        commit(turn, 0, number % 3, taken=[task(turn.run_id, f"p{n}") for n in range(number % 4)])
        for number, turn in enumerate(turns)
    ]

    done = store.commit(batch)

    assert [[lease.task for lease in one.leases] for one in done] == [list(one.taken) for one in batch]
    assert [len(store.log(turn.run_id)) for turn in turns] == [number % 3 for number in range(30)]
    tokens = [lease.token for one in done for lease in one.leases]
    assert len(set(tokens)) == len(tokens)


def test_a_batch_of_none_is_nothing(store: Store) -> None:
    assert store.commit([]) == []


def test_a_run_stands_once_in_a_batch(store: Store) -> None:
    turn = started(store)

    with pytest.raises(Conflict) as refused:
        store.commit([commit(turn), commit(turn, 1)])

    assert refused.value.message == f"run {turn.run_id} appears twice in one batch"
    assert store.log(turn.run_id) == []


def test_a_turn_may_write_nothing_but_its_line(store: Store) -> None:
    turn = started(store)

    (done,) = store.commit([commit(turn, 0, 0, status="paused")])

    assert (list(done.leases), list(done.children)) == ([], [])
    assert (store.run(turn.run_id).status, store.run(turn.run_id).seq) == ("paused", 0)


def test_texts_of_any_kind_are_kept(store: Store) -> None:
    turn = started(store)
    key = "schritt[3].on_failure@2 — \u2603 '\"\\{}%s"

    store.commit([commit(turn, rows=[("place", key, "parked", b"\x00")], taken=[task(turn.run_id, key)], reason=key)])

    assert store.load(turn.run_id).rows[0] == ("place", key, "parked", b"\x00")
    assert store.leases_of("w")[0].task.place == key
    assert store.run(turn.run_id).reason == key


def test_a_large_turn_is_written_whole(store: Store) -> None:
    turn = started(store)
    rows = [("place", f"p{number}", "", b"x" * 100) for number in range(3000)]

    store.commit([commit(turn, 0, 3000, rows=rows, queued=[task(turn.run_id, f"p{n}") for n in range(3000)])])

    assert store.run(turn.run_id).seq == 3000
    assert store.queued_tasks(turn.run_id) == [(f"p{number}", 1) for number in range(3000)]
    assert len(store.load(turn.run_id).rows) == 3000


# -- leases that a turn ends or takes --------------------------------------------------------------------------------


def test_a_lease_ends_with_the_commit_that_says_how_its_task_ended(store: Store) -> None:
    turn = started(store)
    (lease,) = take(store, turn, task(turn.run_id, "a"))

    (done,) = store.commit([commit(turn, ended=[lease.token], taken=[task(turn.run_id, "b")])])

    assert store.leases_of("w") == list(done.leases)
    assert done.leases[0].token > lease.token


@pytest.mark.parametrize("how", ["ended twice", "of another worker", "of another run", "twice in one commit"])
def test_a_lease_that_is_void_refuses_the_commit(store: Store, how: str) -> None:
    turn, other = started(store), started(store, holder="other")
    mine = started(store)
    (lease,) = take(store, turn, task(turn.run_id))
    bad = {
        "ended twice": commit(turn, 1, ended=[lease.token]),
        "of another worker": commit(other, ended=[lease.token]),
        "of another run": commit(mine, ended=[lease.token]),
        "twice in one commit": commit(turn, ended=[lease.token, lease.token]),
    }[how]
    if how == "ended twice":
        store.commit([commit(turn, ended=[lease.token])])

    with pytest.raises(Conflict) as refused:
        store.commit([bad])

    assert refused.value.message == f"run {bad.turn.run_id} has an ended task whose lease is void"


def test_a_task_that_was_queued_before_is_taken_if_it_is_still_free(store: Store) -> None:
    turn = started(store)
    queue(store, turn, task(turn.run_id))

    (lease,) = take(store, turn, task(turn.run_id))

    assert store.queued_tasks(turn.run_id) == []
    assert store.leases_of("w") == [lease]


def not_free(turn: Turn) -> str:
    return f"task 'build' (attempt 1) of run {turn.run_id} is no longer free"


def test_a_task_that_another_has_is_not_taken(opened: Open) -> None:
    mine, other = opened(), opened()
    turn = started(mine)
    other.register(worker("other"))
    queue(mine, turn, task(turn.run_id))
    (lease,) = other.lease("other", offer())

    with pytest.raises(Conflict) as refused:
        take(mine, turn, task(turn.run_id))

    assert refused.value.message == not_free(turn)
    assert mine.leases_of("other") == [lease]


def test_a_task_that_another_had_and_ended_meanwhile_is_not_taken(opened: Open) -> None:
    """Nothing of it is in the queue any more; only the run's inbox knows."""
    mine, other = opened(), opened()
    turn = started(mine)
    other.register(worker("other"))
    queue(mine, turn, task(turn.run_id))
    (lease,) = other.lease("other", offer())
    other.report(lease.token, ended())

    with pytest.raises(Conflict) as refused:
        take(mine, turn, task(turn.run_id))

    assert refused.value.message == not_free(turn)


def test_a_task_that_was_lost_with_its_worker_is_not_taken_before_the_run_knows(store: Store) -> None:
    turn = started(store)
    store.register(worker("other"))
    queue(store, turn, task(turn.run_id))
    store.lease("other", offer())
    store.expire("other", is_dead=True)

    with pytest.raises(Conflict):
        take(store, turn, task(turn.run_id))

    drained = [(message.id, None) for message in store.inbox([turn.run_id])]
    store.commit([commit(turn, drained=drained, taken=[task(turn.run_id, attempt=2)])])
    assert [lease.task.attempt for lease in store.leases_of("w")] == [2]


def test_a_task_is_not_taken_twice(store: Store) -> None:
    turn = started(store)
    (lease,) = take(store, turn, task(turn.run_id))

    with pytest.raises(Conflict):
        take(store, turn, task(turn.run_id))
    with pytest.raises(Conflict):
        take(store, turn, task(turn.run_id, "a"), task(turn.run_id, "a"))

    assert store.leases_of("w") == [lease]


# -- stops -----------------------------------------------------------------------------------------------------------


def stop(store: Store, turn: Turn, *stopped: StopTask) -> None:
    store.commit([commit(turn, store.run(turn.run_id).seq, 0, stopped=stopped)])


def test_a_stopped_task_that_nobody_has_is_gone(store: Store) -> None:
    turn = started(store)
    queue(store, turn, task(turn.run_id, "a"), task(turn.run_id, "b"))

    stop(store, turn, StopTask("a", 1, 0.0), StopTask("unheard of", 1, 0.0))

    assert store.queued_tasks(turn.run_id) == [("b", 1)]
    assert [lease.task.place for lease in store.lease("w", offer())] == ["b"]


@pytest.mark.parametrize("grace", [10.0, 0.0, None])
def test_the_worker_of_a_stopped_task_is_told_until_the_task_has_ended(store: Store, grace: float | None) -> None:
    turn = started(store)
    stopped, kept = take(store, turn, task(turn.run_id, "a"), task(turn.run_id, "b"))

    stop(store, turn, StopTask("a", 1, grace))

    for _ in range(2):
        assert [(told.token, told.grace_seconds) for told in store.stop_requests("w")] == [(stopped.token, grace)]
    store.report(stopped.token, ended("a"))
    assert store.stop_requests("w") == []
    assert store.leases_of("w") == [kept]


def test_a_stop_may_be_carried_out_twice_and_the_last_grace_counts(store: Store) -> None:
    turn = started(store)
    take(store, turn, task(turn.run_id))

    stop(store, turn, StopTask("build", 1, None))
    stop(store, turn, StopTask("build", 1, 0.0))

    assert [told.grace_seconds for told in store.stop_requests("w")] == [0.0]


# -- other runs ------------------------------------------------------------------------------------------------------


def test_a_child_run_is_the_committing_workers_and_stands_below_its_parent(store: Store) -> None:
    top = started(store)
    (first,) = store.commit([commit(top, children=[new_run("c", parent_place="sub", parent_attempt=2)])])
    child = first.children[0]
    (second,) = store.commit([commit(child, children=[new_run("d"), new_run("e")])])

    record = store.run(child.run_id)
    assert (record.parent_run_id, record.parent_place, record.parent_attempt) == (top.run_id, "sub", 2)
    assert (record.root_run_id, record.holder) == (top.run_id, "w")
    assert reports(store, child.run_id) == [r.RunRequested(T0, child.run_id, {"a": 1}, by="somebody")]
    assert [run.root_run_id for run in store.children(child.run_id)] == [top.run_id, top.run_id]
    assert [run.run_id for run in store.children(child.run_id)] == [turn.run_id for turn in second.children]
    assert store.children(top.run_id) == [store.run(child.run_id)]
    store.commit([commit(turn) for turn in second.children])


def test_a_run_that_is_gone_or_never_was_is_told_nothing(store: Store) -> None:
    turn, other = started(store), started(store)

    store.commit([commit(turn, outgoing=[(10**6, CANCEL), (other.run_id, CANCEL)])])

    assert reports(store, other.run_id) == [CANCEL]
    assert reports(store, 10**6) == []


def test_one_attempts_child_is_told_or_all_that_have_not_ended(store: Store) -> None:
    top = started(store)
    children = [
        new_run(parent_place=place, parent_attempt=attempt) for place, attempt in [("a", 1), ("a", 2), ("b", 1)]
    ]
    (done,) = store.commit([commit(top, children=children)])
    a1, a2, b1 = done.children
    store.commit([commit(turn, drained=[(m.id, None) for m in store.inbox([turn.run_id])]) for turn in (a1, a2, b1)])
    store.commit([commit(a1, 1, status="failed", is_last=True)])

    one, every = r.CancelRequested(T0, now=True), r.PauseRequested(T0)
    store.commit([commit(top, 1, child_reports=[ChildReport(one, "a", 2), ChildReport(every)])])

    assert [reports(store, turn.run_id) for turn in (a1, a2, b1)] == [[], [one, every], [every]]


def test_a_child_that_is_started_and_stopped_in_one_turn_hears_both_in_order(store: Store) -> None:
    top = started(store)

    (done,) = store.commit([commit(top, children=[new_run(parent_place="a")], child_reports=[ChildReport(CANCEL)])])

    told = reports(store, done.children[0].run_id)
    assert [type(report) for report in told] == [r.RunRequested, r.CancelRequested]


# -- the end of a round ----------------------------------------------------------------------------------------------


def test_with_the_last_commit_of_a_round_its_timers_and_tasks_go(store: Store, place: Place) -> None:
    over, other = started(store), started(store)
    for turn in (over, other):
        queue(store, turn, task(turn.run_id, "free"))
        take(store, turn, task(turn.run_id, "held"))
        store.commit([commit(turn, timers=[SetTimer("run", place.now(), "", 1)])])

    store.commit([commit(over, 1, status="completed", is_last=True)])

    assert store.queued_tasks(over.run_id) == []
    assert [lease.task.run_id for lease in store.leases_of("w")] == [other.run_id]
    place.pass_time(1)
    assert store.fire_timers() == 1
    assert reports(store, over.run_id) == []


def test_what_a_worker_was_given_while_the_last_turn_was_decided_is_ended_by_that_worker(store: Store) -> None:
    turn = started(store)
    (lease,) = take(store, turn, task(turn.run_id, "build"))

    store.commit([commit(turn, status="cancelled", stopped=[StopTask("build", 1, 5.0)], is_last=True)])

    assert [(stop.token, stop.grace_seconds) for stop in store.stop_requests("w")] == [(lease.token, 5.0)]
    store.report(lease.token, ended())
    assert (store.leases_of("w"), reports(store, turn.run_id)[-1:]) == ([], [ended()])


def test_several_runs_are_loaded_at_once_without_those_that_are_not_there(store: Store) -> None:
    first, second = started(store), started(store, holder="other")
    row = ("place", "a", "", b"1")
    store.commit([commit(second, rows=[row])])

    found = {one.record.run_id: one for one in store.load_all([second.run_id, 42, first.run_id])}

    assert found == {run_id: store.load(run_id) for run_id in (first.run_id, second.run_id)}
    assert list(map(tuple, found[second.run_id].rows)) == [row]
    assert store.load_all([]) == []


def test_a_commit_after_something_that_was_refused_is_written(store: Store) -> None:
    turn = started(store)
    with pytest.raises(UnknownRun):
        store.load(42)

    store.commit([commit(turn)])

    assert store.run(turn.run_id).seq == 1


def test_a_log_is_searched_for_what_its_entries_contain(store: Store) -> None:
    turn = started(store)
    facts = [e.RunPaused("ann"), e.StepEntered("a", 1), e.StepEntered("ab", 1), e.StepEntered("b", 2), e.RunPaused("é")]
    log = [e.Entry(seq, T0, 0, fact) for seq, fact in enumerate(facts, 1)]
    store.commit([replace(commit(turn), entries=log)])

    def found(*texts: str, **options: Any) -> list[int]:
        return [entry.seq for entry in store.search_log(turn.run_id, texts, **options)]

    assert found('":"a"') == [2]
    assert found('":"a') == [1, 2, 3]
    assert found('":"a"', '":"b"') == [2, 4]
    assert found('":"a"', '":"b"', after=2) == [4]
    assert found('":"a', also="step.") == [2, 3]
    assert found('"é"') == [5]
    assert found("nothing") == []
    assert store.search_log(turn.run_id, ('"é"',)) == log[4:]
