"""`mulligan demo`: a workflow that breaks on every rung of the ladder, live."""

from __future__ import annotations

import tempfile
from importlib.resources import files
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from mulligan.core import events as e
from mulligan.core.state import State
from mulligan.core.story import Line, tell, what
from mulligan.core.verdict import is_handled
from mulligan.core.workflow import Workflow
from mulligan.language import load
from mulligan.testing.history import History
from mulligan.testing.rehearsal import rehearse

COLOURS = {"plain": "dim", "good": "green", "bad": "red", "try": "yellow", "wait": "magenta"}
MARKS = {
    "waiting": ("·", "dim"),
    "ready": ("○", "cyan"),
    "running": ("●", "cyan"),
    "backing_off": ("↻", "yellow"),
    "handling": ("✚", "yellow"),
    "pending_failed": ("?", "magenta"),
    "completed": ("✓", "green"),
    "failed": ("✗", "red"),
    "skipped": ("-", "dim"),
    "cancelled": ("-", "red"),
}


def main() -> int:
    """Watch a small run break on every rung of the ladder, and end well."""
    console = Console(highlight=False)
    workflow = load(str(files("mulligan.cli") / "demo.yaml"))
    console.print(f"[bold]{workflow.name}[/]: {workflow.description}\n", soft_wrap=True)
    with tempfile.TemporaryDirectory(prefix="mulligan-demo-") as folder:
        if console.is_terminal:
            history = _live(console, workflow, Path(folder))
        else:
            history = rehearse(workflow, Path(folder), watch=lambda state, entries: _print(console, entries))
    _summary(console, history)
    return 0 if history.status == "completed" else 1


def _print(console: Console, entries: list[e.Entry]) -> None:
    for line in filter(None, map(tell, entries)):
        console.print(_sentence(line), soft_wrap=True)


def _sentence(line: Line) -> Text:
    text = Text(f"{line.at:%H:%M:%S} ", style="dim")
    text.append(f"{line.place:<11} ", style="bold" if "." not in line.place else "")
    return text.append(line.text, style=COLOURS[line.tone])


def _live(console: Console, workflow: Workflow, folder: Path) -> History:
    """The story scrolls by above; below it stands what every step is doing now."""
    with Live(console=console, refresh_per_second=10) as live:

        def watch(state: State, entries: list[e.Entry]) -> None:
            live.update(_board(state))
            _print(live.console, entries)

        return rehearse(workflow, folder, watch=watch)


def _board(state: State) -> RenderableType:
    row = Text("\n")
    for place in state.steps():
        mark, style = MARKS[place.status]
        row.append(f"{mark} {place.key}   ", style=style)
    return Group(row)


def _summary(console: Console, history: History) -> None:
    """Each failure in one line, with what was done about it."""
    table = Table(
        box=None, padding=(0, 2, 0, 0), title="\nWhat broke, and what was done about it", title_justify="left"
    )
    for column in ("where", "what", "then"):
        table.add_column(column, header_style="bold")
    for where, failure, answer in _told(history):
        table.add_row(where, Text(failure, style="red"), Text(answer, style="green"))
    console.print(table)
    ended = history.ended
    if ended is not None:
        counts = {
            "steps": ended.total_steps,
            "recovered": ended.recovered_steps_count,
            "handled": ended.handled_steps_count,
            "open": ended.failed_steps_count,
        }
        told = ", ".join(f"{count} {name}" for name, count in counts.items())
        console.print(f"\n{told}: the run [bold]{history.status}[/]{', degraded' if ended.degraded else ''}.")


def _told(history: History) -> list[tuple[str, str, str]]:
    return [
        (entry.fact.place, what(entry.fact.failure), _answer(history, entry.fact.place, entry.seq))
        for entry in history.log
        if isinstance(entry.fact, e.AttemptFailed)
    ]


def _answer(history: History, place: str, seq: int) -> str:
    """What was done about a failure: the first thing that followed for the same place."""
    for entry in history.log[seq:]:
        fact = entry.fact
        if isinstance(fact, e.RetryScheduled) and fact.place == place:
            return "retried" + (" after its recovery script" if fact.has_script else "")
        if isinstance(fact, e.HandlerStarted) and fact.place == place:
            return "its handler took over"
        if isinstance(fact, e.StepParked) and fact.step == place:
            return "parked, then retried by default"
        if isinstance(fact, e.StepFailed) and fact.step == place:
            return _routed(history, fact)
    return ""


def _routed(history: History, fact: e.StepFailed) -> str:
    record = next(r for r in history.state.failures if (r.step, r.visit) == (fact.step, fact.visit))
    if is_handled(history.state, record):
        return f"'{record.target}' repaired it, and it went again"
    return "allowed to fail" if fact.is_allowed else "nothing: it is open"
