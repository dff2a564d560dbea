"""Decides whether a `${…}` in shell text is our placeholder or a shell expansion.

Ours are CEL expressions that read our names only: a root with a field (`inputs.x`, `steps["a-b"].output`), a bound name
(that of the item, `index`), or a larger expression (`size(steps.a.output)`, `inputs.n + 1`). Our path followed directly
by a shell operator (`item%.json`, `#item`, `inputs.file##*/`) is ours and keeps the operator, unless the whole is a CEL
expression (`index%2`). Everything else belongs to the shell. An unknown name with a field (`${inptus.x}`) is refused:
it is a misspelling.
"""

from __future__ import annotations

import re
import sys

import msgspec

from mulligan.core.model.text.lazy_regex import lazy_regex
from mulligan.language.cel.cel_tokens import closing_brace
from mulligan.language.expressions import SOURCE_CHARS_MAX, ExpressionRefused, check

ROOTS = frozenset("inputs steps error failure output outputs run env secrets files".split())

_PATH = r"""[A-Za-z_]\w*(?:\.[A-Za-z_]\w*|\[(?:"[^"\\]*"|'[^'\\]*'|\d+)\])*"""
# Nearly every placeholder has this form. It is always ours, so no further check is needed.
_SIMPLE = lazy_regex(r"\$\{(?P<path>(?P<root>[A-Za-z_]\w*)(?:\.[A-Za-z_]\w*)+)\}", re.A)
_OPERATED = lazy_regex(rf"(?P<prefix>#?)(?P<path>{_PATH})(?P<operator>[#%/^,@:}}])", re.A)
# What bash accepts: a name or a special parameter, then nothing, a subscript or an operator, without blanks.
_SHELLS = lazy_regex(r"(?:[#!]?[A-Za-z_]\w*|[#!]?\d+|[#!]?[-@*?$!#])(?:[-#%/^,@:+=?\[*}]|$)", re.A)
_FIELD = lazy_regex(r"(?:!|\{\s*)?([A-Za-z_]\w*)(?:\.[A-Za-z_]|\()", re.A)
# `not` is neither CEL nor shell: the name after it decides whose mistake it is.
_NEGATION = lazy_regex(r"\s*(?:!|not\s+)?", re.A)
_WORD = lazy_regex(r"[A-Za-z_]\w*", re.A)
# A function call, which a shell does not have there.
_CALL = lazy_regex(r"\s*[A-Za-z_]\w*\(", re.A)


class ShellRefused(ExpressionRefused):
    """Shell text that uses a value where it is not safe, or an unknown name."""

    code = "language.shell"


class UnknownName(ShellRefused):
    """An unknown name; `source` is the expression that reads it. The caller knows which names exist there."""

    def __init__(self, name: str, source: str, offset: int) -> None:
        message = f"'${{{source}}}' reads '{name}', which is not known here"
        super().__init__(message, offset, len(name))
        self.name = name
        self.source = source


class ShellPlaceholder(msgspec.Struct, frozen=True):
    """Our `${…}` from `offset` to `end`. With a shell operator, `end` is where the operator begins."""

    source: str
    offset: int
    end: int
    operator: str = ""
    prefix: str = ""


class Names(msgspec.Struct, frozen=True):
    """Our names in one text."""

    bound: frozenset[str]
    roots: frozenset[str]

    def knows(self, read: str) -> bool:
        name = read.partition(".")[0]
        return name in self.bound or name in self.roots

    def is_start_of(self, text: str, offset: int = 0, end: int = sys.maxsize) -> bool:
        """Whether the path at `offset` begins like one of ours: with a bound name, or a root and a named field."""
        match = _WORD.match(text, offset, end)
        if match is None:
            return False
        has_field = text.startswith((".", '["', "['"), match.end(), end)
        return match.group() in self.bound or (match.group() in self.roots and has_field)


def find_placeholder(text: str, offset: int, end: int, names: Names) -> ShellPlaceholder | None:
    """The placeholder at `offset` (of `${`); None if it is a shell expansion. Refused if it cannot be either."""
    simple = _SIMPLE.match(text, offset, end)
    if simple and simple["root"] in names.roots:
        return ShellPlaceholder(simple["path"], offset, simple.end())
    # An expression is not longer. A text may open a thousand braces and close none.
    limit = min(end, offset + 2 + SOURCE_CHARS_MAX + 1)
    close = closing_brace(text, offset + 2, limit)
    if close < 0:
        return _find_unclosed(text, offset, limit, names, is_cut=limit < end)
    content = text[offset + 2 : close]
    if any(map(names.knows, _WORD.findall(content))):
        return _find_known(text, offset, close, names)
    if match := _FIELD.match(content):
        raise _unknown_name(match[1], content, offset)
    return None


def _find_unclosed(text: str, offset: int, end: int, names: Names, *, is_cut: bool) -> ShellPlaceholder | None:
    operated = _find_with_operator(text, offset, names)
    if operated is None and names.is_start_of(text, offset + 2, end):
        within = f" within {SOURCE_CHARS_MAX} characters" if is_cut else ""
        raise ShellRefused(f"'${{' is not closed by '}}'{within}", offset, 2)
    return operated


def _find_known(text: str, offset: int, close: int, names: Names) -> ShellPlaceholder | None:
    """Decide about a `${…}` that mentions one of our names, perhaps only as text."""
    source = text[offset + 2 : close]
    is_ours = names.is_start_of(_NEGATION.sub("", source, count=1))
    operated = _find_with_operator(text, offset, names)
    # `//` begins a comment in CEL, but inside `${…}` the shell operator is meant.
    if operated and text.startswith("//", operated.end):
        return operated
    try:
        expression = check(source, offset=offset + 2)
    except ExpressionRefused as refused:
        # In bash, two braces or a call are a bad substitution, so this is not a shell expansion either.
        if operated is None and (is_ours or source.startswith("{") or _CALL.match(source)):
            raise ShellRefused(refused.message, refused.offset, refused.length, refused.hint) from refused
        return operated
    unknown = [read for read in expression.reads if not names.knows(read)]
    if unknown and operated is None and (is_ours or not _SHELLS.match(source)):
        raise _unknown_name(unknown[0], source, offset)
    if unknown:  # text of the shell operator may look like a name
        return operated
    is_shells = not expression.reads or _is_shells_variable(source, expression.reads, names)
    return None if is_shells else ShellPlaceholder(expression.source, offset, close + 1)


def _is_shells_variable(source: str, reads: tuple[str, ...], names: Names) -> bool:
    """A root without a field, as in `${files[0]}` or `${output-x}`, is a variable of the script.

    But `${steps[item].output}` is ours: a shell subscript does not mention our names.
    """
    match = _SHELLS.match(source)
    is_ours = names.is_start_of(source.removeprefix("!")) or (match and match.group().endswith("[") and len(reads) > 1)
    return match is not None and not is_ours


def _find_with_operator(text: str, offset: int, names: Names) -> ShellPlaceholder | None:
    match = _OPERATED.match(text, offset + 2)
    if match is None or not names.is_start_of(match["path"]) or (match["operator"] == "}" and not match["prefix"]):
        return None
    source = check(match["path"], offset=match.start("path")).source
    return ShellPlaceholder(source, offset, match.end("path"), operator=match["operator"], prefix=match["prefix"])


def _unknown_name(name: str, content: str, offset: int) -> UnknownName:
    return UnknownName(name, content, offset + 2 + max(content.find(name), 0))
