"""One connection of Dask, between the event loop that has it and the thread of an executor."""

from __future__ import annotations

import asyncio
import select
import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from mulligan.dask_executor.messages import encode

# The key under which a message of Dask has ours.
_MESSAGES = "messages"
_WAKE_BYTES = 4096
# How often a side that ends looks whether its last words are sent.
FLUSH_SECONDS = 0.005


class WakeUp:
    """Wakes a thread that waits for a descriptor. `set` may be called by any thread."""

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)

    def fileno(self) -> int:
        return self._reader.fileno()

    def set(self) -> None:
        # If its buffer is full, or it is closed, the thread does not sleep.
        with suppress(OSError):
            self._writer.send(b"\0")

    def clear(self) -> None:
        with suppress(OSError):
            self._reader.recv(_WAKE_BYTES)

    def wait(self, seconds: float | None) -> None:
        select.select([self._reader], [], [], seconds)
        self.clear()

    def close(self) -> None:
        self._reader.close()
        self._writer.close()


class Channel:
    """Sends our messages in order, as many as are waiting at once, and passes on what arrives.

    `receive` is called in the event loop. `send` may be called by any thread; after the end of the connection it does
    nothing.
    """

    def __init__(self, comm: Any, receive: Callable[[bytes], None]) -> None:
        self._comm = comm
        self._receive = receive
        self._loop = asyncio.get_running_loop()
        self._outgoing: deque[bytes] = deque()
        self._has_outgoing = asyncio.Event()
        self._is_writing = False
        self.is_closed = False

    def send(self, message: Any) -> None:
        if self.is_closed:
            return
        self._outgoing.append(encode(message))
        # The loop may have ended, and the connection with it.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._has_outgoing.set)

    async def run(self) -> None:
        """Send and receive until the connection ends."""
        writer = asyncio.create_task(self._write())
        try:
            while True:
                for data in (await self._comm.read())[_MESSAGES]:
                    self._receive(data)
        except OSError:
            pass  # Dask says in this way that a connection has ended
        except Exception:
            # The other side does not say what ours understands. If the connection stayed, its tasks would never end.
            self._comm.abort()
        finally:
            self.is_closed = True
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)

    async def _write(self) -> None:
        while True:
            await self._has_outgoing.wait()
            self._has_outgoing.clear()
            waiting = [self._outgoing.popleft() for _ in range(len(self._outgoing))]
            if not waiting:
                continue
            self._is_writing = True
            try:
                await self._comm.write({_MESSAGES: waiting})
            except OSError:
                return
            except Exception:
                self._comm.abort()
                return
            finally:
                self._is_writing = False

    async def flush(self, seconds: float) -> None:
        """Wait until everything is sent, as long as the connection lasts, and at most so long."""
        end = self._loop.time() + seconds
        while (self._outgoing or self._is_writing) and not self.is_closed and self._loop.time() < end:
            await asyncio.sleep(FLUSH_SECONDS)

    def abort(self) -> None:
        """End the connection. Call it in the event loop."""
        self.is_closed = True
        self._comm.abort()
