"""Google's CEL in C++ (`cel-expr-python`).

Two traps: it *returns* evaluation errors as values, so the type of each result is checked; and it converts the whole
activation at each call, so it gets only what an expression reads.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from cel_expr_python import cel  # type: ignore[import-untyped]
from cel_expr_python.ext import ext_strings  # type: ignore[import-untyped]

from mulligan.core.model.text.lazy_regex import lazy_regex
from mulligan.language.cel.cel import CelFailed, CelRefused

_ENVIRONMENT = cel.NewEnv(extensions=[ext_strings.ExtStrings()])
_ERROR = cel.Type.ERROR
_WHERE = lazy_regex(r"ERROR: <input>:(\d+):(\d+): ([^\n]*)")
_STATUS = lazy_regex(r"^[A-Z_]+: ")
_REASONS: tuple[tuple[re.Pattern[str], str], ...] = (
    (lazy_regex(r'Key not found in map : "?(.*?)"?$', re.S), r"no such key '\1'"),
    (lazy_regex(r"Index error: index=(-?\d+) size=(\d+)"), r"index \1 is out of range"),
    (lazy_regex(r"Iteration budget exceeded"), "it iterates over more than 10,000 items"),
    (lazy_regex(r"divide by zero|modulus by zero"), "division by zero"),
    (lazy_regex(r"overflow|out of u?int64 range"), "the result is out of range"),
    (lazy_regex(r'No value with name "(.*?)" found'), r"'\1' is not known here"),
    (lazy_regex(r"Applying SELECT to non-message type"), "a field is read from a value that is not a map"),
    (lazy_regex(r"No matching overloads found : <jump_condition>"), "the condition before '?' is not true or false"),
    (lazy_regex(r"No matching overloads found : <iter_range>"), "only a list or a map can be iterated"),
    (lazy_regex(r"No matching overloads found : _(\S+)_\((\w+), (\w+)\)"), r"'\1' does not work on \2 and \3"),
    (lazy_regex(r"No matching overloads found : @in"), "'in' needs a list or a map on its right"),
    (lazy_regex(r"No matching overloads found : (?:!_|_&&_|_\|\|_)"), "a part of the condition is not true or false"),
    (lazy_regex(r"No matching overloads found : (?:\(\w+\)\.)?(\w+).*", re.S), r"'\1' does not accept these values"),
    (lazy_regex(r"cannot convert string to (\w+)"), r"the text does not have the format that \1() reads"),
    (lazy_regex(r"String to (\w+) conversion failed"), r"the text does not have the format that \1() reads"),
)
_CEL_NAMES = {"int64": "int", "null_type": "null", "Timestamp": "timestamp", "Duration": "duration"}
_OWN_NAMES = lazy_regex("|".join(_CEL_NAMES))
_TYPE_NAMES = {"null": "null_type", "timestamp": "google.protobuf.Timestamp", "duration": "google.protobuf.Duration"}


def _reason(text: str) -> str:
    """The engine's error in plain words, or its own text without the status if we have none."""
    text = _STATUS.sub("", text)
    for reason, words in _REASONS:
        match = reason.search(text)
        if match:
            return _OWN_NAMES.sub(lambda name: _CEL_NAMES[name[0]], match.expand(words))
    return text.removesuffix("]").rpartition(" [")[0] or text


def _with_type_names(value: Any) -> Any:
    """`value` with types as their names, at any depth."""
    if isinstance(value, cel.Type):
        name = value.name().partition("<")[0].lower()
        return _TYPE_NAMES.get(name, name)
    if isinstance(value, list):
        return [_with_type_names(inner) for inner in value]
    if isinstance(value, dict):
        return {key: _with_type_names(inner) for key, inner in value.items()}
    return value


class _Program:
    def __init__(self, compiled: cel.Expression) -> None:
        self._compiled = compiled

    def evaluate(self, names: Mapping[str, Any]) -> Any:
        try:
            result = self._compiled.eval(data=names)
        except RuntimeError as error:
            raise CelFailed(_reason(str(error))) from error
        except MemoryError as error:
            raise CelFailed("its value does not fit in memory") from error
        value = result.plain_value()
        # The value of an error is its text. Reading the type costs a third of an evaluation, so do it for text only.
        if isinstance(value, str) and result.type() == _ERROR:
            raise CelFailed(_reason(value))
        return _with_type_names(value)


class Google:
    """Compiles without static types: the output of a step has none."""

    name = "google"
    copies_deeply = False

    def compile(self, source: str) -> _Program:
        try:
            compiled = _ENVIRONMENT.compile(source, disable_check=True)
        except RuntimeError as error:
            raise _refusal(str(error)) from error
        return _Program(compiled)


def _refusal(text: str) -> CelRefused:
    match = _WHERE.search(text)
    if match is None or "recursion" in text:
        return CelRefused("recursion" if "recursion" in text else text)
    return CelRefused(match[3], int(match[1]), int(match[2]))


ENGINE = Google()
