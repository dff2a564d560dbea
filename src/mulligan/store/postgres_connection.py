"""A connection that waits for an answer as long as it makes sense, and no longer.

Keepalives tell of a host that is gone. They tell nothing of a server that hangs behind a kernel that answers them, or
of a connection that something on the way has forgotten: then only the clock does.
"""

from __future__ import annotations

import select
import time
from collections.abc import Generator
from typing import Any

import psycopg
from psycopg import pq

# How psycopg's generators are told that nothing has come yet.
_NOTHING = 0


class TimeoutConnection(psycopg.Connection[Any]):
    """Gives up, and closes, where nothing comes for `timeout_seconds`."""

    timeout_seconds = 30.0

    def wait(self, gen: Generator[Any, Any, Any], *rest: Any, **options: Any) -> Any:
        return super().wait(self._bounded(gen), *rest, **options)

    def _bounded(self, gen: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        """The same questions and answers, until nothing has come for too long."""
        ready, silent_since = None, 0.0
        while True:
            try:
                wanted = gen.send(ready)
            except StopIteration as end:
                return end.value
            ready = yield wanted
            # Nearly every answer comes before anybody looks at a clock.
            silent_since = 0.0 if ready != _NOTHING else silent_since or time.monotonic()
            if silent_since and time.monotonic() - silent_since > self.timeout_seconds:
                self.give_up()

    def await_socket(self, *, is_writing: bool = False) -> bool:
        """Wait until something has come; also until something can be sent, if asked. Whether something has come."""
        found = self._poll(select.POLLIN | (select.POLLOUT if is_writing else 0), self.timeout_seconds)
        if not found:
            self.give_up()
        return bool(found & ~select.POLLOUT)

    def has_something(self) -> bool:
        """Whether something has come, without waiting; also of a connection that has broken: reading says how."""
        return bool(self._poll(select.POLLIN, 0))

    def _poll(self, wanted: int, seconds: float) -> int:
        # Not select: that knows no descriptor above 1,023, and a worker with many tasks has those.
        poller = select.poll()
        poller.register(self.pgconn.socket, wanted)
        return sum(events for _, events in poller.poll(seconds * 1000))

    def give_up(self) -> None:
        # At once: a rollback would be waited for as long again.
        self.close()
        raise psycopg.OperationalError(f"nothing came for {self.timeout_seconds:g} seconds")

    def results(self) -> list[pq.abc.PGresult]:
        """What one statement gave, or the pipeline's end."""
        found = []
        while (result := self._result()) is not None:
            found.append(result)
            if result.status == pq.ExecStatus.PIPELINE_SYNC:
                break
        return found

    def _result(self) -> pq.abc.PGresult | None:
        while self.pgconn.is_busy():
            self.await_socket()
            self.pgconn.consume_input()
        return self.pgconn.get_result()

    def flush(self) -> None:
        """Send all of it. A server whose answers nobody reads would stop to read our questions."""
        while self.pgconn.flush():
            if self.await_socket(is_writing=True):
                self.pgconn.consume_input()
