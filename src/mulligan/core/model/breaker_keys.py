"""The names of breakers with a key: `db[KEY]`. One breaker of the workflow stands for one per key."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from mulligan.core.model.text.credential_patterns import hide_in
from mulligan.core.model.text.formatting import escape_unprintable, single_line
from mulligan.errors import ExpressionFailed

# A longer key is cut, and a digest of the whole follows.
KEY_CHARS_MAX = 80
_DIGEST_CHARS = 12


def breaker_key(value: Any) -> str:
    """A key as names show it: one bounded line, with credentials hidden. ExpressionFailed if nothing is left.

    The password of a URL is hidden before anything else: it is in no name, and in no digest either.
    """
    hidden = hide_in(value)
    text = hidden if isinstance(hidden, str) else "" if hidden is None else msgspec.json.encode(hidden).decode()
    shown = escape_unprintable(single_line(text).strip())
    if not shown:
        raise ExpressionFailed("the key of its breaker is empty")
    if len(shown) <= KEY_CHARS_MAX:
        return shown
    digest = hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest()[:_DIGEST_CHARS]
    return f"{shown[: KEY_CHARS_MAX - _DIGEST_CHARS - 1]}~{digest}"


def breaker_name(name: str, key: str) -> str:
    """The name under which a store keeps the breaker."""
    return f"{name}[{key}]" if key else name
