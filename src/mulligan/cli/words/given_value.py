"""A value of an argument: JSON, or a text."""

from __future__ import annotations

import json
import sys
from typing import Any


def read_value(text: str, *, is_text: bool) -> Any:
    """The value of an argument: JSON, and a text if it is not JSON. `-` stands for what stdin says."""
    text = sys.stdin.read().removesuffix("\n") if text == "-" else text
    if is_text:
        return text
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return text


def _refuse_constant(name: str) -> Any:
    """NaN and Infinity are texts: JSON does not have them."""
    raise ValueError(name)
