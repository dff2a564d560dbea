"""The exchange with an agent that has tools or a session: a part of the state of its place."""

from __future__ import annotations

from typing import Any

import msgspec


class CalledTool(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call of a tool that an agent asked for. `target`: its name on its server, for a tool of an MCP server."""

    number: int
    tool: str
    id: str = ""
    arguments: dict[str, Any] = {}
    target: str = ""


class ToolResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an agent got for a call: the output of the tool, or why there is none."""

    tool: str
    id: str = ""
    output: Any = None
    error: str = ""
    arguments: dict[str, Any] = {}


class Turn(msgspec.Struct, frozen=True, omit_defaults=True):
    """An answer of a model, and the results of the tools that it asked for so far."""

    answer: Any
    results: tuple[ToolResult, ...] = ()


class Conversation(msgspec.Struct, frozen=True, omit_defaults=True):
    """The exchange with an agent that has tools or a session, in one visit. It goes on in the next attempt."""

    turns: tuple[Turn, ...] = ()
    # How many turns there were when the current attempt began.
    begun: int = 0
    # Of the current attempt: the tools that its servers have, how often a model was asked, the calls, the open one.
    lists: tuple[Any, ...] = ()
    asked: int = 0
    called: int = 0
    open: CalledTool | None = None
    # With a session: the values of the attempt's expressions, from which its prompt is made.
    bindings: dict[str, Any] = {}


NO_CONVERSATION = Conversation()
