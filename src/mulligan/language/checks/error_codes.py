"""Error codes and exit codes: ours, or those that steps report. A misspelled code of ours is warned about."""

from __future__ import annotations

from functools import lru_cache
from itertools import chain
from typing import Any

import msgspec

from mulligan.core.model.failure import CODES
from mulligan.core.model.text.lazy_regex import lazy_regex
from mulligan.language.keys.value_schemas import ListOf, Value, text_that
from mulligan.language.text.nodes import Node, Scalar, Source
from mulligan.language.text.suggestions import most_similar

_CODE = lazy_regex(r"[A-Z][A-Z0-9_]*")
# The name of a class of exceptions, with its module or without.
_EXCEPTION = lazy_regex(r"(?:\w+\.)*[A-Z]\w*[a-z]\w*")
EXIT_CODE_MAX = 255
_RANGE = lazy_regex(r"([0-9]{1,3}) ?- ?([0-9]{1,3})|(>=?|<=?) ?([0-9]{1,3})")
_STATUS = lazy_regex(r"HTTP_([45])\d\d")
# High enough that a custom code (DB_TIMEOUT, CONNECTION_LOST) is not taken for a misspelling.
_NEARNESS = 0.88


class CodeSchema(Value, frozen=True):
    """An error code. A probable misspelling is warned about. `number_hint` is the hint for a number."""

    number_hint: str = ""

    def read(self, node: Node, label: str, source: Source) -> Any:
        code = super().read(node, label, source)
        if code not in CODES and (meant := suggest_code(code)):
            message = f"no failure has the code '{code}' unless a step reports it"
            source.warn("misspelt_code", message, node, hint=f"did you mean '{meant}'?")
        return code

    def hint(self, node: Scalar) -> str:
        if node.is_text and _EXCEPTION.fullmatch(node.text):
            return "an exception has the code EXCEPTION: write 'pattern', or let the step raise StepError with a code"
        return self.number_hint if type(node.value) is int else super().hint(node)


class ExitCodeSchema(Value, frozen=True):
    """An exit code. An error code gets a hint to use `codes`."""

    def hint(self, node: Scalar) -> str:
        return (
            f"'{node.text}' belongs to 'codes'" if node.is_text and _CODE.fullmatch(node.text) else super().hint(node)
        )


class ExitCodes(ListOf, frozen=True):
    """Exit codes and ranges, expanded into numbers, since there are only 256."""

    def read(self, node: Node, label: str, source: Source) -> tuple[int, ...]:
        return tuple(dict.fromkeys(chain.from_iterable(super().read(node, label, source))))


def _exit_codes(value: Any) -> range:
    """The codes in one entry: `11`, `10-19`, `>=128`."""
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


@lru_cache(maxsize=1024)
def suggest_code(code: str) -> str | None:
    """Our code that was probably meant, or None."""
    if status := _STATUS.fullmatch(code):
        return f"HTTP_{status[1]}XX"
    return most_similar(code, sorted(CODES), cutoff=_NEARNESS)


CODE = CodeSchema(
    "an error code such as TIMEOUT",
    text_that(lambda text: _CODE.fullmatch(text)),
    {"type": "string", "pattern": "^[A-Z][A-Z0-9_]*$"},
    known=tuple(sorted(CODES)),
)
# For records that also have `exit_codes`.
MATCHED_CODE = msgspec.structs.replace(CODE, number_hint="a number belongs to 'exit_codes'")
EXIT_CODE = ExitCodeSchema(
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
