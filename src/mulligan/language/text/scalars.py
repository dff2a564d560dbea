"""The YAML 1.2 core schema: what a plain scalar means. `on`, `no`, `1:10` are text; `010` is ten."""

from __future__ import annotations

from typing import Any

from mulligan.core.model.text.lazy_regex import lazy_regex

_WORDS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_FLOAT_WORDS = {
    **{f"{sign}.{word}": float(f"{sign}inf") for sign in ("", "+", "-") for word in ("inf", "Inf", "INF")},
    **{f".{word}": float("nan") for word in ("nan", "NaN", "NAN")},
}
_WORD_STARTS = frozenset("~nNtTfF")
_NUMBER_STARTS = frozenset("0123456789+-.")
_DECIMAL = lazy_regex(r"[-+]?[0-9]+")
_OCTAL = lazy_regex(r"0o[0-7]+")
_HEXADECIMAL = lazy_regex(r"0x[0-9a-fA-F]+")
_FLOAT = lazy_regex(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")

# The range that JSON readers, CEL and both databases support.
INTEGER_MIN, INTEGER_MAX = -(2**63), 2**63 - 1
_DIGITS_MAX = 25

TAG = "tag:yaml.org,2002:"


def resolve(text: str) -> Any:
    """The value of a plain scalar. ValueError for a number that does not fit into 64 bits."""
    if not text:
        return None
    if text[0] in _NUMBER_STARTS:
        return _number(text)
    return _WORDS.get(text, text) if text[0] in _WORD_STARTS else text


def resolve_tagged(text: str, tag: str) -> Any:
    """The value of a scalar with an explicit tag. ValueError if they do not match, KeyError for an unknown tag."""
    return _TAGGED[tag](text)


def _number(text: str) -> Any:
    if _DECIMAL.fullmatch(text):
        return _integer(text, 10)
    if _OCTAL.fullmatch(text):
        return _integer(text[2:], 8)
    if _HEXADECIMAL.fullmatch(text):
        return _integer(text[2:], 16)
    if _FLOAT.fullmatch(text):
        return float(text)
    return _FLOAT_WORDS.get(text, text)


def _integer(digits: str, base: int) -> int:
    if len(digits.lstrip("+-0")) > _DIGITS_MAX or not INTEGER_MIN <= (value := int(digits, base)) <= INTEGER_MAX:
        raise ValueError("a number of more than 64 bits")
    return value


def _only(*types: type) -> Any:
    def read(text: str) -> Any:
        value = resolve(text)
        if type(value) not in types:
            raise ValueError(text)
        return value

    return read


_TAGGED: dict[str, Any] = {
    "!": str,
    f"{TAG}str": str,
    f"{TAG}int": _only(int),
    f"{TAG}float": lambda text: float(_only(int, float)(text)),
    f"{TAG}bool": _only(bool),
    f"{TAG}null": _only(type(None)),
}
