"""Sequence numbers: they grow, order queued tasks, and are the tokens of leases."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import apsw

from mulligan.store.sqlite.sqlite_file import SQL, fetch_all

# Sequence numbers are reserved in blocks: writing the page of the counter would cost a tenth of a small commit.
_BLOCK = 1000


def next_numbers(db: apsw.Cursor, name: str, count: int) -> range:
    """Take the next `count` numbers from a counter in the file."""
    ((last,),) = fetch_all(db, SQL["next_numbers"], name, count)
    return range(last - count + 1, last + 1)


class TaskSequence:
    """Takes numbers from a block. A write by another connection ends the block, since its numbers are higher."""

    def __init__(self) -> None:
        self._left: Iterator[int] = iter(())
        self._left_count = 0
        self._version = 0

    def take(self, db: apsw.Cursor, count: int) -> list[int]:
        """Take the next numbers, inside a write transaction."""
        if not count:
            return []
        if db.connection.data_version() != self._version or count > self._left_count:
            self._left_count = max(count, _BLOCK)
            self._left = iter(next_numbers(db, "ticket", self._left_count))
        self._left_count -= count
        return list(islice(self._left, count))

    def written(self, connection: apsw.Connection) -> None:
        """Note that our transaction is written: if the version changes until the next one, another connection wrote."""
        self._version = connection.data_version()

    def forget(self) -> None:
        """Drop the block: the transaction was rolled back, perhaps with the reservation."""
        self._left_count = 0
