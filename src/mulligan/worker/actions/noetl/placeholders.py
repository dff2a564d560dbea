"""The text of a program with a mark in the place of each value that is not the file's.

Each `{{ … }}` of a command or a query is a placeholder. What the file itself says is filled in as text, and so are
numbers. Of everything else only a mark is put into the text: so it is known where a value stands in the program before
any of it is there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from typing import Any, NamedTuple

from jinja2 import Template, nodes

from mulligan import StepError
from mulligan.worker.actions.noetl.credentials import refused
from mulligan.worker.actions.noetl.sandbox import VALUES
from mulligan.worker.actions.noetl.template_reads import Locals, Path, are_given_empty, are_of_file
from mulligan.worker.actions.noetl.templates import Names, carefully, compiled, is_template, joined, shown

# Private characters of Unicode: no program and no value in a text has a meaning for them.
_OPEN, _CLOSE = "\U000f0000", "\U000f0001"
MARK = re.compile(f"{_OPEN}(\\d+){_CLOSE}")
# A redirection, before which a number would be its descriptor.
_REDIRECTION = re.compile(r"(?:\\\n)*[<>]")
TRUST = "run with --trust-templates"
_FUNCTION = "mulligan_placeholder"
_NUMBER = r"-?\d+(?:\.\d+)?"
_ONE_NUMBER = re.compile(_NUMBER, re.ASCII)
_NUMBERS = re.compile(rf"{_NUMBER}(?:[, ]+{_NUMBER})*", re.ASCII)
# What a text may be made of. The others mix text of the file and values in ways that leave no place for a mark.
_STATEMENTS = (
    *(nodes.Output, nodes.If, nodes.For, nodes.Assign, nodes.AssignBlock, nodes.With, nodes.Macro, nodes.ExprStmt),
)


class Written(NamedTuple):
    """One `{{ … }}` as it stands in the text. `separator` is what it joins a list by, where it does.

    `is_repeated` says that it stands in a `{% for %}`, once for each of several values; `quotes` are the constants in
    it that have single quotes. In a query `is_doubled` says that its last filter is `replace("'", "''")`, which is left
    out of the value: quotes are doubled where it becomes part of a literal. `may_be_nothing` says that it is a choice
    between something and nothing: `'-v' if x else ''`.
    """

    source: str
    paths: frozenset[Path] = frozenset()
    separator: str | None = None
    is_repeated: bool = False
    quotes: tuple[str, ...] = ()
    is_doubled: bool = False
    may_be_nothing: bool = False


class Placeholder(NamedTuple):
    """One `{{ … }}` with its value, which is not the file's. `is_harmless`: it may be put in anywhere as a word."""

    written: Written
    value: Any
    text: str
    is_harmless: bool

    def refused(self, reason: str, way: str) -> StepError:
        """The failure of a step that would make program text of the value."""
        source = f"'{shown(self.written.source)}'"
        return refused(f"{source} {reason}, and its value comes from an input or a step: {way}, or {TRUST}")


class Marked(NamedTuple):
    """A text with marks, and the placeholder of each mark."""

    text: str
    placeholders: dict[int, Placeholder]


class Command(NamedTuple):
    """A command for a shell, and the environment variables that hold its values."""

    text: str
    variables: dict[str, str]


def marked(text: str, names: Names, *, first: int = 0, is_query: bool = False, is_command: bool = False) -> Marked:
    """The text with all filled in that is harmless, and a mark for each other value. Marks are counted from `first`.

    In a query there is a mark for null as well, which is written otherwise there, and for what begins with '-': after
    another one it would begin a comment. In a command there is one for an empty text, which would take its word away,
    and for a number before a redirection, which would be its descriptor.
    """
    _refuse_marks(text)
    if not is_template(text):
        return Marked(text, {})
    template, written = _prepared(text, is_query)
    found: dict[int, Placeholder] = {}
    # Asked once for each that stands in a loop: what is read does not change meanwhile.
    is_of_file = cache(lambda number: are_of_file(written[number].paths, names))

    def put(number: int, value: Any) -> str:
        said, shows = written[number], str(value)
        is_harmless = _is_harmless(value, shows, said)
        is_marked = is_query and is_harmless and (value is None or shows.startswith("-"))
        is_word = is_command and is_harmless and said.separator is None
        if is_word and not shows:
            is_word = not said.may_be_nothing and are_given_empty(said.paths, names)
        if (is_harmless or is_of_file(number)) and not (is_marked or is_word):
            _refuse_marks(shows)
            return shows.replace("'", "''") if said.is_doubled else shows
        mark = first + len(found)
        found[mark] = Placeholder(said, value, shows, is_harmless)
        return f"{_OPEN}{mark}{_CLOSE}"

    with_names = {**names, _FUNCTION: put}
    filled = carefully(text, lambda: joined(template.generate(with_names)))
    return _with_numbers(Marked(filled, found)) if is_command else Marked(filled, found)


