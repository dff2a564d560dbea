"""The data of a run: small JSON values by name, which steps set and read while they run.

An attempt sets values; they become the data of the run when its result is accepted, all at once, each with the next
version of its name. An attempt that fails, or that is lost or superseded, sets nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from mulligan.core.model.artifacts import KEY, holds_reference
from mulligan.core.model.text.formatting import format_size

# Every attempt of the run gets all values, so they are small. For more there are outputs, artifacts and files.
VALUE_BYTES_MAX = 64 * 1024
BYTES_MAX = 256 * 1024
NAME_CHARS_MAX = 200
NAME = r"[A-Za-z_][A-Za-z0-9_.-]*"
NAME_IN_WORDS = "letters, digits, '_', '-' and '.'"


class DataValue(msgspec.Struct, frozen=True, omit_defaults=True):
    """A value, how often its name was set, and by which attempt; "" is the workflow itself."""

    value: Any
    version: int = 1
    place: str = ""
    attempt: int = 0


def name_problem(name: str) -> str:
    """Why this is not a name; "" if it is one."""
    if re.fullmatch(NAME, name, re.ASCII) is None:
        return f"a name has {NAME_IN_WORDS}, and begins with a letter or '_'"
    return "" if len(name) <= NAME_CHARS_MAX else f"a name has at most {NAME_CHARS_MAX} characters"


def value_problem(value: Any) -> str:
    """Why this cannot be a value; "" if it can."""
    try:
        size = len(msgspec.json.encode(value))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        return f"it cannot be written as JSON: {error}"
    if size > VALUE_BYTES_MAX:
        return f"it has {format_size(size)}, and a value has at most {format_size(VALUE_BYTES_MAX)}"
    return f"it has the key '{KEY}' in it, which is reserved for artifacts" if holds_reference(value) else ""


def size_problem(data: Mapping[str, DataValue], values: Mapping[str, Any]) -> str:
    """Why the data of the run cannot be set to these values as well; "" if it can."""
    whole = {**{name: one.value for name, one in data.items()}, **values}
    size = len(msgspec.json.encode(whole))
    if size <= BYTES_MAX:
        return ""
    return f"the data of the run would have {format_size(size)}, and it has at most {format_size(BYTES_MAX)}"
