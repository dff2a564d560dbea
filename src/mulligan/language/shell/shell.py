"""Shell text: a value never becomes part of the script.

`rewrite` replaces each of our placeholders by an environment variable that holds the value, quoted so that it is one
word whatever it contains. If the shell would not expand it there, or would evaluate it again, the text is refused, with
its position and what to do instead. Text without placeholders is not changed.

The variables are named after their expressions: `_inputs_target`, `_steps_build_output`. Names that begin with `_` and
one of our names are reserved for this; a name that the script already mentions is not used.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec

from mulligan.core.model.text.lazy_regex import lazy_regex
from mulligan.errors import InputInvalid
from mulligan.language.expressions import Checked, Placeholder, as_text
from mulligan.language.shell.shell_placeholders import ROOTS, Names, ShellRefused, UnknownName

# Only text with `${` needs them.
if TYPE_CHECKING:
    from mulligan.language.shell.shell_lexer import PlaceholderSite
    from mulligan.language.shell.simple_commands import SafeValue

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

# Linux accepts 128 KiB per environment string; the rest is for the name and a margin.
VALUE_BYTES_MAX = 96 * 1024
_OTHER_WAYS = "pass it with 'stdin:', or write it to a file and pass the name of the file"
_NAME_CHARS_MAX = 48
_WORD = lazy_regex(r"[A-Za-z_]\w*", re.A)
_NO_WORD = lazy_regex(r"\W+", re.A)
# Shells that accept `-c TEXT` with `${NAME}` in it, also with a version in their name.
_SHELLS = lazy_regex(r"(?:ba|rba|da|a|k|mk|ya|z)?sh(?:93)?(?:-?[\d.]+)?")
# Those that may not support `pipefail`: `sh` is dash on many systems.
_WITHOUT_PIPEFAIL = lazy_regex(r"(?:da|a|ya)?sh")


class ShellText(msgspec.Struct, frozen=True):
    """The script, the expression of each environment variable in it, and the placeholders of the original text."""

    text: str
    bindings: dict[str, str]
    placeholders: tuple[Placeholder, ...]
    # Those of the expressions that were checked on the way.
    checked: Mapping[str, Checked] = MappingProxyType({})


def reads_variables(program: str | None) -> bool:
    """Whether the program (None means bash) is a shell that expands `${NAME}`."""
    return program is None or _SHELLS.fullmatch(program.rpartition("/")[2]) is not None


def strict_options(program: str) -> tuple[str, ...]:
    """The options that make the shell stop at the first failing command; none if it is not a shell."""
    name = program.rpartition("/")[2]
    if not _SHELLS.fullmatch(name):
        return ()
    return ("-e", "-u") if _WITHOUT_PIPEFAIL.match(name) else ("-e", "-u", "-o", "pipefail")


def rewrite(text: str, bound: frozenset[str] = frozenset(), roots: frozenset[str] = ROOTS) -> ShellText:
    """`text` with a variable for every placeholder; ShellRefused if a value would not be safe there.

    `bound` are the names that need no field: that of the item, `index`, `output`.
    """
    if "${" not in text:
        return ShellText(text, {}, ())
    names = Names(bound, roots)
    from mulligan.language.shell.simple_commands import find_safe_values

    safe = find_safe_values(text, names)
    return _rewrite_scanned(text, names) if safe is None else _rewrite_simple(text, safe)


def _rewrite_simple(text: str, values: list[SafeValue]) -> ShellText:
    variables = _name_variables(text, [value.source for value in values])
    pieces, position = [], 0
    placeholders, known = [], {}
    for source, offset, end, is_quoted, checked in values:
        if checked is not None:
            known[source] = checked
        quote = "" if is_quoted else '"'
        pieces.append(f"{text[position:offset]}{quote}${{{variables[source]}}}{quote}")
        placeholders.append(Placeholder(source, offset, end - offset))
        position = end
    pieces.append(text[position:])
    bindings = {variable: source for source, variable in variables.items()}
    return ShellText("".join(pieces), bindings, tuple(placeholders), known)


def _rewrite_scanned(text: str, names: Names) -> ShellText:
    from mulligan.language.shell import shell_lexer

    found = shell_lexer.scan(text, names)
    for site in found.sites:
        _refuse_danger(text, site)
    variables = _name_variables(text, [site.placeholder.source for site in found.sites])
    edits = [edit for site in found.sites for edit in _edits(site, variables[site.placeholder.source])]
    edits += [(offset, offset + 1, "") for offset in found.escapes]
    bindings = {variable: source for source, variable in variables.items()}
    return ShellText(_apply_edits(text, edits), bindings, tuple(_placeholder_of(site) for site in found.sites))


def environment_value(name: str, value: Any) -> str:
    """`value` as the text of an environment variable; InputInvalid if a variable cannot hold it."""
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
    """The error for a value that is too large for an environment variable."""
    message = f"the value of '{name}' has {size} bytes, and an environment variable holds at most {VALUE_BYTES_MAX}"
    return InputInvalid(message, hint=_OTHER_WAYS, name=name, size=size)


def _refuse_danger(text: str, site: PlaceholderSite) -> None:
    if site.danger is None:
        return
    end = site.placeholder.end if site.close is None else site.close + 1
    shown = text[site.placeholder.offset : end]
    raise ShellRefused(f"'{shown}' {site.danger.reason}", site.placeholder.offset, len(shown), site.danger.hint)


def _edits(site: PlaceholderSite, variable: str) -> list[tuple[int, int, str]]:
    """The edits of the text: start, end, replacement."""
    quote = '"' if site.quoting in ("bare", "pattern") else ""
    begin = f"{quote}${{{site.placeholder.prefix}{variable}"
    if site.close is None:
        return [(site.placeholder.offset, site.placeholder.end, f"{begin}}}{quote}")]
    return [(site.placeholder.offset, site.placeholder.end, begin), (site.close + 1, site.close + 1, quote)]


def _apply_edits(text: str, edits: list[tuple[int, int, str]]) -> str:
    pieces, position = [], 0
    for start, end, new in sorted(edits):
        pieces += [text[position:start], new]
        position = end
    return "".join([*pieces, text[position:]])


def _placeholder_of(site: PlaceholderSite) -> Placeholder:
    end = site.placeholder.end if site.close is None else site.close + 1
    return Placeholder(site.placeholder.source, site.placeholder.offset, end - site.placeholder.offset)


def _name_variables(text: str, sources: list[str]) -> dict[str, str]:
    """A readable and unique variable name for each expression."""
    variables: dict[str, str] = {}
    # Their names begin with an underscore.
    taken = set(_WORD.findall(text)) if "_" in text else set()
    # The next number to try for each stem: thousands of expressions may begin alike.
    counts: dict[str, int] = {}
    for source in dict.fromkeys(sources):
        words = _NO_WORD.sub("_", source).strip("_")[:_NAME_CHARS_MAX]
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
