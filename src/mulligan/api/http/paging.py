"""Cursors and the positions of lists: opaque texts, which only the server reads."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Any

import msgspec

from mulligan.errors import InputInvalid

# How many entries a page may have.
Limit = Annotated[int, msgspec.Meta(ge=1, le=1000)]
CURSOR_CHARS_MAX = 1000
# A position in a list, and the number of an event: no list is longer.
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


def encode_cursor(position: Any) -> str | None:
    """The text that stands for a position; None if there is none."""
    if position is None:
        return None
    return base64.urlsafe_b64encode(msgspec.json.encode(position)).rstrip(b"=").decode()


def decode_cursor(text: str, kind: Any) -> Any:
    """The position that a cursor stands for, of that type; None without one.

    `InputInvalid` if no list gave it.
    """
    if not text:
        return None
    try:
        if len(text) > CURSOR_CHARS_MAX:
            raise ValueError
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        return msgspec.json.decode(data, type=kind)
    except (binascii.Error, ValueError, RecursionError):
        raise InputInvalid(
            "the cursor is not one of this list",
            hint="use 'next' of the page before, or leave it out for the first page",
            parameter="cursor",
        ) from None
