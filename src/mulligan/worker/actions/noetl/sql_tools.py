"""`postgres` and `duckdb`: the statements of a tool as one transaction. Its result is {rows, row_count, columns}."""

from __future__ import annotations

import fcntl
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mulligan import StepError
from mulligan.worker.actions import sql
from mulligan.worker.actions.noetl import credentials
from mulligan.worker.actions.noetl.call import Call
from mulligan.worker.actions.noetl.credentials import database_address, refused
from mulligan.worker.actions.noetl.placeholders import marked
from mulligan.worker.actions.noetl.scripts import decoded, script_text
from mulligan.worker.actions.noetl.sql_text import Query, bound
from mulligan.worker.actions.noetl.templates import filled, filled_text
from mulligan.worker.databases.address import Address, read_address
from mulligan.worker.databases.parameters import bind_parameters
from mulligan.worker.databases.statements import Dialect, Statement, statements

_TEXTS = ("command", "commands", "query", "queries", "sql", "cmd", "cmds")
# Where a playbook says nothing, its steps share a file, as in NoETL.
_SHARED_FILE = "noetl.duckdb"


def run(tool: dict[str, Any], call: Call) -> Any:
    """What the last statement gave, and the others beside it. StepError where one of them fails."""
    return ran(tool, call, _query(tool, call), filled(tool.get("params"), call.names))


def ran(tool: dict[str, Any], call: Call, query: Query, params: Any) -> Any:
    """The same for a query that is ready, at the database of the tool."""
    address = read_address(_ADDRESSES[tool["kind"]](tool, call))
    try:
        with _turn(address.location):
            return _result(_executed(address, query, params))
    except StepError as error:
        veiled = sql.redact_error(error, address)
        print(veiled.message, file=sys.stderr)
        raise veiled from None


def _postgres(tool: dict[str, Any], call: Call) -> str:
    auth = filled(tool.get("auth"), call.names)
    if not auth:
        raise refused("the tool 'postgres' has no 'auth', which names the credential of its database")
    address = database_address(credentials.named(auth, call.credentials))
    if not address.startswith(("postgresql://", "postgres://")):
        raise refused("the credential of a 'postgres' tool is an address such as postgresql://…, or its fields")
    return address


def _duckdb(tool: dict[str, Any], call: Call) -> str:
    if tool.get("auth") or tool.get("credentials"):
        raise refused("the tool 'duckdb' attaches nothing by itself: write 'attach' in its command")
    said = filled_text(str(tool.get("database") or ""), call.names)
    place = said or os.path.join(os.environ.get("MULLIGAN_OUTPUT_DIR", "."), _SHARED_FILE)
    return f"duckdb:///{place}"


_DIALECTS = {"postgres": Dialect.POSTGRES, "duckdb": Dialect.DUCKDB}
_ADDRESSES = {"postgres": _postgres, "duckdb": _duckdb}


@contextmanager
def _turn(place: str) -> Iterator[None]:
    """The shared file is one process's at a time: steps that run side by side take turns. Whoever dies is done."""
    if os.path.basename(place) != _SHARED_FILE:
        yield
        return
    with open(f"{place}.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _query(tool: dict[str, Any], call: Call) -> Query:
    """All commands as one query. No value of its templates is text of it."""
    texts = _texts(tool, call)
    if call.trusts_templates:
        return Query(";\n".join(filled_text(text, call.names) for text in texts), {})
    found: list[Query] = []
    count = 0
    for text in texts:
        with_marks = marked(text, call.names, first=count, is_query=True)
        count += len(with_marks.placeholders)
        found.append(bound(with_marks, _DIALECTS[tool["kind"]]))
    values = {name: value for query in found for name, value in query.values.items()}
    return Query(";\n".join(query.text for query in found), values)


def _texts(tool: dict[str, Any], call: Call) -> list[str]:
    if "script" in tool:
        return [script_text(tool["script"], call)]
    for key in _TEXTS:
        if f"{key}_b64" in tool:
            return [decoded(tool[f"{key}_b64"], f"{key}_b64")]
        if key in tool:
            said = tool[key] if isinstance(tool[key], list) else [tool[key]]
            return [str(text).strip().rstrip(";") for text in said]
    raise refused(f"the tool '{tool.get('kind')}' has no 'command'")


def _executed(address: Address, query: Query, params: Any) -> list[dict[str, Any]]:
    """What each statement gave. All of it is kept, or nothing. Only `params` and values of templates are bound."""
    database = sql.database_of(address.kind)
    found = statements(query.text, database.DIALECT)
    sql.check_statements(found)
    own = [[spot for spot in statement.placeholders if spot.name in query.values] for statement in found]
    for statement in found:
        # Without `params` a ':name' is the query's own.
        others = [spot for spot in statement.placeholders if spot.name not in query.values]
        statement.placeholders = [] if params is None else others
    values = {**bind_parameters(found, params, database.DIALECT), **query.values}
    for statement, spots in zip(found, own, strict=True):
        statement.placeholders = sorted([*statement.placeholders, *spots], key=lambda spot: spot.start)
    with database.open_session(address.location, False) as session:
        given = [_given(session, statement, values) for statement in found]
        session.commit()
    return given


def _given(session: sql.Session, statement: Statement, values: dict[str, Any]) -> dict[str, Any]:
    before = session.changed
    rows = session.execute(statement, values, True)
    if rows is None:
        return {"status": "success", "row_count": session.changed - before}
    found = json.loads(rows)
    columns = list(found[0]) if found else []
    return {"status": "success", "rows": found, "row_count": len(found), "columns": columns}


def _result(given: list[dict[str, Any]]) -> dict[str, Any]:
    """The last one, and beside it all of them as NoETL numbers them: code looks for its rows here and there."""
    return {**given[-1], **{f"command_{at}": found for at, found in enumerate(given)}}
