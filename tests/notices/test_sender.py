"""The sender: at least once under one key, backoff, giving up, digests, and targets that are slow or down."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import msgspec
import pytest
from tests.support.nightly import POSTGRES

from mulligan.errors import InputInvalid, StoreUnavailable
from mulligan.history.notice_text import NoticeBody
from mulligan.ports import NoticeRecord, Outbox, SettledNotice
from mulligan.service.server.notices.messages import Delivery, Message
from mulligan.service.server.notices.sender import (
    BATCH_MAX,
    BUSY_SECONDS,
    CLAIM_SECONDS,
    IN_A_ROW_MAX,
    UNKNOWN_MAX,
    UNKNOWN_SECONDS,
    Sender,
    backoff,
)
from mulligan.service.server.notices.targets import Target
from mulligan.store import open_store
from mulligan.testing.clock import START, JumpingClock
from mulligan.testing.memory.memory_store import MemoryStore

HOOK = Target(webhook="https://example.org/hook")
TARGETS = {"ops": HOOK}
DOWN = Delivery("no answer", is_target_down=True)
SENT = Delivery()


def notice(number: int, target: str = "ops", at: datetime = START) -> NoticeRecord:
    body = NoticeBody(event="failed", title=f"run {number} of nightly failed", at=at, run_id=number, workflow="nightly")
    return NoticeRecord(
        key=f"k{number}", target=target, body=msgspec.json.encode(body), created_at=at, run_id=number, due_at=at
    )


class Wire:
    """What was sent, and what the next attempts come to."""

    def __init__(self, *deliveries: Delivery) -> None:
        self.deliveries = list(deliveries)
        self.messages: list[Message] = []

    def __call__(self, target: Target, message: Message, now: datetime) -> Delivery:
        self.messages.append(message)
        return self.deliveries.pop(0) if self.deliveries else SENT

    @property
    def keys(self) -> list[str]:
        return [message.key for message in self.messages]


class AtOnce(Executor):
    """Does what it is given before it returns."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **_: Any) -> Future[Any]:
        future = Future[Any]()
        future.set_result(fn(*args))
        return future


class Later(Executor):
    """Does what it is given when it is asked to."""

    def __init__(self) -> None:
        self.calls: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **_: Any) -> Future[Any]:
        self.calls.append((Future[Any](), partial(fn, *args)))
        return self.calls[-1][0]

    def run(self) -> None:
        for future, call in self.calls:
            future.set_result(call())
        self.calls.clear()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        if wait:
            self.run()


class Results(SimpleQueue[Any]):
    """What a sender waits for, and for how many seconds it was ready to."""

    def __init__(self) -> None:
        self.waits: list[float | None] = []

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        if block and timeout != 0.0:
            self.waits.append(timeout)
        return super().get(block, timeout)


class Counted:
    """An outbox that counts how it is used: how many statements, and how many notices each of them is about."""

    def __init__(self, outbox: Outbox) -> None:
        self.outbox = outbox
        self.statements = 0
        self.claimed: list[int] = []
        self.settled: list[int] = []
        self.released: list[int] = []

    def claim_notices(self, target: str, now: datetime, until: datetime, limit: int) -> list[NoticeRecord]:
        self.statements += 1
        found = self.outbox.claim_notices(target, now, until, limit)
        self.claimed.append(len(found))
        return found

    def settle_notices(self, settled: Sequence[SettledNotice]) -> None:
        self.statements += bool(settled)
        self.settled.append(len(settled))
        self.outbox.settle_notices(settled)

    def release_notices(self, ids: Sequence[int]) -> None:
        self.statements += bool(ids)
        self.released += [len(ids)] if ids else []
        self.outbox.release_notices(ids)

    def __getattr__(self, name: str) -> Any:
        self.statements += 1
        return getattr(self.outbox, name)


class Unwilling:
    """An outbox that takes no results while it is down."""

    def __init__(self, outbox: Outbox) -> None:
        self.outbox = outbox
        self.is_down = True
        self.settled: list[str] = []

    def settle_notices(self, settled: Sequence[SettledNotice]) -> None:
        if self.is_down:
            raise StoreUnavailable("no answer")
        self.settled += [one.status for one in settled]
        self.outbox.settle_notices(settled)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.outbox, name)


@pytest.fixture
def outbox() -> Outbox:
    return MemoryStore(clock=JumpingClock()).server_records


@pytest.fixture
def made() -> Iterator[Callable[..., Sender]]:
    senders: list[Sender] = []

    def make(outbox: Outbox, wire: Any, **fields: Any) -> Sender:
        senders.append(Sender(outbox, wire, **fields))
        return senders[-1]

    yield make
    for sender in senders:
        sender.close()


