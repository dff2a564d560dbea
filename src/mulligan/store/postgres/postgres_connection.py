"""A connection with a timeout for answers.

Keepalives detect a host that is gone. They do not detect a server that hangs while its kernel answers them, or a
connection that a device on the way has dropped: for those there is the timeout.
"""

from __future__ import annotations

import select
import time
from collections.abc import Generator
from typing import Any

import psycopg
from psycopg import pq

# What psycopg's generators receive if nothing has arrived yet.
_NOTHING = 0


class TimeoutConnection(psycopg.Connection[Any]):
    """Closes and raises if nothing arrives for `timeout_seconds`."""

    timeout_seconds = 30.0

    def wait(self, gen: Generator[Any, Any, Any], *rest: Any, **options: Any) -> Any:
        return super().wait(self._bounded(gen), *rest, **options)

    def _bounded(self, gen: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        """The same generator, which raises when nothing has arrived for too long."""
        ready, silent_since = None, 0.0
        while True:
            try:
                wanted = gen.send(ready)
            except StopIteration as end:
                return end.value
            ready = yield wanted
            # The clock is read only if there is no answer at once, which is rare.
            silent_since = 0.0 if ready != _NOTHING else silent_since or time.monotonic()
            if silent_since and time.monotonic() - silent_since > self.timeout_seconds:
                self.give_up()

    def await_socket(self, *, is_writing: bool = False) -> bool:
        """Wait until data has arrived or, with `is_writing`, can be sent. Return whether data has arrived."""
        found = self._poll(select.POLLIN | (select.POLLOUT if is_writing else 0), self.timeout_seconds)
        if not found:
            self.give_up()
        return bool(found & ~select.POLLOUT)

    def has_something(self) -> bool:
        """Whether data has arrived, without waiting. Also true if the connection has broken: reading shows how."""
        return bool(self._poll(select.POLLIN, 0))

    def _poll(self, wanted: int, seconds: float) -> int:
        # Not select: it does not support descriptors above 1,023, which a worker with many tasks has.
        poller = select.poll()
        poller.register(self.pgconn.socket, wanted)
        return sum(events for _, events in poller.poll(seconds * 1000))

    def give_up(self) -> None:
        # At once: a rollback would wait as long again.
        self.close()
        raise psycopg.OperationalError(f"no answer for {self.timeout_seconds:g} seconds")

    def results(self) -> list[pq.abc.PGresult]:
        """The results of one statement, or the end of the pipeline."""
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
        """Send all data, and read answers meanwhile: otherwise the server would stop reading."""
        while self.pgconn.flush():
            if self.await_socket(is_writing=True):
                self.pgconn.consume_input()
