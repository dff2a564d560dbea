"""Error codes in `codes` and `ignore`: ours, or those that steps report. A near miss of ours is most likely a slip."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

from mulligan.core.failure import CODES
from mulligan.language.nodes import Node, Source
from mulligan.language.shapes import Value

_CODE = re.compile(r"[A-Z][A-Z0-9_]*")
_STATUS = re.compile(r"HTTP_([45])\d\d")
# So near that a code of a step's own (DB_TIMEOUT, CONNECTION_LOST) is not taken for one of ours.
_NEARNESS = 0.88


@dataclass(frozen=True)
class CodeShape(Value):
    """An error code; one that is nearly ours is warned about."""

    def read(self, node: Node, label: str, source: Source) -> Any:
        code = super().read(node, label, source)
        if code not in CODES and (meant := meant_code(code)):
            message = f"no failure has the code '{code}' unless a step reports it"
            source.warn("misspelt_code", message, node, hint=f"did you mean '{meant}'?")
        return code


def _code(value: Any) -> str:
    if not isinstance(value, str) or not _CODE.fullmatch(value):
        raise ValueError(value)
    return value


@lru_cache(maxsize=1024)
def meant_code(code: str) -> str | None:
    """The code of ours that was probably meant by one that is not."""
    if status := _STATUS.fullmatch(code):
        return f"HTTP_{status[1]}XX"
    near = get_close_matches(code, sorted(CODES), n=1, cutoff=_NEARNESS)
    return near[0] if near else None


CODE = CodeShape(
    "an error code such as TIMEOUT",
    _code,
    {"type": "string", "pattern": "^[A-Z][A-Z0-9_]*$"},
    known=tuple(sorted(CODES)),
)
