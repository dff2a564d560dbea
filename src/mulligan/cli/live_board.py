"""The live part of a terminal: what moves now, and how far the run is. A bounded number of lines, whatever its size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Literal

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from mulligan.cli.console_style import Paper
from mulligan.cli.tables import length
from mulligan.cli.terminal import visible
from mulligan.service import Following, Moving, answer_to

ROWS_MAX = 8
BAR_CHARS = 24
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
    "paused": ("‖", "?", "magenta"),
    "breaker": ("◌", "~", "yellow"),
    "queued": ("◌", "~", "yellow"),
}
# What is counted, in which words and colours, in this order.
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
    """Drawn when it is told to: no thread of its own stands beside the engine's loop."""

    def __init__(self, paper: Paper, home: str = "") -> None:
        self._paper = paper
        # What a command that we propose needs beside its words.
        self._home = home
        self._has_signs = paper.has_signs
        # Without a system of colours nothing is bold or dim either; the cursor moves all the same.
        colours: Literal["auto"] | None = "auto" if paper.is_coloured else None
        self._console = Console(file=paper.stream, color_system=colours, highlight=False, markup=False, emoji=False)
        self._live = Live(
            console=self._console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False
        )
        self._live.start()

    def say(self, lines: list[str]) -> None:
        """Lines that stay, above what moves."""
        self._console.print(Text.from_ansi(self._paper.shown("\n".join(lines))), soft_wrap=True)

    def draw(self, following: Following, queued: Sequence[Moving], seconds: float, left: str, trouble: str) -> None:
        """`queued`: what no worker takes. `left`: how long it will still take, in words; "" where nobody knows."""
        rows = [*self._rows(following, queued), self._gauge(following.counts, seconds, left)]
        if trouble:
            rows.append(Text(visible(f"! {trouble}"), style="magenta"))
        for row in rows:
            if row.overflow != "fold":
                row.no_wrap, row.overflow = True, "ellipsis" if self._has_signs else "crop"
        self._live.update(Group(*rows), refresh=True)

    def close(self) -> None:
        self._live.stop()

    def _rows(self, following: Following, queued: Sequence[Moving]) -> Iterator[Text]:
        now = datetime.now(UTC)
        # No more than leaves room for the lines above, on a terminal of few lines.
        limit = max(1, min(ROWS_MAX, self._console.height - 4))
        found = [*following.moving(limit + 1), *queued]
        # On a narrow terminal a long name leaves room for what is said of it.
        wide = min(max((len(one.where) for one in found), default=0), max(8, self._console.width // 3))
        left = limit
        for one in found:
            rows = [self._row(one, wide, now), *self._answer(one)]
            if len(rows) > left and left < limit:
                yield Text("  …" if self._has_signs else "  ...", style="dim")
                return
            yield from rows
            left -= len(rows)

    def _answer(self, one: Moving) -> Iterator[Text]:
        """What to type, where a person is asked, on a line of its own: no name or message may push it off the edge."""
        if one.ask is not None:
            typed = visible(answer_to(one.ask.run_id, one.ask.kind, one.ask.name) + self._home)
            yield Text(f"  {typed}", style="bold", overflow="fold")

    def _row(self, one: Moving, wide: int, now: datetime) -> Text:
        sign, plain, style = _LOOKS[one.kind]
        text = visible(one.text)
        where = visible(one.where)
        where = where if len(where) <= wide else where[: wide - 1] + ("…" if self._has_signs else "~")
        row = Text(f"{sign if self._has_signs else plain} {where:<{wide}}  ", style=style)
        if one.due is not None:
            left = length(max(0.0, (one.due - now).total_seconds()))
            told = f"{text}, by itself in {left}" if one.kind in ("parked", "approval") else f"{text} in {left}"
            return row.append(told.strip())
        took = length(max(0.0, (now - one.since).total_seconds()))
        return row.append(f"{took:>6}").append(f"  {text}" if text else "", style="dim")

    def _gauge(self, counts: dict[str, int], seconds: float, left: str) -> Text:
        """How many steps are done, as a bar and in numbers; then the time, since what follows may be cut off."""
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
