"""What a workflow calls: the schema, the plan of a question, the check and the execution of one statement.

    - step: schema
      python: {call: "mulligan_nl2sql.steps:schema"}
      args: {url: "${inputs.url}", policy: "${inputs.policy}"}
    - step: rows
      needs: [schema]
      python: {call: "mulligan_nl2sql.steps:execute"}
      args: {sql: "${inputs.sql}", url: "${inputs.url}", policy: "${inputs.policy}", schema: "${steps.schema.output}"}

`policy` is the path of a policy file; without one, every table of the search path may be read. In place of a `schema`,
a step takes the `index` that `question_steps:index` has read, in which `database` is looked up. A step that refuses
fails with its code (see `mulligan_nl2sql.failures`), its severity, and in `details` the stage, node, position and
`repair`. `workflows/scan.yaml` has all of them, with retries, breakers and repairs.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import msgspec

from mulligan import StepError, artifact
from mulligan_nl2sql.checking.check import check as check_statement
from mulligan_nl2sql.execution import queries
from mulligan_nl2sql.execution.schema_reading import read_schema
from mulligan_nl2sql.failures import RULES, Code, QueryFailed, Stage
from mulligan_nl2sql.planning.failures import REFUSED
from mulligan_nl2sql.planning.find_planner import DEFAULT, find_planner
from mulligan_nl2sql.planning.planner import FailedSql, PlanRequest, Refusal
from mulligan_nl2sql.planning.providers.agent import write_prompt
from mulligan_nl2sql.planning.providers.cassette import CassettePlanner
from mulligan_nl2sql.policed_databases import find_database
from mulligan_nl2sql.schema import Schema

ROWS = "rows.jsonl"
# What `question_steps:index` and `question_steps:kept` have returned; None for a database that could not be read.
Index = Sequence[Any] | None


def schema(url: str, policy: str = "", database: str = "") -> dict[str, Any]:
    """What may be read of the database. A planner is shown `tables`, and never `hidden`."""
    found, rules = find_database(url, policy, database)
    result: dict[str, Any] = msgspec.to_builtins(read_schema(found, rules))
    return result


def plan(
    question: str,
    schema: dict[str, Any] | None,
    today: str,
    planner: str = DEFAULT,
    failed: list[dict[str, Any]] | None = None,
    index: Index = None,
    database: str = "",
    reply: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Ask a planner for SQL. `failed` is what `refine` returned: the statements so far, and how each has failed.

    A planner that is an agent was asked by the step before, and `reply` is its output. A refusal fails with
    QUESTION_REFUSED. SQL that has failed already fails at once in the same way: the planner has nothing better.
    """
    request = _request(question, schema, today, failed, index, database)
    earlier = request.failed
    answer = find_planner(planner, os.environ, reply).plan(request)
    described: dict[str, Any] = msgspec.to_builtins(answer)
    del described["type"]
    if isinstance(answer, Refusal):
        del described["message"]
        raise StepError(REFUSED, answer.message, retryable=False, details=described)
    for one in earlier:
        if _plain(one.sql) == _plain(answer.sql):
            raise _failed_again(one, _usage(described))
    return {**described, "failed": failed or []}


def prompt(
    question: str,
    schema: dict[str, Any] | None,
    today: str,
    planner: str,
    failed: list[dict[str, Any]] | None = None,
    index: Index = None,
    database: str = "",
) -> dict[str, Any]:
    """What an agent is asked for SQL, and whether it is: a cassette may know the answer."""
    request = _request(question, schema, today, failed, index, database)
    asked = find_planner(planner, os.environ)
    is_known = isinstance(asked, CassettePlanner) and asked.knows(request)
    return {"text": write_prompt(request), "is_asked": not is_known}