def after(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def sent_until_done(sender: Sender, targets: dict[str, Target], now: datetime) -> datetime:
    """Call a sender that sends at once whenever it asks for it; when it was called for the last time."""
    for _ in range(1000):
        due = sender.send_due(targets, now, 0)
        if due is None:
            return now
        now = due
    raise AssertionError("the sender is never done")


def statuses(outbox: Outbox) -> list[str]:
    return [one.status for one in reversed(outbox.notices())]


# -- at least once ---------------------------------------------------------------------------------------------------


def test_what_is_due_is_sent_and_settled(outbox: Outbox, made: Any) -> None:
    outbox.put_notices([notice(1), notice(2)])
    wire = Wire()

    sender = made(outbox, wire)
    assert sender.send_due(TARGETS, START, 10) is None

    assert (wire.keys, sender.sent) == (["k1", "k2"], 2)
    assert b'"url"' not in wire.messages[0].event
    assert statuses(outbox) == ["sent", "sent"]
    assert [(one.due_at, one.attempts, one.reason) for one in outbox.notices()] == [(START, 1, "")] * 2


def test_a_sender_that_dies_after_sending_leaves_it_to_the_next_which_sends_it_under_the_same_key(
    outbox: Outbox, made: Any
) -> None:
    outbox.put_notices([notice(1)])
    died, wire = outbox.claim_notices("ops", START, after(CLAIM_SECONDS), 10), Wire()
    assert [one.key for one in died] == ["k1"]
    sender = made(outbox, wire, pool=AtOnce())

    assert sender.send_due(TARGETS, after(CLAIM_SECONDS - 1), 0) == after(CLAIM_SECONDS)
    assert wire.keys == []
    sender.send_due(TARGETS, after(CLAIM_SECONDS), 0)

    assert wire.keys == ["k1"]
    assert statuses(outbox) == ["sent"]


def test_all_that_is_due_is_sent_by_one_call(outbox: Outbox, made: Any) -> None:
    outbox.put_notices([notice(number) for number in range(2 * BATCH_MAX + 50)])
    wire = Wire()

    made(outbox, wire, pool=AtOnce()).send_due(TARGETS, START, 0)

    assert wire.keys == [f"k{number}" for number in range(2 * BATCH_MAX + 50)]


def test_two_senders_at_once_lose_nothing(outbox: Outbox, made: Any) -> None:
    outbox.put_notices([notice(number) for number in range(450)])
    wire = Wire()
    one, other = made(outbox, wire), made(outbox, wire)

    for sender in (one, other, one, other):
        sender.send_due(TARGETS, START, 10)

    assert sorted(wire.keys) == sorted(f"k{number}" for number in range(450))
    assert set(statuses(outbox)) == {"sent"}


# -- trouble ---------------------------------------------------------------------------------------------------------


def test_a_target_that_was_down_for_a_while_gets_everything(outbox: Outbox, made: Any) -> None:
    outbox.put_notices([notice(1), notice(2), notice(3)])
    wire = Wire(DOWN, DOWN, DOWN)
    sender = made(outbox, wire, pool=AtOnce())

    now, due = START, sender.send_due(TARGETS, START, 0)
    for _ in range(50):
        if due is None:
            break
        now, due = due, sender.send_due(TARGETS, due, 0)

    assert due is None
    assert wire.keys[:1] == ["k1"], "one attempt shows that the target is down"
    assert set(wire.keys) == {"k1", "k2", "k3"}
    assert set(statuses(outbox)) == {"sent"}
    assert now - START < timedelta(minutes=5)


def test_a_refused_notice_holds_up_no_other(outbox: Outbox, made: Any) -> None:
    outbox.put_notices([notice(1), notice(2)])
    wire = Wire(Delivery("example.org answered 400"))

    due = made(outbox, wire, pool=AtOnce()).send_due(TARGETS, START, 0)

    assert wire.keys == ["k1", "k2"]
    assert statuses(outbox) == ["waiting", "sent"]
    first = outbox.notices()[-1]
    assert (first.attempts, first.reason) == (1, "example.org answered 400")
    assert due == first.due_at == after(backoff("k1", 1))


def test_it_is_given_up_after_its_time_in_words(outbox: Outbox, made: Any) -> None:
    outbox.put_notices([notice(1)])
    targets = {"ops": Target(webhook="https://example.org/hook", give_up_after="1h")}
    wire = Wire(*[DOWN] * 99)
    sender = made(outbox, wire, pool=AtOnce())

    due = sent_until_done(sender, targets, START)

    (given_up,) = outbox.notices()
    assert given_up.status == "given_up"
    assert given_up.reason == f"given up after 1h00m and {given_up.attempts} attempts: no answer"
    assert timedelta(hours=1) <= due - START < timedelta(hours=2)
    assert 5 < given_up.attempts < 20


def test_what_is_old_when_it_is_first_claimed_is_tried_all_the_same(outbox: Outbox, made: Any) -> None:
    outbox.put_notices([notice(1)])

    made(outbox, Wire(), pool=AtOnce()).send_due(TARGETS, after(10 * 86_400), 0)

    assert statuses(outbox) == ["sent"]


def test_an_unknown_target_is_waited_for_and_then_given_up_in_words(outbox: Outbox, made: Any) -> None:
    outbox.put_notices([notice(1, "new"), notice(2, "gone")])
    wire = Wire()
    sender = made(outbox, wire, pool=AtOnce())

    due = sender.send_due({}, START, 0)
    assert statuses(outbox) == ["waiting", "waiting"]
    assert outbox.notices()[0].reason == (
        "target 'gone' is not in the configuration: add [targets.gone] to server.toml"
    )
    due = sent_until_done(sender, {"new": HOOK}, due)

    assert wire.keys == ["k1"]
    assert statuses(outbox) == ["sent", "given_up"]
    assert due - START >= timedelta(days=1)


def test_very_many_unknown_targets_are_looked_at_some_at_a_time(outbox: Outbox, made: Any) -> None:
    count = 3 * UNKNOWN_MAX
    outbox.put_notices([notice(number, f"t{number:03}") for number in range(count)] + [notice(count, "ops")])
    wire = Wire()
    sender = made(outbox, wire, pool=AtOnce())

    now, left_alone = START, []
    for _ in range(3):
        due = sender.send_due(TARGETS, now, 0)
        left_alone.append(sum(one.pause is not None for one in outbox.waiting_targets(now)))
        now = due

    assert wire.keys == [f"k{count}"]
    # It looks twice in the round in which it sends.
    assert left_alone == [2 * UNKNOWN_MAX, count, count]
    assert now - START >= timedelta(seconds=UNKNOWN_SECONDS)


def test_a_slow_target_keeps_nobody_waiting(outbox: Outbox, made: Any) -> None:
    outbox.put_notices([notice(1, "slow"), notice(2, "ops")])
    may_end, wire = threading.Event(), Wire()

    def send(target: Target, message: Message, now: datetime) -> Delivery:
        if message.notices[0].target == "slow":
            may_end.wait(30)
        return wire(target, message, now)

    sender = made(outbox, send)
    targets = {"slow": HOOK, "ops": HOOK}
    outbox.put_notices([notice(3, "ops"), notice(4, "slow")])
    now = START
    while {one.key for one in outbox.notices(status="sent")} != {"k2", "k3"}:
        now = sender.send_due(targets, now, 0.01)
        assert now is not None

    may_end.set()
    while (due := sender.send_due(targets, now, 0.01)) is not None:
        now = due
    assert set(statuses(outbox)) == {"sent"}


def test_a_secret_that_is_missing_is_said_and_tried_again(outbox: Outbox, made: Any) -> None:
    outbox.put_notices([notice(1), notice(2)])

    def send(target: Target, message: Message, now: datetime) -> Delivery:
        raise InputInvalid("the environment variable OPS is not set or empty")

    made(outbox, send, pool=AtOnce()).send_due(TARGETS, START)

    assert [(one.status, one.attempts, one.reason) for one in outbox.notices()] == [
        ("waiting", 0, "waits for its target: the environment variable OPS is not set or empty"),
        ("waiting", 1, "the environment variable OPS is not set or empty"),
    ]


def test_a_bug_of_a_library_says_no_address_and_loses_nothing(outbox: Outbox, made: Any) -> None:
    outbox.put_notices([notice(1)])

    def send(target: Target, message: Message, now: datetime) -> Delivery:
        raise RuntimeError("https://example.org/s3cret")

    sender = made(outbox, send, pool=AtOnce())
    sender.send_due(TARGETS, START)
    outbox.put_notices([notice(2)])
    sender.send_due(TARGETS, START)

    assert [(one.status, one.reason) for one in outbox.notices()] == [
        ("waiting", "waits for its target: RuntimeError while sending"),
        ("waiting", "RuntimeError while sending"),
    ]


def test_a_receiver_may_ask_for_patience(outbox: Outbox, made: Any) -> None:
    outbox.put_notices([notice(1)])

    wire = Wire(Delivery("busy", is_target_down=True, retry_after=900))

    due = made(outbox, wire, pool=AtOnce()).send_due(TARGETS, START, 0)

    assert due == after(900)


# -- a target that fails now and then --------------------------------------------------------------------------------

BUSY = Delivery("example.org answered 503", is_target_busy=True)


@pytest.fixture(params=["sqlite", POSTGRES])
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Outbox]:
    place = tmp_path / "runs.db" if request.param == "sqlite" else request.getfixturevalue("store_schema_url")
    store = open_store(place)
    yield store.server_records
    store.close()


