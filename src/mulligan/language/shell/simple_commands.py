"""Shell text in which values are safe for sure, found without the lexer.

Most commands consist of words, values and double quotes, and mention no program that evaluates its arguments again. One
regular expression finds such text in a tenth of the lexer's time. All other text goes to `shell_lexer`, which alone
decides that a value is in danger: this module accepts a part of what the lexer accepts, and a test compares the two.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from mulligan.core.model.text.lazy_regex import lazy_regex
from mulligan.language.expressions import Checked, ExpressionRefused, check, check_simple
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
_QUOTE_OR_VALUE = lazy_regex(rf'"|\$\{{({_EXPRESSION})\}}', re.A)
# The programs that words may name: `/bin/sh` is `sh`; `test.sh` and `sh/x` are not, and `./x` is not the command `.`.
_NAMES = lazy_regex(r"[\w.-]+/?")
# The same for a text of ASCII, whose words are divided by spaces for that.
_SPACES = str.maketrans({chr(code): " " for code in range(128) if not re.match(r"[\w./-]", chr(code))})


class SafeValue(NamedTuple):
    """A `${…}` from `offset` to `end` that is safe where it stands, and whether double quotes are around it."""

    source: str
    offset: int
    end: int
    is_quoted: bool
    # If it was quickly found.
    checked: Checked | None


def find_safe_values(text: str, names: Names) -> list[SafeValue] | None:
    """The values of a simple text, in order; None if the lexer has to decide."""
    if not _SIMPLE_TEXT.fullmatch(text):
        return None
    parts = _QUOTE_OR_VALUE.split(text)
    # A program may also be named in parts: `ba"sh"`, `ba${inputs.x}sh`.
    unquoted = "".join(parts[::2])
    if "$" in unquoted or "'" in unquoted:
        unquoted = remove_quoting(unquoted)
    if not REEVALUATING_WORDS.isdisjoint(_names_in(f"{text} {unquoted}")):
        return None
    try:
        return _find_values(parts, names)
    except ExpressionRefused:
        return None


def _names_in(text: str) -> list[str]:
    """The words that may name programs, and others."""
    return text.replace("/", "/ ").translate(_SPACES).split() if text.isascii() else _NAMES.findall(text)


def _find_values(parts: list[str], names: Names) -> list[SafeValue] | None:
    """The values; None if one may be the shell's, or has a name that is not known.

    Every second of the parts is the source of a value, or None for a quote; the others are the text between them.
    """
    found: list[SafeValue] = []
    is_quoted, roots, at = False, names.roots, 0
    for literal, source in zip(parts[::2], parts[1::2], strict=False):
        at += len(literal)
        if source is None:
            is_quoted = not is_quoted
            at += 1
            continue
        root, dot, _ = source.partition(".")
        if not (dot and root in roots) and not names.is_start_of(source.lstrip()):
            return None
        end = at + len(source) + 3
        source = source.strip()
        checked = check_simple(source)
        reads = check(source).reads if checked is None else checked.expression.reads
        for read in reads:
            # As `names.knows`, which would be a call for each value.
            first = read.partition(".")[0]
            if first not in roots and first not in names.bound:
                return None
        found.append(SafeValue(source, at, end, is_quoted, checked))
        at = end
    return found
