"""Build expressions of ours from names of other systems."""

from __future__ import annotations

import json

from mulligan.core.model.text.lazy_regex import lazy_regex
from mulligan.language.cel.cel_tokens import RESERVED

_IDENTIFIER = lazy_regex(r"[A-Za-z_][A-Za-z0-9_]*")


def is_field(name: str) -> bool:
    """Whether the name can follow a dot in an expression."""
    return _IDENTIFIER.fullmatch(name) is not None and name not in RESERVED


def member(base: str, name: str) -> str:
    """A field of a map; in brackets where its name is not an identifier of CEL."""
    return f"{base}.{name}" if is_field(name) else entry(base, name)


def entry(base: str, key: str) -> str:
    """The value of a map at any key."""
    return f"{base}[{json.dumps(key, ensure_ascii=False)}]"


def step_path(step: str) -> str:
    """A step as expressions name it."""
    return member("steps", step)


def output_of(step: str) -> str:
    """The output of a step."""
    return f"{step_path(step)}.output"


def quoted(text: str) -> str:
    """A text as a literal of CEL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\r", "\\r")
    return f"'{escaped}'"
