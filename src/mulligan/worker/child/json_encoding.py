"""Encode what a step returns as JSON: plain values here and at once, all others as `mulligan.values.encoding` does.

Runs in any interpreter, like `child_main`.
"""

from __future__ import annotations

import json

OUTPUT_BYTES_MAX = 64 * 1024 * 1024
# A file that the step keeps has its reference under this name: see `mulligan.step_context.artifacts`.
REFERENCE_ATTRIBUTE = "__mulligan_artifact__"


def _reference_of(value: object) -> object:
    """Return the reference to a file that the step keeps; anything else is not JSON."""
    # Asked of its class: an object may answer to any name.
    if hasattr(type(value), REFERENCE_ATTRIBUTE) and isinstance(found := getattr(value, REFERENCE_ATTRIBUTE), dict):
        return found
    raise TypeError


# `json.dumps` would create one for each call.
ENCODER = json.JSONEncoder(allow_nan=False, ensure_ascii=False, default=_reference_of)


class NotJson(Exception):
    """What `main` returned cannot be stored; the message says what and where."""


class EncodedJson(str):
    """JSON text that is within the limit and is not encoded again."""


def encode_plain(output: object) -> str | None:
    """Return `output` as JSON text; None if something in it is not JSON. Raises NotJson if it is too large."""
    if output is None:
        return "null"
    if isinstance(output, EncodedJson):
        return output
    try:
        text = ENCODER.encode(output)
        return check_size(text)
    except (TypeError, ValueError, RecursionError):
        return None


def check_size(text: str) -> str:
    """Return the text if it is within the limit; raise NotJson, or UnicodeEncodeError for a lone surrogate."""
    size = len(text) if text.isascii() else len(text.encode())
    if size > OUTPUT_BYTES_MAX:
        raise NotJson(f"the result has {size} bytes as JSON; the limit is {OUTPUT_BYTES_MAX}")
    return text
