"""The one table of routes. Each module of an area has its part."""

from __future__ import annotations

from mulligan.api import (
    catalogue,
    decisions,
    health,
    metrics,
    notices,
    operations,
    run_changes,
    runs,
    schedules,
    store_calls,
    stream,
)
from mulligan.api.routing import Route

ROUTES: tuple[Route, ...] = (
    *catalogue.ROUTES,
    *decisions.ROUTES,
    *health.ROUTES,
    *metrics.ROUTES,
    *notices.ROUTES,
    *operations.ROUTES,
    *run_changes.ROUTES,
    *runs.ROUTES,
    *schedules.ROUTES,
    *store_calls.ROUTES,
    *stream.ROUTES,
)
