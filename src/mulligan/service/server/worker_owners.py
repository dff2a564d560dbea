"""Whose a remote worker is: nobody else speaks in its name, takes its leases or retires it.

The owner is the user of the token with which it was registered. It is written into the store, since a worker outlives
the server that registered it. A worker with access to the database has no owner, and no token speaks in its name.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from mulligan.errors import Refused
from mulligan.ports.server_records import Document, ServerRecords, TokenRecord
from mulligan.service.runs.stored.run_reader import RunReader

_KIND = "worker"
# How long the owner of a dead worker may ship the logs that it has left.
LOGS_LEFT = timedelta(days=7)
# Those of this process, by store: a worker asks many times a second. When there are too many they are read again.
_KNOWN: set[tuple[str, str, str, str]] = set()
_KNOWN_MAX = 10_000


class WorkerOwners:
    """The owners of the workers of one project, for the user of a token; without a token nothing is refused."""

    def __init__(self, reader: RunReader, token: TokenRecord | None) -> None:
        self._reader, self._token = reader, token

    def add(self, worker: str) -> None:
        """Make the user of the token the owner of a new worker."""
        if self._token is None:
            return
        alive = {one.name for one in self._reader.store.workers()}
        now = self._reader.store.now() or datetime.now(UTC)
        for old in self._records.documents(_KIND, self._project):
            if old.name not in alive and now - old.updated_at > LOGS_LEFT:
                self._records.delete_document(old.project, _KIND, old.name)
        document = Document(_KIND, worker, b"", now, updated_by=self._token.user, project=self._project)
        self._records.put_document(document, expected=None)

    def expect_free(self, worker: str) -> None:
        """`Refused` if somebody else had a worker of this name. A dead one is remembered: it has left logs."""
        if self._token is None:
            return
        found = self._records.document(self._project, _KIND, worker)
        if found is not None and found.updated_by != self._token.user:
            raise Refused(
                f"there was a worker '{worker[:100]}' of somebody else", hint="a worker has a name of its own"
            )

    def is_owned(self, worker: str) -> bool:
        """Whether the worker belongs to the user of the token."""
        if self._token is None:
            return True
        key = self._key(worker)
        if key in _KNOWN:
            return True
        found = self._records.document(self._project, _KIND, worker)
        if found is None or found.updated_by != self._token.user:
            return False
        if len(_KNOWN) >= _KNOWN_MAX:
            _KNOWN.clear()
        _KNOWN.add(key)
        return True

    def expect(self, worker: str) -> None:
        """`Refused` unless the worker belongs to the user of the token."""
        if not self.is_owned(worker):
            raise Refused(
                f"there is no worker '{worker[:100]}' of yours", hint="a worker registers first, with the same token"
            )

    def remove(self, worker: str) -> None:
        if self._token is not None:
            self._records.delete_document(self._project, _KIND, worker)
            _KNOWN.discard(self._key(worker))

    @property
    def _records(self) -> ServerRecords:
        return self._reader.store.server_records

    @property
    def _project(self) -> str:
        return (self._token.project if self._token is not None else None) or ""

    def _key(self, worker: str) -> tuple[str, str, str, str]:
        assert self._token is not None
        return str(self._reader.home.place), self._project, self._token.user, worker
