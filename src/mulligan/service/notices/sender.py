"""The sender: takes due notices from the outbox, sends them, and writes what came of it.

A notice is claimed, sent, and then settled. A sender that dies in between has sent it or not: after `CLAIM_SECONDS`
another one sends it, under the same key. So every notice is sent at least once, and a receiver knows repeated ones.

Each target has a thread of its own while something is sent to it, so that a slow one keeps nobody waiting. Threads only
send: the store is used by the caller's thread alone. This runs in a process of its own, never beside an engine.
"""

from __future__ import annotations

import hashlib
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from datetime import datetime, timedelta
from queue import Empty, SimpleQueue

import msgspec

from mulligan.core.model.formatting import format_duration, pluralize
from mulligan.errors import InputInvalid
from mulligan.ports import NoticeRecord, NoticeStatus, Outbox
from mulligan.service.notices.delivery import Delivery
from mulligan.service.notices.messages import Message, make_digest, make_message
from mulligan.service.notices.targets import GIVE_UP_SECONDS, Target

# How long a claimed notice is ours. Sending to a target stops at half of it, so that no claim ends while it is sent.
CLAIM_SECONDS = 120.0
BATCH_MAX = 200
# The first wait after a failure, which doubles up to the second.
BACKOFF_SECONDS, BACKOFF_SECONDS_MAX = 5.0, 1800.0
# The waits differ by up to this part, so that a target that comes back is not asked by all at once.
JITTER = 0.25
# How often a notice looks for its target in the configuration.
UNKNOWN_SECONDS = 300.0
# How long one call waits for what it has begun to send, and when it is called again if that has not ended.
WAIT_SECONDS, BUSY_SECONDS = 0.5, 0.25
MINUTE = timedelta(minutes=1)

Send = Callable[[Target, Message, datetime], Delivery]


class _Result(msgspec.Struct, frozen=True):
    """What came of a message; None for one that was not tried, since the target was down or the time was over."""

    message: Message
    delivery: Delivery | None


