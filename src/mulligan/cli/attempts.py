"""Attempts as a table: when each began, what it cost, how it ended."""

from __future__ import annotations

from collections.abc import Iterable

from mulligan.cli.tables import length, show_table
from mulligan.service import AttemptRecord, summarize_failure
from mulligan.service.formatting import format_size


def show_attempts(tried: Iterable[AttemptRecord]) -> None:
    show_table(("AT", "ROUND", "WHAT", "TRY", "TOOK", "CPU", "MEMORY", "HOW IT ENDED"), [_row(one) for one in tried])


def _row(one: AttemptRecord) -> tuple[str, ...]:
    took, cpu = ("" if seconds is None else length(seconds) for seconds in (one.wall_seconds, one.cpu_seconds))
    return (
        f"{(one.started_at or one.scheduled_at).astimezone():%H:%M:%S}",
        str(one.round),
        one.place,
        str(one.attempt),
        took,
        cpu,
        format_size(one.peak_memory) if one.peak_memory else "",
        summarize_failure(one.failure) if one.failure else one.status,
    )
