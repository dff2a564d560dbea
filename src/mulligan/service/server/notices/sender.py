"""The sender: takes due notices from the outbox, sends them, and writes what came of it.

A notice is claimed, sent, and then settled. A sender that dies in between has sent it or not: after `CLAIM_SECONDS`
another one sends it, under the same key. So every notice is sent at least once, and a receiver knows repeated ones.

Each target has a thread of its own while something is sent to it, so that a slow one keeps nobody waiting. Threads only
send: the store is used by the caller's thread alone. This runs in a process of its own, never beside an engine.

A failure concerns its notice, which is tried again later; the others are sent. A target that is down is left alone as a
target, by one row of the store: what waits for it is not touched.
"""

from __future__ import annotations

import hashlib
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from datetime import datetime, timedelta
from importlib.util import find_spec
from queue import Empty, SimpleQueue

import msgspec

from mulligan.core.model.text.formatting import format_duration, pluralize
from mulligan.errors import InputInvalid, MulliganError
from mulligan.ports import NoticeRecord, Outbox, SettledNotice, TargetPause, WaitingTarget
from mulligan.service.server.notices.messages import Delivery, MakeButtons, Message, make_digest, make_message
from mulligan.service.server.notices.targets import GIVE_UP_SECONDS, Target

# How long a claimed notice is ours. Sending to a target stops at half of it, so that no claim ends while it is sent.
CLAIM_SECONDS = 120.0
# How many notices of a target are claimed at once; and of a target with a limit, which gets the rest in a digest.
BATCH_MAX, DIGEST_MAX = 100, 2_000
# So many failures in a row, each of which might have been the last, mean that the target is down. With one answer in
# five refused, that happens once in 3,000 messages.
IN_A_ROW_MAX = 5
# The first wait after a failure, which doubles up to the second.
BACKOFF_SECONDS, BACKOFF_SECONDS_MAX = 5.0, 1800.0
# The waits differ by up to this part, so that a target that comes back is not asked by all at once.
JITTER = 0.25
# How often a notice looks for its target in the configuration.
UNKNOWN_SECONDS = 300.0
# How many of those are looked at in one go: whoever starts runs may name any number of them.
UNKNOWN_MAX = 20
# How long one call waits for what it has begun to send, and when it is called again if that has not ended.
WAIT_SECONDS, BUSY_SECONDS = 0.5, 0.05
# Results are written together, at most so long after the first of them.
GATHER_SECONDS = 0.1
MINUTE = timedelta(minutes=1)

Send = Callable[[Target, Message, datetime], Delivery]


class _Result(msgspec.Struct, frozen=True):
    """What came of a message; None for one that was not tried, since the target was down or the time was over."""

    message: Message
    delivery: Delivery | None
    # How many messages to the target have failed in a row, with this one.
    in_a_row: int = 0

    @property
    def is_target_down(self) -> bool:
        return self.delivery is not None and (self.delivery.is_target_down or self.in_a_row >= IN_A_ROW_MAX)


