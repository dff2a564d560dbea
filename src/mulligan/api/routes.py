"""The one table of routes. Each module of an area has its part."""

from __future__ import annotations

from mulligan.api import decisions, health, metrics, operations, run_changes, runs, stream
from mulligan.api.routing import Route

ROUTES: tuple[Route, ...] = (
    *decisions.ROUTES,
    *health.ROUTES,
    *metrics.ROUTES,
    *operations.ROUTES,
    *run_changes.ROUTES,
    *runs.ROUTES,
    *stream.ROUTES,
)
