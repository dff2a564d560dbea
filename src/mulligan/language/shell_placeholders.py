"""Whose is a `${…}` in shell text: ours or the shell's?

Ours is a CEL expression that reads one of our names: a root with a field (`inputs.x`, `steps["a-b"].output`), a bound
name (the item's, `index`), or anything that CEL can read and that reads nothing but such names (`size(steps.a.output)`,
`inputs.n + 1`). A path of ours that is followed at once by an operator of the shell's (`item%.json`, `#item`,
`inputs.file##*/`) is ours with the operator kept, unless the whole is a CEL expression (`index%2`). All else is the
shell's, but for a name with a field that nobody knows: `${inptus.x}` can only be a slip.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from mulligan.core.model.lazy_regex import lazy_regex
from mulligan.language.cel_tokens import closing_brace
from mulligan.language.expressions import ExpressionRefused, check

ROOTS = frozenset("inputs steps error failure output outputs run env secrets files".split())

_PATH = r"""[A-Za-z_]\w*(?:\.[A-Za-z_]\w*|\[(?:"[^"\\]*"|'[^'\\]*'|\d+)\])*"""
# What nearly every hole is. It needs no engine and no check: it can only be ours.
_SIMPLE = lazy_regex(r"\$\{(?P<path>(?P<root>[A-Za-z_]\w*)(?:\.[A-Za-z_]\w*)+)\}", re.A)
_OPERATED = lazy_regex(rf"(?P<prefix>#?)(?P<path>{_PATH})(?P<operator>[#%/^,@:}}])", re.A)
# What bash can read: a name or a special parameter, then nothing, a subscript or an operator, with no blank between.
_SHELLS = lazy_regex(r"(?:[#!]?[A-Za-z_]\w*|[#!]?\d+|[#!]?[-@*?$!#])(?:[-#%/^,@:+=?\[*}]|$)", re.A)
_FIELD = lazy_regex(r"(?:!|\{\s*)?([A-Za-z_]\w*)(?:\.[A-Za-z_]|\()", re.A)
# `not` is no CEL, and no shell either: what follows it tells whose slip it is.
_NEGATION = lazy_regex(r"\s*(?:!|not\s+)?", re.A)
_WORD = lazy_regex(r"[A-Za-z_]\w*", re.A)
# A call of a function, which no shell has there.
_CALL = lazy_regex(r"\s*[A-Za-z_]\w*\(", re.A)


class ShellRefused(ExpressionRefused):
    """Shell text in which a value has no safe place, or a name that nobody knows."""

    code = "language.shell"


class UnknownName(ShellRefused):
    """A name that nobody knows; `source` is the expression that reads it. What was meant depends on the place."""

    def __init__(self, name: str, source: str, offset: int) -> None:
        message = f"'${{{source}}}' reads '{name}', which is not known here"
        super().__init__(message, offset, len(name))
        self.name = name
        self.source = source


class Ours(NamedTuple):
    """A `${…}` of ours from `offset` to `end`. With an operator of the shell's, `end` is where that begins."""

    source: str
    offset: int
    end: int
    operator: str = ""
    prefix: str = ""


class Names(NamedTuple):
    """The names that are ours in one text."""

    bound: frozenset[str]
    roots: frozenset[str]

    def known(self, read: str) -> bool:
        name = read.partition(".")[0]
        return name in self.bound or name in self.roots

    def begins(self, path: str) -> bool:
        """Whether `path` begins as only ours do: a bound name, or a root with a field that has a name."""
        match = _WORD.match(path)
        if match is None:
            return False
        has_field = path.startswith((".", '["', "['"), match.end())
        return match.group() in self.bound or (match.group() in self.roots and has_field)


def find(text: str, offset: int, end: int, names: Names) -> Ours | None:
    """The hole of ours at `offset`, where `${` stands; None if it is the shell's. Refused if it can be neither's."""
    simple = _SIMPLE.match(text, offset, end)
    if simple and simple["root"] in names.roots:
        return Ours(simple["path"], offset, simple.end())
    close = closing_brace(text[:end] if end < len(text) else text, offset + 2)
    if close < 0:
        return _unclosed(text, offset, names)
    content = text[offset + 2 : close]
    if any(map(names.known, _WORD.findall(content))):
        return _known(text, offset, close, names)
    _refuse_unknown(content, offset)
    return None


def _unclosed(text: str, offset: int, names: Names) -> Ours | None:
    operated = _operated(text, offset, names)
    if operated is None and names.begins(text[offset + 2 :]):
        raise ShellRefused("'${' is not closed by '}'", offset, 2)
    return operated


def _known(text: str, offset: int, close: int, names: Names) -> Ours | None:
    """The verdict on a hole in which a name of ours is mentioned, be it only as text."""
    source = text[offset + 2 : close]
    is_ours = names.begins(_NEGATION.sub("", source, count=1))
    operated = _operated(text, offset, names)
    # To CEL `//` begins a comment; in the shell nobody writes one within `${…}`.
    if operated and text.startswith("//", operated.end):
        return operated
    try:
        expression = check(source, offset=offset + 2)
    except ExpressionRefused as refused:
        # To bash two braces and a call are a bad substitution, so it is not the shell's either.
        if operated is None and (is_ours or source.startswith("{") or _CALL.match(source)):
            raise ShellRefused(refused.message, refused.offset, refused.length, refused.hint) from refused
        return operated
    unknown = [read for read in expression.reads if not names.known(read)]
    if unknown and operated is None and (is_ours or not _SHELLS.match(source)):
        raise _unknown_name(unknown[0], source, offset)
    if unknown:  # the text of an operator may look like a name
        return operated
    is_shells = not expression.reads or _is_shells_variable(source, expression.reads, names)
    return None if is_shells else Ours(expression.source, offset, close + 1)


def _is_shells_variable(source: str, reads: tuple[str, ...], names: Names) -> bool:
    """A root without a field, as in `${files[0]}` or `${output-x}`, is a variable that the script made.

    But `${steps[item].output}` is ours: no subscript of the shell's mentions one of our names.
    """
    match = _SHELLS.match(source)
    is_ours = names.begins(source.removeprefix("!")) or (match and match.group().endswith("[") and len(reads) > 1)
    return match is not None and not is_ours


def _operated(text: str, offset: int, names: Names) -> Ours | None:
    match = _OPERATED.match(text, offset + 2)
    if match is None or not names.begins(match["path"]) or (match["operator"] == "}" and not match["prefix"]):
        return None
    source = check(match["path"], offset=match.start("path")).source
    return Ours(source, offset, match.end("path"), operator=match["operator"], prefix=match["prefix"])


def _refuse_unknown(content: str, offset: int) -> None:
    match = _FIELD.match(content)
    if match:
        raise _unknown_name(match[1], content, offset)


def _unknown_name(name: str, content: str, offset: int) -> UnknownName:
    return UnknownName(name, content, offset + 2 + max(content.find(name), 0))
