"""What shows a run while this program drives it: lines on a terminal, a table in a notebook, or nothing."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from mulligan.client.notebook import find_notebook_display
from mulligan.client.session import Session

if TYPE_CHECKING:
    from mulligan.service.driving.shown_runs import RunDisplay
    from mulligan.service.service import Service


def choose_display(show: bool | None, service: Service, session: Session, slots: float) -> RunDisplay | None:
    """What shows the run: what was asked for; by default something if a person looks: in a notebook, on a terminal."""
    if show is not False and (in_notebook := find_notebook_display(session, service)) is not None:
        return in_notebook
    if not (sys.stderr.isatty() if show is None else show):
        return None
    # Loaded only if something is shown.
    from mulligan.client.terminal_display import open_display

    display: RunDisplay = open_display(service, session, slots)
    return display