def every_fifth_is_refused(outbox: Outbox, made: Any) -> tuple[Counted, list[str]]:
    """Send 1,000 notices to a target that refuses every fifth message, until nothing waits; the keys that it took."""
    outbox.put_notices([notice(number) for number in range(1_000)])
    counted, taken, asked = Counted(outbox), list[str](), [0]

    def send(target: Target, message: Message, now: datetime) -> Delivery:
        asked[0] += 1
        if asked[0] % 5 == 0:
            return BUSY
        taken.append(message.key)
        return SENT

    sent_until_done(made(counted, send, pool=AtOnce()), TARGETS, START)
    return counted, taken


@pytest.mark.postgres
def test_one_refusal_stops_nobody_else_and_costs_no_statement_for_each_that_waits(stored: Outbox, made: Any) -> None:
    counted, taken = every_fifth_is_refused(stored, made)

    # Those that nobody has refused come first, at once and in their order: four of five of the whole backlog.
    assert taken[:800] == [f"k{number}" for number in range(1_000) if number % 5 != 4]
    assert sorted(taken) == sorted(f"k{number}" for number in range(1_000))
    assert set(statuses_of_all(stored)) == {"sent"}
    # Each attempt is written once, with others; nothing that was not tried is written at all.
    assert sum(counted.settled) == sum(counted.claimed) == 1_000 * 5 // 4 - 1
    assert (counted.released, max(counted.claimed)) == ([], BATCH_MAX)
    # A look, a claim and a write for each batch. Later ones have those that were refused, when each is due again.
    assert counted.statements < 4 * len(counted.claimed)


