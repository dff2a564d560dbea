"""What shows a run while this program drives it: lines on a terminal, a table in a notebook, or nothing."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from mulligan.client.notebook import find_notebook_display
from mulligan.client.session import Session

if TYPE_CHECKING:
    from mulligan.service import Outcome, RunProgress, Service


class Display(Protocol):
    """Shows a run while it is driven. The engine calls `committed`, `trouble` and `tick` between two rounds."""

    progress: RunProgress

    def begin(self, run_id: int, workflow: str) -> None:
        """The run is about to be driven."""

    def committed(self, state: Any, entries: Sequence[Any]) -> None:
        """These facts are written. To be passed on to `progress.update`."""

    def trouble(self, message: str) -> None:
        """A problem with the engine or the store; "" when it is over."""

    def tick(self) -> None:
        """Several times a second, even if nothing happens."""

    def end(self, outcome: Outcome) -> None:
        """The run is no longer driven: it has ended, waits, or was interrupted."""

    def close(self) -> None:
        """Always called last, also after an error."""


def choose_display(show: bool | None, service: Service, session: Session, slots: float) -> Display | None:
    """What shows the run: what was asked for; by default something if a person looks: in a notebook, on a terminal."""
    if show is not False and (in_notebook := find_notebook_display(session, service)) is not None:
        return in_notebook
    if not (sys.stderr.isatty() if show is None else show):
        return None
    # Loaded only if something is shown.
    display: Display = import_module("mulligan.client.terminal_display").open_display(service, session, slots)
    return display
