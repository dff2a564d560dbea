"""A run on a terminal while a program drives it, as `mulligan run` shows it."""

from __future__ import annotations

import threading

from mulligan.client.session import Session
from mulligan.service.driving.outcome import Outcome
from mulligan.service.rendering.console.display import Display
from mulligan.service.rendering.console.printer import Printer, printer
from mulligan.service.rendering.console.summary import show_outcome
from mulligan.service.runs.statistics.forecast import Forecast
from mulligan.service.service import Service


class TerminalDisplay(Display):
    """The display of `mulligan run`: a line for each thing that happens, what runs now below, a summary in the end."""

    def __init__(self, sheet: Printer, service: Service, session: Session, outlook: Forecast | None) -> None:
        super().__init__(sheet, session.option, outlook, read_progress=service.runs.attempt_progress)
        self._session = session
        self._outcome: Outcome | None = None

    def end(self, outcome: Outcome) -> None:
        self._outcome = outcome

    def close(self) -> None:
        super().close()
        if self._outcome is not None:
            show_outcome(self.printer, self._outcome, self._session.given)


def open_display(service: Service, session: Session, slots: float) -> TerminalDisplay:
    """The display of a run that is about to be driven."""
    sheet = printer()
    # Two runs in two threads would draw over each other: only the main thread draws what runs now.
    sheet.is_live = sheet.is_live and threading.current_thread() is threading.main_thread()
    return TerminalDisplay(sheet, service, session, service.driving.forecast(slots) if sheet.is_live else None)
