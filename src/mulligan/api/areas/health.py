"""Whether the server is up, and whether it can answer."""

from __future__ import annotations

import msgspec

from mulligan import __version__
from mulligan.api.http.routing import Call, Routes

ROUTES = Routes()


class Health(msgspec.Struct, frozen=True):
    """The process is up."""

    status: str
    version: str


@ROUTES.add("GET", "/healthz", "public")
async def healthz(call: Call) -> Health:
    """Whether the server is up."""
    return Health("ok", __version__)


@ROUTES.add("GET", "/readyz", "public")
def readyz(call: Call) -> Health:
    """Whether the server can answer: 503 while its store is away, or was migrated by a newer Mulligan."""
    # Errors of the store become 503.
    call.service.machine.check_store()
    call.service.runs.records((1,))
    return Health("ready", __version__)