class Sender:
    """Sends what is due, over and over. It remembers what it sent in the last minute, and how its targets answer."""

    def __init__(
        self,
        outbox: Outbox,
        send: Send,
        *,
        url: str = "",
        buttons: MakeButtons | None = None,
        clock: Callable[[], float] = time.monotonic,
        threads: int = 16,
        pool: Executor | None = None,
    ) -> None:
        self._outbox = outbox
        self._send = send
        self._url = url
        self._buttons = buttons
        self._clock = clock
        self._pool = pool or ThreadPoolExecutor(threads, thread_name_prefix="notices")
        self._running: dict[str, Future[None]] = {}
        self._results: SimpleQueue[_Result] = SimpleQueue()
        # Results that the store did not take yet.
        self._unsettled: list[_Result] = []
        # When messages went to each target, as far as that matters for its limit.
        self._sent_at: defaultdict[str, deque[datetime]] = defaultdict(deque)
        # How often in a row each target has failed, and which ones were left alone when we looked last.
        self._in_a_row: dict[str, int] = {}
        self._pauses: dict[str, TargetPause] = {}
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
            self._settle(now)

    def send_due(
        self, targets: Mapping[str, Target], now: datetime, wait_seconds: float = WAIT_SECONDS
    ) -> datetime | None:
        """Send what is due; when to call again, or None if nothing waits."""
        self._targets = targets
        deadline = self._clock() + wait_seconds
        while True:
            self._settle(now)
            following = self._begin_due(now)
            count = len(self._running)
            # Until the first batch has ended: its target may get the next one.
            while len(self._running) == count > 0 and (left := deadline - self._clock()) > 0:
                self._settle(now, left)
            self._settle(now)
            if not count:
                return following
            if self._running and self._clock() >= deadline:
                return now + timedelta(seconds=BUSY_SECONDS)

    # -- what is due -------------------------------------------------------------------------------------------------

    def _begin_due(self, now: datetime) -> datetime | None:
        """Begin to send to each target that is free; when something is due for one that is not being sent to."""
        waiting = self._outbox.waiting_targets(now)
        self._pauses = {one.target: one.pause for one in waiting if one.pause is not None}
        unknown = [one.target for one in waiting if one.target not in self._targets and one.next_at <= now]
        later = set(unknown[UNKNOWN_MAX:])
        free = (one for one in waiting if one.target not in self._running and one.target not in later)
        dues = [self._begin(one, now) for one in free]
        if later:
            dues.append(now + timedelta(seconds=1))
        return min((due for due in dues if due is not None), default=None)

    def _begin(self, waiting: WaitingTarget, now: datetime) -> datetime | None:
        """Begin to send to this target if it is due; when it is due otherwise."""
        name, target = waiting.target, self._targets.get(waiting.target)
        if waiting.next_at > now:
            return waiting.next_at
        if target is None:
            why = f"target '{name}' is not in the configuration: add [targets.{name}] to server.toml"
            self._give_up_old(name, why, now)
            retry_at = now + timedelta(seconds=UNKNOWN_SECONDS)
            self._pause(TargetPause(name, 0, now, retry_at, why))
            return retry_at
        if (free_at := self._free_at(name, target, now)) > now:
            why = "waits: this target has reached its limit of messages per minute"
            self._pause(TargetPause(name, 0, now, free_at, why))
            return free_at
        # A target that was down is asked with one message.
        is_down = waiting.pause is not None and waiting.pause.failures > 0
        limit = 1 if is_down else DIGEST_MAX if target.messages_per_minute else BATCH_MAX
        notices = self._outbox.claim_notices(name, now, now + timedelta(seconds=claim_seconds(target)), limit)
        if notices:
            in_a_row = IN_A_ROW_MAX - 1 if is_down else self._in_a_row.get(name, 0)
            messages = self._messages(name, target, notices, now)
            self._running[name] = self._pool.submit(self._work, target, messages, now, in_a_row)
        return None

    def _patience(self, name: str) -> float:
        target = self._targets.get(name)
        return target.give_up_seconds if target is not None else GIVE_UP_SECONDS

    def _give_up_old(self, name: str, why: str, now: datetime) -> None:
        """Give up what has waited for long enough for a target that takes nothing."""
        patience = self._patience(name)
        until, oldest = now + timedelta(seconds=CLAIM_SECONDS), now - timedelta(seconds=patience)
        while notices := self._outbox.claim_notices(name, now, until, BATCH_MAX):
            old = [notice for notice in notices if notice.created_at <= oldest]
            self._outbox.settle_notices([_given_up(notice, notice.attempts, patience, why, now) for notice in old])
            self._outbox.release_notices([notice.id for notice in notices if notice.created_at > oldest])
            if len(old) < BATCH_MAX:
                break

    def _pause(self, pause: TargetPause) -> None:
        self._outbox.put_target_pause(pause)
        self._pauses[pause.target] = pause

    def _free_at(self, name: str, target: Target, now: datetime) -> datetime:
        """When the target may have a message more."""
        if not target.messages_per_minute:
            return now
        sent_at = self._sent_at[name]
        while sent_at and sent_at[0] <= now - MINUTE:
            sent_at.popleft()
        return sent_at[0] + MINUTE if len(sent_at) >= target.messages_per_minute else now

    def _messages(self, name: str, target: Target, notices: list[NoticeRecord], now: datetime) -> list[Message]:
        """The messages that go now: what is beyond the limit of the target is joined into the last."""
        limit = target.messages_per_minute
        if not limit:
            return [make_message(notice, self._url, self._buttons) for notice in notices]
        free = limit - len(self._sent_at[name])
        singles = notices if len(notices) <= free else notices[: free - 1]
        messages = [make_message(notice, self._url, self._buttons) for notice in singles]
        if joined := notices[len(singles) :]:
            messages.append(make_digest(joined, now, self._url))
        self._sent_at[name].extend([now] * len(messages))
        return messages

    # -- in a thread of the target -----------------------------------------------------------------------------------

    def _work(self, target: Target, messages: Sequence[Message], now: datetime, in_a_row: int) -> None:
        """Send the messages one after the other, until they show that the target is down."""
        begun, is_down = self._clock(), False
        for number, message in enumerate(messages):
            is_over = self._clock() - begun > claim_seconds(target) / 2 - target.timeout_seconds
            # The first is always tried: otherwise nothing would ever be sent to a target with a long timeout.
            if is_down or (number > 0 and (is_over or self._is_hurried)):
                self._results.put(_Result(message, None, in_a_row))
                continue
            delivery = self._try(target, message, now)
            # A message that is refused for itself says nothing about the target.
            in_a_row = 0 if not delivery.problem else in_a_row + delivery.is_target_busy
            result = _Result(message, delivery, in_a_row)
            is_down = result.is_target_down
            self._results.put(result)

    def _try(self, target: Target, message: Message, now: datetime) -> Delivery:
        try:
            return self._send(target, message, now)
        except InputInvalid as error:
            return Delivery(error.message, is_target_down=True)
        except Exception as error:
            # A bug in a library must not keep the notice from being tried again. Its words may have the address.
            return Delivery(f"{type(error).__name__} while sending", is_target_down=True)

    # -- what came of it ---------------------------------------------------------------------------------------------

    def _settle(self, now: datetime, wait_seconds: float = 0.0) -> None:
        """Write the results that are there; wait for the first of them, and shortly for more."""
        self._gather(wait_seconds)
        if self._unsettled:
            self._write(self._unsettled, now)
            self._unsettled = []
        # In this order: whoever ends after the first question may have left a result before the second.
        ended = [name for name, running in self._running.items() if running.done()]
        if self._results.empty():
            for name in ended:
                del self._running[name]

    def _gather(self, wait_seconds: float) -> None:
        try:
            self._unsettled.append(self._results.get(wait_seconds > 0, wait_seconds))
            until = self._clock() + min(wait_seconds, GATHER_SECONDS)
            while True:
                left = 0.0 if any(one.done() for one in self._running.values()) else until - self._clock()
                self._unsettled.append(self._results.get(left > 0, max(left, 0.0)))
        except Empty:
            pass

    def _write(self, results: Sequence[_Result], now: datetime) -> None:
        settled: list[SettledNotice] = []
        released: list[int] = []
        # By target: the result that says how it is. Those of a target come in order.
        latest: dict[str, tuple[_Result, Delivery]] = {}
        for result in results:
            if result.delivery is None:
                released += [notice.id for notice in result.message.notices]
            else:
                latest[result.message.notices[0].target] = result, result.delivery
                settled += self._settled(result.message, result.delivery, now)
        self._outbox.settle_notices(settled)
        self._outbox.release_notices(released)
        for name, (result, delivery) in latest.items():
            self._note_target(name, result, delivery, now)
        self.sent += sum(one.status == "sent" for one in settled)

    def _settled(self, message: Message, delivery: Delivery, now: datetime) -> Iterator[SettledNotice]:
        """What came of the notices of a message: sent, tried again later, or given up in words."""
        patience = self._patience(message.notices[0].target)
        for notice in message.notices:
            tries = notice.attempts + 1
            if not delivery.problem:
                yield SettledNotice(notice.id, "sent", tries, now)
            elif now - notice.created_at < timedelta(seconds=patience):
                due = now + timedelta(seconds=max(backoff(notice.key, tries), delivery.retry_after))
                yield SettledNotice(notice.id, "waiting", tries, due, delivery.problem)
            else:
                yield _given_up(notice, tries, patience, delivery.problem, now)

    def _note_target(self, name: str, result: _Result, delivery: Delivery, now: datetime) -> None:
        """Leave a target alone that is down, for longer each time; and no longer once it has taken a message."""
        former = self._pauses.get(name)
        self._in_a_row[name] = result.in_a_row
        if result.is_target_down:
            failures = 1 if former is None else former.failures + 1
            since = now if former is None or not former.failures else former.since
            seconds = max(backoff(f"target {name}", failures), delivery.retry_after)
            retry_at = now + timedelta(seconds=seconds)
            self._pause(TargetPause(name, failures, since, retry_at, f"waits for its target: {delivery.problem}"))
            if now - since >= timedelta(seconds=self._patience(name)):
                self._give_up_old(name, delivery.problem, now)
        elif former is not None and former.failures and not delivery.problem:
            self._outbox.end_target_pause(name)
            del self._pauses[name]

    def finish(
        self,
        targets: Mapping[str, Target],
        clock: Callable[[], datetime],
        seconds_max: float,
        *,
        is_all_due: bool = False,
    ) -> None:
        """Send what is due, or all that waits, and wait for it, at most so long."""
        deadline = self._clock() + seconds_max
        if is_all_due:
            self._outbox.make_notices_due(clock())
        while True:
            left = max(0.0, deadline - self._clock())
            self.send_due(targets, clock(), min(left, WAIT_SECONDS))
            if not self._running or not left:
                break


