"""Pages: a call that went well is made again with something changed, and what each gave is gathered.

`pages` of a tool is a list of {when, next_call, collect, sink, set, max_attempts}, asked after each call; the first
that holds says what is gathered and, with `next_call`, that there is another page.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

from mulligan.worker.actions.noetl.answers import MISSING, answer, looked_up
from mulligan.worker.actions.noetl.call import Call
from mulligan.worker.actions.noetl.context import Context
from mulligan.worker.actions.noetl.credentials import refused
from mulligan.worker.actions.noetl.sinks import put
from mulligan.worker.actions.noetl.templates import holds
from mulligan.worker.actions.noetl.tools import call_tool

# As in NoETL, whatever a playbook says.
PAGES_MAX = 100
# What of a tool the next call may change: mappings are laid over what there is.
_LAID_OVER = ("params", "headers", "data", "body", "payload", "args", "input")
_REPLACED = ("url", "endpoint", "method", "command", "query")
CHANGEABLE = (*_LAID_OVER, *_REPLACED)
# How pages are put together, in the words of all dialects.
_STRATEGIES = ("append", "extend", "concat", "merge", "replace")


class Paged(dict[str, Any]):
    """What was gathered, and the last page, which is the response that cases speak of."""

    def __init__(self, gathered: dict[str, Any], last: Any) -> None:
        super().__init__(gathered)
        self.last = last


def all_pages(tool: dict[str, Any], call: Call, context: Context) -> Any:
    """What the last call gave, and in it what was gathered. StepError where one of the calls fails."""
    rules, gathered = tool["pages"], _Gathered()
    asked = tool
    for number in range(1, PAGES_MAX + 1):
        result = call_tool(asked, call)
        # What was set since the page before is read from the context.
        names = {**call.names, **context.names(), **gathered.names, **_now(result, number, context)}
        rule: dict[str, Any] = next((rule for rule in rules if holds(rule.get("when", True), names)), {})
        kept = rule or _only_one(rules)
        gathered.take(kept.get("collect"), result)
        if "sink" in kept:
            put(kept["sink"], replace(call, names=names))
        following = rule.get("next_call")
        if following is None or number >= int(rule.get("max_attempts") or PAGES_MAX):
            _note_end(following, number)
            break
        context.set(rule.get("set"), names)
        asked, call = _changed(tool, following), replace(call, names={**call.names, **names})
    found = gathered.in_result(result)
    return Paged(found, result) if tool.get("are_of_cases") and isinstance(found, dict) else found


def _note_end(following: Any, number: int) -> None:
    if following is not None:
        print(f"there are more pages than {number}, and no more are asked for", file=sys.stderr)


def _now(result: Any, number: int, context: Context) -> dict[str, Any]:
    found, count = answer(result), {"index": number - 1, "count": number}
    event = context.event("call.done", result)
    return {"response": found, "result": found, "page": found, "this": found, "_retry": count, "event": event}


def _only_one(rules: list[dict[str, Any]]) -> dict[str, Any]:
    """Of pages that one rule walks: the last one is kept as well, although the rule does not hold for it."""
    return rules[0] if len(rules) == 1 else {}


def _changed(tool: dict[str, Any], following: dict[str, Any]) -> dict[str, Any]:
    """The tool as the next call has it. Its templates are filled in then, once, with the page before in hand."""
    found = dict(tool)
    for key, value in following.items():
        if key in _LAID_OVER and isinstance(value, dict) and isinstance(tool.get(key) or {}, dict):
            found[key] = {**(tool.get(key) or {}), **value}
        elif key in CHANGEABLE:
            found[key] = value
        else:
            raise refused(f"the next call cannot change '{key}'")
    return found


class _Gathered:
    """What was gathered so far, by name; `data` where no name is said."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {}
        self._is_data = False

    def take(self, collect: dict[str, Any] | None, result: Any) -> None:
        if collect:
            into = into_of(collect)
            self.names[into] = with_collected(self.names.get(into), collect, result)
            self._is_data = self._is_data or "path" in collect

    def in_result(self, result: Any) -> Any:
        """`collect` of a tool gathers the data itself; that of a case, something beside it."""
        if not self.names:
            return result
        last = dict(result) if isinstance(result, dict) else {"data": result}
        data = {"data": next(iter(self.names.values()))} if self._is_data else {}
        return {**last, **data, **self.names}


def into_of(collect: dict[str, Any]) -> str:
    """What is gathered so is called this."""
    return str(collect.get("into") or "pages")


def with_collected(so_far: Any, collect: dict[str, Any], result: Any) -> Any:
    """What was gathered, with what is to be taken of this result. A case appends one thing, a tool its items."""
    value = _found(str(collect.get("path") or collect.get("from") or ""), result)
    said = str(collect.get("strategy") or collect.get("mode") or "append")
    if said not in _STRATEGIES:
        raise refused(f"pages cannot be gathered by '{said}': there are {', '.join(_STRATEGIES)}")
    if said == "replace":
        return value
    if said == "merge":
        return {**(so_far or {}), **(value if isinstance(value, dict) else {})}
    are_many = isinstance(value, list) and not (said == "append" and "mode" in collect)
    return [*(so_far or []), *(value if are_many else [value])]


def _found(path: str, result: Any) -> Any:
    """What is at the path: in what was answered, else in the whole result, as people write it either way."""
    parts = path.removeprefix("response.").removeprefix("result.").split(".") if path else []
    data = result.get("data") if isinstance(result, dict) else None
    for start in (data, answer(result)):
        value = start
        for part in parts:
            value = looked_up(value, part)
        if value is not MISSING and value is not None:
            return value
    raise refused(f"a page has no '{path}' that could be gathered")
