"""Every promise about a store can complain: what it holds when it is broken, and the sentence that says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from mulligan.core.model.workflow import Action, NoticeRule
from mulligan.testing.clock import START
from mulligan.testing.history import History, step, workflow
from proof.invariants.store_contents import BreakerRow, MessageRow, NoticeRow, RunRow, StoreContents, TaskRow
from proof.invariants.store_invariants import (
    STORE_PROMISES,
    StoreHistory,
    StorePromise,
    promise_1_no_run_goes_back,
    promise_2_a_new_holder_has_a_new_fence,
    promise_2_no_token_is_used_twice,
    promise_4_no_attempt_is_leased_twice,
    promise_6_what_is_stopped_stops_its_children,
    promise_7_a_breaker_counts_its_probe,
    promise_7_dead_workers_are_expired,
    promise_7_every_lease_has_a_holder,
    promise_7_every_turn_has_a_holder,
    promise_7_no_worker_holds_a_finished_run,
    promise_7_nothing_is_left_of_a_round_that_is_over,
    promise_7_one_lease_is_the_probe,
    promise_7_only_what_is_half_open_is_probed,
    promise_9_no_secret_is_kept,
    promise_10_every_message_is_answered,
    promise_10_every_question_is_answered,
    promise_11_every_event_is_announced_once,
)

RUN = RunRow(1, "running", 1, seq=5, holder="w", fence=3, parent_run_id=None, parent_place="", parent_attempt=0)
OVER = replace(RUN, status="completed", holder="")
QUEUED = TaskRow(1, "build", 1, number=4, worker="", breaker="net")
LEASE = replace(QUEUED, number=7, worker="w")
OPEN = BreakerRow("net", "open", None)
HALF_OPEN = BreakerRow("net", "half_open", 7)
TIMER = {(1, "retry", "build", 2): START}
ASKING = MessageRow(9, 1, is_asking=True)


def holding(*runs: RunRow, **fields: Any) -> StoreContents:
    """A store that is well, but for what is said: one run, whose turn the worker `w` has."""
    nothing: dict[str, Any] = {"tasks": [], "timers": {}, "messages": [], "answers": frozenset(), "breakers": []}
    by_id = {run.run_id: run for run in runs or (RUN,)}
    return StoreContents(runs=by_id, **{**nothing, "workers": {"w": START}, **fields})


@pytest.mark.parametrize(
    ("promise", "before", "now", "sentence"),
    [
        (
            promise_1_no_run_goes_back,
            holding(),
            holding(replace(RUN, run_id=2)),
            "promise 1: run 1 was there, and is not",
        ),
        (
            promise_1_no_run_goes_back,
            holding(),
            holding(replace(RUN, seq=4)),
            "promise 1: run 1 was at event 5, and is at 4",
        ),
        (
            promise_2_a_new_holder_has_a_new_fence,
            holding(),
            holding(replace(RUN, fence=2)),
            "promise 2: the fence of run 1 went back from 3 to 2",
        ),
        (
            promise_2_a_new_holder_has_a_new_fence,
            holding(),
            holding(replace(RUN, holder="v")),
            "promise 2: the turn of run 1 went from w to v with one fence",
        ),
        # given back, and taken by another without a new fence
        (
            promise_2_a_new_holder_has_a_new_fence,
            holding(replace(RUN, holder="")),
            holding(replace(RUN, holder="v")),
            "promise 2: the turn of run 1 went from nobody to v with one fence",
        ),
        (
            promise_2_no_token_is_used_twice,
            holding(tasks=[LEASE]),
            holding(tasks=[replace(LEASE, place="test")]),
            "promise 2: the token 7 of attempt 1 of 'test' in run 1 was another lease's before",
        ),
        (
            promise_2_no_token_is_used_twice,
            holding(),
            holding(tasks=[LEASE, replace(LEASE, place="test")]),
            "promise 2: the token 7 is that of attempt 1 of 'build' in run 1 and of attempt 1 of 'test' in run 1",
        ),
        (
            promise_4_no_attempt_is_leased_twice,
            holding(tasks=[LEASE]),
            holding(tasks=[replace(LEASE, number=8)]),
            "promise 4: attempt 1 of 'build' in run 1 was leased with token 7, and again with 8",
        ),
        (
            promise_7_every_lease_has_a_holder,
            holding(),
            holding(tasks=[replace(LEASE, worker="v")]),
            "promise 7: attempt 1 of 'build' in run 1 is held by 'v', which has expired",
        ),
        (
            promise_7_every_turn_has_a_holder,
            holding(),
            holding(workers={}),
            "promise 7: the turn of run 1 is held by 'w', which has expired",
        ),
        (
            promise_7_nothing_is_left_of_a_round_that_is_over,
            holding(),
            holding(OVER, tasks=[QUEUED]),
            "promise 7: attempt 1 of 'build' in run 1 is queued, and the run is over",
        ),
        (
            promise_7_nothing_is_left_of_a_round_that_is_over,
            holding(),
            holding(OVER, tasks=[LEASE]),
            "promise 7: attempt 1 of 'build' in run 1 is leased, and the run is over",
        ),
        (
            promise_7_nothing_is_left_of_a_round_that_is_over,
            holding(),
            holding(OVER, timers=TIMER),
            "promise 7: timer retry 2 of 'build' is set, and run 1 is over",
        ),
        (
            promise_7_one_lease_is_the_probe,
            holding(),
            holding(tasks=[LEASE, replace(LEASE, place="test", number=8)], breakers=[HALF_OPEN]),
            "promise 7: attempt 1 of 'test' in run 1 has passed 'net' while its probe is under way",
        ),
        (
            promise_7_one_lease_is_the_probe,
            holding(),
            holding(tasks=[replace(LEASE, breaker="disk")], breakers=[HALF_OPEN]),
            "promise 7: the probe of 'net' is attempt 1 of 'build' in run 1, which is not its",
        ),
        (
            promise_7_only_what_is_half_open_is_probed,
            holding(),
            holding(breakers=[replace(OPEN, probe=7)]),
            "promise 7: breaker 'net' is open with probe 7",
        ),
        (
            promise_7_a_breaker_counts_its_probe,
            holding(tasks=[LEASE], breakers=[HALF_OPEN]),
            holding(breakers=[HALF_OPEN]),
            "promise 7: the probe of 'net', 'build', is over, and does not count",
        ),
        (
            promise_10_every_question_is_answered,
            holding(messages=[ASKING]),
            holding(),
            "promise 10: message 9 asked, was drained, and has no answer",
        ),
    ],
)
def test_a_broken_promise_is_told(
    promise: StorePromise, before: StoreContents, now: StoreContents, sentence: str
) -> None:
    known = StoreHistory()
    known.record(before)

    with pytest.raises(AssertionError) as raised:
        promise(known, now)

    assert str(raised.value) == sentence


@pytest.mark.parametrize(
    ("before", "now"),
    [
        # the holder of the probe was buried: the next lease is the probe
        (
            holding(tasks=[LEASE], breakers=[HALF_OPEN]),
            holding(replace(RUN, holder=""), breakers=[HALF_OPEN], workers={}),
        ),
        # the run of the probe is over
        (holding(tasks=[LEASE], breakers=[HALF_OPEN]), holding(OVER, breakers=[HALF_OPEN])),
        # one passed the breaker before it opened, and still runs beside the probe
        (holding(), holding(tasks=[LEASE, replace(LEASE, place="test", number=6)], breakers=[HALF_OPEN])),
        # an answer waits to be fetched
        (holding(messages=[ASKING]), holding(answers=frozenset({9}))),
        # the same lease, the same turn, one event later
        (holding(tasks=[LEASE]), holding(replace(RUN, seq=6), tasks=[LEASE])),
        # another holder with another fence
        (holding(), holding(replace(RUN, holder="v", fence=4), workers={"v": START, "w": START})),
    ],
)
def test_what_is_well_is_not_complained_about(before: StoreContents, now: StoreContents) -> None:
    known = StoreHistory()
    known.record(before)

    for promise in STORE_PROMISES:
        promise(known, now)


def test_a_child_run_that_is_not_stopped_with_its_parent_is_found() -> None:
    calling = workflow(step("call", action=Action("workflow", {"file": "child.yaml"})))
    parent, child = History(calling).start().cancel(), History(workflow(step("a"))).start()
    called = replace(RUN, run_id=2, parent_run_id=1, parent_place="call", parent_attempt=1)

    with pytest.raises(AssertionError) as raised:
        promise_6_what_is_stopped_stops_its_children(parent.state, child.state, called)

    assert str(raised.value) == "promise 6: 'call' of run 1 was asked to end, and run 2, which it calls, was not"
    promise_6_what_is_stopped_stops_its_children(parent.state, child.cancel().state, called)


def test_a_lost_probe_is_still_excused_when_its_run_has_another_round() -> None:
    known = StoreHistory()
    for held in (holding(tasks=[LEASE], breakers=[HALF_OPEN]), holding(OVER, breakers=[HALF_OPEN])):
        known.record(held)

    promise_7_a_breaker_counts_its_probe(known, holding(replace(RUN, round=2), breakers=[HALF_OPEN]))


def test_who_has_fetched_an_answer_is_not_waited_for() -> None:
    known = StoreHistory()
    known.record(holding(messages=[ASKING]))

    known.fetched.add(ASKING.id)

    promise_10_every_question_is_answered(known, holding())


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (
            lambda: promise_7_dead_workers_are_expired(holding(workers={"w": START, "v": START}), ["w"]),
            "promise 7: v died, and were not expired",
        ),
        (
            lambda: promise_7_no_worker_holds_a_finished_run(holding(replace(OVER, holder="w"))),
            "promise 7: run 1 is over, and 'w' has its turn",
        ),
        (
            lambda: promise_10_every_message_is_answered(holding(messages=[ASKING])),
            "promise 10: 1 messages to runs [1] were never read",
        ),
        # as it is, as base64, as a URL has it
        (
            lambda: promise_9_no_secret_is_kept([b'{"a": "my secret"}'], "my secret"),
            "promise 9: the store keeps a secret, as it is, in 18 bytes of its contents",
        ),
        (
            lambda: promise_9_no_secret_is_kept([b"fine", b"bXkgc2VjcmV0"], "my secret"),
            "promise 9: the store keeps a secret, as base64, in 12 bytes of its contents",
        ),
        (
            lambda: promise_9_no_secret_is_kept([b"?q=my%20secret"], "my secret"),
            "promise 9: the store keeps a secret, as a URL has it, in 14 bytes of its contents",
        ),
    ],
)
def test_what_is_left_when_all_is_over_is_told(asked: Callable[[], None], sentence: str) -> None:
    with pytest.raises(AssertionError) as raised:
        asked()

    assert str(raised.value) == sentence


@pytest.mark.parametrize(
    ("notices", "sentence"),
    [
        ([], "promise 11: event 6 has no notice for 'ops'"),
        ([("ops", 6), ("ops", 6)], "promise 11: event 6 has 2 notices for 'ops'"),
        ([("ops", 6), ("ops", 2)], "promise 11: event 2 has 1 notices for 'ops'"),
        ([("ops", 6), ("team", 6)], "promise 11: event 6 has 1 notices for 'team'"),
    ],
    ids=["missing", "twice", "about nothing", "to nobody"],
)
def test_a_notice_that_is_missing_or_too_many_is_found(notices: list[tuple[str, int]], sentence: str) -> None:
    run = History(workflow(step("a"))).start().started("a").fail("a")
    seq = run.log[-1].seq
    rows = [NoticeRow(1, target, "failed", seq if at == 6 else at) for target, at in notices]

    with pytest.raises(AssertionError) as caught:
        promise_11_every_event_is_announced_once(run.log, [NoticeRule(on=("failed",), to=("ops",))], rows)

    assert str(caught.value) == sentence.replace("event 6", f"event {seq}")
