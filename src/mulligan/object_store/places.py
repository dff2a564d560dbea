"""Places of objects: what a setting may say, and whether it covers the place that a reference names."""

from __future__ import annotations

from mulligan.core.model.artifacts import is_object_place
from mulligan.core.model.text.durations import parse_duration
from mulligan.errors import InputInvalid

# Every worker and server of a store may have it; they must agree.
VARIABLE = "MULLIGAN_OBJECT_STORE"
# How long one request to the storage may take, and how long it is tried again.
TIMEOUT_VARIABLE, TIMEOUT_SECONDS = "MULLIGAN_OBJECT_TIMEOUT", 60.0
_HINT = "write it like s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX"


def checked_place(text: str, what: str = VARIABLE) -> str:
    """The place that a setting names, without a slash at its end. The text is not shown if it may hold a password."""
    place = text.strip().rstrip("/")
    if is_object_place(place):
        return place
    if "@" in text:
        raise InputInvalid(f"{what} has a user or a password in it", hint=f"{_HINT}; credentials come from elsewhere")
    raise InputInvalid(f"{what}: '{text[:200]}' is not a place of objects", hint=_HINT)


def is_within(place: str, setting: str) -> bool:
    """Whether a reference's place is the one that a setting names: a folder in it, which belongs to one store."""
    return bool(setting) and place.startswith(f"{setting}/")


def timeout_seconds(text: str) -> float:
    """What `$MULLIGAN_OBJECT_TIMEOUT` says."""
    try:
        return parse_duration(text) if text else TIMEOUT_SECONDS
    except ValueError:
        raise InputInvalid(f"{TIMEOUT_VARIABLE}: '{text}' is not a duration", hint="write it like 60s or 5m") from None
