"""`tools` and `session` of an agent: what it may call, and what it remembers."""

from __future__ import annotations

import shlex
from typing import Any

from mulligan.core.model.actions import MCP
from mulligan.core.model.workflow import (
    MCP_CALL,
    Action,
    AgentTools,
    Command,
    Expression,
    StepTool,
    Template,
    ToolServer,
)
from mulligan.language.keys.action_keys import AGENT, MCP_SERVER, TOOL_SERVER
from mulligan.language.keys.value_schemas import Fields
from mulligan.language.readers.actions import HTTP_SCHEMES, note_bad_address
from mulligan.language.scope import Scope
from mulligan.language.text.nodes import Mapping, Node, Scalar, Sequence, describe
from mulligan.language.text.suggestions import did_you_mean
from mulligan.language.value_templates import PLACEHOLDER, read_value

MCP_CALL_SECONDS = 60.0
_LIMITS = {"max_turns": "max_turns", "max_tool_calls": "max_calls", "on_tool_failure": "on_failure"}


def read_agent_tools(node: Node, scope: Scope) -> dict[str, Any]:
    """The fields `tools` and `session` of a command with this agent, as far as they are set."""
    if not isinstance(node, Mapping):
        return {}
    form = Fields(node, {})
    for key in (*_LIMITS, "session", "tools"):
        if key in node.entries:
            with scope.noting:
                form.values[key] = AGENT.keys[key].schema.read(form.at(key), f"'{key}'", scope.source)
    if scope.tool_inputs is not None:
        _refuse_nested(form, scope)
    found: dict[str, Any] = form.pick("session")
    limits = {field: form[key] for key, field in _LIMITS.items() if key in form}
    if "tools" in form:
        found["tools"] = _tools(form.at("tools"), limits, scope)
    else:
        for key in _LIMITS:
            if key in form:
                message = f"'{key}' is for an agent with 'tools'"
                scope.note(scope.source.refuse("stray_key", message, form.key(key), hint="add 'tools: […]'"))
    return found


def _refuse_nested(form: Fields, scope: Scope) -> None:
    """Refuse an agent that is a tool and has tools: it could call itself."""
    for key in ("tools", "session"):
        if key in form:
            message = f"an agent that is a tool has no '{key}' of its own"
            hint = "give its tools to the agent that calls it"
            raise scope.source.refuse("stray_key", message, form.key(key), hint=hint)


def _tools(node: Node, limits: dict[str, Any], scope: Scope) -> AgentTools:
    if not isinstance(node, Sequence):
        raise scope.source.refuse("type", f"'tools' is {describe(node)}, a list is expected", node)
    if not node.items:
        raise scope.source.refuse("type", "'tools' is an empty list", node, hint="name a step with 'tool'")
    steps: dict[str, StepTool] = {}
    servers: list[ToolServer] = []
    for item in node.items:
        with scope.noting:
            if isinstance(item, Mapping):
                servers.append(_server(item, scope))
            elif isinstance(item, Scalar):
                tool = _step_tool(item, scope)
                if tool.name in steps:
                    raise scope.source.refuse("duplicate_tool", f"tool '{tool.name}' is listed twice", item)
                steps[tool.name] = tool
    return AgentTools(steps=tuple(steps.values()), servers=tuple(servers), **limits)


def _step_tool(node: Scalar, scope: Scope) -> StepTool:
    draft, name = scope.draft, node.text
    if name in draft.tools:
        draft.used.add(("tools", name))
        return draft.tools[name]
    hint = did_you_mean(name, draft.tools) or "add a step with this name and 'tool: true'"
    if name in draft.step_names:
        hint = f"add 'tool: true' to step '{name}', or 'tool: {{inputs: …}}'; then only agents start it"
    raise scope.source.refuse("unknown_tool", f"there is no tool '{name}'", node, hint=hint)


def _server(node: Mapping, scope: Scope) -> ToolServer:
    form: Fields = TOOL_SERVER.read(node, "a tool", scope.source)
    if "mcp" not in form or "allow" not in form:
        return ToolServer(Command(), ())
    server: Fields = MCP_SERVER.read(form.at("mcp"), "'mcp'", scope.source)
    present = [key for key in ("command", "url") if key in server.node.entries]
    if len(present) != 1:
        message = f"'mcp' has {'both' if present else 'neither'} 'command' {'and' if present else 'nor'} 'url'"
        code = "stray_key" if present else "missing_key"
        raise scope.source.refuse(code, message, server.node, hint="write one of them")
    for key, owner in (("env", "command"), ("headers", "url")):
        if key in server and owner not in server:
            message = f"'{key}' is for a server with '{owner}'"
            scope.note(scope.source.refuse("stray_key", message, server.key(key)))
    action = _server_action(server, scope)
    note_bad_address(action.params, "url", server.node, HTTP_SCHEMES, scope)
    command = Command(action=action, timeout=server.get("timeout", MCP_CALL_SECONDS), **server.pick("on_lost"))
    return ToolServer(command, tuple(dict.fromkeys(form["allow"])), form.get("prefix", ""))


def _server_action(server: Fields, scope: Scope) -> Action:
    bindings: dict[str, Template] = {}
    params: dict[str, Any] = {}
    for key in ("command", "url", "env", "headers"):
        if key in server:
            node, schema = server.at(key), MCP_SERVER.keys[key].schema
            schema.of().read(node, f"'{key}'", scope.source)  # type: ignore[attr-defined]
            params[key] = read_value(node, scope.in_attempt, bindings)
    if isinstance(params.get("command"), str):
        params["command"] = _words(params["command"], server.at("command"), scope)
    for key, name, source in zip(("tool", "arguments"), MCP_CALL, ("call.tool", "call.arguments"), strict=True):
        params[key] = {PLACEHOLDER: name}
        bindings[name] = Template((Expression(source, ("call",)),))
    return Action(MCP, params, bindings)


def _words(text: str, node: Node, scope: Scope) -> list[str]:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise scope.source.refuse("type", f"the command cannot be read: {str(error).lower()}", node) from None
    if not words:
        raise scope.source.refuse("type", "the command is empty", node)
    return words
