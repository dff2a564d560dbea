"""What shows a run while this program drives it: lines on a terminal, a table in a notebook, or nothing."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from typing import Any, Protocol

from mulligan.client.notebook import find_notebook_display
from mulligan.client.session import Session
from mulligan.service import Display as ConsoleDisplay
from mulligan.service import Forecast, Outcome, Paper, RunProgress, Service, paper, show_outcome


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


class TerminalDisplay(ConsoleDisplay):
    """The display of `mulligan run`: a line for each thing that happens, what runs now below, a summary in the end."""

    def __init__(self, sheet: Paper, session: Session, outlook: Forecast | None) -> None:
        super().__init__(sheet, session.option, outlook)
        self._session = session
        self._outcome: Outcome | None = None

    def begin(self, run_id: int, workflow: str) -> None:
        self.paper.say(self.paper.tinted(f"run {run_id}: {workflow}", "bold"))

    def end(self, outcome: Outcome) -> None:
        self._outcome = outcome

    def close(self) -> None:
        super().close()
        if self._outcome is not None:
            show_outcome(self.paper, self._outcome, self._session.given)


def choose_display(show: bool | None, service: Service, session: Session, slots: float) -> Display | None:
    """What shows the run: what was asked for; by default something if a person looks: in a notebook, on a terminal."""
    if show is not False and (in_notebook := find_notebook_display(session, service)) is not None:
        return in_notebook
    if not (sys.stderr.isatty() if show is None else show):
        return None
    sheet = paper()
    # Two runs in two threads would draw over each other: only the main thread draws what runs now.
    sheet.is_live = sheet.is_live and threading.current_thread() is threading.main_thread()
    return TerminalDisplay(sheet, session, service.forecast(slots) if sheet.is_live else None)
