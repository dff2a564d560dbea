"""The one table of pages. Each module of an area has its part."""

from __future__ import annotations

from mulligan.api.routing import Pages
from mulligan.dashboard import (
    assets,
    audit,
    compare,
    home,
    notices,
    recovery,
    run,
    runs,
    schedules,
    step,
    tokens,
    usage,
    workers,
)
from mulligan.dashboard.errors import render_error

_AREAS = (
    assets,
    home,
    run,
    runs,
    step,
    compare,
    schedules,
    recovery,
    notices,
    usage,
    workers,
    audit,
    tokens,
)

PAGES = Pages(tuple(route for area in _AREAS for route in area.ROUTES), render_error)
