"""Runs in a notebook: how they look in the output of a cell, and how that output follows a run while it is driven."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from mulligan.client.session import Session
from mulligan.errors import StoreUnavailable

if TYPE_CHECKING:
    from mulligan.service.driving.outcome import Outcome
    from mulligan.service.driving.run_progress import RunProgress
    from mulligan.service.service import Service

# How often the output of a cell changes at most, and how often if only the clock has moved.
FRAME_SECONDS, IDLE_SECONDS = 0.4, 1.0
# Reading a large run takes long, and the engine waits meanwhile: with more steps, or after a reading that took longer,
# only what is in memory is shown until the run ends.
LIVE_STEPS_MAX, LIVE_SECONDS_MAX = 200, 0.25
# The share of its time that an engine spends on drawing: one part in so many.
DRAWING_SHARE = 10


def run_html(session: Session, run_id: int) -> str:
    """A run as the result of a cell. What followed it in the same cell is removed: it would be there twice."""
    # A program outside of a notebook never loads it.
    from mulligan.client import notebook_html

    with session.service() as service:
        html = notebook_html.run_html(service, run_id, home=_opened(session))
    if (output := _followed.pop((session.folder, run_id), None)) is not None and output.is_current:
        output.clear()
    return html


def _opened(session: Session) -> str:
    """The Python that opens the home of a run."""
    return f"mulligan.open({session.given!r})" if session.given else "mulligan.open()"


# -- the output of a cell --------------------------------------------------------------------------------------------


class CellOutput:
    """One output of the cell that is being executed: shown once, then replaced in place."""

    def __init__(self, shell: Any, display: Any) -> None:
        self._shell = shell
        self._display = display
        self._cell = shell.execution_count
        self._handle: Any = None

    @property
    def is_current(self) -> bool:
        """Whether its cell is still being executed."""
        return bool(self._shell.execution_count == self._cell)

    def show(self, html: str, text: str) -> None:
        """Show this in place of what is there; a front end without HTML shows the text."""
        data = {"text/html": html, "text/plain": text}
        if self._handle is None:
            self._handle = self._display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)

    def clear(self) -> None:
        if self._handle is not None:
            self._handle.update({"text/html": "", "text/plain": ""}, raw=True)


def find_cell_output() -> CellOutput | None:
    """An output of the cell that this program is executed in; None if it is not in a notebook.

    IPython is never imported: a program in a notebook has it already.
    """
    ipython = sys.modules.get("IPython")
    shell = getattr(ipython, "get_ipython", lambda: None)()
    display = getattr(sys.modules.get("IPython.display"), "display", None)
    if display is None or getattr(shell, "kernel", None) is None:
        return None
    return CellOutput(shell, display)


# The outputs of the current cell that followed runs, by the folder of the home and the run.
_followed: dict[tuple[str, int], CellOutput] = {}


def find_notebook_display(session: Session, service: Service) -> NotebookDisplay | None:
    """What shows a run in a notebook; None outside of one."""
    output, home = find_cell_output(), _opened(session)
    if output is None:
        return None

    from mulligan.client import notebook_html
    from mulligan.service.driving.run_progress import RunProgress

    def read(run_id: int, note: str) -> str:
        return notebook_html.run_html(service, run_id, note, home=home)

    progress = RunProgress(service.runs.attempt_progress)
    return NotebookDisplay(output, read, progress, folder=session.folder, home=home)


class NotebookDisplay:
    """Shows a run in the output of a cell while it is driven. Its last state stays there."""

    is_debugged = False

    def __init__(
        self,
        output: CellOutput,
        read: Callable[[int, str], str],
        progress: RunProgress,
        *,
        folder: str,
        home: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.progress = progress
        self._output = output
        # Gives the HTML of a run, with a note below it.
        self._read = read
        self._folder = folder
        self._home = home
        self._clock = clock
        self._begun_at = clock()
        # When it may be drawn again: if something has happened, and in any case.
        self._due, self._idle_due = 0.0, 0.0
        self._has_news = False
        self._is_light = False
        self._frames = 0
        self._run_id, self._workflow, self._trouble = 0, "", ""

    def begin(self, run_id: int, workflow: str) -> None:
        self._run_id, self._workflow = run_id, workflow

    def committed(self, state: Any, entries: Sequence[Any], is_ordinary: bool = False) -> None:
        self.progress.update(state, entries, is_ordinary)
        self.progress.take_announcements()
        self._has_news = True

    def trouble(self, message: str) -> None:
        self._trouble = message
        self._has_news = True

    def tick(self) -> None:
        now = self._clock()
        if not self._run_id or now < (self._due if self._has_news else self._idle_due):
            return
        self._draw(now)
        # The first time includes loading what draws.
        took = self._clock() - now if self._frames else 0.0
        self._frames += 1
        self._is_light = self._is_light or took > LIVE_SECONDS_MAX
        self._has_news = False
        self._due = self._clock() + max(FRAME_SECONDS, took * DRAWING_SHARE)
        self._idle_due = max(self._due, now + IDLE_SECONDS)

    def end(self, outcome: Outcome) -> None:
        how = f"interrupted; to continue it: {self._home}.get({outcome.run_id}).resume()"
        words = outcome.status if outcome.ending == "ended" else outcome.ending
        self._show(self._read(outcome.run_id, how if outcome.ending == "interrupted" else ""), words)
        for key in [key for key, output in _followed.items() if not output.is_current]:
            del _followed[key]
        _followed[self._folder, outcome.run_id] = self._output

    def close(self) -> None:
        pass

    def _draw(self, now: float) -> None:
        root = self.progress.root
        count = len(root.graph.nodes) if root is not None else 0
        try:
            if self._is_light or count > LIVE_STEPS_MAX:
                from mulligan.client.notebook_html import render_progress

                html = render_progress(self.progress, self._workflow, now - self._begun_at, note=self._trouble)
            else:
                html = self._read(self._run_id, self._trouble)
        except StoreUnavailable:
            # The driver waits for the store and says so. What is shown stays.
            return
        self._show(html, self._trouble or "running")

    def _show(self, html: str, words: str) -> None:
        self._output.show(html, f"run {self._run_id} of '{self._workflow}': {words}")
