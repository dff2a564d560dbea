"""`/mcp/` on a server: the tools of agents over streamable HTTP. Nothing here needs the library `mcp`.

The route goes through the gate of the server as every other one does: its name, its token, its limits. The library is
loaded by the first request, in a thread: it takes more than a second, and most servers never need it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from msgspec.structs import replace

from mulligan.api.access.auth import refuse_other_origin, refuse_without_bearer
from mulligan.api.http.routing import Answer, Call, Route
from mulligan.api.routes import ROUTES as API_ROUTES
from mulligan.core.model.agents.guard_rails import agent_user
from mulligan.errors import UnknownPath
from mulligan.mcp_server.guarded_calls import Caller
from mulligan.mcp_server.tool import Access, Kind, Result
from mulligan.mcp_server.tool_table import BY_NAME
from mulligan.service.service import Service

PATH = "/mcp/"
# A workflow text in a JSON text; the tools bound what else they take.
BODY_BYTES_MAX = 4 * 1024 * 1024
_DECISIONS = tuple(one.name for one in API_ROUTES if one.scope == "decide" and one.changes)


class TokenAccess(Access):
    """The caller of one request, by its token. Over HTTP nobody names files of the server."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self.scopes = call.token.scopes

    def caller(self, service: Service) -> Caller:
        """The agent of the token; a person's token is used by an agent of that person."""
        token = replace(self._call.token, user=agent_user(self._call.token.user))
        return Caller(token, target=PATH, source=self._call.source, decisions=_DECISIONS)

    async def in_thread(self, kind: Kind, work: Callable[[Service], Result]) -> Result:
        found: Result = await getattr(self._call, kind)(work)
        return found


async def answer(call: Call) -> Answer:
    """One message of the protocol, and its answer. There are no sessions: any server of the store may answer."""
    refuse_without_bearer(call.headers)
    refuse_other_origin(call.headers, call.base_url)
    if find_spec("mcp") is None:
        raise UnknownPath(
            "this server has no tools for agents: the library 'mcp' is not installed",
            hint="whoever runs it installs it: pip install 'mulligan[mcp]'",
        )
    library: Any = await asyncio.to_thread(import_module, "mulligan.mcp_server.streamable_http")
    found: Answer = await library.answer(TokenAccess(call), call.headers, call.body)
    return found


def _route(path: str) -> Route:
    return Route(
        "POST",
        path,
        answer,
        "read",
        f"The {len(BY_NAME)} tools of agents: the Model Context Protocol over streamable HTTP.",
        body=bytes,
        # Each tool has a scope of its own, and writes its changes into the audit by itself.
        is_change=False,
        body_bytes_max=BODY_BYTES_MAX,
    )


# Clients write both.
ROUTES = (_route(PATH), _route(PATH.rstrip("/")))
