"""`GET /metrics`: what the server, its worker and the store show to Prometheus."""

from __future__ import annotations

from pathlib import Path

from mulligan.api.http.routing import Answer, Call, Routes
from mulligan.service.server.telemetry.telemetry import METRICS_TYPE, merge_metrics, request_metrics

ROUTES = Routes()


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
