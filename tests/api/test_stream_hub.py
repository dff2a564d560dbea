"""The hub of the live streams: what each client is sent, and what a client costs that does not read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mulligan.api.processes import stream_hub
from mulligan.api.processes.stream_hub import StreamClient, StreamHub, decode_cursor, encode_cursor, next_interval
from mulligan.errors import StoreUnavailable, TooManyRequests, UnknownRun
from mulligan.ports.server_records import TokenRecord
from mulligan.service.home import Home
from mulligan.service.runs.area import Runs
from mulligan.service.runs.changes.prepared_runs import Prepared, prepare
from mulligan.service.server.live_feed import Watch, parse_watches
from mulligan.service.service import Service

NOW = datetime.now(UTC)
TOKEN = TokenRecord(id="t1", digest="d1", user="ada", scopes=("read",), created_at=NOW)
FLOW = "name: flow\nsteps: [{step: one, approve: {message: go?}}]\n"
RUNS = {Watch("runs"): ""}


class Bench:
    """A hub over a home, whose looks are taken when a test asks for one."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.reading, self.writing = Service(home), Service(home, "ada")
        self.moment = 1000.0
        self.tokens: dict[str, TokenRecord | None] = {TOKEN.digest: TOKEN}
        self.trouble: Exception | None = None
        file = home.folder.parent / "flow.yaml"
        file.write_text(FLOW)
        self.prepared: Prepared = prepare(self.writing.workflows.load_workflow(file), {}, file.parent)

    def hub(self) -> StreamHub:
        return StreamHub(
            self._read, lambda _, digest: self.tokens[digest], clock=lambda: self.moment, sleep=lambda _: _never()
        )

    async def _read(self, work: Callable[[Service], Any]) -> Any:
        if self.trouble is not None:
            raise self.trouble
        return work(self.reading)

    def start(self) -> int:
        (run_id,) = self.writing.changes.create(self.prepared)
        return run_id

    def play(self, scene: Callable[[StreamHub], Coroutine[Any, Any, None]]) -> None:
        async def played() -> None:
            hub = self.hub()
            await scene(hub)
            await hub.close()

        asyncio.run(played())


async def _never() -> None:
    await asyncio.get_running_loop().create_future()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(Home(tmp_path / "home"))
    yield made
    made.reading.close()
    made.writing.close()


class Sent:
    """What a client was sent, as an EventSource reads it."""

    def __init__(self, text: bytes) -> None:
        self.events: list[tuple[str, Any]] = []
        self.cursors: list[str] = []
        self.comments = 0
        for block in text.decode().split("\n\n"):
            self.comments += block.startswith(":")
            fields = dict(line.partition(": ")[::2] for line in block.split("\n") if ": " in line)
            if "id" in fields:
                self.cursors.append(fields["id"])
            if "data" in fields:
                self.events.append((fields["event"], json.loads(fields["data"])))

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.events]


async def sent(client: StreamClient) -> Sent:
    """What waits for a client."""
    return Sent(await asyncio.wait_for(anext(client), 10))


def test_all_clients_of_the_same_things_get_the_same_bytes(bench: Bench) -> None:
    async def scene(hub: StreamHub) -> None:
        one, two = [await hub.join(TOKEN, RUNS) for _ in range(2)]
        first = await sent(one)
        await sent(two)

        run_id = bench.start()
        await hub.poll()
        a, b = await anext(one), await anext(two)

        assert a is b
        assert first.names == ["reset"]
        assert Sent(a).events[0][1]["runs"][0]["run_id"] == run_id
        await one.aclose()
        await one.aclose()
        assert hub.clients == [two]

    bench.play(scene)


def test_runs_whose_watchers_left_during_a_look_are_not_looked_at_for_ever(bench: Bench) -> None:
    class LeavingRuns(Runs):
        """Reads while a client leaves."""

        def records(self, run_ids: Any) -> Any:
            found = super().records(run_ids)
            for leave in leaving:
                leave()
            return found

    class Leaving(Service):
        @cached_property
        def runs(self) -> Runs:
            return LeavingRuns(self.reader, lambda: self.cache, lambda: self.catalogue)

    leaving: list[Callable[[], None]] = []

    async def scene(hub: StreamHub) -> None:
        stays = await hub.join(TOKEN, RUNS)
        for _ in range(3):
            run_id = bench.start()
            leaving[:] = [partial(hub.leave, await hub.join(TOKEN, {Watch("run", run_id): ""}))]
            await hub.poll()
        await hub.poll()

        assert hub.clients == [stays]
        assert hub.followed_runs == []

    bench.reading = Leaving(bench.home)
    bench.play(scene)