def statuses_of_all(outbox: Outbox) -> list[str]:
    return [one.status for one in outbox.notices(limit=10_000)]


@pytest.mark.postgres
def test_a_target_that_refuses_everything_is_asked_a_few_times_and_then_left_alone_as_a_target(
    stored: Outbox, made: Any
) -> None:
    stored.put_notices([notice(number) for number in range(1_000)])
    counted, wire = Counted(stored), Wire(*[BUSY] * 10_000)
    sender = made(counted, wire, pool=AtOnce())

    due = sender.send_due(TARGETS, START, 0)

    assert wire.keys == [f"k{number}" for number in range(IN_A_ROW_MAX)]
    assert due == after(backoff("target ops", 1))
    # Only what was claimed is given back, by one statement.
    assert (counted.claimed, counted.settled, counted.released) == (
        [BATCH_MAX],
        [IN_A_ROW_MAX],
        [BATCH_MAX - IN_A_ROW_MAX],
    )
    untried = stored.notices(limit=1)[0]
    assert (untried.attempts, untried.due_at) == (0, due)
    assert untried.reason == "waits for its target: example.org answered 503"

    # From then on one message shows that it is still down, and nothing else is claimed or written.
    following = sender.send_due(TARGETS, due, 0)
    assert (len(wire.keys), counted.claimed[1:], counted.settled[1:]) == (IN_A_ROW_MAX + 1, [1], [1])
    assert following == due + timedelta(seconds=backoff("target ops", 2))

    # A message that is taken ends that, for all that wait.
    wire.deliveries.clear()
    sender.send_due(TARGETS, following, 0)
    assert statuses_of_all(stored).count("sent") > 990
    assert sender.send_due(TARGETS, following + timedelta(hours=1), 0) is None


@pytest.mark.postgres
def test_a_target_that_is_down_keeps_no_other_waiting_whatever_waits_for_it(stored: Outbox, made: Any) -> None:
    stored.put_notices([notice(number, "down") for number in range(500)])
    stored.put_notices([notice(1_000 + number) for number in range(5)])
    keys: list[str] = []

    def send(target: Target, message: Message, now: datetime) -> Delivery:
        keys.append(message.key)
        return DOWN if message.notices[0].target == "down" else SENT

    sender = made(stored, send, pool=AtOnce())
    sender.send_due({"down": HOOK, **TARGETS}, START, 0)

    assert sorted(keys) == sorted(["k0", *(f"k{1_000 + number}" for number in range(5))])


def test_a_refusal_of_one_message_for_itself_never_puts_its_target_off(outbox: Outbox, made: Any) -> None:
    outbox.put_notices([notice(number) for number in range(50)])
    wire = Wire(*[Delivery("example.org answered 422")] * 20)

    made(outbox, wire, pool=AtOnce()).send_due(TARGETS, START, 0)

    assert len(wire.keys) == 50
    assert statuses(outbox).count("sent") == 30


