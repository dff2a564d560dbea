"""What is said between us and a model: messages, calls of tools, and the tools that a model may call.

The structs are the same for every provider. `worker/models` has a module for each wire format.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

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
