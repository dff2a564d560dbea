"""`mcp`: list the tools of an MCP server, or call one. Runs in a warm child, so only that loads the `mcp` library.

The server is started and asked for each task, and ends with it: a call that is in the log needs no server, and no state
of a server outlives a worker that is lost.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from typing import Any

import httpx2

from mulligan import StepError
from mulligan.core.model.text.formatting import error_reason

try:
    from mcp import Client, MCPError, StdioServerParameters
    from mcp.client.streamable_http import streamable_http_client
except ImportError:
    Client = None  # type: ignore[assignment,misc]

CONNECT_SECONDS = 30.0
TOOLS_MAX = 1_000
_DESCRIPTION_CHARS_MAX = 10_000


def run(
    *,
    command: list[Any] | None = None,
    url: str = "",
    env: dict[str, Any] | None = None,
    headers: dict[str, Any] | None = None,
    tool: str = "",
    arguments: dict[str, Any] | None = None,
) -> Any:
    """Return `{tools: […]}`, or what the tool answered. Anything else is a StepError."""
    try:
        if Client is None:
            message = "an MCP server needs the library 'mcp' where the worker runs: pip install 'mulligan[mcp]'"
            raise StepError("INPUT_INVALID", message, retryable=False)
        return asyncio.run(_ask(command, url, env or {}, headers or {}, tool, arguments or {}))
    except StepError as error:
        # Print it to the log too.
        print(error.message, file=sys.stderr)
        raise


async def _ask(
    command: list[Any] | None,
    url: str,
    env: Mapping[str, Any],
    headers: Mapping[str, Any],
    tool: str,
    arguments: dict[str, Any],
) -> Any:
    name = str(command[0]) if command else url
    try:
        async with httpx2.AsyncClient(headers=_texts(headers), timeout=CONNECT_SECONDS) as http:
            server: Any = _stdio(command, env) if command else streamable_http_client(url, http_client=http)
            async with Client(server) as client:
                return await (_call(client, tool, arguments) if tool else _list(client))
    except MCPError as error:
        raise StepError("TOOL_FAILED", f"the MCP server '{name}' answered: {error}") from None
    except FileNotFoundError:
        raise StepError("INPUT_INVALID", f"there is no program '{name}'", retryable=False) from None
    except BaseExceptionGroup as group:
        raise _translate(group, name) from None
    except (OSError, httpx2.HTTPError, ValueError) as error:
        raise _translate(error, name) from None


def _translate(error: BaseException, name: str) -> BaseException:
    """Return the failure that the library raised, perhaps in a group of others."""
    while isinstance(error, BaseExceptionGroup):
        error = next((one for one in error.exceptions if isinstance(one, StepError)), error.exceptions[0])
    if isinstance(error, StepError) or not isinstance(error, Exception):
        return error
    reason = error_reason(error) if isinstance(error, OSError) else str(error) or type(error).__name__
    return StepError("CONNECTION", f"the MCP server '{name}' cannot be asked: {reason}")


def _stdio(command: list[Any], env: Mapping[str, Any]) -> Any:
    """Return how to start the server: with the environment of the task, as any program of a step."""
    program, *words = [_text(word) for word in command]
    return StdioServerParameters(
        command=program,
        args=words,
        env={**os.environ, **_texts(env)},
        cwd=os.getcwd(),
        encoding_error_handler="replace",
    )


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    return {name: _text(value) for name, value in values.items()}


def _text(value: Any) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


async def _list(client: Any) -> dict[str, Any]:
    tools: list[dict[str, Any]] = []
    cursor = None
    while True:
        page = await client.list_tools(cursor=cursor)
        tools += [
            {
                "name": tool.name,
                "description": (tool.description or "")[:_DESCRIPTION_CHARS_MAX],
                "schema": tool.input_schema,
            }
            for tool in page.tools
        ]
        cursor = page.next_cursor
        if len(tools) > TOOLS_MAX:
            raise StepError("OUTPUT_INVALID", f"the MCP server has more than {TOOLS_MAX} tools")
        if cursor is None:
            return {"tools": tools}


async def _call(client: Any, tool: str, arguments: dict[str, Any]) -> Any:
    result = await client.call_tool(tool, arguments)
    text = "\n".join(map(_content_text, result.content))
    if result.is_error:
        raise StepError("TOOL_FAILED", text or f"the tool '{tool}' failed")
    return text if result.structured_content is None else result.structured_content


def _content_text(block: Any) -> str:
    """Return a part of an answer as text. A picture or a sound is only mentioned."""
    if block.type == "text":
        return str(block.text)
    if block.type == "resource" and (text := getattr(block.resource, "text", None)) is not None:
        return str(text)
    return f"[{block.type}]"
