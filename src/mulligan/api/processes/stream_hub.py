"""One hub per server: looks for changes on behalf of all clients of streams, and sends each of them its events.

The polls run in the thread for readers; everything else runs in the loop. An event is encoded once: clients that watch
the same things get the same bytes. A client that does not read costs a bounded amount of memory: what does not fit is
dropped, and the client gets an event that asks it to read everything again.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

import msgspec

from mulligan.errors import MulliganError, RunDamaged, TooManyRequests, UnknownRun
from mulligan.ports.server_records import TokenRecord
from mulligan.service.server.live_feed import LiveEvent, LiveFeed, Watch
from mulligan.service.server.logins import owner_of
from mulligan.service.service import Service

# How many streams one token with all its sessions, and the whole server, may have at once.
STREAMS_PER_TOKEN = 1_000
STREAMS_MAX = 5_000
# How much waits for one client that does not read.
WAITING_BYTES_MAX = 128 * 1024
# A comment is sent if nothing else was, so that proxies keep the connection.
HEARTBEAT_SECONDS = 15.0
# How often tokens are looked up again: a stream ends when its token was revoked or has expired.
TOKEN_SECONDS = 2.0
# How often a look is taken: while things change, and when they have not changed for a while.
FAST_SECONDS, SLOW_SECONDS = 0.025, 0.05
# The looks may take this part of the time of a processor: while things change, and when they do not.
BUSY_SHARE, QUIET_SHARE = 0.1, 0.03
# How much of the time that passes during a look counts as time of a processor, where the look itself took less.
WAITING_SHARE = 0.25
# Behind a store that does not answer.
TROUBLE_SECONDS = 1.0
# What a client waits before it comes back.
RETRY_MS = 1_000
HEARTBEAT = b":\n\n"

EndReason = Literal["token_ended", "server_ended"]
_log = logging.getLogger("mulligan.server")


# Calls a function in the thread for readers.
Reader = Callable[[Callable[[Service], Any]], Awaitable[Any]]


class StreamClient:
    """One client of a stream: an iterator over what is sent to it."""

    __slots__ = ("_hub", "_lags", "_queue", "_size", "_waiter", "ended", "sent_at", "token", "watches")

    def __init__(self, hub: StreamHub, watches: tuple[Watch, ...], token: TokenRecord) -> None:
        self._hub = hub
        self.watches = watches
        self.token = token
        self.sent_at = 0.0
        # Why nothing more will follow; "" while something may.
        self.ended = ""
        self._queue: deque[bytes] = deque()
        self._size = 0
        # Whether something was dropped.
        self._lags = False
        self._waiter: asyncio.Future[None] | None = None

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        while not (piece := self._take()):
            if self.ended:
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return piece

    async def aclose(self) -> None:
        self._hub.leave(self)

    def push(self, piece: bytes) -> None:
        """Let a piece be sent, unless too much waits already."""
        if not self._lags:
            self._size += len(piece)
            if self._size > WAITING_BYTES_MAX:
                self._lags = True
                self._queue.clear()
            else:
                self._queue.append(piece)
        self._wake()

    def end(self, reason: EndReason) -> None:
        """Let the stream end behind what waits to be sent."""
        if not self.ended:
            self.push(_frame("end", msgspec.json.encode({"reason": reason})))
            self.ended = reason
            self._wake()

    def _take(self) -> bytes:
        """What is to be sent now; b"" for nothing."""
        if self._lags:
            piece = self._hub.reset_frame(self.watches)
        else:
            piece = self._queue[0] if len(self._queue) == 1 else b"".join(self._queue)
        self._lags, self._size = False, 0
        self._queue.clear()
        return piece

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


# Of each watched thing: what all others get first, what a new client gets itself, and the position then.
CaughtUp: TypeAlias = list[tuple[list[LiveEvent], list[LiveEvent], str]]


@dataclass(slots=True, eq=False)
class _Joining:
    """A client that waits to join: why it could not, and whether it waits no longer."""

    client: StreamClient
    wanted: Mapping[Watch, str]
    known: Mapping[str, str]
    error: MulliganError | None = None
    is_gone: bool = False


class StreamHub:
    """All clients of the streams of one server."""

    def __init__(
        self,
        read: Reader,
        find_token: Callable[[Service, str], TokenRecord | None],
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._read = read
        self._sleep = sleep
        self._find_token = find_token
        self._clock = clock
        self._feed = LiveFeed(clock)
        # The clients by what they watch: those of one group get the same bytes.
        self._groups: dict[tuple[Watch, ...], dict[StreamClient, None]] = {}
        self._joining: list[_Joining] = []
        self._positions: dict[Watch, str] = {}
        self._watched: Counter[Watch] = Counter()
        self._tokens: Counter[str] = Counter()
        # What was found is handed on in the order in which it was found.
        self._lock = asyncio.Lock()
        self._looking: asyncio.Task[None] | None = None
        self._is_closed = False
        self._heartbeat_at = self._tokens_at = 0.0

    @property
    def followed_runs(self) -> list[int]:
        """The runs that are looked at for somebody."""
        return self._feed.run_ids

    @property
    def clients(self) -> list[StreamClient]:
        return [client for group in self._groups.values() for client in group]

    # -- coming and going ---------------------------------------------------------------------------------------------

    async def join(self, token: TokenRecord, wanted: Mapping[Watch, str], last_event_id: str = "") -> StreamClient:
        """A new client. `wanted` says from which position on; the cursor of an earlier stream takes precedence.

        `UnknownRun`, `TooManyRequests`.
        """
        self._refuse_too_many(token)
        watches = tuple(sorted(wanted, key=lambda watch: (watch.kind, watch.run_id)))
        wanted = {watch: wanted[watch] for watch in watches}
        client = StreamClient(self, watches, token)
        joining = _Joining(client, wanted, decode_cursor(last_event_id))
        self._tokens[owner_of(token.id)] += 1
        # From now on nobody else who leaves ends the watch.
        self._watched.update(watches)
        self._joining.append(joining)
        try:
            async with self._lock:
                if joining in self._joining:
                    await self._join_all()
            if joining.error is not None:
                raise joining.error
        except BaseException:
            joining.is_gone = True
            self._leave(client)
            self._release(client)
            raise
        if self._is_closed:
            client.end("server_ended")
        elif self._looking is None or self._looking.done():
            self._looking = asyncio.ensure_future(self._look_on())
        return client

    async def _join_all(self) -> None:
        """Join all clients that wait, with one read of the store: one for each would be too slow on a busy machine."""
        waiting, self._joining = [one for one in self._joining if not one.is_gone], []
        try:
            found = await self._read(lambda service: self._catch_up_all(service, waiting))
        except MulliganError as error:
            for one in waiting:
                one.error = error
            return
        except BaseException:
            self._joining = waiting + self._joining
            raise
        for one, read in zip(waiting, found, strict=True):
            if isinstance(read, UnknownRun):
                one.error = read
                continue
            self._deliver([event for others, _, _ in read for event in others])
            for watch, (_, _, position) in zip(one.wanted, read, strict=True):
                self._positions[watch] = position
            if one.is_gone:
                continue
            client = one.client
            self._greet(client, [event for _, own, _ in read for event in own], one.known)
            self._groups.setdefault(client.watches, {})[client] = None

    def leave(self, client: StreamClient) -> None:
        """A client is gone. Nothing happens if it was gone before."""
        if self._leave(client):
            self._release(client)

    def _leave(self, client: StreamClient) -> bool:
        """Send no more to a client. False if it did not get anything anyway."""
        group = self._groups.get(client.watches, {})
        if client not in group:
            return False
        del group[client]
        if not group:
            del self._groups[client.watches]
        return True

    def _release(self, client: StreamClient) -> None:
        """Give back what a client has used."""
        self._tokens.subtract([owner_of(client.token.id)])
        self._watched.subtract(client.watches)
        gone = [watch for watch in client.watches if not self._watched[watch]]
        self._tokens, self._watched = +self._tokens, +self._watched
        # The feed belongs to the thread for readers, which may be in the middle of a look: the next look forgets them.
        for watch in gone:
            self._positions.pop(watch, None)

    async def close(self) -> None:
        """The server ends: so do all streams, at once."""
        self._is_closed = True
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        for client in self.clients:
            client.end("server_ended")

    def _refuse_too_many(self, token: TokenRecord) -> None:
        hint = "close a stream, or watch several things with one: watch=runs,run:7,pending"
        if self._tokens[owner_of(token.id)] >= STREAMS_PER_TOKEN:
            raise TooManyRequests(f"this token has {STREAMS_PER_TOKEN:,} streams already", hint=hint)
        if self._tokens.total() >= STREAMS_MAX:
            raise TooManyRequests(f"the server has {STREAMS_MAX:,} streams already", hint=hint)

    def _catch_up_all(self, service: Service, joining: Iterable[_Joining]) -> list[CaughtUp | UnknownRun | RunDamaged]:
        """What `_catch_up` finds for each client; for one whose run does not exist or is damaged, the error."""
        found: list[CaughtUp | UnknownRun | RunDamaged] = []
        undelivered = self._feed.undelivered
        earlier = len(undelivered)
        try:
            for one in joining:
                try:
                    found.append(self._catch_up(service, one.wanted, one.known))
                except (UnknownRun, RunDamaged) as error:
                    found.append(error)
        except MulliganError:
            read = [one for one in found if not isinstance(one, MulliganError)]
            # Before what the last one has found.
            undelivered[earlier:earlier] = [event for one in read for others, _, _ in one for event in others]
            raise
        return found

    def _catch_up(self, service: Service, wanted: Mapping[Watch, str], known: Mapping[str, str]) -> CaughtUp:
        """For each watched thing what others get, what the client has missed, and its position."""
        found: CaughtUp = []
        try:
            for watch, position in wanted.items():
                others, own = self._feed.join(service, watch, known.get(watch.name, position))
                found.append((others, own, self._feed.position(watch)))
        except MulliganError:
            # This client is refused, or the store went away: the others get what was found with the next look.
            self._feed.undelivered += [event for others, _, _ in found for event in others]
            raise
        return found

    def _greet(self, client: StreamClient, missed: Sequence[LiveEvent], known: Mapping[str, str]) -> None:
        """What a client gets first: what it has missed, and a cursor for the case that nothing follows."""
        positions = {watch: known.get(watch.name, "") for watch in client.watches}
        frames = _frames(client.watches, missed, positions)
        now = {watch: self._positions[watch] for watch in client.watches}
        client.push(b"retry: %d\n\n%bid: %b\n\n" % (RETRY_MS, frames, encode_cursor(client.watches, now)))
        client.sent_at = self._clock()

    # -- looking ------------------------------------------------------------------------------------------------------

    async def _look_on(self) -> None:
        """Look for changes as long as there are clients."""
        interval = FAST_SECONDS
        while self._groups:
            await self._sleep(interval)
            try:
                is_moving, took = await self.poll()
            except MulliganError as error:
                _log.warning("the live streams wait: %s", error.render())
                interval = TROUBLE_SECONDS
            except Exception:
                _log.exception("the live streams failed to look for changes")
                interval = TROUBLE_SECONDS
            else:
                interval = next_interval(interval, is_moving=is_moving, took=took)
            self.send_heartbeats()

    async def poll(self) -> tuple[bool, float]:
        """One poll, for all clients: whether it found something, and how long it took."""
        async with self._lock:
            watches = dict.fromkeys(self._watched)
            events, took = await self._read(lambda service: self._poll(service, watches))
            self._deliver(events)
        await self._check_tokens()
        return bool(events), took

    def _poll(self, service: Service, watches: Collection[Watch]) -> tuple[list[LiveEvent], float]:
        """What has changed, and how long the poll took. Runs in the thread for readers."""
        began, worked = time.perf_counter(), time.thread_time()
        self._feed.keep_only(watches)
        is_changed = self._feed.has_changes(service)
        events = self._feed.poll(service, watches, is_changed=is_changed)
        # Waiting for a processor costs nobody anything; waiting for a database may cost it as much as us.
        took = max(time.thread_time() - worked, (time.perf_counter() - began) * WAITING_SHARE)
        return events, took

    def _deliver(self, events: Sequence[LiveEvent]) -> None:
        if not events:
            return
        now = self._clock()
        changed = {event.watch for event in events}
        for watches, clients in self._groups.items():
            if changed.isdisjoint(watches):
                continue
            mine = [event for event in events if event.watch in watches]
            frames = _frames(watches, mine, {watch: self._positions[watch] for watch in watches})
            for client in clients:
                client.push(frames)
                client.sent_at = now
        for event in events:
            if event.watch in self._positions:
                self._positions[event.watch] = event.position

    def reset_frame(self, watches: tuple[Watch, ...]) -> bytes:
        """What a client gets that was too slow: read all of it again."""
        data = msgspec.json.encode({"watch": [watch.name for watch in watches], "reason": "too_slow"})
        return _frame("reset", data, encode_cursor(watches, self._positions))

    def send_heartbeats(self) -> None:
        now = self._clock()
        if now - self._heartbeat_at < 1.0:
            return
        self._heartbeat_at = now
        for client in self.clients:
            if now - client.sent_at >= HEARTBEAT_SECONDS:
                client.sent_at = now
                client.push(HEARTBEAT)

    async def _check_tokens(self) -> None:
        """End the streams whose tokens count no more."""
        now = self._clock()
        if now - self._tokens_at < TOKEN_SECONDS:
            return
        self._tokens_at = now
        digests = {client.token.digest for client in self.clients if client.token.digest}
        found = await self._read(lambda service: {one: self._find_token(service, one) for one in digests})
        at = datetime.now(UTC)
        for client in self.clients:
            digest = client.token.digest
            token = found.get(digest, client.token)
            if digest and (token is None or not token.is_valid(at)):
                client.end("token_ended")


def next_interval(interval: float, *, is_moving: bool, took: float) -> float:
    """When to look next: soon while things change, later if not, and never so often that looking costs too much."""
    wanted = FAST_SECONDS if is_moving else min(SLOW_SECONDS, interval * 1.25)
    return max(wanted, took / (BUSY_SHARE if is_moving else QUIET_SHARE))


# -- the form of events and cursors ----------------------------------------------------------------------------------


def _frames(watches: tuple[Watch, ...], events: Iterable[LiveEvent], positions: dict[Watch, str]) -> bytes:
    """Events for clients that watch these things and know `positions`, each with the cursor behind it."""
    frames = []
    for event in events:
        positions[event.watch] = event.position
        frames.append(_frame(event.name, event.data, encode_cursor(watches, positions)))
    return b"".join(frames)


def _frame(name: str, data: bytes, cursor: bytes = b"") -> bytes:
    return b"event: %b\n%bdata: %b\n\n" % (name.encode(), b"id: %b\n" % cursor if cursor else b"", data)


def encode_cursor(watches: Iterable[Watch], positions: Mapping[Watch, str]) -> bytes:
    """How much a client knows of each thing that it watches."""
    text = ",".join(f"{watch.name}={positions[watch]}" for watch in watches)
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=")


def decode_cursor(cursor: str) -> dict[str, str]:
    """Positions by the names of what is watched. A cursor that cannot be read says nothing: the client starts anew."""
    try:
        text = base64.urlsafe_b64decode(cursor.encode() + b"=" * (-len(cursor) % 4)).decode()
    except (binascii.Error, ValueError):
        return {}
    pairs = (one.partition("=") for one in text.split(",")) if text else ()
    return {name: position for name, _, position in pairs}
