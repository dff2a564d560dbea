"""Workflow files for the faces: reading them, checking them, and the words in which people give values for them."""

from __future__ import annotations

from datetime import datetime, timedelta

from mulligan.core.model.workflow import Workflow
from mulligan.errors import InputInvalid
from mulligan.formats import FORMATS, OURS, Converted, LoadResult, convert, examine, load
from mulligan.language import quantities as q
from mulligan.language.schema import schema, schema_text

__all__ = [
    "FORMATS",
    "OURS",
    "Converted",
    "LoadResult",
    "Workflow",
    "convert",
    "duration",
    "edges_count",
    "examine",
    "load",
    "point_in_time",
    "schema",
    "schema_text",
    "size",
]


def edges_count(workflow: Workflow) -> int:
    """How many links its file has: needs and edges."""
    return sum(len(step.needs) + len(step.edges) for step in workflow.steps)


def duration(text: str) -> float:
    """Seconds, as workflow files write them: `30s`, `1h30m`, or a number of seconds."""
    try:
        return q.duration(float(text) if text.replace(".", "", 1).isdigit() else text)
    except ValueError:
        raise InputInvalid(f"'{text}' is not a duration", hint="write it like 30s, 5m or 1h30m") from None


def size(text: str) -> int:
    """Bytes, as workflow files write them: `512MiB`, `4GB`."""
    try:
        return q.size(text)
    except ValueError:
        raise InputInvalid(f"'{text}' is not a size", hint="write it like 512MiB or 4GB") from None


def point_in_time(text: str, now: datetime) -> datetime:
    """A time that has passed: so long ago (`2h`), or a date, with or without a time of day, local unless it says so."""
    try:
        return now - timedelta(seconds=q.duration(text))
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text).astimezone(now.tzinfo)
    except (ValueError, OverflowError):
        hint = "write it like 2h, 7d, 2026-11-01 or 2026-11-01T08:00"
        raise InputInvalid(f"'{text}' is neither a time nor how long ago", hint=hint) from None
