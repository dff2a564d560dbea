"""The clients: some start runs, some ask again, some decide, some read, and a hundred watch."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from bench.serving.requests import Connection, Reply, request

from proof.chaos.http_client import Address
from proof.soak.flows import FLOWS, UNATTENDED, expected_of, flow_of, is_retried
from proof.soak.verdict import Latency, Submission

ENDED = frozenset({"completed", "failed", "cancelled"})
# Runs that are started and have not ended, at most: a slow machine starts fewer, and is not buried.
IN_FLIGHT_MAX = 32
# How long a run may take of which the stream said nothing, before its client asks; and before it is called stuck.
ASK_SECONDS, STUCK_SECONDS = 10.0, 300.0
READ_SECONDS, DECIDE_SECONDS = 0.3, 0.5
# How long a watcher of a run, of the list and of a page stays before it comes again.
STAYS = {"run": (4.0, 16.0), "list": (30.0, 120.0), "page": (8.0, 30.0)}
# What people watch, of ten.
WATCHES = ("run",) * 4 + ("list",) * 4 + ("page",) * 2
PAGES = ("/", "/runs", "/inbox", "/runs/{run_id}", "/workers")
LINE_BYTES_MAX = 1 << 22
_APPROVED: dict[str, Any] = {"reason": "soak"}


class Load:
    """All clients of one server, and what they noted."""

    def __init__(
        self, address: Address, *, runs: int, seconds: float, per_second: float, watchers: int, seed: int
    ) -> None:
        self.address = address
        self.runs, self.seconds, self.per_second, self.watchers = runs, seconds, per_second, watchers
        self.submissions: dict[int, Submission] = {}
        self.latencies: list[Latency] = []
        self.counts: Counter[str] = Counter()
        self.findings: list[str] = []
        self.ended: dict[int, str] = {}
        self._waiting: dict[int, asyncio.Event] = {}
        self._numbers: dict[int, int] = {}
        self._next = 0
        # Not every number is one of a run: PostgreSQL leaves some out.
        self._known: list[int] = []
        self._has_runs = asyncio.Event()
        self._chance = random.Random(seed)
        self._begun = 0.0

    @property
    def now(self) -> float:
        """Seconds since the load began."""
        return time.monotonic() - self._begun

    async def perform(self, beside: Callable[[], Awaitable[None]]) -> None:
        """Start the runs until the time is over, and wait until they have ended. `beside` goes on meanwhile."""
        self._begun = time.monotonic()
        await self._publish()
        others = [
            asyncio.ensure_future(work)
            for work in (
                self._forever("monitor", self._monitor),
                self._forever("reader", self._read),
                self._forever("decider", self._decide),
                *(self._watch_forever(number) for number in range(self.watchers)),
                beside(),
            )
        ]
        try:
            await asyncio.gather(*(self._submit_all() for _ in range(IN_FLIGHT_MAX)))
        finally:
            for other in others:
                other.cancel()
            ends = await asyncio.gather(*others, return_exceptions=True)
        self.findings += [f"a client ended with {end!r}" for end in ends if isinstance(end, Exception)]

    # -- starting runs ------------------------------------------------------------------------------------------------

    async def _publish(self) -> None:
        async with self._connected() as connection:
            for name, text in FLOWS.items():
                reply = await connection.ask("PUT", f"/api/v1/workflows/{name}", {"text": text.lstrip()})
                if reply.status not in (200, 201):
                    raise SystemExit(f"the server refused workflow '{name}': {reply.body.decode(errors='replace')}")

    async def _submit_all(self) -> None:
        async with self._connected() as connection:
            while self._next < self.runs and self.now < self.seconds:
                number, self._next = self._next, self._next + 1
                await asyncio.sleep(max(0.0, number / self.per_second - self.now))
                if self.now >= self.seconds:
                    return
                try:
                    await self._submit(connection, number)
                except OSError as error:
                    self.findings.append(f"the client of request {number} gave up: {error}")
                    return

    async def _submit(self, connection: Client, number: int) -> None:
        """Start one run, and stay until it has ended."""
        self.submissions[number] = Submission(expected_of(number))
        body = {"workflow": flow_of(number), "inputs": {"n": number}}
        ask = ("POST", "/api/v1/runs", body, {"Idempotency-Key": f"run {number}"})
        if number % 50 == 7:
            await self._send_and_leave(*ask)
        begun = self.now
        run_id = await self._ask_for_run(connection, number, ask)
        if not run_id:
            return
        self._note("submit: accepted", begun)
        if number % 10 == 3:
            await self._ask_for_run(connection, number, ask)
            self.counts["asked again"] += 1
        self._numbers[run_id] = number
        self._known.append(run_id)
        self._has_runs.set()
        await self._wait_for_end(connection, run_id)
        if flow_of(number) in UNATTENDED:
            self._note("submit: ended", begun)

    async def _ask_for_run(self, connection: Client, number: int, ask: tuple[Any, ...]) -> int:
        """The id that was answered; 0 if there is none."""
        reply = await connection.ask(*ask)
        if reply.status not in (200, 201):
            self._refused(f"request {number}", reply)
            return 0
        run_id = int(reply.json["run_id"])
        self.submissions[number].run_ids.add(run_id)
        return run_id

    async def _send_and_leave(self, *ask: Any) -> None:
        """A client that is gone before it is answered."""
        _, writer = await asyncio.open_connection(self.address.host, self.address.port)
        method, path, body, headers = ask
        writer.write(request(method, path, self.address.host, self.address.token, body, headers))
        await writer.drain()
        writer.close()
        self.counts["left before the answer"] += 1

    async def _wait_for_end(self, connection: Client, run_id: int) -> None:
        """Until the stream says so, or the run itself."""
        event = self._waiting.setdefault(run_id, asyncio.Event())
        if run_id in self.ended:
            event.set()
        until = self.now + STUCK_SECONDS
        while self.now < until:
            try:
                await asyncio.wait_for(event.wait(), ASK_SECONDS)
                break
            except TimeoutError:
                reply = await connection.ask("GET", f"/api/v1/runs/{run_id}")
                if reply.status == 200 and reply.json["status"] in ENDED:
                    self.counts["ends that the stream did not report"] += not event.is_set()
                    self.ended[run_id] = reply.json["status"]
                    break
        else:
            self.findings.append(f"run {run_id} did not end within {STUCK_SECONDS:.0f} s")
        del self._waiting[run_id]

    # -- reading and deciding -----------------------------------------------------------------------------------------

    async def _monitor(self) -> None:
        """Follow the list, and wake whoever waits for a run."""
        async for line in self._lines("runs"):
            if not line.startswith(b'data: {"runs"'):
                continue
            for run in json.loads(line[6:])["runs"]:
                if run["status"] in ENDED:
                    self.ended[run["run_id"]] = run["status"]
                    if run["run_id"] in self._waiting:
                        self._waiting[run["run_id"]].set()

    async def _read(self) -> None:
        """Read the list and a run, as somebody who polls, and the metrics, as Prometheus does."""
        await self._has_runs.wait()
        async with self._connected() as connection:
            while True:
                await self._get(connection, "/api/v1/runs?limit=50", "get: list of runs")
                run_id = self._chance.choice(self._known)
                await self._get(connection, f"/api/v1/runs/{run_id}/full", "get: a run")
                await self._get(connection, "/metrics", "get: metrics")
                await asyncio.sleep(READ_SECONDS)

    async def _get(self, connection: Client, path: str, kind: str) -> None:
        begun = self.now
        reply = await connection.ask("GET", path)
        if reply.status != 200:
            self._refused(path, reply)
        self._note(kind, begun)

    async def _decide(self) -> None:
        """Answer what waits for a person."""
        async with self._connected() as connection:
            while True:
                reply = await connection.ask("GET", "/api/v1/pending?limit=100")
                for entry in reply.json["pending"] if reply.status == 200 else ():
                    await self._answer(connection, entry)
                await asyncio.sleep(DECIDE_SECONDS)

    async def _answer(self, connection: Client, entry: dict[str, Any]) -> None:
        run_id, step = entry["run_id"], entry["step"]
        number = self._numbers.get(run_id)
        if number is None:
            return  # its client has not been answered yet
        if entry["kind"] == "approval":
            path, body = f"/api/v1/runs/{run_id}/steps/{step}:approve", _APPROVED
        else:
            verdict = "retry" if is_retried(number) else "fail"
            decision = {"run_id": run_id, "step": step, "verdict": verdict, "reason": "soak"}
            path, body = "/api/v1/decisions", {"decisions": [decision | {"attempt": entry["attempt"]}]}
        reply = await connection.ask("POST", path, body)
        self.counts["decisions"] += reply.status == 200

    # -- watching -----------------------------------------------------------------------------------------------------

    async def _watch_forever(self, number: int) -> None:
        """One person who watches a run, the list or a page; then another run, the list or a page again."""
        kind = WATCHES[number % len(WATCHES)]
        await self._has_runs.wait()
        while True:
            stay = self._chance.uniform(*STAYS[kind])
            if kind == "page":
                await self._open_page()
            watch = {"run": f"run:{self._known[-1]}", "list": "runs", "page": "runs,pending"}[kind]
            try:
                async with asyncio.timeout(stay):
                    async for _ in self._lines(watch):
                        pass
                    self.counts["streams that the server ended"] += 1
                    await asyncio.sleep(1)
            except TimeoutError:
                self.counts[f"watches of a {kind}"] += 1
            except OSError as error:
                self.findings.append(f"a stream of {watch} broke: {error}")
                await asyncio.sleep(1)

    async def _open_page(self) -> None:
        async with self._connected() as connection:
            path = self._chance.choice(PAGES).format(run_id=self._known[-1])
            await self._get(connection, path, "get: a page")

    async def _lines(self, watch: str) -> AsyncIterator[bytes]:
        """The lines of a stream, until the server ends it."""
        host, port, token = self.address
        reader, writer = await asyncio.open_connection(host, port, limit=LINE_BYTES_MAX)
        try:
            path = f"/api/v1/stream?watch={watch}"
            writer.write(request("GET", path, host, token, headers={"Accept": "text/event-stream"}))
            head = await reader.readuntil(b"\r\n\r\n")
            if b" 200 " not in head[:20]:
                self.findings.append(f"the stream of {watch} was refused: {head[:60]!r}")
                return
            self.counts["streams"] += 1
            while line := await reader.readline():
                yield line
        finally:
            writer.close()

    # -- common -------------------------------------------------------------------------------------------------------

    async def _forever(self, who: str, work: Callable[[], Awaitable[None]]) -> None:
        """Also a client whose connection breaks begins again, and that is a finding."""
        while True:
            try:
                await work()
                self.findings.append(f"the stream of the {who} ended")
            except OSError as error:
                self.findings.append(f"the connection of the {who} broke: {error}")
            await asyncio.sleep(1)

    def _connected(self) -> Client:
        return Client(self.address, self.counts)

    def _note(self, kind: str, begun: float) -> None:
        self.latencies.append(Latency(self.now, kind, self.now - begun))

    def _refused(self, what: str, reply: Reply) -> None:
        self.findings.append(f"{what} was answered with {reply.status}: {reply.body[:200].decode(errors='replace')}")


class Client:
    """A connection for as long as the context lasts. Every request may be sent again: changes have keys."""

    def __init__(self, address: Address, counts: Counter[str]) -> None:
        self._connection = Connection(*address)
        self._counts = counts

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._connection.close()

    async def ask(self, *words: Any) -> Reply:
        """Ask, and once more if the server has closed the connection: it does so with those that were idle."""
        try:
            return await self._connection.ask(*words)
        except ConnectionError:
            self._counts["connections that were idle too long"] += 1
            return await self._connection.ask(*words)


async def read_statuses(address: Address) -> dict[int, str]:
    """How every run of the server stands."""
    found: dict[int, str] = {}
    async with Client(address, Counter()) as connection:
        cursor: str | None = ""
        while cursor is not None:
            path = "/api/v1/runs?children=true&limit=1000" + (f"&cursor={cursor}" if cursor else "")
            answer = (await connection.ask("GET", path)).json
            found |= {run["run_id"]: run["status"] for run in answer["runs"]}
            cursor = answer["next"]
    return found