class Sender:
    """Sends what is due, over and over. It remembers what it sent in the last minute, and which targets are down."""

    def __init__(
        self,
        outbox: Outbox,
        send: Send,
        *,
        url: str = "",
        clock: Callable[[], float] = time.monotonic,
        threads: int = 16,
        pool: Executor | None = None,
    ) -> None:
        self._outbox = outbox
        self._send = send
        self._url = url
        self._clock = clock
        self._pool = pool or ThreadPoolExecutor(threads, thread_name_prefix="notices")
        self._running: dict[str, Future[None]] = {}
        self._results: SimpleQueue[_Result] = SimpleQueue()
        # Results that the store did not take yet.
        self._unsettled: deque[_Result] = deque()
        # When messages went to each target, as far as that matters for its limit.
        self._sent_at: defaultdict[str, deque[datetime]] = defaultdict(deque)
        # How often in a row each target has failed, and until when it is left alone.
        self._failures: dict[str, int] = {}
        self._down_until: dict[str, datetime] = {}
        self._targets: Mapping[str, Target] = {}
        self._is_hurried = False
        self.sent = 0

    @property
    def is_sending(self) -> bool:
        """Whether something is being sent, or has results that are not written."""
        return bool(self._running)

    def close(self, now: datetime | None = None, *, is_hurried: bool = False) -> None:
        """Wait for what is being sent. Without `now` the results are not written, and it is sent again.

        In a hurry, one message for each target: the others are left to whoever sends next.
        """
        self._is_hurried = is_hurried
        self._pool.shutdown(cancel_futures=True)
        if now is not None:
            self._settle(self._targets, now)

    def send_due(
        self,
        targets: Mapping[str, Target],
        now: datetime,
        wait_seconds: float = WAIT_SECONDS,
        ahead: timedelta = timedelta(0),
    ) -> datetime | None:
        """Send what is due, also `ahead` of its time; when to call again, or None if nothing waits."""
        self._targets = targets
        self._settle(targets, now)
        self._claim(targets, now, now + ahead)
        deadline = self._clock() + wait_seconds
        while self._running and (left := deadline - self._clock()) > 0:
            self._settle(targets, now, left)
        self._settle(targets, now)
        if self._running:
            return now + timedelta(seconds=BUSY_SECONDS)
        return self._outbox.next_notice_due()

    # -- what is due -------------------------------------------------------------------------------------------------

    def _claim(self, targets: Mapping[str, Target], now: datetime, due: datetime) -> None:
        until = due + timedelta(seconds=CLAIM_SECONDS)
        found: dict[str, list[NoticeRecord]] = {}
        while batch := self._outbox.claim_notices(due, until, BATCH_MAX):
            for notice in batch:
                found.setdefault(notice.target, []).append(notice)
            if len(batch) < BATCH_MAX:
                break
        for name, notices in found.items():
            self._begin(name, targets.get(name), notices, now)

    def _begin(self, name: str, target: Target | None, notices: list[NoticeRecord], now: datetime) -> None:
        if target is None:
            reason = f"target '{name}' is not in the configuration: add [targets.{name}] to server.toml"
            for notice in notices:
                self._fail(notice, now, now + timedelta(seconds=UNKNOWN_SECONDS), reason, target)
            return
        if name in self._running:
            self._put_off(notices, now + timedelta(seconds=2), "waits for its target")
            return
        down_until = self._down_until.get(name)
        if down_until is not None and down_until > now:
            self._put_off(notices, down_until, "waits for its target, which is down")
            return
        messages, held = self._messages(name, target, notices, now)
        if held:
            free_at = self._sent_at[name][0] + MINUTE
            self._put_off(held, free_at, "waits: the target has had its messages of this minute")
        if messages:
            self._running[name] = self._pool.submit(self._work, target, messages, now)

    def _messages(
        self, name: str, target: Target, notices: list[NoticeRecord], now: datetime
    ) -> tuple[list[Message], list[NoticeRecord]]:
        """The messages that may go now, and the notices that have to wait for the next minute."""
        limit = target.messages_per_minute
        if not limit:
            return [make_message(notice, self._url) for notice in notices], []
        sent_at = self._sent_at[name]
        while sent_at and sent_at[0] <= now - MINUTE:
            sent_at.popleft()
        free = limit - len(sent_at)
        if free <= 0:
            return [], notices
        singles = notices if len(notices) <= free else notices[: free - 1]
        messages = [make_message(notice, self._url) for notice in singles]
        if joined := notices[len(singles) :]:
            messages.append(make_digest(joined, now, self._url))
        sent_at.extend([now] * len(messages))
        return messages, []

    # -- in a thread of the target -----------------------------------------------------------------------------------

    def _work(self, target: Target, messages: Sequence[Message], now: datetime) -> None:
        """Send the messages one after the other, until one shows that the target is down."""
        begun, is_down = self._clock(), False
        for number, message in enumerate(messages):
            is_over = self._clock() - begun > CLAIM_SECONDS / 2 - target.timeout_seconds
            is_left = is_down or is_over or (self._is_hurried and number > 0)
            delivery = None if is_left else self._try(target, message, now)
            is_down = is_down or (delivery is not None and delivery.is_target_down)
            self._results.put(_Result(message, delivery))

    def _try(self, target: Target, message: Message, now: datetime) -> Delivery:
        try:
            return self._send(target, message, now)
        except InputInvalid as error:
            return Delivery(error.message, is_target_down=True)
        except Exception as error:
            # A bug in a library must not keep the notice from being tried again. Its words may have the address.
            return Delivery(f"{type(error).__name__} while sending", is_target_down=True)

    # -- what came of it ---------------------------------------------------------------------------------------------

    def _settle(self, targets: Mapping[str, Target], now: datetime, wait_seconds: float = 0.0) -> None:
        """Write the results that are there; wait for the first of them."""
        try:
            self._unsettled.append(self._results.get(wait_seconds > 0, wait_seconds))
            while True:
                self._unsettled.append(self._results.get_nowait())
        except Empty:
            pass
        while self._unsettled:
            result = self._unsettled[0]
            self._settle_one(targets, result, now)
            self._unsettled.popleft()
        for name in [name for name, running in self._running.items() if running.done()]:
            if self._results.empty():
                del self._running[name]

    def _settle_one(self, targets: Mapping[str, Target], result: _Result, now: datetime) -> None:
        name = result.message.notices[0].target
        target, delivery = targets.get(name), result.delivery
        if delivery is None:
            due = max(self._down_until.get(name, now), now + timedelta(seconds=1))
            why = "" if self._is_hurried else "waits for its target, which is down"
            self._put_off(result.message.notices, due, why)
            return
        if not delivery.problem:
            self._failures.pop(name, None)
            for notice in result.message.notices:
                self._write(notice, "sent", notice.attempts + 1, now, "")
                self.sent += 1
            return
        if delivery.is_target_down:
            count = self._failures[name] = self._failures.get(name, 0) + 1
            seconds = max(backoff(f"target {name}", count), delivery.retry_after)
            self._down_until[name] = now + timedelta(seconds=seconds)
        for notice in result.message.notices:
            tries = notice.attempts + 1
            due = now + timedelta(seconds=max(backoff(notice.key, tries), delivery.retry_after))
            self._fail(msgspec.structs.replace(notice, attempts=tries), now, due, delivery.problem, target)

    def _put_off(self, notices: Iterable[NoticeRecord], due: datetime, why: str) -> None:
        """Try later what was not tried now. What its last attempt said is kept."""
        for notice in notices:
            self._write(notice, "waiting", notice.attempts, due, notice.reason or why)

    def _fail(self, notice: NoticeRecord, now: datetime, due: datetime, why: str, target: Target | None) -> None:
        """Try it again later, or give it up in words."""
        patience = target.give_up_seconds if target is not None else GIVE_UP_SECONDS
        if now - notice.created_at < timedelta(seconds=patience):
            self._write(notice, "waiting", notice.attempts, due, why)
        else:
            times = pluralize(notice.attempts, "attempt")
            reason = f"given up after {format_duration(patience)} and {times}: {why}"
            self._write(notice, "given_up", notice.attempts, now, reason)

    def _write(self, notice: NoticeRecord, status: NoticeStatus, attempts: int, at: datetime, reason: str) -> None:
        self._outbox.settle_notice(notice.id, status, attempts=attempts, due_at=at, reason=reason)

    def finish(
        self,
        targets: Mapping[str, Target],
        clock: Callable[[], datetime],
        seconds_max: float,
        *,
        ahead: timedelta = timedelta(0),
    ) -> None:
        """Send what is due, also `ahead` of its time, and wait for it, at most so long."""
        deadline = self._clock() + seconds_max
        self.send_due(targets, clock(), 0.0, ahead)
        while self._running and (left := deadline - self._clock()) > 0:
            wait(self._running.values(), left, FIRST_COMPLETED)
            self._settle(targets, clock())


def backoff(key: str, attempts: int) -> float:
    """How many seconds to wait after this many attempts. The jitter follows from the key: the same every time."""
    seconds: float = min(BACKOFF_SECONDS_MAX, BACKOFF_SECONDS * 2 ** min(attempts - 1, 20))
    digest = hashlib.sha256(f"{key}:{attempts}".encode()).digest()
    spread: float = int.from_bytes(digest[:4]) / 2**31 - 1
    return seconds * (1 + JITTER * spread)
