"""The one table of routes. Each module of an area has its part."""

from __future__ import annotations

from mulligan.api import decisions, health, operations, run_changes, runs
from mulligan.api.routing import Route

ROUTES: tuple[Route, ...] = (
    *health.ROUTES,
    *runs.ROUTES,
    *run_changes.ROUTES,
    *decisions.ROUTES,
    *operations.ROUTES,
)
