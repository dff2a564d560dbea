"""What fails now, who waits, and what is due."""

from __future__ import annotations

from mulligan.api.routing import Answer, Call
from mulligan.dashboard.shell import empty, heading, page, page_route


def show_home(call: Call) -> Answer:
    return page(call, "Home", heading("Home"), empty("Nothing yet."), section="home", live="runs,pending")


ROUTES = (page_route("/", show_home, "What fails now, who waits, and what is due."),)
