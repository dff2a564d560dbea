"""Attempts as a table: when each began, what it cost, how it ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mulligan.cli.output.tables import length, show_table
from mulligan.service.rendering.descriptions import summarize_failure
from mulligan.service.rendering.formatting import format_size
from mulligan.service.runs.stored.attempts import AttemptRecord
from mulligan.service.runs.views.attempt_progress import describe_progress


def show_attempts(tried: Iterable[AttemptRecord], names: Mapping[str, str]) -> None:
    """Print attempts as a table. `names`: of their places."""
    rows = [_row(one, names[one.place]) for one in tried]
    show_table(("AT", "ROUND", "WHAT", "TRY", "TOOK", "CPU", "MEMORY", "HOW IT ENDED"), rows)


def _row(one: AttemptRecord, name: str) -> tuple[str, ...]:
    took, cpu = ("" if seconds is None else length(seconds) for seconds in (one.wall_seconds, one.cpu_seconds))
    return (
        f"{(one.started_at or one.scheduled_at).astimezone():%H:%M:%S}",
        str(one.round),
        name,
        str(one.attempt),
        took,
        cpu,
        format_size(one.peak_memory) if one.peak_memory else "",
        _ending(one),
    )


def _ending(one: AttemptRecord) -> str:
    """How it ended; and how far it was, unless it succeeded."""
    ending = summarize_failure(one.failure) if one.failure else one.status
    progress = "" if one.status == "succeeded" else describe_progress(one.progress)
    return f"{ending}, at {progress}" if progress else ending
