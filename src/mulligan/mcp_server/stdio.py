"""The server of the protocol over stdin and stdout, for one client that has started this process."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Collection

from mcp.server.stdio import stdio_server

from mulligan.mcp_server.local_access import LocalAccess
from mulligan.mcp_server.server import build_server
from mulligan.mcp_server.tool import Access
from mulligan.ports.server_records import TokenLimits
from mulligan.service.service import Service


def serve(
    open_service: Callable[[], Service], scopes: Collection[str], agent: str = "", limits: TokenLimits | None = None
) -> int:
    """Answer the client until it closes stdin. Messages for people go to stderr."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="mulligan mcp: %(message)s")
    access = LocalAccess(open_service, scopes, agent, limits)
    try:
        asyncio.run(_serve(access))
    finally:
        access.close()
    return 0


async def _serve(access: Access) -> None:
    server = build_server(lambda _: access)
    async with stdio_server() as (reads, writes):
        await server.run(reads, writes, server.create_initialization_options())
