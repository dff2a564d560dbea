"""`sink`: store the result of a step, by any tool, or as rows of a table."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from mulligan.formats.noetl.runtime.answers import to_json
from mulligan.formats.noetl.runtime.call import Call
from mulligan.formats.noetl.runtime.credentials import invalid_input
from mulligan.formats.noetl.runtime.placeholders import refuse_values
from mulligan.formats.noetl.runtime.sql_text import Query
from mulligan.formats.noetl.runtime.templates import render_text, render_value
from mulligan.formats.noetl.runtime.tools import sql_tools
from mulligan.formats.noetl.runtime.tools.tools import call_tool

_TABLES = ("postgres", "duckdb")
_DATA = ("data", "args", "input")
_EVENT_LOG = "event_log"
_MODES = ("insert", "append", "upsert", "replace")


def write_sinks(sinks: Any, call: Call) -> None:
    """Write to each sink. StepError where one fails, and with it the step."""
    # The result is also `data` there, as long as nothing else has that name.
    names = call.names if "data" in call.names else {**call.names, "data": call.names.get("result")}
    for sink in sinks if isinstance(sinks, list) else [sinks]:
        _write_sink(_tool(sink), replace(call, names=names))


def _write_sink(tool: dict[str, Any], call: Call) -> None:
    data = next((tool[key] for key in _DATA if tool.get(key) is not None), None)
    if tool["kind"] == _EVENT_LOG:
        # Results are in the log of the run anyway. Other data is printed, so that the log has it.
        if data is not None:
            print(json.dumps(to_json(render_value(data, call.names)), ensure_ascii=False))
        return
    if "table" not in tool:
        call_tool(tool, call)
        return
    if tool["kind"] not in _TABLES:
        raise invalid_input(f"the sink '{tool['kind']}' has no tables")

    def write() -> None:
        if rows := _rows("{{ result }}" if data is None else data, call):
            sql_tools.run_query(tool, call, *_statements(tool, rows, call))

    if call.parts is None:
        write()
    else:
        call.parts.run(tool, write)


def _tool(sink: dict[str, Any]) -> dict[str, Any]:
    """The tool of a sink, in any of its forms."""
    tool = sink.get("tool")
    inner = dict(tool) if isinstance(tool, dict) else {}
    kind = inner.get("kind") or (tool if isinstance(tool, str) else None) or sink.get("kind") or sink.get("backend")
    if not isinstance(kind, str):
        raise invalid_input("the sink has no 'tool'")
    outer = {key: value for key, value in sink.items() if key not in ("tool", "backend")}
    return {**outer, **inner, "kind": kind}


def _rows(data: Any, call: Call) -> list[dict[str, Any]]:
    found = render_value(data, call.names)
    rows = found if isinstance(found, list) else [found]
    if not all(isinstance(row, dict) and row for row in rows):
        raise invalid_input("the data for a table must be a mapping of columns to values, or a list of such mappings")
    return rows


def _table(tool: dict[str, Any], call: Call) -> str:
    """The name of the table, which must come from the file."""
    table = str(tool["table"])
    if not call.trusts_templates:
        refuse_values(table, call.names, "names a table", "write its name in the file")
    return render_text(table, call.names)


def _statements(tool: dict[str, Any], rows: list[dict[str, Any]], call: Call) -> tuple[Query, dict[str, Any]]:
    """One insert per row, with bound values, all in one transaction."""
    table, mode = _table(tool, call), str(tool.get("mode") or "insert")
    if mode not in _MODES:
        raise invalid_input(f"'{mode}' is not a mode of a sink: use one of {', '.join(_MODES)}")
    key = tool.get("key") or []
    keys = [] if mode != "upsert" else [key] if isinstance(key, str) else list(key)
    if mode == "upsert" and not keys:
        raise invalid_input("a sink with 'mode: upsert' has no 'key'")
    texts = [f"delete from {_quoted(table)}"] if mode == "replace" else []
    params: dict[str, Any] = {}
    for number, row in enumerate(rows):
        names = {column: f"r{number}_{at}" for at, column in enumerate(row)}
        columns, spots = ", ".join(map(_name, row)), ", ".join(f":{name}" for name in names.values())
        texts.append(f"insert into {_quoted(table)} ({columns}) values ({spots}){_conflict(row, keys)}")
        params |= {name: row[column] for column, name in names.items()}
    return Query(";\n".join(texts), {}), params


def _conflict(row: dict[str, Any], keys: list[str]) -> str:
    if not keys:
        return ""
    others = [f"{_name(column)} = excluded.{_name(column)}" for column in row if column not in keys]
    resolution = f"do update set {', '.join(others)}" if others else "do nothing"
    return f" on conflict ({', '.join(map(_name, keys))}) {resolution}"


def _quoted(table: str) -> str:
    return ".".join(map(_name, table.split(".")))


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