@pytest.mark.postgres
def test_another_sender_does_not_ask_a_target_that_one_has_found_down(stored: Outbox, made: Any) -> None:
    stored.put_notices([notice(1), notice(2)])
    first, other = Wire(DOWN), Wire()

    due = made(stored, first, pool=AtOnce()).send_due(TARGETS, START, 0)
    sender = made(stored, other, pool=AtOnce())
    assert sender.send_due(TARGETS, after(1), 0) == due
    assert other.keys == []

    sent_until_done(sender, TARGETS, due)
    assert (sorted(other.keys), statuses(stored)) == (["k1", "k2"], ["sent", "sent"])


def test_what_waits_for_a_target_that_was_down_for_its_whole_time_is_given_up(outbox: Outbox, made: Any) -> None:
    outbox.put_notices([notice(number) for number in range(300)])
    targets = {"ops": Target(webhook="https://example.org/hook", give_up_after="1h")}

    ended = sent_until_done(made(outbox, Wire(*[DOWN] * 10_000), pool=AtOnce()), targets, START)

    assert set(statuses_of_all(outbox)) == {"given_up"}
    assert outbox.notices()[0].reason == "given up after 1h00m and 0 attempts: no answer"
    assert timedelta(hours=1) <= ended - START < timedelta(hours=2)


# -- digests ---------------------------------------------------------------------------------------------------------


def test_beyond_its_limit_a_target_gets_one_digest_and_then_nothing_for_the_minute(outbox: Outbox, made: Any) -> None:
    targets = {"ops": Target(webhook="https://example.org/hook", per_minute=3)}
    outbox.put_notices([notice(number) for number in range(10)])
    wire = Wire()
    sender = made(outbox, wire, pool=AtOnce())

    sender.send_due(targets, START, 0)
    outbox.put_notices([notice(number, at=after(1)) for number in (20, 21)])
    due = sender.send_due(targets, after(1), 0)

    assert wire.keys[:2] == ["k0", "k1"]
    assert len(wire.keys) == 3
    digest = msgspec.json.decode(wire.messages[2].event)
    assert digest["type"] == "mulligan.digest"
    assert [one["id"] for one in digest["data"]["notices"]] == [f"k{number}" for number in range(2, 10)]
    assert due == after(60)
    assert {one.reason for one in outbox.notices(status="waiting")} == {
        "waits: this target has reached its limit of messages per minute"
    }
    assert sender.send_due(targets, after(60), 0) is None
    assert wire.keys[3:] == ["k20", "k21"]
    assert set(statuses(outbox)) == {"sent"}


def test_people_have_a_limit_by_default_and_programs_none() -> None:
    assert Target(urls=("json://example.org",)).messages_per_minute == 20
    assert HOOK.messages_per_minute == 0


@pytest.mark.parametrize(
    ("first", "then", "keys"),
    [
        (0, 3, ["k0", "k1", "k2"]),
        (1, 2, ["k0", "k1", "k2"]),
        (2, 3, ["k0", "k1", "digest"]),
        (1, 3, ["k0", "k1", "digest"]),
    ],
)
def test_only_what_is_beyond_the_limit_is_joined(
    outbox: Outbox, made: Any, first: int, then: int, keys: list[str]
) -> None:
    targets = {"ops": Target(webhook="https://example.org/hook", per_minute=3)}
    wire = Wire()
    sender = made(outbox, wire, pool=AtOnce())

    for begin, end, seconds in ((0, first, 0), (first, first + then, 30)):
        outbox.put_notices([notice(number) for number in range(begin, end)])
        sender.send_due(targets, after(seconds))

    assert [key.partition("_")[0] for key in wire.keys] == keys
    assert set(statuses(outbox)) == {"sent"}


def test_each_message_makes_room_for_another_a_minute_after_it_was_sent(outbox: Outbox, made: Any) -> None:
    targets = {"ops": Target(webhook="https://example.org/hook", per_minute=2)}
    wire = Wire()
    sender = made(outbox, wire, pool=AtOnce())

    for number, seconds in ((1, 0), (2, 40), (3, 50)):
        outbox.put_notices([notice(number)])
        due = sender.send_due(targets, after(seconds))
    assert (wire.keys, due) == (["k1", "k2"], after(60))

    assert sender.send_due(targets, after(60)) is None
    outbox.put_notices([notice(4)])
    assert sender.send_due(targets, after(61)) == after(100)


# -- what is not tried now -------------------------------------------------------------------------------------------


