"""Whether the server is up, and whether it can answer."""

from __future__ import annotations

import msgspec

from mulligan import __version__
from mulligan.api.http.routing import Call, Route


class Health(msgspec.Struct, frozen=True):
    """The process is up."""

    status: str
    version: str


async def healthz(call: Call) -> Health:
    return Health("ok", __version__)


def readyz(call: Call) -> Health:
    # Errors of the store become 503.
    call.service.machine.check_store()
    call.service.runs.records((1,))
    return Health("ready", __version__)


ROUTES = (
    Route("GET", "/healthz", healthz, "public", "Whether the server is up.", answer=Health),
    Route(
        "GET",
        "/readyz",
        readyz,
        "public",
        "Whether the server can answer: 503 while its store is away, or was migrated by a newer Mulligan.",
        answer=Health,
    ),
)
