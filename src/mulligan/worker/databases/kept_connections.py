"""Connections to servers that a warm child keeps from one task to the next, so that the next one need not connect.

A connection is in use by one task, or it is here. A task that takes one removes it, and returns it only after a commit,
when the server was asked to reset the session; the next task uses it only if the server has done so: see `postgres`.
Connections are kept only while `keep_connections` says so: the process must run no code of a workflow, which could read
them. `child_main` closes them when no task comes for a moment.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

# A server waits five seconds for the other sessions of a database that is dropped or renamed: these are gone before.
IDLE_SECONDS = 1.0
# Settings of roles and databases, and their passwords, count from the next connection on.
AGE_SECONDS_MAX = 60.0
# A loop may read from one database and write to another.
CONNECTIONS_MAX = 2
# Variables with this prefix differ from task to task, and mean nothing to a library.
_OWN_PREFIXES = ("MULLIGAN_", "TRACEPARENT")


class Connection(Protocol):
    def close(self) -> None: ...


class KeptConnections:
    """Idle connections by what they were opened with. Only the digest of that is remembered."""

    def __init__(self) -> None:
        self._is_keeping = False
        # The oldest first: when each was opened.
        self._idle: dict[bytes, tuple[Connection, float]] = {}
        # Otherwise a digest of a weak password could be searched for.
        self._salt = os.urandom(16)

    @property
    def is_keeping(self) -> bool:
        """Whether a connection that is returned now would be kept."""
        return self._is_keeping

    @property
    def is_empty(self) -> bool:
        return not self._idle

    @contextmanager
    def keep_connections(self) -> Iterator[None]:
        """Keep what is returned meanwhile. Only for tasks in a process that runs nothing but our own code."""
        before, self._is_keeping = self._is_keeping, True
        try:
            yield
        finally:
            self._is_keeping = before

    def key_of(self, location: str) -> bytes:
        """Return what a connection depends on: its URL, the environment, and the folder of relative paths."""
        environment = sorted(item for item in os.environ.items() if not item[0].startswith(_OWN_PREFIXES))
        text = repr((location, environment, os.getcwd()))
        return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), key=self._salt, digest_size=16).digest()

    def take(self, key: bytes) -> tuple[Connection, float] | None:
        """Return an idle connection and when it was opened, and forget it. None if there is none, or it is old."""
        found = self._idle.pop(key, None) if self._is_keeping else None
        if found is not None and time.monotonic() - found[1] > AGE_SECONDS_MAX:
            found[0].close()
            return None
        return found

    def put_back(self, key: bytes, connection: Connection, opened_at: float) -> None:
        """Keep a connection whose session is being reset. Close the oldest if there are too many."""
        for surplus in [key, *list(self._idle)[: len(self._idle) + 1 - CONNECTIONS_MAX]]:
            if (found := self._idle.pop(surplus, None)) is not None:
                found[0].close()
        self._idle[key] = connection, opened_at

    def close_all(self) -> None:
        while self._idle:
            self._idle.popitem()[1][0].close()


# The one of this process.
KEPT = KeptConnections()
atexit.register(KEPT.close_all)
