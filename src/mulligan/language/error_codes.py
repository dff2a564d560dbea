"""Error codes in `codes` and `ignore`: ours, or those that steps report. A near miss of ours is most likely a slip."""

from __future__ import annotations

from difflib import get_close_matches
from functools import lru_cache
from itertools import chain
from typing import Any

import msgspec

from mulligan.core.model.failure import CODES
from mulligan.core.model.lazy_regex import lazy_regex
from mulligan.language.nodes import Node, Scalar, Source
from mulligan.language.shapes import ListOf, Value

_CODE = lazy_regex(r"[A-Z][A-Z0-9_]*")
EXIT_CODE_MAX = 255
_RANGE = lazy_regex(r"([0-9]{1,3}) ?- ?([0-9]{1,3})|(>=?|<=?) ?([0-9]{1,3})")
_STATUS = lazy_regex(r"HTTP_([45])\d\d")
# So near that a code of a step's own (DB_TIMEOUT, CONNECTION_LOST) is not taken for one of ours.
_NEARNESS = 0.88


class CodeShape(Value, frozen=True):
    """An error code; one that is nearly ours is warned about. `number_hint` is for those who write a number."""

    number_hint: str = ""

    def read(self, node: Node, label: str, source: Source) -> Any:
        code = super().read(node, label, source)
        if code not in CODES and (meant := suggest_code(code)):
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


class ExitCodes(ListOf, frozen=True):
    """Exit codes, one by one or as ranges: each as its number, since there are only 256."""

    def read(self, node: Node, label: str, source: Source) -> tuple[int, ...]:
        return tuple(dict.fromkeys(chain.from_iterable(super().read(node, label, source))))


def _exit_codes(value: Any) -> range:
    """The codes that one entry stands for: `11`, `10-19`, `>=128`."""
    if type(value) is int and 0 <= value <= EXIT_CODE_MAX:
        return range(value, value + 1)
    found = _RANGE.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError(value)
    first, last, sign, bound = found.groups()
    if sign is None:
        codes = range(int(first), int(last) + 1)
    elif sign.startswith(">"):
        codes = range(int(bound) + (sign == ">"), EXIT_CODE_MAX + 1)
    else:
        codes = range(int(bound) + (sign == "<="))
    if not codes or codes[-1] > EXIT_CODE_MAX:
        raise ValueError(value)
    return codes


def _code(value: Any) -> str:
    if not isinstance(value, str) or not _CODE.fullmatch(value):
        raise ValueError(value)
    return value


@lru_cache(maxsize=1024)
def suggest_code(code: str) -> str | None:
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
EXIT_CODE = ExitCodeShape(
    "a whole number from 0 to 255, a range such as 10-19, or a bound such as '>=128'",
    _exit_codes,
    {
        "anyOf": [
            {"type": "integer", "minimum": 0, "maximum": EXIT_CODE_MAX},
            {"type": "string", "pattern": f"^(?:{_RANGE.pattern})$"},
        ]
    },
)
EXIT_CODE_LIST = ExitCodes(EXIT_CODE, or_one=True, at_least=1)
