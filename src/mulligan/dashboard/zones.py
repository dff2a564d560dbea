"""The time zone of whoever looks at a page, as their browser said it in a cookie."""

from __future__ import annotations

from datetime import UTC, tzinfo
from urllib.parse import unquote
from zoneinfo import ZoneInfo

from mulligan.api.routing import Call

COOKIE = "mulligan_zone"


def zone_of(call: Call) -> tzinfo:
    """UTC if the browser has said nothing yet, or something that is no zone."""
    for part in call.headers.get("cookie", "").split(";"):
        name, _, value = part.strip().partition("=")
        if name == COOKIE:
            try:
                return ZoneInfo(unquote(value))
            except (KeyError, ValueError, OSError):
                return UTC
    return UTC
