"""Prodigy's variables in text: `${a.b}`, `${a[0]}`, `${v:-default}`, `$VAR`, `$1`. What is not known stays as written.

A variable is known where the place binds it, or a beginning of it: with `item` bound, `${item.path}` is its field.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from mulligan.formats.expressions import is_field, quoted
from mulligan.formats.prodigy.places import Place
from mulligan.formats.translation import Translation, literal
from mulligan.language.nodes import Mapping, Node, Scalar

_FIELD = r"\.[A-Za-z_][\w-]*|\.\d+|\[\d+\]"
_PATH = rf"[A-Za-z_][\w-]*(?:{_FIELD})*"
REFERENCE = re.compile(
    rf"\$(?:\{{(?P<path>{_PATH}|\d+)(?:(?::-|\|default:)(?P<default>[^{{}}]*))?\}}|(?P<bare>[A-Za-z_]\w*|\d))", re.A
)
_FIELDS = re.compile(_FIELD, re.A)
_ARGUMENT = re.compile(r"(?:ARG_)?([1-9]\d?)")
# What Prodigy computes when it meets it, and what does the same.
_COMPUTED = re.compile(r"\$\{(file|cmd|json|date):[^}]*\}")
_MODIFIED = re.compile(r"\$\{[A-Za-z_][\w.-]*\|(?!default:)\w[^}]*\}", re.A)
_UNKEPT = re.compile(r"\$\{([A-Za-z_][\w-]*)\.(stderr|duration)\b[^}]*\}", re.A)
GIT_FIELDS = tuple(
    "files_added files_modified files_deleted files_changed commits commit_count insertions deletions".split()
)
_GIT_CONTEXT = re.compile(rf"\$\{{(?:step|workflow)\.(?:{'|'.join(GIT_FIELDS)})\b[^}}]*\}}")

_CONDITION = re.compile(r"\([^?]*(?: in \['true', 'yes', '1', 'on'\]| == 'completed'| != null)\)")

ARGUMENTS = "inputs.args"
# What is known wherever a text stands.
_ANYWHERE = {"ARG": ARGUMENTS, "workflow.name": "run.workflow", "workflow.id": "run.id"}


class Known(NamedTuple):
    """A variable of Prodigy's as an expression of ours, and where it `is_there`: "" for always."""

    expression: str
    is_there: str = ""

    @property
    def or_null(self) -> str:
        """The expression, with null where there is nothing."""
        return f"({self.is_there} ? {self.expression} : null)" if self.is_there else self.expression


def known(path: str, place: Place) -> Known | None:
    """The expression of a variable; None where nobody has bound it."""
    if path in place.variables:
        return Known(place.variables[path])
    if path in _ANYWHERE:
        return Known(_ANYWHERE[path])
    argument = _ARGUMENT.fullmatch(path)
    if argument:
        return Known(_argument(int(argument[1])))
    fields = list(_FIELDS.finditer(path))
    for field in reversed(fields):
        beginning = place.variables.get(path[: field.start()])
        if beginning is not None:
            return _field_of(beginning, path[field.start() :])
    return None


def _argument(number: int) -> str:
    words = f"{ARGUMENTS}.split(' ')"
    return f"(size({words}) >= {number} ? {words}[{number - 1}] : '')"


def _field_of(expression: str, fields: str) -> Known:
    """A path behind an expression; `a.0` is `a[0]`, and a name with a hyphen stands in brackets."""
    is_path = re.fullmatch(r"[\w.\[\]\"-]+", expression) is not None
    whole = expression if is_path else f"({expression})"
    conditions: list[str] = []
    for field in _FIELDS.findall(fields):
        if conditions:
            conditions.append(f"{whole} != null")
        name = field.removeprefix(".").strip("[]")
        if name.isdigit():
            conditions.append(f"size({whole}) > {name}")
            whole = f"{whole}[{name}]"
        elif is_field(name):
            whole = f"{whole}.{name}"
            conditions.append(f"has({whole})")
        else:
            conditions.append(f'"{name}" in {whole}')
            whole = f'{whole}["{name}"]'
    return Known(whole, " && ".join(conditions))


