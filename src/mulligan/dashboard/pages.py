"""The one table of pages. Each module of an area has its part."""

from __future__ import annotations

from mulligan.api.routing import Pages
from mulligan.dashboard import (
    assets,
    audit,
    compare,
    editor,
    home,
    inbox,
    notices,
    recovery,
    run,
    runs,
    schedules,
    step,
    suggestions,
    tokens,
    usage,
    whatif,
    workers,
    workflow_coverage,
    workflows,
)
from mulligan.dashboard.errors import render_error

_AREAS = (
    assets,
    home,
    run,
    inbox,
    runs,
    step,
    compare,
    editor,
    workflows,
    workflow_coverage,
    whatif,
    schedules,
    recovery,
    suggestions,
    notices,
    usage,
    workers,
    audit,
    tokens,
)

PAGES = Pages(tuple(route for area in _AREAS for route in area.ROUTES), render_error)