def test_what_waits_behind_a_failure_is_not_counted_as_an_attempt_and_says_why_it_waits(
    outbox: Outbox, made: Any
) -> None:
    outbox.put_notices([notice(1), notice(2)])
    sender = made(outbox, Wire(DOWN, SENT, SENT, DOWN), pool=AtOnce())

    due = sender.send_due(TARGETS, START)
    outbox.put_notices([notice(3)])
    sender.send_due(TARGETS, after(1))

    third, second, first = outbox.notices()
    until = after(backoff("target ops", 1))
    assert (first.attempts, first.reason) == (1, "no answer")
    assert first.due_at == max(after(backoff("k1", 1)), until)
    for one in (second, third):
        assert (one.attempts, one.due_at, one.reason) == (0, until, "waits for its target: no answer")
    assert due == until

    # A success forgets the failures: the next one is waited for as the first one was.
    sender.send_due(TARGETS, after(60))
    assert set(statuses(outbox)) == {"sent", "waiting"}
    outbox.put_notices([notice(4)])
    sender.send_due(TARGETS, after(61))
    assert outbox.notices()[0].due_at == after(60 + backoff("target ops", 1))


def test_what_waits_for_a_target_that_is_down_still_says_why_it_failed_itself(outbox: Outbox, made: Any) -> None:
    sender = made(outbox, Wire(Delivery("answered 400"), DOWN), pool=AtOnce())
    outbox.put_notices([notice(1)])
    refused_until = sender.send_due(TARGETS, START, 0)
    outbox.put_notices([notice(2, at=after(3))])
    sender.send_due(TARGETS, after(3), 0)

    sender.send_due(TARGETS, refused_until, 0)

    first = outbox.notices()[-1]
    assert (first.attempts, first.reason) == (1, "answered 400")
    assert first.due_at == after(3 + backoff("target ops", 1)) > refused_until


def test_a_target_that_fails_again_and_again_is_left_alone_for_longer(outbox: Outbox, made: Any) -> None:
    sender = made(outbox, Wire(*[DOWN] * 9), pool=AtOnce())
    now, waits = START, []

    for number in range(1, 4):
        outbox.put_notices([notice(number, at=now)])
        sender.send_due(TARGETS, now)
        outbox.put_notices([notice(100 + number, at=now)])
        sender.send_due(TARGETS, now)
        waits.append((outbox.notices()[0].due_at - now).total_seconds())
        now += timedelta(hours=1)

    assert waits == pytest.approx([backoff("target ops", count) for count in (1, 2, 3)], abs=1e-3)


def test_a_target_that_is_being_sent_to_gets_no_second_thread(outbox: Outbox, made: Any) -> None:
    pool = Later()
    sender = made(outbox, Wire(), pool=pool)
    outbox.put_notices([notice(1)])

    assert sender.send_due(TARGETS, START, 0) == after(BUSY_SECONDS)
    outbox.put_notices([notice(2)])
    sender.send_due(TARGETS, START, 0)

    assert (len(pool.calls), sender.is_sending) == (1, True)
    waiting = outbox.notices()[0]
    assert (waiting.due_at, waiting.attempts, waiting.reason) == (START, 0, "")
    # What has ended since the last look makes way before more is taken.
    pool.run()
    assert sender.send_due(TARGETS, START, 0) == after(BUSY_SECONDS)
    assert (statuses(outbox), len(pool.calls)) == (["sent", "waiting"], 1)
    pool.run()
    assert sender.send_due(TARGETS, START, 0) is None
    assert (statuses(outbox), sender.is_sending) == (["sent", "sent"], False)


@pytest.mark.parametrize("takes", [16.75, 20, 25])
def test_sending_stops_before_the_claim_of_what_is_left_ends(outbox: Outbox, made: Any, takes: float) -> None:
    outbox.put_notices([notice(number) for number in range(1, 5)])
    seconds = [0.0]

    def send(target: Target, message: Message, now: datetime) -> Delivery:
        seconds[0] += takes
        return SENT

    counted = Counted(outbox)

    made(counted, send, clock=lambda: seconds[0], pool=AtOnce()).send_due(TARGETS, START, 0)

    # The last begins at 50 at the latest: if it takes ten seconds more, it ends before half of the claim is over.
    assert statuses(outbox) == ["sent"] * 4
    assert (counted.claimed, counted.released) == ([4, 1], [1])


def test_a_target_with_a_timeout_that_is_longer_than_a_claim_gets_its_notices(outbox: Outbox, made: Any) -> None:
    outbox.put_notices([notice(1), notice(2)])
    wire = Wire()

    made(outbox, wire, pool=AtOnce()).send_due({"ops": Target(webhook="https://a", timeout_seconds=300)}, START, 0)

    assert wire.keys == ["k1", "k2"]


