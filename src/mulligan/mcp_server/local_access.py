"""An agent on this machine: the service of its process, with the permissions of the person who has started it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor

from mulligan.api.http.problems import as_known_error
from mulligan.core.model.agents.guard_rails import agent_user
from mulligan.errors import MulliganError, StoreUnavailable
from mulligan.mcp_server.guarded_calls import Caller
from mulligan.mcp_server.tool import Access, Kind, Result
from mulligan.ports.server_records import TokenLimits, TokenRecord
from mulligan.service.service import Service


class LocalAccess(Access):
    """A service with a thread of its own: a connection to a store belongs to one thread."""

    def __init__(
        self,
        open_service: Callable[[], Service],
        scopes: Collection[str],
        agent: str = "",
        limits: TokenLimits | None = None,
    ) -> None:
        self.scopes = scopes
        self._agent, self._limits = agent, limits or TokenLimits()
        self._open = open_service
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="mcp")
        self._service: Service | None = None

    def caller(self, service: Service) -> Caller:
        """The agent under its name, or under that of the person for whom it works."""
        user = agent_user(self._agent or service.by)
        token = TokenRecord(
            # Its decisions are counted under this id, also after a restart.
            id=f"mcp:{user}",
            digest="",
            user=user,
            scopes=(),
            created_at=service.now(),
            project=service.project,
            limits=self._limits,
        )
        return Caller(token, target="stdio")

    async def in_thread(self, kind: Kind, work: Callable[[Service], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._call, work)

    def known_error(self, error: Exception, where: str) -> MulliganError:
        """A local caller may know everything that is said of the store."""
        return error if isinstance(error, MulliganError) else as_known_error(error, where)

    def _call(self, work: Callable[[Service], Result]) -> Result:
        if self._service is None:
            self._service = self._open()
            # The call of an agent returns: it drives no run.
            self._service.drives = False
            self.has_files = not self._service.is_for_others
        try:
            return work(self._service)
        except StoreUnavailable:
            # The next call opens the store again: a server may have been restarted.
            self._close()
            raise

    def close(self) -> None:
        """Wait for what is running, and close the store."""
        self._thread.submit(self._close).result()
        self._thread.shutdown()

    def _close(self) -> None:
        if self._service is not None:
            service, self._service = self._service, None
            service.close()