def test_a_client_comes_back_with_its_cursor_and_gets_what_it_has_missed_once(bench: Bench) -> None:
    async def scene(hub: StreamHub) -> None:
        run_id = bench.start()
        wanted = parse_watches(f"runs,run:{run_id},pending", None)
        stays = await hub.join(TOKEN, wanted)
        leaves = await hub.join(TOKEN, wanted)
        await sent(stays)
        cursor = (await sent(leaves)).cursors[-1]
        await leaves.aclose()

        bench.start()
        bench.writing.changes.pause(run_id)
        await hub.poll()
        seen = await sent(stays)
        back = await sent(await hub.join(TOKEN, wanted, cursor))
        again = await sent(await hub.join(TOKEN, wanted, back.cursors[-1]))

        assert back.events == seen.events
        assert (again.events, again.cursors) == ([], [back.cursors[-1]])
        # Between two events of one batch as well.
        later = await sent(await hub.join(TOKEN, wanted, seen.cursors[0]))
        assert later.events == seen.events[1:]
        # Another server, or one that was started anew, knows nothing of the cursors of the lists.
        other = await sent(await bench.hub().join(TOKEN, wanted, back.cursors[-1]))
        assert ("reset", {"watch": ["runs"], "reason": "unknown"}) in other.events

    bench.play(scene)


def test_a_client_that_does_not_read_is_told_to_read_everything_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(hub: StreamHub) -> None:
        slow = await hub.join(TOKEN, RUNS)
        await sent(slow)
        monkeypatch.setattr(stream_hub, "WAITING_BYTES_MAX", 2_000)
        for _ in range(8):
            bench.start()
            await hub.poll()
            assert sum(map(len, slow._queue)) <= 2_000
        told = await sent(slow)

        bench.start()
        await hub.poll()
        on = await sent(slow)

        assert told.events == [("reset", {"watch": ["runs"], "reason": "too_slow"})]
        assert [len(data["runs"]) for _, data in on.events] == [1]
        # It may come back behind the reset as well.
        back = await sent(await hub.join(TOKEN, RUNS, told.cursors[-1]))
        assert back.events == on.events

    bench.play(scene)


@pytest.mark.parametrize("change", ["revoked", "expired", "removed"])
def test_a_stream_ends_when_its_token_counts_no_more(bench: Bench, change: str) -> None:
    async def scene(hub: StreamHub) -> None:
        client = await hub.join(TOKEN, RUNS)
        await hub.poll()
        await sent(client)

        bench.tokens[TOKEN.digest] = {
            "revoked": TokenRecord(**{**_fields(TOKEN), "revoked_at": NOW}),
            "expired": TokenRecord(**{**_fields(TOKEN), "expires_at": NOW - timedelta(seconds=1)}),
            "removed": None,
        }[change]
        bench.moment += stream_hub.TOKEN_SECONDS
        await hub.poll()

        assert (await sent(client)).events == [("end", {"reason": "token_ended"})]
        with pytest.raises(StopAsyncIteration):
            await anext(client)

    bench.play(scene)


def _fields(token: TokenRecord) -> dict[str, Any]:
    return {name: getattr(token, name) for name in token.__struct_fields__}


def test_all_streams_end_with_the_server_and_are_kept_alive_until_then(bench: Bench) -> None:
    async def scene(hub: StreamHub) -> None:
        client = await hub.join(TOKEN, RUNS)
        await sent(client)
        bench.moment += stream_hub.HEARTBEAT_SECONDS
        hub.send_heartbeats()
        hub.send_heartbeats()
        beat = await sent(client)

        await hub.close()

        assert (beat.comments, beat.events) == (1, [])
        assert (await sent(client)).events == [("end", {"reason": "server_ended"})]
        late = await hub.join(TOKEN, RUNS)
        assert (await sent(late)).names == ["reset", "end"]
        with pytest.raises(StopAsyncIteration):
            await anext(late)

    bench.play(scene)


