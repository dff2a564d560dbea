"""What the shared parts of the SQLite and the PostgreSQL store ask of their database."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from mulligan.ports import TableSize
from mulligan.store.sql.sql_arrays import Columns

Result = TypeVar("Result")
# The name of a statement and its parameters: in order, or by their names.
Statement = tuple[str, Any]


class SqlDatabase(Protocol):
    """Executes statements by name. A parameter may be an `Array`."""

    def close(self) -> None: ...

    def query(self, name: str, /, *params: Any, **named: Any) -> list[Any]:
        """The rows of one statement, in its own transaction."""

    def execute(self, name: str, /, *params: Any, **named: Any) -> list[Any]:
        """The rows of one statement, inside the current transaction."""

    def execute_rows(self, name: str, /, columns: Columns, rows: Iterable[Sequence[Any]]) -> int:
        """Write these rows, inside the current transaction; how many were written, if the statement returns them."""

    def execute_batch(self, asked: Sequence[Statement]) -> list[list[Any]]:
        """The rows of each statement, in one transaction."""

    def write(self, work: Callable[[], Result]) -> Result:
        """Run `work`, which executes statements, in one transaction."""

    def write_rows(self, name: str, columns: Columns, rows: Iterable[Sequence[Any]]) -> int:
        """Write these rows in a transaction of their own; how many were written, if the statement returns them."""

    def lock(self, what: str) -> None:
        """Wait until no other transaction has locked the same, and lock it until the end of the current one."""

    def table_sizes(self) -> list[TableSize]: ...
