"""What the process of a query needs of a database."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from mulligan_nl2sql.execution.messages import Finding
from mulligan_nl2sql.limits import Limits
from mulligan_nl2sql.policy import Policy
from mulligan_nl2sql.schema import Schema


class Connection(Protocol):
    """A connection that can only read. Each call raises QueryFailed."""

    def read_schema(self, policy: Policy, limits: Limits) -> Schema:
        """The whole schema, with some values of the columns that the policy lets be read, and of no others."""

    def cost(self, sql: str) -> float:
        """What the database expects of the statement, without executing it: see `Limits.cost`."""

    def rows(self, sql: str) -> Iterable[Sequence[Any]]:
        """Execute the statement."""

    def findings(self, policy: Policy) -> list[Finding]:
        """What stands between a statement and the data, and what is missing."""

    def close(self) -> None: ...
