"""Many clients of a stream in one process. Each notes when it sees what it waits for."""

from __future__ import annotations

import asyncio
import time

from .requests import request


class StreamClient(asyncio.Protocol):
    """One connection that reads a stream, and tells when a text has come in."""

    def __init__(self, watcher: Watchers, head: bytes) -> None:
        self._watchers = watcher
        self._head = head
        self._tail = b""
        self.is_ready = False
        self.bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        transport.write(self._head)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        self.bytes += len(data)
        wanted = self._watchers.wanted
        if not self.is_ready:
            self._tail += data
            if b"\nid: " in self._tail:
                self.is_ready = True
                self._watchers.ready += 1
            elif b" 200 " not in self._tail[:20]:
                raise SystemExit(f"a stream was refused: {self._tail[:500]!r}")
        if wanted and (wanted in data or wanted in self._tail[-200:] + data):
            self._watchers.seen.append(time.perf_counter())
        self._tail = data[-200:] if self.is_ready else self._tail


class Watchers:
    """All clients."""

    def __init__(self) -> None:
        self.clients: list[StreamClient] = []
        self.ready = 0
        self.wanted = b""
        self.seen: list[float] = []

    async def connect(self, host: str, port: int, token: str, count: int, watch: str) -> None:
        """Open so many streams, and wait until each has got its first event."""
        head = request("GET", f"/api/v1/stream?watch={watch}", host, token, headers={"Accept": "text/event-stream"})
        loop = asyncio.get_running_loop()
        for first in range(0, count, 50):
            opened = await asyncio.gather(
                *(
                    loop.create_connection(lambda: StreamClient(self, head), host, port)
                    for _ in range(min(50, count - first))
                )
            )
            self.clients += [client for _, client in opened]
        while self.ready < len(self.clients):
            await asyncio.sleep(0.01)

    def expect(self, text: bytes) -> None:
        """From now on note when each client sees this text."""
        self.seen, self.wanted = [], text

    async def all_seen(self, seconds: float = 30.0) -> list[float]:
        """When each client has seen it."""
        until = time.perf_counter() + seconds
        while len(self.seen) < len(self.clients) and time.perf_counter() < until:
            await asyncio.sleep(0.005)
        found, self.wanted = list(self.seen), b""
        return found

    def close(self) -> None:
        for client in self.clients:
            client.transport.close()
