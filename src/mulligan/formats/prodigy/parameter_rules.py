"""The rules of `validation`, for the reader and for the worker that checks them."""

from __future__ import annotations

import operator
import re
from typing import Any

_SHOWN_CHARS_MAX = 40
_SIGNS = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_MATCHES = re.compile(r"""(?:value\s+)?matches\s*\(\s*(?:value\s*,\s*)?(?P<quote>['"])(?P<pattern>.*)(?P=quote)\s*\)""")
_IN = re.compile(r"(?:value\s+)?in\s*(?:\(\s*\[(?P<one>.*)\]\s*\)|\[(?P<two>.*)\])")
_COMPARED = re.compile(
    r"(?P<what>value|length|length\(value\)|len\(value\))\s*(?P<sign><=|>=|==|!=|<|>)\s*(?P<n>-?\d+(?:\.\d+)?)"
)
_WORD = re.compile(r"""\s*(?:'(?P<a>[^']*)'|"(?P<b>[^"]*)"|(?P<n>-?\d+(?:\.\d+)?))\s*(?:,|$)""")
# `^(dev|staging|prod)$`
_ALTERNATIVES = re.compile(r"\^\(((?:[\w-]+)(?:\|[\w-]+)*)\)\$", re.A)


def parse_rules(text: str, name: str) -> list[list[Any]] | None:
    """The rules of a `validation`: `["matches", pattern]`, `["in", values]`, `["value", sign, number]`.

    None if it is something else. The value is `value`, or the name of the parameter.
    """
    text = re.sub(rf"\b{re.escape(name)}\b(?=\s*(?:[<>=!]|matches\b|in\b))", "value", text.strip())
    if text.startswith("^"):
        return _pattern_rule(text)
    found: list[list[Any]] = []
    for part in re.split(r"\s*&&\s*(?=value|length|len|in\b|matches)", text):
        if match := _MATCHES.fullmatch(part):
            rule = _pattern_rule(match["pattern"].replace("\\\\", "\\"))
        elif match := _IN.fullmatch(part):
            rule = _list_rule(match["one"] if match["one"] is not None else match["two"])
        elif match := _COMPARED.fullmatch(part):
            rule = [["value" if match["what"] == "value" else "length", match["sign"], float(match["n"])]]
        else:
            rule = None
        if rule is None:
            return None
        found += rule
    return found


def _pattern_rule(pattern: str) -> list[list[Any]] | None:
    if words := _ALTERNATIVES.fullmatch(pattern):
        return [["in", words[1].split("|")]]
    try:
        re.compile(pattern)
    except re.error:
        return None
    return [["matches", pattern]]


def _list_rule(text: str) -> list[list[Any]] | None:
    values: list[Any] = []
    position = 0
    while position < len(text):
        match = _WORD.match(text, position)
        if match is None or match.end() == position:
            return None
        if match["n"] is not None:
            values.append(float(match["n"]) if "." in match["n"] else int(match["n"]))
        else:
            values.append(match["a"] if match["a"] is not None else match["b"])
        position = match.end()
    return [["in", values]] if values else None


def find_problem(value: Any, rules: list[list[Any]]) -> str:
    """How a value breaks the rules: "is 'x', but …"; "" if it follows all of them."""
    shown = str(value)[:_SHOWN_CHARS_MAX]
    for kind, *operands in rules:
        if kind == "in" and value not in operands[0]:
            return f"is '{shown}', but it must be one of {', '.join(map(str, operands[0]))}"
        if kind == "matches" and re.search(operands[0], str(value)) is None:
            return f"is '{shown}', which does not match {operands[0]}"
        if kind in ("value", "length") and not _compares(value, kind, *operands):
            of = "" if kind == "value" else "its length "
            return f"is '{shown}', but {of}must be {operands[0]} {operands[1]:g}"
    return ""


def _compares(value: Any, kind: str, sign: str, number: float) -> bool:
    try:
        figure = float(len(value)) if kind == "length" else float(value)
    except (TypeError, ValueError):
        return False
    return bool(_SIGNS[sign](figure, number))
