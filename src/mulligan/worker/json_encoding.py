"""Encode what a step returns as JSON, or say what in it is not JSON. Runs in any interpreter, like `child_main`."""

from __future__ import annotations

import json

OUTPUT_BYTES_MAX = 64 * 1024 * 1024
DEPTH_MAX = 100
# A file that the step keeps has its reference under this name: see `mulligan.step_context.artifacts`.
REFERENCE = "__mulligan_artifact__"


def _reference_of(value: object) -> object:
    """Return the reference to a file that the step keeps; anything else is not JSON."""
    if isinstance(found := getattr(value, REFERENCE, None), dict):
        return found
    raise TypeError


# `json.dumps` would create one for each call.
ENCODER = json.JSONEncoder(allow_nan=False, ensure_ascii=False, default=_reference_of)


class NotJson(Exception):
    """What `main` returned is not JSON; the message says where."""


class ArtifactUnreadable(Exception):
    """An artifact that an argument refers to is gone or damaged; the message says which."""


class EncodedJson(str):
    """JSON text that is within the limit and is not encoded again."""


def encode_output(output: object) -> str:
    """Return `output` as JSON text; raise NotJson with the path of what is not JSON."""
    if output is None:
        return "null"
    if isinstance(output, EncodedJson):
        return output
    try:
        text = ENCODER.encode(output)
        size = len(text) if text.isascii() else len(text.encode())
    except (TypeError, ValueError, RecursionError):
        raise NotJson(_find_problem(output, "the result", 0) or "the result is not JSON") from None
    if size > OUTPUT_BYTES_MAX:
        raise NotJson(f"the result has {size} bytes as JSON; the limit is {OUTPUT_BYTES_MAX}")
    return text


def _find_problem(value: object, path: str, depth: int) -> str:
    """Return where the first value is that is not JSON, and what it is."""
    if depth > DEPTH_MAX:
        return f"{path} is nested too deep, or contains itself"
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, (str, int, float, bool, type(None))):
                return f"{path} has a key of type '{type(key).__name__}', which is not JSON"
            if found := _find_problem(inner, f"{path}[{key!r}]", depth + 1):
                return found
        return ""
    if isinstance(value, (list, tuple)):
        reasons = (_find_problem(inner, f"{path}[{at}]", depth + 1) for at, inner in enumerate(value))
        return next(filter(None, reasons), "")
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return f"{path} is {value}, which is not JSON"
    if isinstance(value, str):
        return "" if _is_unicode(value) else f"{path} contains a lone surrogate, which is not JSON"
    if isinstance(value, int) and value.bit_length() > 64:
        return f"{path} is a number of more than 64 bits, which cannot be stored"
    if value is None or isinstance(value, (bool, int, float)) or isinstance(getattr(value, REFERENCE, None), dict):
        return ""
    return f"{path} is of type '{type(value).__name__}', which is not JSON"


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
