"""How a server is: whether it is up, whether it can answer, and what it shows to Prometheus."""

from __future__ import annotations

from pathlib import Path

import msgspec

from mulligan import __version__
from mulligan.api.http.routing import Answer, Call, Routes
from mulligan.service.server.telemetry.telemetry import METRICS_TYPE, merge_metrics, request_metrics

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


@ROUTES.add("GET", "/metrics", "read", media=METRICS_TYPE)
def metrics(call: Call) -> Answer:
    """Metrics for Prometheus; with a token for all projects also those of the server and its worker."""
    texts = [call.service.telemetry.store_metrics()]
    # Names of workflows of other projects are in what follows.
    if call.token.project is None and call.counts is not None:
        texts.append(request_metrics(call.counts.answered, call.counts.seconds, len(call.hub.clients)))
        texts.append(_worker_metrics(call.service.home.folder))
    return Answer(merge_metrics(texts), media=METRICS_TYPE)


def worker_metrics_file(home: Path) -> Path:
    """Where the worker of a server writes its metrics."""
    return home / "workers" / "server.prom"


def _worker_metrics(home: Path) -> bytes:
    try:
        return worker_metrics_file(home).read_bytes()
    except OSError:
        return b""  # the server has no worker, or it has just begun
