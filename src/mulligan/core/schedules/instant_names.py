"""What the inputs of a schedule can read of the instant that starts a run: `${schedule.date}`."""

from __future__ import annotations

from datetime import datetime, tzinfo
from typing import Any

ROOT = "schedule"
FIELDS = ("name", "timezone", "instant", "date", "previous", "previous_date", "next", "next_date")


def instant_names(
    name: str,
    zone: tzinfo,
    zone_name: str,
    *,
    previous: datetime | None,
    instant: datetime,
    following: datetime | None,
) -> dict[str, Any]:
    """The fields of `schedule` at an instant, with the instants before and after it, in the zone of the schedule."""
    return {
        "name": name,
        "timezone": zone_name,
        "instant": _time(instant, zone),
        "date": _date(instant, zone),
        "previous": _time(previous, zone),
        "previous_date": _date(previous, zone),
        "next": _time(following, zone),
        "next_date": _date(following, zone),
    }


def _time(at: datetime | None, zone: tzinfo) -> str | None:
    return at.astimezone(zone).isoformat().replace("+00:00", "Z") if at is not None else None


def _date(at: datetime | None, zone: tzinfo) -> str | None:
    return at.astimezone(zone).date().isoformat() if at is not None else None
