"""The messages and tools of a question to a model, from the conversation that a task carries."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from mulligan.core.model.agents.agent_messages import NOT_ACCEPTED, tools_of_server, turn_messages
from mulligan.core.model.agents.conversation import Message, ToolCall, ToolSpec
from mulligan.core.model.text.credential_patterns import hide_in


class ConversationParts(NamedTuple):
    """What precedes the prompt, what follows it, and the tools that the model may call."""

    history: tuple[Message, ...]
    later: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]


def read_conversation(conversation: Mapping[str, Any], *, hides: bool = False) -> ConversationParts:
    """Return the parts of a question, after references in the conversation were replaced by their contents.

    `hides`: what looks like a credential is hidden in the results of tools.
    """
    said = [message for part in conversation.get("session", ()) for message in part]
    return ConversationParts(
        history=tuple(_message(one, hides) for one in said),
        later=tuple(_message(one, hides) for one in _later(conversation)),
        tools=tuple(_tools(conversation)),
    )


def _later(conversation: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The turns so far. What was wrong with an earlier attempt follows the turns of that attempt."""
    turns, begun = conversation.get("turns", ()), conversation.get("begun", 0)
    before = list(turn_messages(turns[:begun]))
    yield from before
    if before:
        is_refused = before[-1]["role"] == "assistant"
        note = conversation.get("note") or (NOT_ACCEPTED if is_refused else "")
        if note:
            yield {"role": "user", "text": note}
    yield from turn_messages(turns[begun:])


def _message(said: Mapping[str, Any], hides: bool) -> Message:
    calls = tuple(
        ToolCall(call["id"], call["name"], json.loads(call["arguments"])) for call in said.get("tool_calls", ())
    )
    return Message(
        said["role"],
        hide_in(said["text"]) if hides and said["role"] == "tool" else said["text"],
        calls,
        tool_call_id=said.get("tool_call_id", ""),
        is_error=said.get("is_error", False),
    )


def _tools(conversation: Mapping[str, Any]) -> Iterator[ToolSpec]:
    for tool in conversation.get("tools", ()):
        yield ToolSpec(tool["name"], tool["description"], tool["schema"])
    for server in conversation.get("servers", ()):
        for tool in tools_of_server(server["listed"], server["allow"], server["prefix"]):
            yield ToolSpec(tool.name, tool.description, tool.schema)
