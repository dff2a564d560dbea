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


class PatientConnection(psycopg.Connection[Any]):
    """Gives up, and closes, where nothing comes for `patience_seconds`."""

    patience_seconds = 30.0

    def wait(self, gen: Generator[Any, Any, Any], *rest: Any, **options: Any) -> Any:
        return super().wait(self._bounded(gen), *rest, **options)

    def _bounded(self, gen: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        """The same questions and answers, until nothing has come for too long."""
        ready, until = None, time.monotonic() + self.patience_seconds
        while True:
            try:
                wanted = gen.send(ready)
            except StopIteration as end:
                return end.value
            ready = yield wanted
            if ready != _NOTHING:
                until = time.monotonic() + self.patience_seconds
            elif time.monotonic() > until:
                self.give_up()

    def await_socket(self, *, is_writing: bool = False) -> bool:
        """Wait until something has come; also until something can be sent, if asked. Whether something has come."""
        sock = self.pgconn.socket
        readable, writable, _ = select.select([sock], [sock] if is_writing else [], [], self.patience_seconds)
        if not readable and not writable:
            self.give_up()
        return bool(readable)

    def give_up(self) -> None:
        # At once: a rollback would be waited for as long again.
        self.close()
        raise psycopg.OperationalError(f"nothing came for {self.patience_seconds:g} seconds")

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
