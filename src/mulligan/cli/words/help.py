"""The help text of the program and of each command, made from the parameters that the command declares."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Iterable, Iterator
from functools import partial

from mulligan.cli.words.commands import COMMANDS, DESCRIPTION, GENERAL_OPTIONS, PROGRAM
from mulligan.cli.words.parameters import Argument, Command, Option, Parameter, parameters_of

_HELP_ROW = ("-h, --help", "Show this message and exit.")
_WIDTH_MIN, _WIDTH_MAX = 50, 78
# A name of an option is not broken at its hyphens.
_wrap = partial(textwrap.wrap, break_on_hyphens=False)
# A description whose term is longer starts on the next line.
_TERM_CHARS_MAX = 30


def program_help() -> str:
    """What `mulligan --help` shows."""
    options = [*((name, text) for name, text in GENERAL_OPTIONS.items() if name != "--help"), _HELP_ROW]
    return _format(
        f"Usage: {PROGRAM} [OPTIONS] COMMAND [ARGS]...",
        [DESCRIPTION],
        {"Options": options, "Commands": [(name, summary) for name, (_, summary) in COMMANDS.items()]},
    )


def command_help(name: str, command: Command) -> str:
    """What `mulligan NAME --help` shows: its summary, the rest of its docstring, and what it takes."""
    parameters = parameters_of(command)
    arguments = [one for one in parameters if isinstance(one.declared, Argument)]
    usage = " ".join([f"Usage: {PROGRAM} {name} [OPTIONS]", *map(_placeholder, arguments)])
    sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
    for one in parameters:
        if isinstance(one.declared, Argument):
            sections["Arguments"].append((one.label, _description(one)))
        else:
            sections["Options"].append((_option_term(one), _description(one)))
    sections["Options"].append(_HELP_ROW)
    _, *paragraphs = re.split(r"\n\s*\n", command.__doc__ or "")
    return _format(usage, [COMMANDS[name][1], *paragraphs], sections)


def _placeholder(argument: Parameter) -> str:
    """`FILE`, `[FILE]`, `FILE...` or `[FILE]...`."""
    metavar = argument.label.removesuffix("...")
    return (metavar if argument.is_required else f"[{metavar}]") + ("..." if argument.is_list else "")


def _option_term(option: Parameter) -> str:
    """`-i, --input KEY=VALUE`: short names first."""
    names = sorted((name.replace("/", " / ") for name in option.names), key=lambda name: name.startswith("--"))
    return " ".join(filter(None, (", ".join(names), option.declared.metavar)))


def _description(parameter: Parameter) -> str:
    notes = []
    if isinstance(parameter.declared, Option) and parameter.declared.show_default:
        default = parameter.default
        if parameter.kind is bool:
            default = next(flag for flag, is_on in parameter.flags() if is_on == default)
        # Kept in one line.
        notes.append(f"[default:\N{NO-BREAK SPACE}{default}]")
    if parameter.is_required:
        notes.append("[required]")
    return "  ".join([parameter.declared.help, *notes])


def _format(usage: str, paragraphs: Iterable[str], sections: dict[str, list[tuple[str, str]]]) -> str:
    width = max(_WIDTH_MIN, min(_WIDTH_MAX, shutil.get_terminal_size().columns - 2))
    lines = _wrap(usage, width, subsequent_indent=" " * 7)
    for paragraph in paragraphs:
        lines += ["", *_wrap(" ".join(paragraph.split()), width, initial_indent="  ", subsequent_indent="  ")]
    for heading, rows in sections.items():
        if rows:
            lines += ["", f"{heading}:", *_columns(rows, width)]
    return "\n".join(lines).replace("\N{NO-BREAK SPACE}", " ")


def _columns(rows: list[tuple[str, str]], width: int) -> Iterator[str]:
    start = min(_TERM_CHARS_MAX, max(len(term) for term, _ in rows)) + 4
    for term, text in rows:
        first, *more = _wrap(text, width - start) or [""]
        if len(term) + 4 > start:
            yield f"  {term}"
            term = ""
        yield f"  {term:<{start - 2}}{first}".rstrip()
        yield from (" " * start + line for line in more)
