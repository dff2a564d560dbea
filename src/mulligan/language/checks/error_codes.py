"""Error codes, exit codes and classes of exceptions. A misspelled code of ours is warned about."""

from __future__ import annotations

import builtins
from functools import lru_cache
from itertools import chain
from typing import Any

import msgspec

from mulligan.core.model.failure import CODES, EXCEPTION_CHARS_MAX, builtin_exception, code_of_exception, known_classes
from mulligan.core.model.text.lazy_regex import lazy_regex
from mulligan.language.keys.value_schemas import ListOf, Value, text_that
from mulligan.language.text.nodes import Node, Scalar, Source
from mulligan.language.text.suggestions import did_you_mean, most_similar

_CODE = lazy_regex(r"[A-Z][A-Z0-9_]*")
EXIT_CODE_MAX = 255
_RANGE = lazy_regex(r"([0-9]{1,3}) ?- ?([0-9]{1,3})|(>=?|<=?) ?([0-9]{1,3})")
_BUILTINS = "builtins."
# Dotted, as tracebacks show it; `<locals>` is part of the name of a class that a function defines.
_EXCEPTION = lazy_regex(r"(?:[^\W\d]\w*|<locals>)(?:\.(?:[^\W\d]\w*|<locals>))*")
_STATUS = lazy_regex(r"HTTP_([45])\d\d")
# High enough that a custom code (DB_TIMEOUT, CONNECTION_LOST) is not taken for a misspelling.
_NEARNESS = 0.88


class CodeSchema(Value, frozen=True):
    """An error code. A probable misspelling is warned about. `number_hint` is the hint for a number.

    `exceptions` is the key beside it that takes classes of exceptions; "" if there is none.
    """

    number_hint: str = ""
    exceptions: str = ""

    def read(self, node: Node, label: str, source: Source) -> Any:
        code = super().read(node, label, source)
        if code not in CODES and (meant := suggest_code(code)):
            message = f"no failure has the code '{code}' unless a step reports it"
            source.warn("misspelt_code", message, node, hint=f"did you mean '{meant}'?")
        return code

    def hint(self, node: Scalar) -> str:
        if type(node.value) is int:
            return self.number_hint
        if (kind := builtin_exception(node.text.removeprefix(_BUILTINS))) is not None:
            belongs = f"'{node.text}' belongs to '{self.exceptions}'" if self.exceptions else ""
            return belongs or f"its code is {code_of_exception(known_classes(kind.__name__))}"
        return super().hint(node)


class ExceptionSchema(Value, frozen=True):
    """The class of an exception: one of Python itself, or any other with its module."""

    def read(self, node: Node, label: str, source: Source) -> str:
        name: str = super().read(node, label, source)
        bare = name.removeprefix(_BUILTINS)
        if "." in bare:
            return bare
        kind = builtin_exception(bare)
        if kind is None:
            message = f"{label} is '{name}', and Python has no exception of that name"
            raise source.refuse("unknown_exception", message, node, hint=_exception_hint(bare))
        if bare in _NO_FAILURES:
            why, hint = _NO_FAILURES[bare]
            raise source.refuse("unknown_exception", f"{label} is '{name}', and {why}", node, hint=hint)
        # `IOError` is another name of OSError.
        return kind.__name__


# Exceptions that no failure has the class of.
_NO_FAILURES = {
    "SystemExit": ("a step that calls sys.exit fails with an exit code", "match it by 'exit_codes'"),
    "KeyboardInterrupt": ("a step that is interrupted has not failed", "leave it out"),
    "BaseException": ("a step fails with a class derived from Exception", "for any failure write 'any: true'"),
}


def _exception_hint(name: str) -> str:
    if name in CODES:
        return f"'{name}' belongs to 'codes'"
    known = [one for one in vars(builtins) if builtin_exception(one) is not None]
    if hint := did_you_mean(name, known):
        return hint
    return f"write its module too, such as 'httpx.{name}'; of a script or of the code of the step: '__main__.{name}'"


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
# For records that also have `exit_codes`, and for those that have `exceptions` as well.
MATCHED_CODE = msgspec.structs.replace(CODE, number_hint="a number belongs to 'exit_codes'")
RULE_CODE = msgspec.structs.replace(MATCHED_CODE, exceptions="exceptions")
EXCEPTION = ExceptionSchema(
    "the class of an exception, such as ConnectionError or httpx.TimeoutException",
    text_that(lambda text: len(text) <= EXCEPTION_CHARS_MAX and _EXCEPTION.fullmatch(text)),
    {"type": "string", "pattern": r"^[^\s.]+(\.[^\s.]+)*$"},
)
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
