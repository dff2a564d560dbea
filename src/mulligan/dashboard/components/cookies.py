"""What the browser of whoever looks at a page has said in cookies."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta, tzinfo
from urllib.parse import unquote
from zoneinfo import ZoneInfo

from mulligan.api.http.routing import Call

ZONE = "mulligan_zone"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def zone_of(call: Call) -> tzinfo:
    """The time zone; UTC if the browser has said nothing yet, or something that is no zone."""
    try:
        return ZoneInfo(unquote(_value(call, ZONE)))
    except (KeyError, ValueError, OSError):
        return UTC


def seen_cookie(call: Call) -> str:
    """The name of the cookie that says until when failures were seen: one for each project."""
    return f"mulligan_seen_{hashlib.sha256(call.service.project.encode()).hexdigest()[:8]}"


def seen_value(at: datetime) -> str:
    """What that cookie has if everything up to this time was seen."""
    return str((at - _EPOCH) // _MICROSECOND)


def seen_until(call: Call) -> datetime | None:
    """Until when failures were seen; None if nothing was said, or nothing that can be read."""
    value = _value(call, seen_cookie(call))
    try:
        return _EPOCH + int(value) * _MICROSECOND if value.isascii() and value.isdecimal() and len(value) < 20 else None
    except OverflowError:
        return None


def _value(call: Call, wanted: str) -> str:
    for part in call.headers.get("cookie", "").split(";"):
        name, _, value = part.strip().partition("=")
        if name == wanted:
            return value
    return ""
