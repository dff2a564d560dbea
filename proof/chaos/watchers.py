"""Whoever watches: `watchers COUNT`. Each follows the list of runs as a page does, whatever happens to the server.

A watcher reads the list when it is told to (`reset`), takes in what has changed since, and comes back with its last
position when the stream breaks. What each of them knows is written to the file `watchers.json`, again and again.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from bench.serving.requests import Connection, request

from proof.chaos.http_client import Address, last_address

AGAIN_SECONDS, WRITE_SECONDS = 0.2, 0.3
# A page shows so many. A stream is silent for fifteen seconds at most.
SHOWN, SILENT_SECONDS = 100, 40.0
LINE_BYTES_MAX = 1 << 22
TOKEN_FILE, KNOWN_FILE = "watch.token", "watchers.json"


class Watcher:
    """What one of them knows: the status of each run that it was told of."""

    def __init__(self, counts: Counter[str]) -> None:
        self.statuses: dict[int, str] = {}
        self._position = ""
        self._counts = counts

    async def follow(self, address: Address) -> None:
        """Follow one stream until it breaks."""
        reader, writer = await asyncio.open_connection(address.host, address.port, limit=LINE_BYTES_MAX)
        try:
            headers = {"Accept": "text/event-stream"}
            headers |= {"Last-Event-ID": self._position} if self._position else {}
            path = "/api/v1/stream?watch=runs"
            writer.write(request("GET", path, address.host, address.token, headers=headers))
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), SILENT_SECONDS)
            if b" 200 " not in head[:20]:
                self._counts["streams refused for a moment"] += 1
                return
            self._counts["streams that continue" if self._position else "streams from the start"] += 1
            name = ""
            while line := await asyncio.wait_for(reader.readline(), SILENT_SECONDS):
                field, _, value = line.decode().strip().partition(": ")
                if field == "id":
                    self._position = value
                elif field == "event":
                    name = value
                elif field == "data":
                    await self._take_in(address, name, json.loads(value))
        finally:
            writer.close()

    async def _take_in(self, address: Address, name: str, data: Any) -> None:
        self._counts[f"events '{name}'"] += 1
        if name == "reset":
            await self._read_all(address)
        elif name == "runs":
            self.statuses |= {run["run_id"]: run["status"] for run in data["runs"]}
            for run_id in data["removed"]:
                self.statuses.pop(run_id, None)

    async def _read_all(self, address: Address) -> None:
        connection = Connection(*address)
        try:
            reply = await asyncio.wait_for(connection.ask("GET", f"/api/v1/runs?limit={SHOWN}"), SILENT_SECONDS)
        finally:
            connection.close()
        if reply.status != 200:
            # The next stream begins anew.
            self._position = ""
            raise ConnectionError(f"the list was answered with {reply.status}")
        self.statuses = {run["run_id"]: run["status"] for run in reply.json["runs"]}


async def watch(count: int) -> None:
    counts: Counter[str] = Counter()
    watchers = [Watcher(counts) for _ in range(count)]
    token = Path(TOKEN_FILE).read_text()

    async def forever(watcher: Watcher) -> None:
        while True:
            try:
                if (found := last_address(Path("api-server.stdout"))) is not None:
                    await watcher.follow(found._replace(token=token))
            except ConnectionRefusedError:
                pass  # the server is away
            except (OSError, EOFError, TimeoutError):
                counts["streams that broke"] += 1
            await asyncio.sleep(AGAIN_SECONDS)

    async def write() -> None:
        while True:
            known = {"counts": counts, "watchers": [watcher.statuses for watcher in watchers]}
            Path(f"{KNOWN_FILE}.new").write_text(json.dumps(known))
            os.replace(f"{KNOWN_FILE}.new", KNOWN_FILE)
            await asyncio.sleep(WRITE_SECONDS)

    await asyncio.gather(write(), *map(forever, watchers))


if __name__ == "__main__":
    asyncio.run(watch(int(sys.argv[1])))
