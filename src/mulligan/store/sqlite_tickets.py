"""TicketSequence: ages of queued tasks and tokens of leases. They grow with every one that is handed out."""

from __future__ import annotations

from collections.abc import Iterator

import apsw

from mulligan.store.sqlite_file import fetch_all
from mulligan.store.statements import statements

SQL = statements("sqlite")

# So many are reserved at once while nobody else writes: the counter's page would cost a tenth of a small commit.
_BLOCK = 1000


def next_numbers(db: apsw.Cursor, name: str, count: int) -> range:
    """The next `count` numbers of a counter that is kept in the file."""
    ((last,),) = fetch_all(db, SQL["next_numbers"], name, count)
    return range(last - count + 1, last + 1)


class TicketSequence:
    """Hands out numbers from a block. What another connection writes ends the block: its numbers are higher."""

    def __init__(self) -> None:
        self._left: Iterator[int] = iter(())
        self._left_count = 0
        self._version = 0

    def take(self, db: apsw.Cursor, count: int) -> list[int]:
        """The next numbers, inside a transaction that writes."""
        if not count:
            return []
        if db.connection.data_version() != self._version or count > self._left_count:
            self._left_count = max(count, _BLOCK)
            self._left = iter(next_numbers(db, "ticket", self._left_count))
        self._left_count -= count
        return [next(self._left) for _ in range(count)]

    def written(self, connection: apsw.Connection) -> None:
        """Our own transaction is written: a version that differs at the start of the next one is somebody else's."""
        self._version = connection.data_version()

    def forget(self) -> None:
        """The transaction was taken back, and perhaps the reservation with it."""
        self._left_count = 0
