"""The one table of routes. Each module of an area has its part."""

from __future__ import annotations

from mulligan.api.access import audit
from mulligan.api.areas import (
    catalogue,
    coverage,
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
    suggestions,
    tokens,
    whatif,
)
from mulligan.api.http.routing import Route

ROUTES: tuple[Route, ...] = (
    *runs.ROUTES,
    *run_changes.ROUTES,
    *decisions.ROUTES,
    *operations.ROUTES,
    *stream.ROUTES,
    *catalogue.ROUTES,
    *coverage.ROUTES,
    *whatif.ROUTES,
    *suggestions.ROUTES,
    *schedules.ROUTES,
    *notices.ROUTES,
    *logins.ROUTES,
    *tokens.ROUTES,
    *audit.ROUTES,
    *store_calls.ROUTES,
    *health.ROUTES,
    *metrics.ROUTES,
)
