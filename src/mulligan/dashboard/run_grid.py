"""The tab Grid of a run."""

from __future__ import annotations

from mulligan.dashboard.run_tab import RunView, Tab
from mulligan.dashboard.shell import empty


def render_grid(run: RunView) -> Tab:
    return Tab(empty("Nothing yet."), live=f"run:{run.run_id}")
