"""A proxy to a server, of PostgreSQL or HTTP, that can cut, delay or swallow what is sent, or answer in its place."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable
from types import TracebackType
from urllib.parse import quote

from psycopg.conninfo import conninfo_to_dict

CHUNK_BYTES = 1 << 16
# A reset instead of a good-bye when the socket is closed.
_AT_ONCE = struct.pack("ii", 1, 0)


class Link:
    """One connection through the proxy. Once it swallows data it always does, like a forgotten connection."""

    def __init__(self, inward: asyncio.StreamWriter, outward: asyncio.StreamWriter) -> None:
        self.ends = (inward, outward)
        self.swallowed: frozenset[str] = frozenset()

    def reset(self) -> None:
        for end in self.ends:
            _reset(end)


class Proxy:
    """Listens on loopback for one worker, for as long as its context lasts. `url` leads through it."""

    def __init__(self, url: str) -> None:
        self._given = {name: str(value) for name, value in conninfo_to_dict(url).items()}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._links: set[Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        # How it treats what comes.
        self._is_refusing = False
        self._delay_seconds = 0.0
        self._swallowed: frozenset[str] = frozenset()
        self._answer = b""

    @property
    def url(self) -> str:
        port = self._listener.getsockname()[1]
        options = {"sslmode": "disable", "gssencmode": "disable"}
        options |= {name: self._given[name] for name in ("options", "application_name") if name in self._given}
        asked = "&".join(f"{name}={quote(value, safe='')}" for name, value in options.items())
        user = quote(self._given.get("user", "postgres"), safe="")
        return f"postgresql://{user}@127.0.0.1:{port}/{self._given.get('dbname', 'postgres')}?{asked}"

    def __enter__(self) -> Proxy:
        self._thread.start()
        self._call(self._serve())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # -- what it can do to those who go through it -------------------------------------------------------------------

    def heal(self) -> None:
        """New connections are fine; one that has swallowed something stays silent."""
        self._change(is_refusing=False, delay_seconds=0.0, swallowed=frozenset(), answer=b"")

    def cut(self) -> None:
        """Every connection is reset."""
        self._now(self._reset_all)

    def refuse(self) -> None:
        """Every connection is reset, and so is each new one."""
        self._change(is_refusing=True)
        self.cut()

    def slow_down(self, seconds: float) -> None:
        """Whatever is sent arrives so much later."""
        self._change(delay_seconds=seconds)

    def swallow(self, *directions: str) -> None:
        """Swallow what is sent to the `server`, to the `client`, or both, without an error."""
        self._change(swallowed=frozenset(directions))
        self._now(self._mute_all)

    def stand_in(self, answer: bytes) -> None:
        """Every connection is reset, and each new one gets this answer to its first request, and no other."""
        self._change(answer=answer)
        self.cut()

    def _change(self, **changed: object) -> None:
        for name, value in changed.items():
            setattr(self, f"_{name}", value)

    # -- inside, on its own loop -------------------------------------------------------------------------------------

    def _call(self, work: object) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()  # type: ignore[arg-type]

    def _now(self, work: Callable[[], None]) -> None:
        async def awaited() -> None:
            work()

        self._call(awaited())

    async def _serve(self) -> None:
        self._server = await asyncio.start_server(self._join, sock=self._listener)

    async def _close(self) -> None:
        self._server.close()
        self._reset_all()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _reset_all(self) -> None:
        for link in self._links:
            link.reset()

    def _mute_all(self) -> None:
        for link in self._links:
            link.swallowed |= self._swallowed

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self._is_refusing:
                raise ConnectionRefusedError
            if self._answer:
                await _give(self._answer, reader, writer)
                return
            server_reader, server_writer = await self._reach_server()
        except OSError:
            _reset(writer)
            return
        link = Link(writer, server_writer)
        link.swallowed = self._swallowed
        self._links.add(link)
        self._pump("server", link, reader, server_writer)
        self._pump("client", link, server_reader, writer)

    async def _reach_server(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, port = self._given.get("host", "localhost"), self._given.get("port", "5432")
        if host.startswith("/"):
            return await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
        return await asyncio.open_connection(host, int(port))

    def _pump(self, to: str, link: Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = self._loop.create_task(self._carry(to, link, reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, to: str, link: Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(CHUNK_BYTES):
                if self._delay_seconds:
                    await asyncio.sleep(self._delay_seconds)
                if to not in link.swallowed:
                    writer.write(data)
                    await writer.drain()
        except OSError:
            pass  # the other end is gone, which is what we are here for
        if to not in link.swallowed:
            self._links.discard(link)
            link.reset()


class HttpProxy(Proxy):
    """The same to an HTTP server on loopback."""

    def __init__(self, port: int) -> None:
        super().__init__(f"host=127.0.0.1 port={port}")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"


async def _give(answer: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer as something that knows nothing of our server: whatever is asked."""
    await reader.read(CHUNK_BYTES)
    writer.write(answer)
    await writer.drain()
    writer.close()


def html(status: str, body: str = "<!doctype html><html><h1>the proxy says hello</h1></html>") -> bytes:
    """What a proxy of other people answers."""
    kind = "text/html" if body.startswith("<") else "application/json"
    head = f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n"
    return f"{head}\r\n{body}".encode()


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close with a reset, where it is a TCP connection."""
    sock = writer.get_extra_info("socket")
    if sock is not None and sock.family == socket.AF_INET and sock.fileno() >= 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
    writer.transport.abort()
