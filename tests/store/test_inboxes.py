"""Inboxes: a report stays until a turn has drained it; who asked is answered, once."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.support.keeping import T0, Open, commit, new_run, reports, started, take, task, worker

from mulligan.core.effects import effects as fx
from mulligan.core.model import reports as r
from mulligan.errors import UnknownRun
from mulligan.ports import Answer, Message, StopRequest, Store

pytestmark = pytest.mark.postgres

PAUSE = r.PauseRequested(T0, by="somebody", reason="lunch")
RESUME = r.ResumeRequested(T0, by="somebody")


def test_reports_wait_in_the_order_in_which_they_came(store: Store) -> None:
    turn = started(store)

    first, second = store.put(turn.run_id, PAUSE), store.put(turn.run_id, RESUME, is_asking=True)

    assert store.inbox([turn.run_id]) == [
        Message(first, turn.run_id, PAUSE),
        Message(second, turn.run_id, RESUME, is_asking=True),
    ]


def test_the_inboxes_of_many_runs_are_read_at_once(store: Store) -> None:
    one, two, three = (started(store) for _ in range(3))
    store.put(two.run_id, PAUSE)
    store.put(one.run_id, PAUSE)
    store.put(three.run_id, PAUSE)

    assert [message.run_id for message in store.inbox([one.run_id, two.run_id])] == [two.run_id, one.run_id]
    assert store.inbox([]) == []


def test_a_run_that_is_not_there_cannot_be_told_anything(store: Store) -> None:
    with pytest.raises(UnknownRun) as unknown:
        store.put(42, PAUSE)

    assert unknown.value.render() == "error[run.unknown]: there is no run 42"


def test_a_report_stays_until_a_commit_has_drained_it(store: Store) -> None:
    turn = started(store)
    first, _ = store.put(turn.run_id, PAUSE), store.put(turn.run_id, RESUME)
    store.inbox([turn.run_id])

    store.commit([commit(turn, drained=[(first, None)])])

    assert reports(store, turn.run_id) == [RESUME]


def test_the_answer_to_a_report_is_given_once(opened: Open) -> None:
    engine, asking = opened(), opened()
    turn = started(engine)
    message_id = asking.put(turn.run_id, PAUSE, is_asking=True)
    assert asking.answer(message_id) is None

    engine.commit([commit(turn, drained=[(message_id, Answer("run.finished", "it is over", "fork it"))])])

    assert asking.answer(message_id) == Answer("run.finished", "it is over", "fork it")
    assert asking.answer(message_id) is None


def test_a_report_that_was_taken_is_answered_without_an_error(store: Store) -> None:
    turn = started(store)
    message_id = store.put(turn.run_id, PAUSE, is_asking=True)

    store.commit([commit(turn, drained=[(message_id, Answer())])])

    assert store.answer(message_id) == Answer()


def test_a_message_is_never_known_by_the_number_of_an_older_one(store: Store) -> None:
    turn = started(store)
    first = store.put(turn.run_id, PAUSE)
    store.commit([commit(turn, drained=[(first, Answer())])])

    second = store.put(turn.run_id, RESUME, is_asking=True)

    assert second > first
    assert store.answer(second) is None


def test_runs_call_whose_turn_is_free_or_the_holders_own(store: Store) -> None:
    store.register(worker("other"))
    free, mine, others, silent = (
        *store.create([new_run()]),
        *store.create([new_run()], _known(store, "w")),
        *store.create([new_run()], "other"),
        started(store),
    )

    assert store.runs_with_messages("w") == [free.run_id, mine.run_id]
    assert store.runs_with_messages("nobody") == [free.run_id]
    assert silent.run_id not in store.runs_with_messages("w")
    assert others.run_id in store.runs_with_messages("other")


def test_a_run_with_many_messages_calls_once(store: Store) -> None:
    turn = started(store)
    store.put(turn.run_id, PAUSE)
    store.put(turn.run_id, RESUME)

    assert store.runs_with_messages("w") == [turn.run_id]


def test_runs_below_one_root_call_when_only_those_are_asked_for(store: Store) -> None:
    parent, stranger = started(store), started(store)
    (done,) = store.commit([commit(parent, children=[new_run(parent_place="sub", parent_attempt=1)])])
    store.put(stranger.run_id, PAUSE)
    store.put(parent.run_id, PAUSE)

    assert store.runs_with_messages("w", parent.run_id) == [parent.run_id, done.children[0].run_id]
    assert store.runs_with_messages("w", stranger.run_id) == [stranger.run_id]


def test_one_look_finds_the_calling_runs_and_reads_the_inboxes_of_those_that_are_held(store: Store) -> None:
    mine, others = started(store), started(store, holder="other")
    lease, _ = take(store, mine, task(mine.run_id), task(mine.run_id, "test"))
    due = T0 + timedelta(days=365 * 50)
    stop = fx.StopTask("build", 1, 5.0)
    store.commit([commit(mine, 0, timers=[fx.SetTimer("retry", due, "test", 1)], stopped=[stop])])
    for turn in (others, mine):
        store.put(turn.run_id, PAUSE)
    (free,) = store.create([new_run()])
    asked = store.put(mine.run_id, RESUME, is_asking=True)

    seen = store.poll("w")

    assert seen.run_ids == [mine.run_id, free.run_id]
    assert seen.messages == store.inbox([mine.run_id])
    assert seen.messages[-1] == Message(asked, mine.run_id, RESUME, is_asking=True)
    assert seen.stops == [StopRequest(lease.token, 5.0)]
    assert seen.due == store.next_due() == due
    assert store.poll("w", others.run_id).run_ids == []


def _known(store: Store, name: str) -> str:
    store.register(worker(name))
    return name


def test_an_answer_that_nobody_has_fetched_goes_when_many_more_were_given(store: Store) -> None:
    turn = started(store)
    store.commit([commit(turn, drained=[(5, Answer()), (100_000, Answer())])])

    store.commit([commit(turn, 1, drained=[(100_006, Answer())])])

    assert store.answer(5) is None
    assert [store.answer(kept) for kept in (100_000, 100_006)] == [Answer(), Answer()]