def test_all_that_waits_is_sent_if_asked_for_also_to_a_target_that_is_down(outbox: Outbox, made: Any) -> None:
    outbox.put_notices([notice(1, at=after(60)), notice(2, at=after(90)), notice(3)])
    wire = Wire(DOWN)
    sender = made(outbox, wire, pool=AtOnce())

    assert sender.send_due(TARGETS, START) == after(backoff("k3", 1))
    assert wire.keys == ["k3"]
    sender.finish(TARGETS, lambda: START, 5.0, is_all_due=True)

    assert sorted(wire.keys[1:]) == ["k1", "k2", "k3"]
    assert statuses(outbox) == ["sent"] * 3


def test_what_one_sender_has_claimed_no_other_one_sends_even_if_asked_for_all(outbox: Outbox, made: Any) -> None:
    outbox.put_notices([notice(1, at=after(3600))])
    busy, other = Later(), Wire()

    made(outbox, Wire(), pool=busy).finish(TARGETS, lambda: START, 0.0, is_all_due=True)
    sender = made(outbox, other, pool=AtOnce())
    sender.finish(TARGETS, lambda: START, 0.0, is_all_due=True)

    assert (len(busy.calls), other.keys) == (1, [])
    # One that is killed keeps nothing from being sent for longer than its claim.
    sender.send_due(TARGETS, after(CLAIM_SECONDS), 0)
    assert other.keys == ["k1"]


def test_what_was_sent_before_a_sender_is_closed_is_written_if_it_is_told_the_time(outbox: Outbox, made: Any) -> None:
    for number, now in ((1, None), (2, START)):
        outbox.put_notices([notice(number)])
        pool = Later()
        sender = made(outbox, Wire(), pool=pool)
        sender.send_due(TARGETS, START, 0)
        sender.close(now)

    assert statuses(outbox) == ["waiting", "sent"]


def test_a_sender_that_is_closed_waits_for_what_is_being_sent_and_begins_nothing_more(
    outbox: Outbox, made: Any
) -> None:
    has_begun, may_end, wire = threading.Event(), threading.Event(), Wire()

    class OneThread(ThreadPoolExecutor):
        def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
            has_begun.wait(30)
            super().shutdown(wait=False, cancel_futures=cancel_futures)
            may_end.set()
            super().shutdown(wait=wait)

    def send(target: Target, message: Message, now: datetime) -> Delivery:
        has_begun.set()
        may_end.wait(30)
        return wire(target, message, now)

    sender = made(outbox, send, pool=OneThread(1))
    outbox.put_notices([notice(1, "first"), notice(2, "second")])
    sender.send_due({"first": HOOK, "second": HOOK}, START, 0)

    sender.close(START)

    assert wire.keys == ["k1"]
    assert statuses(outbox) == ["sent", "waiting"]


def test_a_sender_that_is_closed_in_a_hurry_leaves_what_was_not_begun_to_the_next(outbox: Outbox, made: Any) -> None:
    has_begun, is_closing, wire = threading.Event(), threading.Event(), Wire()

    class OneThread(ThreadPoolExecutor):
        def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
            has_begun.wait(30)
            is_closing.set()
            super().shutdown(wait=wait, cancel_futures=cancel_futures)

    def send(target: Target, message: Message, now: datetime) -> Delivery:
        has_begun.set()
        is_closing.wait(30)
        return wire(target, message, now)

    sender = made(outbox, send, pool=OneThread(1))
    outbox.put_notices([notice(1), notice(2), notice(3)])
    sender.send_due(TARGETS, START, 0)

    sender.close(START, is_hurried=True)

    assert wire.keys == ["k1"]
    assert statuses(outbox) == ["sent", "waiting", "waiting"]
    assert {one.reason for one in outbox.notices()} == {""}


def test_a_sender_that_is_closed_knows_how_long_its_targets_are_tried(outbox: Outbox, made: Any) -> None:
    outbox.put_notices([notice(1)])
    sender = made(outbox, Wire(DOWN), pool=Later())
    sender.send_due({"ops": Target(webhook="https://a", give_up_after="1h")}, after(3600), 0)

    sender.close(after(3600))

    assert statuses(outbox) == ["given_up"]


def test_a_sender_that_had_nothing_to_do_can_be_closed(outbox: Outbox, made: Any) -> None:
    made(outbox, Wire()).close(START)


def test_nobody_waits_longer_than_asked_for_what_is_being_sent(outbox: Outbox, made: Any) -> None:
    outbox.put_notices([notice(1)])
    sender = made(outbox, Wire(), pool=Later())
    sender._results = results = Results()

    sender.finish(TARGETS, lambda: START, 0.0)

    assert (sender.is_sending, results.waits) == (True, [])


def test_who_finishes_waits_for_what_is_being_sent(outbox: Outbox) -> None:
    outbox.put_notices([notice(1)])
    may_end = threading.Event()

    class Begun(Sender):
        def send_due(self, *args: Any, **fields: Any) -> datetime | None:
            due = super().send_due(*args, **fields)
            may_end.set()
            return due

    def send(target: Target, message: Message, now: datetime) -> Delivery:
        may_end.wait(30)
        return SENT

    sender = Begun(outbox, send)
    sender.finish(TARGETS, lambda: START, 30.0)
    sender.close()

    assert statuses(outbox) == ["sent"]


