"""What is said between us and a model: messages, calls of tools, and the tools that a model may call.

The structs are the same for every provider. `worker/models` has a module for each wire format.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from mulligan.core.model.fact import Fact

Role = Literal["user", "assistant", "tool"]


class ToolSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool that a model may call. `schema` is the JSON Schema of its arguments, an object."""

    name: str
    description: str = ""
    schema: dict[str, Any] = {}


class ToolCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call that a model asks for. The result names it by `id`.

    `invalid`: what the model wrote instead of a JSON object as arguments. Such a call is not made: it gets an error.
    """

    id: str
    name: str
    arguments: dict[str, Any] = {}
    invalid: str = ""


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message of a conversation.

    role "user": what we say. role "assistant": what the model said, with the calls that it asked for. role "tool": the
    result of the call `tool_call_id`; `is_error` if that call failed.
    """

    role: Role
    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    is_error: bool = False


class SessionPart(msgspec.Struct, frozen=True, omit_defaults=True):
    """The messages of one agent in a session: its prompt, what it asked for, its answer."""

    place: str
    attempt: int
    messages: Any
    chars: int = 0


# -- facts of a run --------------------------------------------------------------------------------------------------


class ToolCalled(Fact):
    """The agent at `place` asked for a tool. `position` is that of the tool or its server; -1: it is not called.

    `arguments` are those that the tool gets, with defaults. `target` is the name of the tool on its server.
    """

    place: str
    attempt: int
    number: int
    tool: str
    id: str = ""
    position: int = -1
    arguments: dict[str, Any] = {}
    target: str = ""


class ToolAnswered(Fact):
    """What the agent gets for a call: the output of the tool, or why there is none."""

    place: str
    attempt: int
    number: int
    tool: str
    id: str = ""
    output: Any = None
    error: str = ""


class SessionKept(Fact):
    """The messages of an agent whose result was accepted precede those of the next agent with this session.

    `dropped`: how many of the oldest parts of the session were dropped, so that it is not too long.
    """

    place: str
    attempt: int
    session: str
    messages: Any
    chars: int = 0
    dropped: int = 0


ConversationFact = ToolCalled | ToolAnswered | SessionKept
