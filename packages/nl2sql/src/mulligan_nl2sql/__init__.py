"""Ask a database with SQL that is checked before it runs: SQLite, DuckDB and PostgreSQL.

    database = parse_url("sqlite:///shop.db")
    policy = Policy(hidden=("customers.email",))
    schema = read_schema(database, policy)
    query = check("select city, count(*) from customers group by city", schema, policy.limits)
    result = execute(database, query.sql, schema, policy, file=Path("rows.jsonl"))

Every failure is a `QueryFailed`: a code, a severity, whether a retry helps, the node of the tree and its position.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from mulligan_nl2sql.checking.check import CheckedQuery, check
    from mulligan_nl2sql.database_urls import Database, parse_url
    from mulligan_nl2sql.execution.queries import Result, execute, explain
    from mulligan_nl2sql.execution.schema_reading import read_schema
    from mulligan_nl2sql.failures import Code, Position, QueryFailed
    from mulligan_nl2sql.limits import Limits
    from mulligan_nl2sql.policy import Policies, Policy, read_policies
    from mulligan_nl2sql.schema import Schema

__version__ = "0.2.0"

# Each public name and its module, imported on first use: the process of a query needs no parser of SQL.
_LAZY = {
    "CheckedQuery": "mulligan_nl2sql.checking.check",
    "Code": "mulligan_nl2sql.failures",
    "Database": "mulligan_nl2sql.database_urls",
    "Limits": "mulligan_nl2sql.limits",
    "Policies": "mulligan_nl2sql.policy",
    "Policy": "mulligan_nl2sql.policy",
    "Position": "mulligan_nl2sql.failures",
    "QueryFailed": "mulligan_nl2sql.failures",
    "Result": "mulligan_nl2sql.execution.queries",
    "Schema": "mulligan_nl2sql.schema",
    "check": "mulligan_nl2sql.checking.check",
    "execute": "mulligan_nl2sql.execution.queries",
    "explain": "mulligan_nl2sql.execution.queries",
    "parse_url": "mulligan_nl2sql.database_urls",
    "read_policies": "mulligan_nl2sql.policy",
    "read_schema": "mulligan_nl2sql.execution.schema_reading",
}

__all__ = [
    "CheckedQuery",
    "Code",
    "Database",
    "Limits",
    "Policies",
    "Policy",
    "Position",
    "QueryFailed",
    "Result",
    "Schema",
    "__version__",
    "check",
    "execute",
    "explain",
    "parse_url",
    "read_policies",
    "read_schema",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(__import__(_LAZY[name], fromlist=[name]), name)
    raise AttributeError(f"module 'mulligan_nl2sql' has no attribute '{name}'")


def __dir__() -> list[str]:
    return list(__all__)