def text(node: Scalar, place: Place, translation: Translation) -> str:
    """Text of Prodigy's as text of ours, for every place but shell text."""
    refuse_unavailable(node, place, translation)
    for match in REFERENCE.finditer(node.text):
        path = match["path"] or ""
        if "." in path and match["default"] is None and not (known(path, place) or environment(path, place)):
            message = f"'{match.group()}' is not known here, and stays as it is written"
            translation.source.warn_in("prodigy", message, node, match.start(), len(match.group()))
    return filled(node.text, place)


def filled(template: str, place: Place) -> str:
    """`template` with what is known as expressions of ours, and all else as it is written."""
    return replaced(template, literal, lambda match: _outside_shell(match, place))


def replaced(template: str, between: Callable[[str], str], each: Callable[[re.Match[str]], str]) -> str:
    """`template` with each reference replaced, and what is between them, too."""
    pieces, position = [], 0
    for match in REFERENCE.finditer(template):
        pieces += [between(template[position : match.start()]), each(match)]
        position = match.end()
    return "".join([*pieces, between(template[position:])])


def _outside_shell(match: re.Match[str], place: Place) -> str:
    path, default = match["path"] or match["bare"], match["default"]
    found = known(path, place) or environment(path, place)
    if found is None:
        return literal(match.group() if default is None else default)
    if is_constant(found.expression):
        return found.expression
    return f"${{{found.expression if default is None else with_default(found, default)}}}"


def is_constant(expression: str) -> bool:
    """Whether it can stand in a text as it is: to the shell `${2}` would be something else."""
    return expression.isdigit() or expression in ("true", "false")


def environment(path: str, place: Place) -> Known | None:
    """A variable of the environment: one of the workflow's, or with `env.` before it any."""
    name = path.removeprefix("env.")
    if name in place.env:
        return Known(place.env[name])
    return Known(path, f"has({path})") if path.startswith("env.") else None


def is_condition(expression: str) -> bool:
    """Whether it is true or false, whatever happens: of those that `captures` makes."""
    return _CONDITION.fullmatch(expression) is not None


def with_default(found: Known, default: str) -> str:
    """The expression with what stands for it where there is nothing."""
    expression, otherwise = found.expression, quoted(default)
    if is_condition(expression):
        return expression
    if found.is_there:
        return f"{found.is_there} && {expression} != null && {expression} != '' ? {expression} : {otherwise}"
    return f"{expression} == null || {expression} == '' ? {otherwise} : {expression}"


def refuse_unavailable(node: Scalar, place: Place, translation: Translation) -> None:
    """Refuse what Prodigy would compute in the middle of a text, and what nobody here keeps."""
    for pattern, is_kept, why, hint in _UNAVAILABLE:
        for found in pattern.finditer(node.text):
            if not is_kept(found, place):
                message = f"'{found.group()}' {why}"
                raise translation.source.refuse_in(
                    "prodigy", message, node, found.start(), len(found.group()), hint=hint
                )


_UNAVAILABLE: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], Place], bool], str, str], ...] = (
    (
        _COMPUTED,
        lambda found, place: False,
        "is computed by Prodigy in the middle of a text",
        "print it in a shell step with 'capture: NAME', and write ${NAME}",
    ),
    (
        _MODIFIED,
        lambda found, place: False,
        "has a modifier, of which only 'default' is known here",
        "do it in a shell step with 'capture: NAME', and write ${NAME}",
    ),
    (
        _GIT_CONTEXT,
        lambda found, place: found.group()[2:-1] in place.variables,
        "is known in the text of a step that stands behind another, without more, and nowhere else",
        "ask in a shell step, as in 'git diff --name-only HEAD~1', with 'capture: NAME', and write ${NAME}",
    ),
    (
        _UNKEPT,
        # A variable that is no captured one may have such a field.
        lambda found, place: f"{found[1]}.stdout" not in place.variables or found.group()[2:-1] in place.variables,
        "is not kept",
        "with 'capture_streams: both' what it prints as errors is in ${NAME}; 'mulligan show' knows how long it took",
    ),
)


def mentions(node: Node, words: re.Pattern[str]) -> bool:
    """Whether any text in `node` has `words` in it."""
    if isinstance(node, Scalar):
        return words.search(node.text) is not None
    children = [value for _, value in node.items()] if isinstance(node, Mapping) else node.items
    return any(mentions(child, words) for child in children)
