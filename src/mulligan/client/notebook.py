"""Runs in a notebook: how they look in the output of a cell, and how that output follows a run while it is driven."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from mulligan.client.notebook_html import render_progress, render_run, render_story, render_workflow
from mulligan.errors import StoreUnavailable
from mulligan.service import Outcome, RunProgress, Service, Workflow

# A graph with more nodes is left out: it could not be read. One of more steps is not even laid out.
NODES_MAX, DRAWN_STEPS_MAX = 60, 5_000
# How often the output of a cell changes at most, and how often if only the clock has moved.
FRAME_SECONDS, IDLE_SECONDS = 0.4, 2.0
# Reading a large run takes long, and the engine waits meanwhile: with more steps, or after a reading that took longer,
# only what is in memory is shown until the run ends.
LIVE_STEPS_MAX, LIVE_SECONDS_MAX = 200, 0.15
# The share of its time that an engine spends on drawing: one part in so many.
DRAWING_SHARE = 20


def run_html(service: Service, run_id: int, note: str = "") -> str:
    """A run as it is now: status, steps, graph. `note`: a sentence below."""
    run = service.overview(run_id, with_attempts=True)
    graph, why_not = _draw(*service.drawn_run(run_id))
    if not note and run["status"] == "running" and run["driver"] is None:
        note = f"no process drives it; to continue it: mulligan.open().get({run_id}).resume()"
    notes = "; ".join(filter(None, (note, why_not)))
    return render_run(run, service.failure_outcomes(run_id), graph, note=notes)


def story_html(service: Service, run_id: int, step: str = "") -> str:
    """The story of a run or of a step."""
    return render_story(service.story(run_id, step, is_tree=True), service.waits(run_id, step))


def workflow_html(workflow: Workflow) -> str:
    """A workflow: its graph."""
    graph, why_not = _draw(workflow)
    return render_workflow(workflow.name, len(workflow.steps), graph, note=why_not)


def _draw(workflow: Workflow, statuses: dict[str, str] | None = None) -> tuple[str, str]:
    """The graph, or why there is none."""
    count = len(workflow.steps)
    graph = "" if count > DRAWN_STEPS_MAX else Service.draw_for_notebook(workflow, statuses, nodes_max=NODES_MAX)
    return graph, "" if graph else f"the graph of {count:,} steps is too large to be drawn here"


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


# The outputs that followed runs, by the place of the home and the run.
_followed: dict[tuple[str, int], CellOutput] = {}


def clear_followed(place: str, run_id: int) -> None:
    """Remove the output that followed a run, if the same cell is about to show the run as its result."""
    output = _followed.pop((place, run_id), None)
    if output is not None and output.is_current:
        output.clear()


class NotebookDisplay:
    """Shows a run in the output of a cell while it is driven. Its last state stays there."""

    def __init__(
        self, service: Service, output: CellOutput, place: str = "", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.progress = RunProgress()
        self._service = service
        self._output = output
        self._place = place
        self._clock = clock
        self._begun_at = clock()
        # When it may be drawn again: if something has happened, and in any case.
        self._due, self._idle_due = 0.0, 0.0
        self._has_news = False
        self._is_light = False
        self._run_id, self._workflow, self._trouble = 0, "", ""

    def begin(self, run_id: int, workflow: str) -> None:
        self._run_id, self._workflow = run_id, workflow

    def committed(self, state: Any, entries: Sequence[Any]) -> None:
        self.progress.update(state, entries)
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
        took = self._clock() - now
        self._is_light = self._is_light or took > LIVE_SECONDS_MAX
        self._has_news = False
        self._due = now + took + max(FRAME_SECONDS, took * DRAWING_SHARE)
        self._idle_due = max(self._due, now + IDLE_SECONDS)

    def end(self, outcome: Outcome) -> None:
        note = ""
        if outcome.ending == "interrupted":
            note = f"interrupted; to continue it: mulligan.open().get({outcome.run_id}).resume()"
        words = outcome.status if outcome.ending == "ended" else outcome.ending
        self._show(run_html(self._service, outcome.run_id, note), words)
        _followed[self._place, outcome.run_id] = self._output

    def close(self) -> None:
        pass

    def _draw(self, now: float) -> None:
        root = self.progress.root
        count = len(root.graph.nodes) if root is not None else 0
        try:
            if self._is_light or count > LIVE_STEPS_MAX:
                html = render_progress(self.progress, self._workflow, now - self._begun_at)
            else:
                html = run_html(self._service, self._run_id, self._trouble)
        except StoreUnavailable:
            # The driver waits for the store and says so. What is shown stays.
            return
        self._show(html, self._trouble or "running")

    def _show(self, html: str, words: str) -> None:
        self._output.show(html, f"run {self._run_id} of '{self._workflow}': {words}")
