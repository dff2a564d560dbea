"""The steps of `workflows/benchmark.yaml` that are about what is expected, before anything is asked."""

from __future__ import annotations

from typing import Any

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from mulligan import StepError
from mulligan_nl2sql.policed_databases import find_database
from mulligan_nl2sql.steps import execute

_PROBLEMS_SHOWN_MAX = 5


def execute_expected(
    sql: str, url: str, database: str, policy: str, index: list[dict[str, Any] | None]
) -> dict[str, Any]:
    """The rows of an expected statement, as a file; and whether it orders them. It is checked like any other."""
    result = execute(sql, url, None, policy, database, index)
    if result["cut"]:
        raise StepError(
            "EXPECTED_ROWS_CUT",
            f"its limit of {result['cut']} has cut the rows that are expected: raise it in the policy",
            retryable=False,
        )
    return {**result, "ordered": _orders(sql, find_database(url, policy, database)[0].dialect)}


def verify(expectations: list[dict[str, Any]], failures: list[dict[str, Any]]) -> None:
    """Fail if a statement that is expected cannot be executed: nothing that is asked could be compared with it."""
    if not failures:
        return
    shown = [f"{_place(one['item'])}: {one['code']}: {one['message']}" for one in failures[:_PROBLEMS_SHOWN_MAX]]
    more = [f"and {len(failures) - len(shown)} more"] if len(failures) > len(shown) else []
    raise StepError("BENCHMARK_INVALID", "; ".join([*shown, *more]), retryable=False)


def _place(expectation: dict[str, Any]) -> str:
    line = f":{expectation['line']}" if expectation["line"] else ""
    return f"{expectation['file']}{line}: case {expectation['case'] + 1}"


def _orders(sql: str, dialect: str) -> bool:
    try:
        tree = parse_one(sql, dialect=dialect)
    except SqlglotError:
        return False
    return isinstance(tree, exp.Query) and tree.args.get("order") is not None