def _given_up(notice: NoticeRecord, attempts: int, patience: float, why: str, now: datetime) -> SettledNotice:
    times = pluralize(attempts, "attempt")
    reason = f"given up after {format_duration(patience)} and {times}: {why}"
    return SettledNotice(notice.id, "given_up", attempts, now, reason)


def claim_seconds(target: Target) -> float:
    """How long a claimed notice is ours: long enough for one attempt, whatever timeout the target has."""
    return max(CLAIM_SECONDS, 2 * target.timeout_seconds)


def backoff(key: str, attempts: int) -> float:
    """How many seconds to wait after this many attempts. The jitter follows from the key: the same every time."""
    seconds: float = min(BACKOFF_SECONDS_MAX, BACKOFF_SECONDS * 2 ** min(attempts - 1, 20))
    digest = hashlib.sha256(f"{key}:{attempts}".encode()).digest()
    spread: float = int.from_bytes(digest[:4]) / 2**31 - 1
    return seconds * (1 + JITTER * spread)


# -- sending once ----------------------------------------------------------------------------------------------------


class NotifyLibraryMissing(MulliganError):
    """Addresses of people need apprise, which is not installed."""

    code = "notices.library_missing"


def refuse_missing_library(target: Target) -> None:
    """Raise if the library that the target needs is not installed."""
    if target.urls and find_spec("apprise") is None:
        raise NotifyLibraryMissing(
            "notices to people need the package 'apprise', which is not installed",
            hint="pip install 'mulligan[notify]'",
        )


def send(target: Target, message: Message, now: datetime) -> Delivery:
    """Send a message once."""
    if target.webhook:
        from mulligan.service.server.notices.webhooks import send_to_webhook

        return send_to_webhook(target, message, now)
    try:
        refuse_missing_library(target)
    except NotifyLibraryMissing as error:
        return Delivery(f"{error.message}: {error.hint}", is_target_down=True)
    from mulligan.service.server.notices.people import send_to_people

    return send_to_people(target, message)
