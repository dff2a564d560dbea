"""Shell text in which values are safe for sure, found without the lexer.

Most commands consist of words, values and double quotes, and mention no program that evaluates its arguments again. One
regular expression finds such text in a tenth of the lexer's time. All other text goes to `shell_lexer`, which alone
decides that a value is in danger: this module accepts a part of what the lexer accepts, and a test compares the two.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from mulligan.core.model.text.lazy_regex import lazy_regex
from mulligan.language.expressions import ExpressionRefused, check
from mulligan.language.shell.command_words import remove_quoting
from mulligan.language.shell.shell_placeholders import Names
from mulligan.language.shell.shell_safety import REEVALUATING_WORDS

_PATH = r"[A-Za-z_]\w*+(?>(?:\.[A-Za-z_]\w*+)*)"
# Literals without a character that means something to the shell, and operators that the shell does not have in `${…}`.
_OPERAND = rf"""(?:{_PATH}|[0-9]++|"[\w ,.:+=-]*+"|'[\w ,.:+=-]*+')"""
_EXPRESSION = rf"[ ]*+{_PATH}(?>(?:[ ]*+(?:&&|\|\||[=!<>]=|[-+*<>])[ ]*+{_OPERAND})*)[ ]*+"
_VALUE = rf"\$\{{{_EXPRESSION}\}}"
_VARIABLE = r"\$[A-Za-z_]\w*+"
# Words, separators of commands and output redirections. Not here-documents, comments, subshells, subscripts, escapes.
_UNQUOTED = r"""[^\s\\'"`$\#<()\[]++|[ \t\n]++"""
_QUOTED = rf'"(?>(?:[^"\\`$]++|{_VALUE}|{_VARIABLE})*)"'
_SIMPLE_TEXT = lazy_regex(rf"(?>(?:{_UNQUOTED}|{_VALUE}|{_VARIABLE}|{_QUOTED})*)", re.A)
_QUOTE_OR_VALUE = lazy_regex(rf'"|\$\{{(?P<source>{_EXPRESSION})\}}', re.A)
_ONLY_PATH = lazy_regex(_PATH, re.A)
# The programs that words may name: `/bin/sh` is `sh`; `test.sh` and `sh/x` are not, and `./x` is not the command `.`.
_NAMES = lazy_regex(r"[\w.-]+/?")


class SafeValue(NamedTuple):
    """A `${…}` from `offset` to `end` that is safe where it stands, and whether double quotes are around it."""

    source: str
    offset: int
    end: int
    is_quoted: bool


def find_safe_values(text: str, names: Names) -> list[SafeValue] | None:
    """The values of a simple text, in order; None if the lexer has to decide."""
    if not _SIMPLE_TEXT.fullmatch(text):
        return None
    if not REEVALUATING_WORDS.isdisjoint(_NAMES.findall(text)):
        return None
    # A program may also be named in parts: `ba"sh"`, `ba${inputs.x}sh`.
    if not REEVALUATING_WORDS.isdisjoint(_NAMES.findall(remove_quoting(text))):
        return None
    try:
        return _find_values(text, names)
    except ExpressionRefused:
        return None


def _find_values(text: str, names: Names) -> list[SafeValue] | None:
    """The values; None if one may be the shell's, or has a name that is not known."""
    found: list[SafeValue] = []
    is_quoted = False
    for match in _QUOTE_OR_VALUE.finditer(text):
        source = match["source"]
        if source is None:
            is_quoted = not is_quoted
            continue
        if not names.is_start_of(source.lstrip()):
            return None
        if not _ONLY_PATH.fullmatch(source):
            expression = check(source)
            if not all(map(names.knows, expression.reads)):
                return None
            source = expression.source
        found.append(SafeValue(source, *match.span(), is_quoted))
    return found
