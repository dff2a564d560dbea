"""What can be done with a run: the buttons beside its heading."""

from __future__ import annotations

from mulligan.dashboard.run_tab import RunView
from mulligan.service import Html


def render_actions(run: RunView) -> Html:
    return Html("")
