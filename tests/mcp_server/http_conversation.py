"""An agent over HTTP: the client of the library `mcp` and our server in one process, without a port."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import httpx2
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from tests.mcp_server.conversation import Agent, Result

from mulligan.api.app import Api

URL = "http://localhost/mcp/"


class HttpAgent(Agent):
    """Talks to the server of a home with a token."""

    def __init__(self, api: Api, secret: str, *, mode: str = "auto", url: str = URL) -> None:
        self._api, self._mode, self._url = api, mode, url
        self.headers: dict[str, str] = {"Authorization": f"Bearer {secret}"}

    def talk(self, work: Callable[[Client], Awaitable[Result]]) -> Result:
        async def connected() -> Result | Exception:
            transport = httpx2.ASGITransport(app=self._api)
            async with httpx2.AsyncClient(transport=transport, headers=self.headers) as http:
                try:
                    async with Client(streamable_http_client(self._url, http_client=http), mode=self._mode) as client:
                        try:
                            return await work(client)
                        except MCPError as error:
                            return error
                except Exception as error:
                    return error

        found = asyncio.run(connected())
        if isinstance(found, Exception):
            raise found
        return found

    def post(self, body: Any, headers: Mapping[str, str] | None = None) -> httpx2.Response:
        """One message without the client of the library."""

        async def send() -> httpx2.Response:
            transport = httpx2.ASGITransport(app=self._api)
            accept = {"Accept": "application/json, text/event-stream"}
            async with httpx2.AsyncClient(transport=transport, headers={**self.headers, **accept}) as http:
                return await http.post(self._url, json=body, headers=headers)

        return asyncio.run(send())
