"""Attempts as a table: when each began, what it cost, how it ended."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from mulligan.cli.tables import length, show_table
from mulligan.service.formatting import format_size
from mulligan.service.overview import in_a_line


def show_attempts(tried: Iterable[dict[str, Any]]) -> None:
    show_table(("AT", "ROUND", "WHAT", "TRY", "TOOK", "CPU", "MEMORY", "HOW IT ENDED"), [_row(one) for one in tried])


def _row(tried: dict[str, Any]) -> tuple[str, ...]:
    """An attempt in a line: when, what, what it cost, how it ended."""
    at = datetime.fromisoformat(tried["started_at"] or tried["scheduled_at"])
    took, cpu = ("" if tried[name] is None else length(tried[name]) for name in ("wall_seconds", "cpu_seconds"))
    peak = format_size(tried["peak_memory"]) if tried["peak_memory"] else ""
    end = in_a_line(tried["failure"]) if tried["failure"] else tried["status"]
    when, number = f"{at.astimezone():%H:%M:%S}", str(tried["attempt"])
    return when, str(tried["round"]), tried["place"], number, took, cpu, peak, end