@pytest.mark.parametrize("verb", ["send_due", "finish"])
def test_who_waits_does_not_look_again_and_again(outbox: Outbox, made: Any, verb: str) -> None:
    outbox.put_notices([notice(1)])
    looks: list[float] = []

    def clock() -> float:
        looks.append(time.monotonic())
        return looks[-1]

    sender = made(outbox, Wire(), pool=Later(), clock=clock)
    sender.send_due(TARGETS, START, 0.05) if verb == "send_due" else sender.finish(TARGETS, lambda: START, 0.05)

    assert looks[-1] - looks[0] > 0.04
    assert len(looks) < 20


@pytest.mark.parametrize("verb", ["send_due", "finish"])
def test_nobody_waits_if_nothing_is_being_sent(outbox: Outbox, made: Any, verb: str) -> None:
    outbox.put_notices([notice(1), notice(2, at=after(1))])
    seconds = [0.0]

    def clock() -> float:
        seconds[0] += 0.01
        return seconds[0]

    sender = made(outbox, Wire(), pool=AtOnce(), clock=clock)
    sender.send_due(TARGETS, START, 0.1) if verb == "send_due" else sender.finish(TARGETS, lambda: START, 0.1)

    assert statuses(outbox) == ["sent", "waiting"]
    assert seconds[0] < 0.2


def test_a_call_that_finds_nothing_takes_no_time(outbox: Outbox, made: Any) -> None:
    sender = made(outbox, Wire())
    sender._results = results = Results()

    sender.send_due(TARGETS, START)

    assert results.waits == []


def test_each_result_is_written_once() -> None:
    store = MemoryStore(clock=JumpingClock()).server_records
    store.put_notices([notice(1), notice(2)])
    outbox = Unwilling(store)
    outbox.is_down = False

    Sender(outbox, Wire(SENT, DOWN), pool=AtOnce()).send_due(TARGETS, START)  # type: ignore[arg-type]

    assert outbox.settled == ["sent", "waiting"]


def test_a_result_that_the_store_does_not_take_is_written_the_next_time() -> None:
    store = MemoryStore(clock=JumpingClock()).server_records
    store.put_notices([notice(1)])
    failing = Unwilling(store)
    sender = Sender(failing, Wire(), pool=AtOnce())  # type: ignore[arg-type]

    with pytest.raises(StoreUnavailable):
        sender.send_due(TARGETS, START)
    assert sender.is_sending
    failing.is_down = False
    sender.send_due(TARGETS, START)

    assert (statuses(store), sender.is_sending) == (["sent"], False)


@pytest.mark.parametrize(
    ("targets", "patience", "why"),
    [
        (
            {"ops": Target(webhook="https://a", give_up_after="1h")},
            3600,
            "given up after 1h00m and 1 attempt: no answer",
        ),
        (
            {},
            86_400,
            "given up after 24h00m and 0 attempts: "
            "target 'ops' is not in the configuration: add [targets.ops] to server.toml",
        ),
    ],
)
def test_it_is_given_up_at_the_end_of_its_time_and_not_before(
    outbox: Outbox, made: Any, targets: dict[str, Target], patience: int, why: str
) -> None:
    outbox.put_notices([notice(1), notice(2, at=after(1))])

    due = made(outbox, Wire(*[Delivery("no answer")] * 2), pool=AtOnce()).send_due(targets, after(patience))

    second, first = outbox.notices()
    assert (first.status, first.reason, first.due_at) == ("given_up", why, after(patience))
    assert second.status == "waiting"
    assert due == second.due_at == after(patience + (backoff("k2", 1) if targets else 300))


# -- backoff ---------------------------------------------------------------------------------------------------------


def test_the_backoff_doubles_up_to_a_bound_and_is_the_same_for_a_key() -> None:
    waits = [backoff("k", attempts) for attempts in range(1, 30)]

    assert waits == [backoff("k", attempts) for attempts in range(1, 30)]
    plain = [min(1800.0, 5.0 * 2**number) for number in range(29)]
    assert all(0.75 * base <= seconds <= 1.25 * base for seconds, base in zip(waits, plain, strict=True))


def test_the_backoff_of_many_differs_by_a_quarter_to_both_sides() -> None:
    waits = sorted(backoff(f"k{number}", 3) for number in range(100))

    assert len(set(waits)) == 100
    assert 15.0 <= waits[0] < 16.0
    assert 24.0 < waits[-1] <= 25.0
