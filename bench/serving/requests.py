"""Requests over raw sockets, many at once: the generator must not be what limits the rate."""

from __future__ import annotations

import asyncio
import json
import resource
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Reply:
    status: int
    body: bytes
    # From the moment at which it was due, so that waiting for a free connection counts.
    seconds: float = 0.0
    # From the moment at which it was sent.
    answered: float = 0.0

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Connection:
    """One connection that is used again and again."""

    host: str
    port: int
    token: str
    _streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Reply:
        """Send one request and wait for its answer. `ConnectionError` if the server is gone."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(self.host, self.port)
        reader, writer = self._streams
        try:
            writer.write(request(method, path, self.host, self.token, body, headers))
            head = await reader.readuntil(b"\r\n\r\n")
            size = int(_header(head, b"content-length") or 0)
            data = await reader.readexactly(size) if size else b""
        except (asyncio.IncompleteReadError, OSError) as error:
            self.close()
            raise ConnectionResetError("the server is gone") from error
        return Reply(int(head[9:12]), data)

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


def request(
    method: str, path: str, host: str, token: str, body: Any = None, headers: Mapping[str, str] | None = None
) -> bytes:
    data = b"" if body is None else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", f"Authorization: Bearer {token}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(data)}"]
    return "\r\n".join([*lines, "", ""]).encode() + data


def _header(head: bytes, name: bytes) -> bytes:
    start = head.lower().find(b"\r\n" + name + b":")
    return head[start + len(name) + 3 : head.index(b"\r\n", start + 2)].strip() if start >= 0 else b""


@dataclass
class Load:
    """What came of a load: every reply, and how busy the generator was."""

    replies: list[Reply] = field(default_factory=list)
    seconds: float = 0.0
    generator_share: float = 0.0

    @property
    def statuses(self) -> dict[int, int]:
        found: dict[int, int] = {}
        for reply in self.replies:
            found[reply.status] = found.get(reply.status, 0) + 1
        return found

    def latency(self, share: float) -> float:
        """Milliseconds within which this share of the requests was answered, counted from when they were due."""
        return percentile([reply.seconds for reply in self.replies], share) * 1000


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else float("nan")


async def send_at_rate(
    host: str, port: int, token: str, paths: Sequence[str], *, rate: float, seconds: float, connections: int = 32
) -> Load:
    """GET requests at fixed moments, whether earlier ones were answered or not."""
    load, due = Load(), asyncio.Queue[tuple[float, str] | None]()
    clients = [Connection(host, port, token) for _ in range(connections)]
    for client in clients:
        await client.ask("GET", paths[0])
    begun, used = time.perf_counter(), _processor()

    async def work(client: Connection) -> None:
        while (one := await due.get()) is not None:
            at, path = one
            sent = time.perf_counter()
            reply = await client.ask("GET", path)
            done = time.perf_counter()
            load.replies.append(Reply(reply.status, b"", done - at, done - sent))

    async def feed() -> None:
        for number in range(int(rate * seconds)):
            at = begun + number / rate
            if (left := at - time.perf_counter()) > 0:
                await asyncio.sleep(left)
            due.put_nowait((at, paths[number % len(paths)]))
        for _ in clients:
            due.put_nowait(None)

    await asyncio.gather(feed(), *(work(client) for client in clients))
    load.seconds = time.perf_counter() - begun
    load.generator_share = (_processor() - used) / load.seconds
    for client in clients:
        client.close()
    return load


def _processor() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
