"""The live part of a terminal: current activities and a progress bar, in a bounded number of lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Literal

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from mulligan.service.driving.run_progress import Activity, RunProgress
from mulligan.service.rendering.console.printer import Printer
from mulligan.service.rendering.console.terminal_text import length, visible
from mulligan.service.rendering.next_commands import command_for_request
from mulligan.service.runs.views.attempt_progress import describe_progress
from mulligan.worker.logs.progress_records import Progress

ROWS_MAX = 8
BAR_CHARS = 24
STEP_BAR_CHARS = 10
# A narrower terminal has a shorter bar.
WIDE_COLUMNS = 72

_LOOKS = {
    "running": ("●", "*", "cyan"),
    "items": ("▸", ">", "cyan"),
    "child": ("▸", ">", "cyan"),
    "timer": ("◷", "~", "dim"),
    "retry": ("↻", "~", "yellow"),
    "parked": ("?", "?", "magenta"),
    "approval": ("?", "?", "magenta"),
    "event": ("◌", "~", "cyan"),
    "paused": ("‖", "?", "magenta"),
    "breaker": ("◌", "~", "yellow"),
    "queued": ("◌", "~", "yellow"),
}
# The counts that are shown, with their labels and colours, in this order.
_COUNTS = (
    ("running", "running", "cyan"),
    ("handling", "handling", "yellow"),
    ("backing_off", "backing off", "yellow"),
    ("pending_failed", "parked", "magenta"),
    ("ready", "queued", "dim"),
    ("failed", "failed", "red"),
    ("skipped", "skipped", "dim"),
    ("cancelled", "cancelled", "red"),
)
_DONE = ("completed", "failed", "skipped", "cancelled")


class Board:
    """Draws only when `draw` is called: there is no thread beside the engine's loop."""

    def __init__(self, printer: Printer, home: str = "") -> None:
        self._printer = printer
        # The `--home` option of suggested commands.
        self._home = home
        self._has_signs = printer.has_signs
        # Without colours nothing is bold or dim either; the cursor still moves.
        colours: Literal["auto"] | None = "auto" if printer.is_coloured else None
        self._console = Console(file=printer.stream, color_system=colours, highlight=False, markup=False, emoji=False)
        self._live = Live(
            console=self._console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False
        )
        self._live.start()

    def say(self, lines: list[str]) -> None:
        """Print lines that stay, above the board."""
        self._console.print(Text.from_ansi(self._printer.shown("\n".join(lines))), soft_wrap=True)

    def draw(self, progress: RunProgress, queued: Sequence[Activity], seconds: float, left: str, trouble: str) -> None:
        """Draw the board. `queued`: tasks that no worker takes. `left`: the estimated time left, or ""."""
        rows = [*self._rows(progress, queued), self._gauge(progress.counts, seconds, left)]
        if trouble:
            rows.append(Text(visible(f"! {trouble}"), style="magenta"))
        for row in rows:
            if row.overflow != "fold":
                row.no_wrap, row.overflow = True, "ellipsis" if self._has_signs else "crop"
        self._live.update(Group(*rows), refresh=True)

    def close(self) -> None:
        self._live.stop()

    def _rows(self, progress: RunProgress, queued: Sequence[Activity]) -> Iterator[Text]:
        now = datetime.now(UTC)
        # Leave room for the lines above on a small terminal.
        limit = max(1, min(ROWS_MAX, self._console.height - 4))
        found = [*progress.activities(limit + 1), *queued]
        # Leave room for the text beside a long name on a narrow terminal.
        wide = min(max((len(one.where) for one in found), default=0), max(8, self._console.width // 3))
        left = limit
        for one in found:
            rows = [self._row(one, wide, now), *self._command(one)]
            if len(rows) > left and left < limit:
                yield Text("  …" if self._has_signs else "  ...", style="dim")
                return
            yield from rows
            left -= len(rows)

    def _command(self, one: Activity) -> Iterator[Text]:
        """The command for a request, on its own line, so that no name or message pushes it off the edge."""
        if one.request is not None:
            typed = visible(command_for_request(one.request.run_id, one.request.kind, one.request.name) + self._home)
            yield Text(f"  {typed}", style="bold", overflow="fold")

    def _row(self, one: Activity, wide: int, now: datetime) -> Text:
        sign, plain, style = _LOOKS[one.kind]
        text = visible(one.text)
        where = visible(one.where)
        where = where if len(where) <= wide else where[: wide - 1] + ("…" if self._has_signs else "~")
        row = Text(f"{sign if self._has_signs else plain} {where:<{wide}}  ", style=style)
        if one.due is not None:
            left = length(max(0.0, (one.due - now).total_seconds()))
            until = ", default in" if one.kind in ("parked", "approval") else ", for" if one.kind == "event" else " in"
            shown = f"{text}{until} {left}"
            return row.append(shown.strip())
        took = length(max(0.0, (now - one.since).total_seconds()))
        row.append(f"{took:>6}").append(f"  {text}" if text else "", style="dim")
        return row if one.progress is None else self._with_progress(row, one.progress)

    def _with_progress(self, row: Text, progress: Progress) -> Text:
        """How far the step says that it is: a bar if there is a total, and in words."""
        if progress.share is not None:
            full = int(STEP_BAR_CHARS * progress.share)
            signs = ("━", "─") if self._has_signs else ("#", "-")
            row.append(f"  {signs[0] * full}", style="cyan").append(signs[1] * (STEP_BAR_CHARS - full), style="dim")
        return row.append(f"  {visible(describe_progress(progress))}", style="default")

    def _gauge(self, counts: dict[str, int], seconds: float, left: str) -> Text:
        """How many steps are done, as a bar and in numbers; then the time, because the rest may be cut off."""
        total, done = sum(counts.values()), sum(counts.get(status, 0) for status in _DONE)
        chars = BAR_CHARS if self._console.width >= WIDE_COLUMNS else BAR_CHARS // 3
        full = chars * done // total if total else 0
        signs = ("━", "─") if self._has_signs else ("#", "-")
        gauge = Text().append(signs[0] * full, style="green").append(signs[1] * (chars - full), style="dim")
        gauge.append(f"  {done:,} of {total:,}", style="bold").append(f"  {length(seconds)}", style="dim")
        if left:
            gauge.append(f", {left} left", style="dim")
        for status, word, style in _COUNTS:
            if counts.get(status):
                gauge.append(f"  {counts[status]:,} {word}", style=style)
        return gauge
