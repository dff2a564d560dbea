"""What a model reads and what it says, as plain JSON that does not depend on the provider.

A message is `{role, text}` with `role` "user", "assistant" or "tool". One of the assistant may have `tool_calls`, each
`{id, name, arguments}` with the arguments as JSON text; one of a tool has `tool_call_id`, and `is_error` if it failed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from mulligan.core.model.artifacts import holds_reference
from mulligan.core.model.workflow import AgentTools, Input

# What a model reads of a result or an error; the log has all of it.
RESULT_CHARS_MAX = 50_000
# More calls than this in one answer are a mistake of the model.
CALLS_PER_ANSWER_MAX = 128
NAME_CHARS_MAX = 200
# What providers accept as the name of a tool.
_NOT_IN_NAMES = r"[^A-Za-z0-9_-]"
_TOOL_NAME_CHARS_MAX = 64
_LEFT_OUT = "\n[{0} characters left out]\n"

# Stands between an answer that was not accepted and the next one.
NOT_ACCEPTED = "This answer was not accepted."

Message = dict[str, Any]


# -- what a model asks for -------------------------------------------------------------------------------------------


class AskedCall(msgspec.Struct, frozen=True):
    """A tool that a model asked for. `problem`: why its arguments cannot be used."""

    id: str
    name: str
    arguments: dict[str, Any]
    problem: str = ""


def asked_calls(answer: Any) -> list[AskedCall]:
    """The tools that an answer of a model asks for, in order; none if it is a final answer."""
    calls = answer.get("tool_calls") if isinstance(answer, dict) else None
    return [_asked_call(call) for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []


def _asked_call(call: Mapping[str, Any]) -> AskedCall:
    identity, name = (str(call.get(key) or "")[:NAME_CHARS_MAX] for key in ("id", "name"))
    arguments = call.get("arguments")
    if call.get("invalid"):
        return AskedCall(identity, name, {}, "the arguments are not a JSON object")
    if arguments is None or arguments == "":
        return AskedCall(identity, name, {})
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return AskedCall(identity, name, {}, "the arguments are not JSON")
    if not isinstance(arguments, dict):
        return AskedCall(identity, name, {}, "the arguments are not an object")
    if not _is_storable(arguments):
        return AskedCall(identity, name, {}, "the arguments cannot be stored as JSON")
    if holds_reference(arguments):
        return AskedCall(identity, name, {}, "the arguments have the key '$artifact', which is reserved")
    return AskedCall(identity, name, arguments)


def _is_storable(arguments: dict[str, Any]) -> bool:
    """Whether a log returns them unchanged: numbers have at most 64 bits, texts are Unicode."""
    try:
        return bool(msgspec.json.decode(msgspec.json.encode(arguments)) == arguments)
    except (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError):
        return False


# -- what a model is offered -----------------------------------------------------------------------------------------


class OfferedTool(msgspec.Struct, frozen=True):
    """A tool as a model sees it. `position`: of the tool or its server in `AgentTools.commands`.

    `target`: its name on its server; "" for a step.
    """

    name: str
    description: str
    schema: dict[str, Any]
    position: int
    target: str = ""


def offered_tools(tools: AgentTools | None, lists: Sequence[Any]) -> list[OfferedTool]:
    """The tools of an agent: steps of the file, then what its servers listed and `allow` names."""
    if tools is None:
        return []
    found = [
        OfferedTool(tool.name, tool.description, input_schema(tool.inputs), position)
        for position, tool in enumerate(tools.steps)
    ]
    for index, (server, listed) in enumerate(zip(tools.servers, lists, strict=False)):
        found += tools_of_server(listed, server.allow, server.prefix, len(tools.steps) + index)
    return found


def tools_of_server(listed: Any, allow: Iterable[str], prefix: str, position: int = -1) -> list[OfferedTool]:
    """The allowed tools among those that a server listed."""
    by_name = {tool.get("name"): tool for tool in _listed_tools(listed)}
    return [_offered_by_server(by_name[name], name, prefix, position) for name in allow if name in by_name]


def _listed_tools(listed: Any) -> Iterator[Mapping[str, Any]]:
    tools = listed.get("tools") if isinstance(listed, dict) else None
    return (tool for tool in tools if isinstance(tool, dict)) if isinstance(tools, list) else iter(())


def _offered_by_server(tool: Mapping[str, Any], name: str, prefix: str, position: int) -> OfferedTool:
    schema = tool.get("schema")
    return OfferedTool(
        name=re.sub(_NOT_IN_NAMES, "_", f"{prefix}{name}")[:_TOOL_NAME_CHARS_MAX],
        description=str(tool.get("description") or ""),
        schema=schema if isinstance(schema, dict) else {"type": "object"},
        position=position,
        target=name,
    )


def missing_tools(tools: AgentTools, lists: Sequence[Any]) -> list[str]:
    """The names in `allow` that no server has."""
    found = []
    for server, listed in zip(tools.servers, lists, strict=False):
        names = {tool.get("name") for tool in _listed_tools(listed)}
        found += [name for name in server.allow if name not in names]
    return found


def doubled_name(offered: Iterable[OfferedTool]) -> str:
    """A name that two of the tools have; "" if there is none."""
    names: set[str] = set()
    for tool in offered:
        if tool.name in names:
            return tool.name
        names.add(tool.name)
    return ""


def input_schema(inputs: Mapping[str, Input]) -> dict[str, Any]:
    """The JSON Schema of the arguments of a tool that is a step."""
    return {
        "type": "object",
        "properties": {name: _property(declared) for name, declared in inputs.items()},
        "required": [name for name, declared in inputs.items() if not declared.has_default],
        "additionalProperties": False,
    }


def _property(declared: Input) -> dict[str, Any]:
    found: dict[str, Any] = {} if declared.type == "any" else {"type": declared.type}
    if declared.description:
        found["description"] = declared.description
    if declared.enum:
        found["enum"] = list(declared.enum)
    if declared.has_default:
        found["default"] = declared.default
    return found


_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}


def check_arguments(inputs: Mapping[str, Input], given: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """The arguments of a step with its defaults, and what is wrong with them; "" if nothing is."""
    for name in given:
        if name not in inputs:
            known = ", ".join(inputs) or "none"
            return {}, f"there is no argument '{name[:NAME_CHARS_MAX]}'; the arguments are: {known}"
    found = {}
    for name, declared in inputs.items():
        if name not in given:
            if not declared.has_default:
                return {}, f"the argument '{name}' is missing"
            found[name] = declared.default
            continue
        value = given[name]
        if not _fits(value, declared.type):
            return {}, f"the argument '{name}' is not of its type, {declared.type}"
        if declared.enum and value not in declared.enum:
            return {}, f"the argument '{name}' is not one of {json.dumps(list(declared.enum))}"
        found[name] = value
    return found, ""


def _fits(value: Any, type_name: str) -> bool:
    if type_name == "any":
        return True
    return isinstance(value, _TYPES[type_name]) and (type_name == "boolean" or not isinstance(value, bool))


# -- what a model reads ----------------------------------------------------------------------------------------------


def turn_messages(turns: Iterable[Mapping[str, Any]]) -> Iterator[Message]:
    """The messages of turns `{answer, results}`: what the model said, then the result of each tool it asked for."""
    is_refused = False
    for turn in turns:
        if is_refused:
            yield {"role": "user", "text": NOT_ACCEPTED}
        answer = turn.get("answer")
        calls = asked_calls(answer)
        # Nothing follows an answer that was accepted.
        is_refused = not calls
        message: Message = {"role": "assistant", "text": answer_text(answer)}
        if calls:
            message["tool_calls"] = [_as_written(call) for call in calls]
        yield message
        for call, result in zip(calls, turn.get("results", ()), strict=False):
            yield _result_message(call, result)


def _as_written(call: AskedCall) -> dict[str, Any]:
    return {"id": call.id, "name": call.name, "arguments": json.dumps(call.arguments)}


def _result_message(call: AskedCall, result: Mapping[str, Any]) -> Message:
    error = result.get("error") or ""
    text = shorten_text(error or as_text(result.get("output")))
    message: Message = {"role": "tool", "text": text, "tool_call_id": call.id, "name": call.name}
    return {**message, "is_error": True} if error else message


def answer_text(answer: Any) -> str:
    """The text of an answer of a model."""
    content = answer.get("content") if isinstance(answer, dict) else answer
    return as_text(content)


def as_text(value: Any) -> str:
    """A value as a model reads it: text as it is, anything else as JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def shorten_text(text: str, chars_max: int = RESULT_CHARS_MAX) -> str:
    """The text; of a long one the beginning and the end, and how much was left out."""
    if len(text) <= chars_max:
        return text
    head = chars_max * 2 // 3
    tail = chars_max - head
    return f"{text[:head]}{_LEFT_OUT.format(f'{len(text) - head - tail:,}')}{text[-tail:]}"
