"""`postgres` and `duckdb`: run statements as one transaction. The result is {rows, row_count, columns}."""

from __future__ import annotations

import fcntl
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mulligan import StepError
from mulligan.formats.noetl.runtime import credentials
from mulligan.formats.noetl.runtime.call import Call
from mulligan.formats.noetl.runtime.credentials import database_address, invalid_input
from mulligan.formats.noetl.runtime.placeholders import mark_values
from mulligan.formats.noetl.runtime.scripts import decode_base64, script_text
from mulligan.formats.noetl.runtime.sql_text import Query, bind_query
from mulligan.formats.noetl.runtime.templates import render_text, render_value
from mulligan.worker.actions import sql
from mulligan.worker.databases.address import Address, read_address
from mulligan.worker.databases.parameters import bind_parameters
from mulligan.worker.databases.statements import Dialect, Statement, statements

_TEXTS = ("command", "commands", "query", "queries", "sql", "cmd", "cmds")
# Without `database` the steps of a run share this file, as in NoETL.
_SHARED_FILE = "noetl.duckdb"


def run(tool: dict[str, Any], call: Call) -> Any:
    """The result of the last statement, and those of all. StepError where one of them fails."""
    return run_query(tool, call, _query(tool, call), render_value(tool.get("params"), call.names))


def run_query(tool: dict[str, Any], call: Call, query: Query, params: Any) -> Any:
    """Run a query whose templates are rendered, at the database of the tool."""
    address = read_address(_ADDRESSES[tool["kind"]](tool, call))
    try:
        with _locked(address.location):
            return _result(_execute(address, query, params))
    except StepError as error:
        redacted = sql.redact_error(error, address)
        print(redacted.message, file=sys.stderr)
        raise redacted from None


def _postgres(tool: dict[str, Any], call: Call) -> str:
    auth = render_value(tool.get("auth"), call.names)
    if not auth:
        raise invalid_input("the tool 'postgres' has no 'auth', which names the credential of its database")
    address = database_address(credentials.find_credential(auth, call.credentials))
    if not address.startswith(("postgresql://", "postgres://")):
        raise invalid_input(
            "the credential of a 'postgres' tool must be an address such as postgresql://…, or its fields"
        )
    return address


def _duckdb(tool: dict[str, Any], call: Call) -> str:
    if tool.get("auth") or tool.get("credentials"):
        raise invalid_input("the tool 'duckdb' does not use credentials: write 'attach' in its command")
    database = render_text(str(tool.get("database") or ""), call.names)
    place = database or os.path.join(os.environ.get("MULLIGAN_OUTPUT_DIR", "."), _SHARED_FILE)
    return f"duckdb:///{place}"


_DIALECTS = {"postgres": Dialect.POSTGRES, "duckdb": Dialect.DUCKDB}
_ADDRESSES = {"postgres": _postgres, "duckdb": _duckdb}


@contextmanager
def _locked(place: str) -> Iterator[None]:
    """Lock the shared file: DuckDB allows one process at a time. The lock ends with its process."""
    if os.path.basename(place) != _SHARED_FILE:
        yield
        return
    with open(f"{place}.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _query(tool: dict[str, Any], call: Call) -> Query:
    """All commands as one query, with the values of templates bound."""
    texts = _texts(tool, call)
    if call.trusts_templates:
        return Query(";\n".join(render_text(text, call.names) for text in texts), {})
    found: list[Query] = []
    count = 0
    for text in texts:
        with_marks = mark_values(text, call.names, first=count, is_query=True)
        count += len(with_marks.placeholders)
        found.append(bind_query(with_marks, _DIALECTS[tool["kind"]]))
    values = {name: value for query in found for name, value in query.values.items()}
    return Query(";\n".join(query.text for query in found), values)


def _texts(tool: dict[str, Any], call: Call) -> list[str]:
    if "script" in tool:
        return [script_text(tool["script"], call)]
    for key in _TEXTS:
        if f"{key}_b64" in tool:
            return [decode_base64(tool[f"{key}_b64"], f"{key}_b64")]
        if key in tool:
            texts = tool[key] if isinstance(tool[key], list) else [tool[key]]
            return [str(text).strip().rstrip(";") for text in texts]
    raise invalid_input(f"the tool '{tool.get('kind')}' has no 'command'")


def _execute(address: Address, query: Query, params: Any) -> list[dict[str, Any]]:
    """Run all statements in one transaction. Only `params` and values of templates are bound."""
    database = sql.database_of(address.kind)
    found = statements(query.text, database.DIALECT)
    sql.check_statements(found)
    own = [[spot for spot in statement.placeholders if spot.name in query.values] for statement in found]
    for statement in found:
        # Without `params` a ':name' is text of the query.
        others = [spot for spot in statement.placeholders if spot.name not in query.values]
        statement.placeholders = [] if params is None else others
    values = {**bind_parameters(found, params, database.DIALECT), **query.values}
    for statement, spots in zip(found, own, strict=True):
        statement.placeholders = sorted([*statement.placeholders, *spots], key=lambda spot: spot.start)
    with database.open_session(address.location, False) as session:
        given = [_run_statement(session, statement, values) for statement in found]
        session.commit()
    return given


def _run_statement(session: sql.Session, statement: Statement, values: dict[str, Any]) -> dict[str, Any]:
    before = session.changed
    rows = session.execute(statement, values, True)
    if rows is None:
        return {"status": "success", "row_count": session.changed - before}
    found = json.loads(rows)
    columns = list(found[0]) if found else []
    return {"status": "success", "rows": found, "row_count": len(found), "columns": columns}


def _result(given: list[dict[str, Any]]) -> dict[str, Any]:
    """The last result, and all of them as NoETL numbers them: playbooks read both."""
    return {**given[-1], **{f"command_{at}": found for at, found in enumerate(given)}}
