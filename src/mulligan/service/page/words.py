"""Times, lengths and statuses as a page says them."""

from __future__ import annotations

from datetime import datetime

from mulligan.core.model.formatting import format_duration, format_time
from mulligan.service.page.markup import Html, element


def when(at: datetime) -> Html:
    """A time that programs can read too."""
    return element("time", format_time(at), datetime=at.isoformat())


def length(seconds: float) -> str:
    """How long something took: in milliseconds where it was short."""
    return (
        f"{seconds * 1000:.0f}ms" if seconds < 0.1 else format_duration(round(seconds, 2) if seconds < 10 else seconds)
    )


def said(status: str) -> str:
    """A status as people read it."""
    return {"pending_failed": "parked for a person", "backing_off": "to be retried"}.get(
        status, status.replace("_", " ")
    )
