"""An agent in tests: the client of the library `mcp`, connected in memory to our server."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import mcp_types as types
from mcp import Client, MCPError

from mulligan.mcp_server.local_access import LocalAccess
from mulligan.mcp_server.server import build_server
from mulligan.ports.server_records import TokenLimits
from mulligan.service.service import open_service

Result = TypeVar("Result")
ALL_SCOPES = ("read", "run", "decide", "write")


class Agent:
    """Talks to a server as a client does; each call is a whole conversation."""

    def __init__(self, access: LocalAccess) -> None:
        self.server = build_server(lambda _: access)

    def talk(self, work: Callable[[Client], Awaitable[Result]]) -> Result:
        """What `work` gives, with a connected client."""

        async def connected() -> Result | MCPError:
            async with Client(self.server) as client:
                try:
                    return await work(client)
                except MCPError as error:
                    # Raised outside, where it is not one of a group.
                    return error

        found = asyncio.run(connected())
        if isinstance(found, MCPError):
            raise found
        return found

    def call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """The answer of a tool."""
        found = self.result(tool, arguments)
        assert not found.is_error, found.content
        return unmarked(dict(found.structured_content))

    def refused(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """The error that a tool answers with."""
        found = self.result(tool, arguments)
        assert found.is_error, found.structured_content
        return unmarked(dict(found.structured_content["error"]))

    def result(self, tool: str, arguments: Mapping[str, Any]) -> types.CallToolResult:
        return self.talk(lambda client: client.call_tool(tool, dict(arguments)))

    def tools(self) -> dict[str, types.Tool]:
        """The tools that it is offered, by name."""
        return {tool.name: tool for tool in self.talk(lambda client: client.list_tools()).tools}


def unmarked(value: Any) -> Any:
    """An answer without the marks of untrusted texts, so that a test can compare what they say."""
    if isinstance(value, dict):
        return {unmarked(key): unmarked(inner) for key, inner in value.items() if key != "untrusted"}
    if isinstance(value, list):
        return [unmarked(inner) for inner in value]
    return re.sub(r"</?(untrusted )?[0-9a-f]{8}>", "", value) if isinstance(value, str) else value


@contextmanager
def agent_at(
    home: Path | str, *, scopes: Collection[str] = ALL_SCOPES, by: str = "robot", limits: TokenLimits | None = None
) -> Iterator[Agent]:
    """An agent for the runs in a folder, or of a server."""
    access = LocalAccess(lambda: open_service(str(home), by), scopes, limits=limits)
    try:
        yield Agent(access)
    finally:
        access.close()
