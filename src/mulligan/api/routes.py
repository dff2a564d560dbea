"""The one table of routes. Each module of an area has its part."""

from __future__ import annotations

from mulligan.api import audit, decisions, health, logins, metrics, operations, run_changes, runs, store_calls, stream
from mulligan.api.routing import Route

ROUTES: tuple[Route, ...] = (
    *health.ROUTES,
    *logins.ROUTES,
    *runs.ROUTES,
    *run_changes.ROUTES,
    *decisions.ROUTES,
    *operations.ROUTES,
    *store_calls.ROUTES,
    *stream.ROUTES,
    *metrics.ROUTES,
    *audit.ROUTES,
)
