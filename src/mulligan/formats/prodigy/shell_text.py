"""Shell text of Prodigy's: its variables as expressions of ours, wherever a value can be had there as one word.

Prodigy pastes values into the script. We hand them over as environment variables, so a value stays a value:

- within single quotes the quotes are closed around it: `'a ${x} b'` is `'a '"${x}"' b'`;
- where that does not do (here-documents in quotes, arithmetic, the script of another shell), and where a value stands
  in the place of a command, the script is put together first and then read, as Prodigy does it. `convert` says so.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from mulligan.formats.prodigy.own_variables import own_variables
from mulligan.formats.prodigy.places import Place
from mulligan.formats.prodigy.variables import (
    ARGUMENTS,
    environment,
    filled,
    is_constant,
    known,
    refuse_unavailable,
    replaced,
    with_default,
)
from mulligan.formats.translation import Translation
from mulligan.language.nodes import Scalar
from mulligan.language.shell_lexer import PlaceholderSite, scan
from mulligan.language.shell_placeholders import ROOTS, Names, ShellRefused, UnknownName
from mulligan.language.shell_safety import SINGLE_QUOTES
from mulligan.language.suggestions import did_you_mean

SCRIPT_VARIABLE = "PRODIGY_SCRIPT"
ARGUMENTS_VARIABLE = "PRODIGY_ARGS"
PUT_TOGETHER = "values in this script are read as script, as Prodigy does: let nobody choose them whom you do not trust"
_PLAIN_PATH = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*|\[(?:\d+|\"[^\"]*\")\])*", re.A)
_POSITION = re.compile(r"\$\{?[1-9]")
_SINGLE_QUOTED = re.compile(r"'[^']*'")
# `$1` is an argument of the script's own where it has functions, or sets its arguments.
_HAS_ARGUMENTS = re.compile(r"\(\s*\)|\bset\s+--|\bshift\b|\bfunction\s")


class Script(NamedTuple):
    """A script of ours, and what must be in its environment."""

    text: str
    env: dict[str, str]


def script(node: Scalar, place: Place, translation: Translation) -> Script:
    """The text of a shell step."""
    refuse_unavailable(node, place, translation)
    try:
        return shell_text(node.text, place)
    except UnknownName as unknown:
        shown = f"${{{unknown.source}}}"
        message, hint = f"'{shown}' is not known here", _meant(unknown.source, place)
        offset = max(0, node.text.find(shown))
        raise translation.source.refuse_in("prodigy", message, node, offset, len(shown), hint=hint) from None


def _meant(path: str, place: Place) -> str:
    """The variable that was meant, in Prodigy's words."""
    if path in ("shell.output", "claude.output", "last.output"):
        return "no step before it gives that"
    roots = {variable.partition(".")[0] for variable in place.variables}
    return did_you_mean(path, place.variables) or did_you_mean(path.partition(".")[0], roots)


def shell_text(template: str, place: Place) -> Script:
    """Shell text with what is known as expressions of ours; what is not known is the shell's."""
    own = own_variables(template)
    naive = replaced(template, str, lambda match: _in_shell(match, place, own))
    env = {ARGUMENTS_VARIABLE: f"${{{ARGUMENTS}}}"} if _reads_arguments(template) else {}
    try:
        text = _quoted(naive, place)
    except UnknownName:
        raise
    except ShellRefused:
        text = naive  # the language says what is wrong with it
    if text is None:
        text, env[SCRIPT_VARIABLE] = f'eval "${SCRIPT_VARIABLE}"', filled(template, place)
    return Script(f"set -- ${ARGUMENTS_VARIABLE}\n{text}" if ARGUMENTS_VARIABLE in env else text, env)


def _reads_arguments(template: str) -> bool:
    """Whether it reads `$1` and so on, and not for awk, which has its own."""
    return _POSITION.search(_SINGLE_QUOTED.sub("", template)) is not None and not _HAS_ARGUMENTS.search(template)


def _in_shell(match: re.Match[str], place: Place, own: frozenset[str]) -> str:
    path, default = match["path"] or match["bare"], match["default"]
    if path.startswith("env.") and environment(path, place):
        return f"${{{path.removeprefix('env.')}{'' if default is None else f':-{default}'}}}"
    found = None if path in own or path.isdigit() else known(path, place)
    if found is None:
        return _kept(match, place)
    if is_constant(found.expression):
        return found.expression
    if default is None:
        return f"${{{found.expression}}}"
    if not found.is_there and _PLAIN_PATH.fullmatch(found.expression):
        return f"${{{found.expression}:-{default}}}"
    return f"${{{with_default(found, default)}}}"


def _kept(match: re.Match[str], place: Place) -> str:
    """What is the shell's. A name that is also one of ours loses its braces: so nobody takes it for ours."""
    path = match["path"]
    if path in place.names and match["default"] is None:
        return f'${path}""' if match.string[match.end() : match.end() + 1].isalnum() else f"${path}"
    return match.group()


def _quoted(naive: str, place: Place) -> str | None:
    """The text with single quotes closed around values; None where a value is meant as script, or has no safe place."""
    names = Names(place.names, ROOTS)
    pieces, position = [], 0
    for spot in scan(naive, names).sites:
        start, end = spot.placeholder.offset, spot.placeholder.end if spot.close is None else spot.close + 1
        if _is_command(spot, naive, end):
            return None
        if spot.danger == SINGLE_QUOTES:
            # Next to the quote of the file's the two would stand around nothing.
            is_first, is_last = naive[start - 1] == "'", naive[end : end + 1] == "'"
            pieces += [naive[position : start - is_first], '"' if is_first else "'\"", naive[start:end]]
            pieces.append('"' if is_last else "\"'")
            position = end + is_last
    text = "".join([*pieces, naive[position:]])
    return None if any(spot.danger for spot in scan(text, names).sites) else text


def _is_command(spot: PlaceholderSite, text: str, end: int) -> bool:
    """Whether the value is a whole word where a command begins."""
    before, after = text[spot.placeholder.offset - 1 : spot.placeholder.offset], text[end : end + 1]
    return (
        spot.quoting == "bare"
        and not spot.words
        and spot.danger is None
        and before in ("", " ", "\t", "\n", ";", "&", "|", "(")
        and after in ("", " ", "\t", "\n", ";", "&", "|", ")")
    )
