"""The one table of routes. Each module of an area has its part."""

from __future__ import annotations

from mulligan.api import audit, health, logins, runs
from mulligan.api.routing import Route

ROUTES: tuple[Route, ...] = (
    *health.ROUTES,
    *logins.ROUTES,
    *runs.ROUTES,
    *audit.ROUTES,
)
