"""The tab Overview of a run: why it is as it is, its steps, and when they ran."""

from __future__ import annotations

from mulligan.dashboard.run_tab import RunView, Tab
from mulligan.dashboard.shell import empty


def render_overview(run: RunView) -> Tab:
    return Tab(empty("Nothing yet."), live=f"run:{run.run_id}")
