"""The failure code for an unexpected HTTP status."""

from __future__ import annotations

_TOO_MANY_REQUESTS = 429
# Statuses after which the same request may be sent again.
_LATER = (408, 425)


def status_code(status: int) -> tuple[str, bool | None]:
    """The failure code, and whether to retry if that differs from the default of the code."""
    if status == _TOO_MANY_REQUESTS:
        return "HTTP_429", None
    if status >= 500:
        return "HTTP_5XX", None
    if status >= 400:
        return "HTTP_4XX", True if status in _LATER else None
    # Not expected, but not an error: a 202 instead of a 200 may become a 200 later.
    return "VALIDATION_FAILED", None
