"""The one table of routes. Each module of an area has its part."""

from __future__ import annotations

from mulligan.api import (
    audit,
    catalogue,
    decisions,
    health,
    logins,
    metrics,
    notices,
    operations,
    run_changes,
    runs,
    schedules,
    store_calls,
    stream,
    tokens,
)
from mulligan.api.routing import Route

ROUTES: tuple[Route, ...] = (
    *audit.ROUTES,
    *catalogue.ROUTES,
    *decisions.ROUTES,
    *health.ROUTES,
    *logins.ROUTES,
    *metrics.ROUTES,
    *notices.ROUTES,
    *operations.ROUTES,
    *run_changes.ROUTES,
    *runs.ROUTES,
    *schedules.ROUTES,
    *store_calls.ROUTES,
    *stream.ROUTES,
    *tokens.ROUTES,
)
