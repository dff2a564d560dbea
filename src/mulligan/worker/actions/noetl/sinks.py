"""`sink`: what a step gave is put somewhere before it goes on: by any tool, or as rows of a table."""

from __future__ import annotations

from typing import Any

from mulligan.worker.actions.noetl import sql_tools
from mulligan.worker.actions.noetl.call import Call
from mulligan.worker.actions.noetl.credentials import refused
from mulligan.worker.actions.noetl.placeholders import marked
from mulligan.worker.actions.noetl.sql_text import Query
from mulligan.worker.actions.noetl.templates import filled, filled_text
from mulligan.worker.actions.noetl.tools import call_tool

_TABLES = ("postgres", "duckdb")
_MODES = ("insert", "append", "upsert", "replace")


def put(said: Any, call: Call) -> None:
    """Put it there, or there and there. StepError where that fails, and with it the step."""
    for sink in said if isinstance(said, list) else [said]:
        _put(_tool(sink), call)


def _put(tool: dict[str, Any], call: Call) -> None:
    if "table" not in tool:
        call_tool(tool, call)
        return
    if tool["kind"] not in _TABLES:
        raise refused(f"the sink '{tool['kind']}' has no tables")
    rows = _rows(tool, call)
    if rows:
        sql_tools.ran(tool, call, *_statements(tool, rows, call))


def _tool(sink: dict[str, Any]) -> dict[str, Any]:
    """The tool of a sink, in any of the ways in which it is written."""
    said = sink.get("tool")
    inner = dict(said) if isinstance(said, dict) else {}
    kind = inner.get("kind") or (said if isinstance(said, str) else None) or sink.get("kind") or sink.get("backend")
    if not isinstance(kind, str):
        raise refused("the sink has no 'tool'")
    outer = {key: value for key, value in sink.items() if key not in ("tool", "backend")}
    return {**outer, **inner, "kind": kind}


def _rows(tool: dict[str, Any], call: Call) -> list[dict[str, Any]]:
    said = next((tool[key] for key in ("data", "args", "input") if tool.get(key) is not None), "{{ result }}")
    found = filled(said, call.names)
    rows = found if isinstance(found, list) else [found]
    if not all(isinstance(row, dict) and row for row in rows):
        raise refused("what goes into a table is a mapping of columns to values, or a list of them")
    return rows


def _table(tool: dict[str, Any], call: Call) -> str:
    """The name of the table. Which one it is the file says, not a value."""
    said = str(tool["table"])
    if not call.trusts_templates:
        for placeholder in marked(said, call.names).placeholders.values():
            raise placeholder.refused("names a table", "write its name in the file")
    return filled_text(said, call.names)


def _statements(tool: dict[str, Any], rows: list[dict[str, Any]], call: Call) -> tuple[Query, dict[str, Any]]:
    """One insert per row, its values bound; together they are one transaction."""
    table, mode = _table(tool, call), str(tool.get("mode") or "insert")
    if mode not in _MODES:
        raise refused(f"a sink has no mode '{mode}': there are {', '.join(_MODES)}")
    keys = _keys(tool, mode)
    texts = [f"delete from {_quoted(table)}"] if mode == "replace" else []
    params: dict[str, Any] = {}
    for number, row in enumerate(rows):
        names = {column: f"r{number}_{at}" for at, column in enumerate(row)}
        columns, spots = ", ".join(map(_name, row)), ", ".join(f":{name}" for name in names.values())
        texts.append(f"insert into {_quoted(table)} ({columns}) values ({spots}){_conflict(row, keys)}")
        params |= {name: row[column] for column, name in names.items()}
    return Query(";\n".join(texts), {}), params


def _keys(tool: dict[str, Any], mode: str) -> list[str]:
    said = tool.get("key") or []
    keys = [said] if isinstance(said, str) else list(said)
    if mode == "upsert" and not keys:
        raise refused("a sink with 'mode: upsert' has no 'key'")
    return keys if mode == "upsert" else []


def _conflict(row: dict[str, Any], keys: list[str]) -> str:
    if not keys:
        return ""
    others = [f"{_name(column)} = excluded.{_name(column)}" for column in row if column not in keys]
    deed = f"do update set {', '.join(others)}" if others else "do nothing"
    return f" on conflict ({', '.join(map(_name, keys))}) {deed}"


def _quoted(table: str) -> str:
    return ".".join(map(_name, table.split(".")))


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
