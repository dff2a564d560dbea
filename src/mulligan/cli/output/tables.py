"""Tables that fit a terminal, ages and durations; with colour where it is wanted."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from datetime import datetime

from mulligan.cli.output.terminal import show, visible, wants_colour
from mulligan.service.rendering.console import terminal_text
from mulligan.service.rendering.console.terminal_text import length as length
from mulligan.service.rendering.formatting import single_line

# The tone of a status.
_TONES = {
    **dict.fromkeys(("completed", "ok", "good"), "good"),
    **dict.fromkeys(("failed", "cancelled", "problem", "bad"), "bad"),
    **dict.fromkeys(("backing_off", "handling", "warning", "try"), "try"),
    **dict.fromkeys(("pending_failed", "paused", "wait"), "wait"),
    **dict.fromkeys(("running", "ready"), "run"),
    **dict.fromkeys(("waiting", "skipped", "plain"), "plain"),
}
# The width of a terminal that does not report it.
COLUMNS = 80
# The gap between two columns.
_GAP = "  "
# The shortest width of the last column; a terminal wraps longer lines.
_LAST_CHARS_MIN = 24


def show_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table on stdout."""
    for line in table_lines(heads, rows):
        show(line)


def table_lines(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table: columns aligned, the last one cut to the width of a terminal; none without rows.

    If all `heads` are empty there is no header.
    """
    if not rows:
        return []
    rows = [[visible(single_line(cell)) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in (heads, *rows)) for column in range(len(heads) - 1)]
    width = columns() if sys.stdout.isatty() else None
    is_coloured = wants_colour(sys.stdout, os.environ)
    return [
        _line(row, widths, width, is_coloured=is_coloured and row is not heads)
        for row in ((heads, *rows) if any(heads) else rows)
    ]


def columns() -> int:
    """The width of the terminal: $COLUMNS, or what the terminal reports, or 80."""
    said = os.environ.get("COLUMNS", "")
    return (int(said) if said.isdecimal() else 0) or os.get_terminal_size(sys.stdout.fileno()).columns or COLUMNS


def _line(row: Sequence[str], widths: Sequence[int], width: int | None, *, is_coloured: bool) -> str:
    cells = [cell.ljust(wide) for cell, wide in zip(row, widths, strict=False)]
    last = row[-1]
    if width is not None:
        last = cut(last, max(_LAST_CHARS_MIN, width - sum(len(cell) + len(_GAP) for cell in cells)))
    painted = [tinted(cell, cell.strip()) for cell in cells] if is_coloured else cells
    return _GAP.join((*painted, last)).rstrip()


def tinted(text: str, tone: str) -> str:
    """The text in the colour of a status or tone, if that has one."""
    return terminal_text.tinted(text, _TONES.get(tone, ""))


def cut(text: str, chars_max: int) -> str:
    """One line of at most so many characters."""
    line = " ".join(text.split())
    return line if len(line) <= chars_max else line[: chars_max - 1] + "…"


def age(since: datetime, now: datetime) -> str:
    """How long ago, in one unit: `40s`, `5m`, `3h`, `12d`."""
    seconds = max(0, int((now - since).total_seconds()))
    for letter, unit in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= unit:
            return f"{seconds // unit}{letter}"
    return f"{seconds}s"
