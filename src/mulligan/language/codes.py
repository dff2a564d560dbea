"""Error codes in `codes` and `ignore`: ours, or those that steps report. A near miss of ours is most likely a slip."""

from __future__ import annotations

from difflib import get_close_matches
from functools import lru_cache
from typing import Any

import msgspec

from mulligan.core.failure import CODES
from mulligan.language.nodes import Node, Scalar, Source
from mulligan.language.patterns import pattern
from mulligan.language.shapes import Value

_CODE = pattern(r"[A-Z][A-Z0-9_]*")
_STATUS = pattern(r"HTTP_([45])\d\d")
# So near that a code of a step's own (DB_TIMEOUT, CONNECTION_LOST) is not taken for one of ours.
_NEARNESS = 0.88


class CodeShape(Value, frozen=True):
    """An error code; one that is nearly ours is warned about. `number_hint` is for those who write a number."""

    number_hint: str = ""

    def read(self, node: Node, label: str, source: Source) -> Any:
        code = super().read(node, label, source)
        if code not in CODES and (meant := meant_code(code)):
            message = f"no failure has the code '{code}' unless a step reports it"
            source.warn("misspelt_code", message, node, hint=f"did you mean '{meant}'?")
        return code

    def hint(self, node: Scalar) -> str:
        return self.number_hint if type(node.value) is int else super().hint(node)


class ExitCodeShape(Value, frozen=True):
    """An exit code; the word of a failure belongs elsewhere."""

    def hint(self, node: Scalar) -> str:
        return (
            f"'{node.text}' belongs to 'codes'" if node.is_text and _CODE.fullmatch(node.text) else super().hint(node)
        )


def _exit_code(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= 255:
        raise ValueError(value)
    return value


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
# Where exit codes may stand beside it.
MATCHED_CODE = msgspec.structs.replace(CODE, number_hint="a number belongs to 'exit_codes'")
EXIT_CODE = ExitCodeShape("a whole number from 0 to 255", _exit_code, {"type": "integer", "minimum": 0, "maximum": 255})
