"""The one table of pages. Each module of an area has its part."""

from __future__ import annotations

from mulligan.api.routing import Pages
from mulligan.dashboard import assets, compare, home, run
from mulligan.dashboard.errors import render_error

PAGES = Pages((*assets.ROUTES, *home.ROUTES, *run.ROUTES, *compare.ROUTES), render_error)
