"""The one table of pages. Each module of an area has its part."""

from __future__ import annotations

from mulligan.api.http.routing import Pages
from mulligan.dashboard import assets, home, inbox
from mulligan.dashboard.components.errors import render_error
from mulligan.dashboard.operations import audit, notices, recovery, schedules, tokens, usage, workers
from mulligan.dashboard.runs import compare, run, runs, step
from mulligan.dashboard.workflows import editor, suggestions, whatif, workflow_coverage, workflows

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
