"""Which failure an HTTP status is that was not expected."""

from __future__ import annotations

_TOO_MANY_REQUESTS = 429
# The server itself says that the same request may be sent again.
_LATER = (408, 425)


def status_code(status: int) -> tuple[str, bool | None]:
    """The code of the failure, and whether it is worth another try if the code does not say so."""
    if status == _TOO_MANY_REQUESTS:
        return "HTTP_429", None
    if status >= 500:
        return "HTTP_5XX", None
    if status >= 400:
        return "HTTP_4XX", True if status in _LATER else None
    # Not what was asked for, and no error either: a 202 where a 200 is wanted may be one the next time.
    return "VALIDATION_FAILED", None