def refine(
    plan: dict[str, Any], code: str, message: str = "", details: dict[str, Any] | None = None, was_kept: bool = False
) -> list[dict[str, Any]]:
    """Return the statements that have failed, with this one: what the planner must know to write a better one.

    `was_kept`: the schema was an old one, and is read again. Then the failure says nothing about the same statement.
    """
    repair = str((details or {}).get("repair", ""))
    latest = FailedSql(plan["sql"], code, message, repair)
    return [
        *plan["failed"],
        {**msgspec.to_builtins(latest), **_usage(plan), **({"was_kept": True} if was_kept else {})},
    ]


def check(
    sql: str,
    url: str,
    schema: dict[str, Any] | None,
    policy: str = "",
    database: str = "",
    index: Index = None,
) -> dict[str, Any]:
    """Check a statement. The result has the SQL that would be executed, its tables, and a fingerprint."""
    _, rules = find_database(url, policy, database)
    query = check_statement(sql, _schema(schema, index, database), rules.limits, functions=rules.functions)
    result: dict[str, Any] = msgspec.to_builtins(query)
    return result


def explain(
    sql: str,
    url: str,
    schema: dict[str, Any] | None,
    policy: str = "",
    database: str = "",
    index: Index = None,
) -> float:
    """Return what a statement is expected to cost. It is checked first, and not executed."""
    found, rules = find_database(url, policy, database)
    return queries.explain(found, sql, _schema(schema, index, database), rules)


def execute(
    sql: str,
    url: str,
    schema: dict[str, Any] | None,
    policy: str = "",
    database: str = "",
    index: Index = None,
) -> dict[str, Any]:
    """Check, bound and execute a statement. The rows are kept with the run, as a file of JSON lines."""
    found, rules = find_database(url, policy, database)
    with tempfile.TemporaryDirectory(prefix="nl2sql-") as folder:
        done = queries.execute(found, sql, _schema(schema, index, database), rules, file=Path(folder) / ROWS)
        kept = artifact(done.path, ROWS)
    described: dict[str, Any] = msgspec.to_builtins(done)
    del described["path"]
    return {**described, "file": kept}


def _usage(described: dict[str, Any]) -> dict[str, Any]:
    """What an answer took, for the receipt."""
    return {"usage": described["usage"]} if described.get("usage") else {}


def _failed_again(failed: FailedSql, usage: dict[str, Any]) -> StepError:
    rule = RULES[Code(failed.code)]
    return StepError(
        failed.code,
        f"{failed.message} (the planner has nothing better: it wrote the same SQL again)",
        severity=rule.severity,
        retryable=False,
        details={"sql": failed.sql, "repair": failed.repair, "same_sql": True, **usage},
    )


def _plain(sql: str) -> str:
    """A statement without what makes no difference at its ends and between its words."""
    return " ".join(sql.split()).rstrip("; ")


def _request(
    question: str,
    schema: dict[str, Any] | None,
    today: str,
    failed: list[dict[str, Any]] | None,
    index: Index,
    database: str,
) -> PlanRequest:
    against_this_schema = [one for one in failed or [] if not one.get("was_kept")]
    earlier = msgspec.convert(against_this_schema, tuple[FailedSql, ...])
    return PlanRequest(question, _schema(schema, index, database), date.fromisoformat(today), earlier)


def _schema(given: dict[str, Any] | None, index: Index, database: str) -> Schema:
    """The schema that was read; without one, that of the database in the index."""
    if given is None:
        given = next((one["schema"] for one in _entries(index) if one["database"] == database), None)
    if given is None:
        raise QueryFailed(Code.UNUSABLE, f"the schema of '{database}' was not read", stage=Stage.CHECK)
    return msgspec.convert(given, Schema)


def _entries(index: Index) -> Iterator[dict[str, Any]]:
    """What was read of each database, in lists of lists, or as `question_steps:kept` returns it."""
    for part in index or []:
        if isinstance(part, list):
            yield from _entries(part)
        elif part is not None and "databases" in part:
            yield from part["databases"]
        elif part is not None:
            yield part
