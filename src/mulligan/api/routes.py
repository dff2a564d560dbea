"""The one table of routes. Each module of an area has its part."""

from __future__ import annotations

from mulligan.api.access import audit
from mulligan.api.areas import (
    buttons,
    catalogue,
    decisions,
    health,
    notices,
    operations,
    run_changes,
    runs,
    schedules,
    store_calls,
    stream,
    tokens,
    webhooks,
    workflow_analysis,
)
from mulligan.api.http.routing import Route

# In the order of the documentation.
_RUNS = (runs, run_changes, decisions, operations, stream)
_WORKFLOWS = (catalogue, workflow_analysis, schedules, webhooks, notices)
_SERVER = (tokens, audit, store_calls, health, buttons)
ROUTES: tuple[Route, ...] = tuple(route for area in (*_RUNS, *_WORKFLOWS, *_SERVER) for route in area.ROUTES)