def _with_numbers(command: Marked) -> Marked:
    """The command with its numbers filled in, except directly before a redirection."""
    kept: dict[int, Placeholder] = {}

    def put(mark: re.Match[str]) -> str:
        placeholder = command.placeholders[int(mark[1])]
        is_number = placeholder.is_harmless and bool(placeholder.text)
        if is_number and not _REDIRECTION.match(command.text, mark.end()):
            return placeholder.text
        kept[int(mark[1])] = placeholder
        return mark[0]

    return Marked(MARK.sub(put, command.text), kept)


def _refuse_marks(text: str) -> None:
    if _OPEN in text or _CLOSE in text:
        raise refused(f"'{shown(text)}' has a character that is reserved (U+F0000 or U+F0001)")


def _is_harmless(value: Any, shows: str, written: Written) -> bool:
    """Whether it is a number, nothing, or the list of numbers that the file asks for: they say the same anywhere."""
    if not shows or value is None or isinstance(value, int | float):
        return True
    is_number = _ONE_NUMBER if written.separator is None else _NUMBERS
    return isinstance(value, str) and is_number.fullmatch(shows) is not None


# -- the template, prepared


@lru_cache(maxsize=1024)
def _prepared(text: str, is_query: bool) -> tuple[Template, tuple[Written, ...]]:
    tree = compiled(text, lambda: VALUES.parse(text))
    _refuse_others(tree, text)
    local, sources = Locals(tree), [*_sources(text)]
    numbered = dict(zip(map(id, _expressions(tree)), range(len(sources)), strict=True))
    written = [Written(source) for source in sources]
    for output, is_repeated in _outputs(tree.body):
        for at, expression in enumerate(output.nodes):
            if id(expression) in numbered:
                number = numbered[id(expression)]
                inner = _undoubled(expression) if is_query else None
                value = inner or expression
                written[number] = Written(
                    source=sources[number],
                    paths=local.paths(value),
                    separator=_separator(value),
                    is_repeated=is_repeated,
                    quotes=_quotes(value),
                    is_doubled=inner is not None,
                    may_be_nothing=_may_be_nothing(value),
                )
                output.nodes[at] = _call(number, value)
    tree.set_environment(VALUES)
    return compiled(text, lambda: VALUES.from_string(tree)), tuple(written)


def _refuse_others(tree: nodes.Template, text: str) -> None:
    for node in tree.find_all(nodes.Stmt):
        is_recursive = isinstance(node, nodes.For) and node.recursive
        if not isinstance(node, _STATEMENTS) or is_recursive:
            raise refused(
                f"'{shown(text)}' is the text of a program, and has a statement that is not for such a text: "
                f"use 'if', 'for' (not recursive), 'set', 'with' and 'macro', or {TRUST}"
            )


def _outputs(body: Iterable[nodes.Node], is_repeated: bool = False) -> Iterator[tuple[nodes.Output, bool]]:
    """What goes into the text itself, not into the value of a macro or a `set`; and whether it is repeated."""
    for node in body:
        if isinstance(node, nodes.Output):
            yield node, is_repeated
        elif not isinstance(node, nodes.Macro | nodes.AssignBlock):
            yield from _outputs(node.iter_child_nodes(), is_repeated or isinstance(node, nodes.For))


def _expressions(tree: nodes.Template) -> Iterator[nodes.Expr]:
    """Each `{{ … }}` of the text, in order, wherever it stands."""
    for output in tree.find_all(nodes.Output):
        yield from (node for node in output.nodes if not isinstance(node, nodes.TemplateData))


def _sources(text: str) -> Iterator[str]:
    source = ""
    for _, kind, value in VALUES.lex(text):
        if kind == "variable_begin":
            source = ""
        source += value
        if kind == "variable_end":
            yield source.strip()


def _call(number: int, expression: nodes.Expr) -> nodes.Call:
    function = nodes.Name(_FUNCTION, "load")
    call = nodes.Call(function, [nodes.Const(number), expression], [], None, None)
    call.set_lineno(expression.lineno)
    return call


def _separator(expression: nodes.Node | None) -> str | None:
    """What a list is joined by, where that is what the expression does in the end."""
    while isinstance(expression, nodes.Filter):
        if expression.name == "join":
            said = expression.args[0] if expression.args else None
            return str(said.value) if isinstance(said, nodes.Const) else ""
        expression = expression.node
    return None


def _undoubled(expression: nodes.Expr) -> nodes.Expr | None:
    """What quotes are doubled in, where that is what the expression does in the end; else None."""
    if isinstance(expression, nodes.Filter) and expression.name == "replace":
        inner = expression.node
    elif isinstance(expression, nodes.Call) and isinstance(expression.node, nodes.Getattr):
        inner = expression.node.node if expression.node.attr == "replace" else None
    else:
        return None
    said = [argument.value for argument in expression.args if isinstance(argument, nodes.Const)]
    return inner if said == ["'", "''"] else None


def _may_be_nothing(expression: nodes.Expr) -> bool:
    if not isinstance(expression, nodes.CondExpr):
        return False
    branches = (expression.expr1, expression.expr2)
    return any(one is None or (isinstance(one, nodes.Const) and one.value in ("", None)) for one in branches)


def _quotes(expression: nodes.Expr) -> tuple[str, ...]:
    constants = [one.value for one in expression.find_all(nodes.Const) if isinstance(one.value, str)]
    return tuple(text for text in constants if "'" in text)
