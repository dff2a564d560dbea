"""Call a tool for each page, and collect the results.

`pages` of a tool is a list of {when, next_call, collect, sink, set, max_attempts}, evaluated after each call. The first
whose condition holds says what to collect and, with `next_call`, how to call the tool for the next page.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

from mulligan.formats.noetl.runtime.answers import MISSING, look_up, mark_answer
from mulligan.formats.noetl.runtime.call import Call
from mulligan.formats.noetl.runtime.context import Context
from mulligan.formats.noetl.runtime.credentials import invalid_input
from mulligan.formats.noetl.runtime.templates import Names, holds, is_template, render_value
from mulligan.formats.noetl.runtime.tools.sinks import write_sinks
from mulligan.formats.noetl.runtime.tools.tools import call_tool

# As in NoETL, whatever the playbook says.
PAGES_MAX = 100
# The keys of a tool that the next call may change. Mappings are merged.
_MERGED = ("params", "headers", "data", "body", "payload", "args", "input")
_REPLACED = ("url", "endpoint", "method", "command", "query")
CHANGEABLE = (*_MERGED, *_REPLACED)
# How pages are combined, in the words of all dialects.
_STRATEGIES = ("append", "extend", "concat", "merge", "replace")


class Paged(dict[str, Any]):
    """The collected result, and the last page, which cases see as the response."""

    def __init__(self, collected: dict[str, Any], last: Any) -> None:
        super().__init__(collected)
        self.last = last


def call_all_pages(tool: dict[str, Any], call: Call, context: Context) -> Any:
    """The result of the last call, with what was collected. StepError where one of the calls fails."""
    rules, collected = tool["pages"], _Collected()
    current = tool
    for number in range(1, PAGES_MAX + 1):
        result = call_tool(current, call)
        # The context has what was set after the previous page.
        names = {**call.names, **context.names(), **collected.names, **_now(result, number, context)}
        rule: dict[str, Any] = next((rule for rule in rules if holds(rule.get("when", True), names)), {})
        kept = rule or _only_one(rules)
        collected.take(kept.get("collect"), result, names)
        if "sink" in kept:
            write_sinks(kept["sink"], replace(call, names=names))
        following = rule.get("next_call")
        if following is None or number >= int(rule.get("max_attempts") or PAGES_MAX):
            _note_end(following, number)
            break
        context.set(rule.get("set"), names)
        current, call = _with_changes(tool, following), replace(call, names={**call.names, **names})
    found = collected.in_result(result)
    return Paged(found, result) if tool.get("are_of_cases") and isinstance(found, dict) else found


def _note_end(following: Any, number: int) -> None:
    if following is not None:
        print(f"there are more pages than {number}; the others are not requested", file=sys.stderr)


def _now(result: Any, number: int, context: Context) -> dict[str, Any]:
    found, count = mark_answer(result), {"index": number - 1, "count": number}
    event = context.event("call.done", result)
    return {"response": found, "result": found, "page": found, "this": found, "_retry": count, "event": event}


def _only_one(rules: list[dict[str, Any]]) -> dict[str, Any]:
    """The only rule, which collects the last page as well, although its condition does not hold for that."""
    return rules[0] if len(rules) == 1 else {}


def _with_changes(tool: dict[str, Any], following: dict[str, Any]) -> dict[str, Any]:
    """The tool for the next call. Its templates are rendered then, with the names of the previous page."""
    found = dict(tool)
    for key, value in following.items():
        if key in _MERGED and isinstance(value, dict) and isinstance(tool.get(key) or {}, dict):
            found[key] = {**(tool.get(key) or {}), **value}
        elif key in CHANGEABLE:
            found[key] = value
        else:
            raise invalid_input(f"the next call cannot change '{key}'")
    return found


class _Collected:
    """The values collected so far, by name."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {}
        self._is_data = False

    def take(self, collect: dict[str, Any] | None, result: Any, names: Names) -> None:
        if collect:
            into = collection_name(collect)
            self.names[into] = collect_into(self.names.get(into), collect, result, names)
            self._is_data = self._is_data or "path" in collect

    def in_result(self, result: Any) -> Any:
        """The result with the collected values. `collect` of a tool replaces the data, that of a case adds to it."""
        if not self.names:
            return result
        last = dict(result) if isinstance(result, dict) else {"data": result}
        data = {"data": next(iter(self.names.values()))} if self._is_data else {}
        return {**last, **data, **self.names}


def collection_name(collect: dict[str, Any]) -> str:
    """The name under which `collect` puts its values."""
    return str(collect.get("into") or "pages")


def collect_into(so_far: Any, collect: dict[str, Any], result: Any, names: Names) -> Any:
    """The values so far, with those of this result. A case appends one value, a tool appends its items.

    `path` and `from` are a path in the result, or a template for the value.
    """
    path = str(collect.get("path") or collect.get("from") or "")
    value = render_value(path, names) if is_template(path) else _value_at(path, result)
    strategy = str(collect.get("strategy") or collect.get("mode") or "append")
    if strategy not in _STRATEGIES:
        raise invalid_input(f"'{strategy}' is not a strategy for pages: use one of {', '.join(_STRATEGIES)}")
    if strategy == "replace":
        return value
    if strategy == "merge":
        return {**(so_far or {}), **(value if isinstance(value, dict) else {})}
    are_many = isinstance(value, list) and not (strategy == "append" and "mode" in collect)
    return [*(so_far or []), *(value if are_many else [value])]


def _value_at(path: str, result: Any) -> Any:
    """The value at the path: in the data, otherwise in the whole result. Playbooks use both."""
    parts = path.removeprefix("response.").removeprefix("result.").split(".") if path else []
    data = result.get("data") if isinstance(result, dict) else None
    for start in (data, mark_answer(result)):
        value = start
        for part in parts:
            value = look_up(value, part)
        if value is not MISSING and value is not None:
            return value
    raise invalid_input(f"a page has no '{path}' to collect")