def test_what_cannot_be_watched_leaves_nothing_behind(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(hub: StreamHub) -> None:
        bench.start()
        with pytest.raises(UnknownRun):
            await hub.join(TOKEN, {Watch("run", 99): ""})
        bench.trouble = StoreUnavailable("gone")
        with pytest.raises(StoreUnavailable):
            await hub.join(TOKEN, RUNS)
        bench.trouble = None
        monkeypatch.setattr(stream_hub, "STREAMS_PER_TOKEN", 1)
        await (await hub.join(TOKEN, RUNS)).aclose()
        kept = await hub.join(TOKEN, RUNS)
        for token in (TOKEN, msgspec.structs.replace(TOKEN, id=f"session-0a1b2c-{TOKEN.id}")):
            with pytest.raises(TooManyRequests):
                await hub.join(token, RUNS)

        assert hub.clients == [kept]

    bench.play(scene)


def test_a_look_is_taken_soon_while_things_change_and_never_costs_too_much() -> None:
    fast, slow = stream_hub.FAST_SECONDS, stream_hub.SLOW_SECONDS
    quiet = fast
    for _ in range(20):
        quiet = next_interval(quiet, is_moving=False, took=0.001)

    assert quiet == slow
    assert next_interval(slow, is_moving=True, took=0.001) == fast
    assert next_interval(fast, is_moving=True, took=0.5) == pytest.approx(5.0)
    assert next_interval(fast, is_moving=False, took=0.03) == pytest.approx(1.0)


def test_a_cursor_names_a_position_of_each_thing_and_a_broken_one_says_nothing() -> None:
    watches = (Watch("run", 7), Watch("runs", project="team"))
    cursor = encode_cursor(watches, {watches[0]: "42", watches[1]: "abcd-3"}).decode()

    assert decode_cursor(cursor) == {"run:7": "42", "runs": "abcd-3"}
    assert decode_cursor("!!") == {}
    assert decode_cursor("/w") == {}
    assert decode_cursor("") == {}


# -- many who come at once -------------------------------------------------------------------------------------------


class Slow:
    """Reads of a hub that take until a test lets them end."""

    def __init__(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reads = 0
        self.may_end = asyncio.Event()
        read = bench._read
        monkeypatch.setattr(bench, "_read", self._wait_and(read))

    def _wait_and(self, read: Callable[..., Any]) -> Callable[..., Any]:
        async def waited(work: Callable[[Service], Any]) -> Any:
            self.reads += 1
            await self.may_end.wait()
            return await read(work)

        return waited


async def _settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_all_who_wait_are_let_in_with_one_read(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = bench.start()
    slow = Slow(bench, monkeypatch)

    async def scene(hub: StreamHub) -> None:
        joins = [asyncio.ensure_future(hub.join(TOKEN, RUNS))]
        await _settle()
        watched = [RUNS, {Watch("run", run_id): ""}, {Watch("run", 99): ""}, RUNS]
        joins += [asyncio.ensure_future(hub.join(TOKEN, one)) for one in watched * 5]
        await _settle()
        # One who gives up while the first read goes on, and one during the second.
        joins[1].cancel()
        slow.may_end.set()
        await asyncio.sleep(0)
        joins[5].cancel()
        found = await asyncio.gather(*joins, return_exceptions=True)

        refused = [one for one in found if isinstance(one, UnknownRun)]
        let_in = [one for one in found if isinstance(one, StreamClient)]
        assert (slow.reads, len(refused), len(let_in)) == (2, 5, 14)
        assert set(hub.clients) == set(let_in)
        assert all([(await sent(client)).cursors for client in let_in])
        for client in let_in:
            hub.leave(client)
        assert (hub.clients, hub._tokens.total(), hub._watched.total()) == ([], 0, 0)

    bench.play(scene)


def test_a_store_that_went_away_refuses_all_who_wait_and_lets_them_come_back(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow(bench, monkeypatch)

    async def scene(hub: StreamHub) -> None:
        joins = [asyncio.ensure_future(hub.join(TOKEN, RUNS)) for _ in range(3)]
        await _settle()
        bench.trouble = StoreUnavailable("gone")
        slow.may_end.set()
        assert [type(one) for one in await asyncio.gather(*joins, return_exceptions=True)] == [StoreUnavailable] * 3
        # The first did not wait for the others.
        assert (slow.reads, hub._tokens.total(), hub._watched.total()) == (2, 0, 0)
        bench.trouble = None
        assert await hub.join(TOKEN, RUNS) in hub.clients

    bench.play(scene)
