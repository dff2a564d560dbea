"""Shell text: a value never becomes text of the script.

`rewrite` turns each `${…}` of ours into the expansion of an environment variable that will hold the value, quoted so
that it is one word whatever is in it. Where the shell would not expand it, or would evaluate it again, the text is
refused, with the place and with what to do instead. Text without a hole of ours comes back as it is.

The variables are named after what they hold: `_inputs_target`, `_steps_build_output`. Names that begin with `_` and one
of our names are reserved for this in shell text; one that the script mentions itself is not taken.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from mulligan.core.model.lazy_regex import lazy_regex
from mulligan.errors import InputInvalid
from mulligan.language.expressions import Hole, as_text
from mulligan.language.shell_lexer import Spot, scan
from mulligan.language.shell_placeholders import ROOTS, Names, ShellRefused, UnknownName

__all__ = [
    "ROOTS",
    "VALUE_BYTES_MAX",
    "ShellRefused",
    "ShellText",
    "UnknownName",
    "environment_value",
    "reads_variables",
    "rewrite",
    "strict_options",
    "value_too_large",
]

# Linux takes 128 KiB for one string of the environment; what is left is for the name and for the system's own.
VALUE_BYTES_MAX = 96 * 1024
_OTHER_WAYS = "feed it to the step with 'stdin:', or write it to a file and hand over its name"
_NAME_CHARS_MAX = 48
_WORD = lazy_regex(r"[A-Za-z_]\w*", re.A)
# Programs that take `-c TEXT` and in it `${NAME}`, also with their version.
_SHELLS = lazy_regex(r"(?:ba|rba|da|a|k|mk|ya|z)?sh(?:93)?(?:-?[\d.]+)?")
# Of those, the ones that need not know `pipefail`: `sh` is dash on many systems.
_WITHOUT_PIPEFAIL = lazy_regex(r"(?:da|a|ya)?sh")


class ShellText(NamedTuple):
    """The script, the expression of each environment variable in it, and where the holes were in the text."""

    text: str
    bindings: dict[str, str]
    holes: tuple[Hole, ...]


def reads_variables(program: str | None) -> bool:
    """Whether a program (bash, where none is named) is a shell in which `${NAME}` is a variable."""
    return program is None or _SHELLS.fullmatch(program.rpartition("/")[2]) is not None


def strict_options(program: str) -> tuple[str, ...]:
    """The options under which a shell stops at the first command that fails; none for what is not a shell."""
    name = program.rpartition("/")[2]
    if not _SHELLS.fullmatch(name):
        return ()
    return ("-e", "-u") if _WITHOUT_PIPEFAIL.match(name) else ("-e", "-u", "-o", "pipefail")


def rewrite(text: str, bound: frozenset[str] = frozenset(), roots: frozenset[str] = ROOTS) -> ShellText:
    """`text` with every hole of ours as a variable; ShellRefused where a value would have no safe place.

    `bound` are the names that hold without a field here: the item's, `index`, `output` where there is one.
    """
    if "${" not in text:
        return ShellText(text, {}, ())
    found = scan(text, Names(bound, roots))
    for spot in found.spots:
        _refuse_danger(text, spot)
    variables = _variables(text, [spot.ours.source for spot in found.spots])
    edits = [edit for spot in found.spots for edit in _edits(spot, variables[spot.ours.source])]
    edits += [(offset, offset + 1, "") for offset in found.escapes]
    bindings = {variable: source for source, variable in variables.items()}
    return ShellText(_edited(text, edits), bindings, tuple(_hole(spot) for spot in found.spots))


def environment_value(name: str, value: Any) -> str:
    """`value` as the environment variable of `name` holds it; InputInvalid where it cannot hold it."""
    text = as_text(value)
    if "\0" in text:
        raise InputInvalid(
            f"the value of '{name}' has a NUL, which no environment variable can hold", hint=_OTHER_WAYS, name=name
        )
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > VALUE_BYTES_MAX:
        raise value_too_large(name, size)
    return text


def value_too_large(name: str, size: int) -> InputInvalid:
    """The error of a value that no environment variable can hold."""
    message = f"the value of '{name}' has {size} bytes, and an environment variable holds {VALUE_BYTES_MAX}"
    return InputInvalid(message, hint=_OTHER_WAYS, name=name, size=size)


def _refuse_danger(text: str, spot: Spot) -> None:
    if spot.danger is None:
        return
    end = spot.ours.end if spot.close is None else spot.close + 1
    shown = text[spot.ours.offset : end]
    raise ShellRefused(f"'{shown}' {spot.danger.reason}", spot.ours.offset, len(shown), spot.danger.hint)


def _edits(spot: Spot, variable: str) -> list[tuple[int, int, str]]:
    """What changes in the text: from, to, and what stands there then."""
    quote = '"' if spot.quoting in ("bare", "pattern") else ""
    begin = f"{quote}${{{spot.ours.prefix}{variable}"
    if spot.close is None:
        return [(spot.ours.offset, spot.ours.end, f"{begin}}}{quote}")]
    return [(spot.ours.offset, spot.ours.end, begin), (spot.close + 1, spot.close + 1, quote)]


def _edited(text: str, edits: list[tuple[int, int, str]]) -> str:
    pieces, position = [], 0
    for start, end, new in sorted(edits):
        pieces += [text[position:start], new]
        position = end
    return "".join([*pieces, text[position:]])


def _hole(spot: Spot) -> Hole:
    end = spot.ours.end if spot.close is None else spot.close + 1
    return Hole(spot.ours.source, spot.ours.offset, end - spot.ours.offset)


def _variables(text: str, sources: list[str]) -> dict[str, str]:
    """For each expression the variable that holds it: readable, and none twice."""
    variables: dict[str, str] = {}
    taken = set(_WORD.findall(text))
    # Where the search for a free number of each stem goes on: thousands of expressions may begin alike.
    counts: dict[str, int] = {}
    for source in dict.fromkeys(sources):
        words = re.sub(r"\W+", "_", source, flags=re.A).strip("_")[:_NAME_CHARS_MAX]
        stem = f"_{words or 'value'}"
        count = counts.get(stem, 1)
        name = stem if count == 1 else f"{stem}_{count}"
        while name in taken:
            count += 1
            name = f"{stem}_{count}"
        counts[stem] = count
        taken.add(name)
        variables[source] = name
    return variables
