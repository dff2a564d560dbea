"""Render the text of a program with a mark in place of each value that does not come from the file.

Each `{{ … }}` of a command or a query is a placeholder. Values from the file itself are filled in as text, and so are
numbers. All other values become marks, so that their places in the program are known before any of them is in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from typing import Any, NamedTuple

from jinja2 import Template, nodes

from mulligan import StepError
from mulligan.formats.noetl.runtime.credentials import invalid_input
from mulligan.formats.noetl.runtime.sandbox import VALUES
from mulligan.formats.noetl.runtime.template_reads import Locals, Path, are_from_file, are_run_values
from mulligan.formats.noetl.runtime.templates import (
    Names,
    compile_template,
    evaluate,
    excerpt,
    is_template,
    join_bounded,
)

# Private characters of Unicode, which have no meaning in programs and values.
_OPEN, _CLOSE = "\U000f0000", "\U000f0001"
MARK = re.compile(f"{_OPEN}(\\d+){_CLOSE}")
# A redirection, before which a number would be its descriptor.
_REDIRECTION = re.compile(r"(?:\\\n)*[<>]")
TRUST = "run with --trust-templates"
_FUNCTION = "mulligan_placeholder"
_NUMBER = r"-?\d+(?:\.\d+)?"
_ONE_NUMBER = re.compile(_NUMBER, re.ASCII)
_NUMBERS = re.compile(rf"{_NUMBER}(?:[, ]+{_NUMBER})*", re.ASCII)
# The statements that a program text may have. Others mix text of the file and values so that no mark can be placed.
_STATEMENTS = (
    *(nodes.Output, nodes.If, nodes.For, nodes.Assign, nodes.AssignBlock, nodes.With, nodes.Macro, nodes.ExprStmt),
)


class Expression(NamedTuple):
    """One `{{ … }}` of the text. `separator` is the one that it joins a list with, if it does.

    `is_repeated`: it is in a `{% for %}`. `quotes`: the constants in it that have single quotes. `is_doubled`, in a
    query: its last filter is `replace("'", "''")`, which is left out of the value, because quotes are doubled where it
    becomes part of a literal. `may_be_nothing`: it is a choice between something and nothing, `'-v' if x else ''`.
    """

    source: str
    paths: frozenset[Path] = frozenset()
    separator: str | None = None
    is_repeated: bool = False
    quotes: tuple[str, ...] = ()
    is_doubled: bool = False
    may_be_nothing: bool = False


class Placeholder(NamedTuple):
    """A `{{ … }}` with a value that does not come from the file. `is_harmless`: it may stand anywhere as text."""

    written: Expression
    value: Any
    text: str
    is_harmless: bool

    def refusal(self, reason: str, way: str) -> StepError:
        """The failure of a step in which the value would become program text. `way` is what to do instead."""
        source = f"'{excerpt(self.written.source)}'"
        return invalid_input(f"{source} {reason}, and its value comes from an input or a step: {way}, or {TRUST}")


class MarkedText(NamedTuple):
    """A text with marks, and the placeholder of each mark."""

    text: str
    placeholders: dict[int, Placeholder]


class Command(NamedTuple):
    """A command for a shell, and the environment variables that hold its values."""

    text: str
    variables: dict[str, str]


def mark_values(
    text: str, names: Names, *, first: int = 0, is_query: bool = False, is_command: bool = False
) -> MarkedText:
    """Render the text with harmless values filled in, and a mark for each other value. Marks count from `first`.

    In a query there is also a mark for null, which is written differently there, and for a value that begins with '-',
    which would begin a comment after another '-'. In a command there is also one for an empty text, which would remove
    its word, and for a number before a redirection, which would be a descriptor.
    """
    _refuse_marks(text)
    if not is_template(text):
        return MarkedText(text, {})
    template, written = _prepare(text, is_query)
    found: dict[int, Placeholder] = {}
    # Cached for expressions in loops: what they read does not change meanwhile.
    is_from_file = cache(lambda number: are_from_file(written[number].paths, names))

    def put(number: int, value: Any) -> str:
        expression, shows = written[number], str(value)
        is_harmless = _is_harmless(value, shows, expression)
        is_marked = is_query and is_harmless and (value is None or shows.startswith("-"))
        is_word = is_command and is_harmless and expression.separator is None
        if is_word and not shows:
            is_word = not expression.may_be_nothing and are_run_values(expression.paths, names)
        if (is_harmless or is_from_file(number)) and not (is_marked or is_word):
            _refuse_marks(shows)
            return shows.replace("'", "''") if expression.is_doubled else shows
        mark = first + len(found)
        found[mark] = Placeholder(expression, value, shows, is_harmless)
        return f"{_OPEN}{mark}{_CLOSE}"

    with_names = {**names, _FUNCTION: put}
    text_with_marks = evaluate(text, lambda: join_bounded(template.generate(with_names)))
    return _with_numbers(MarkedText(text_with_marks, found)) if is_command else MarkedText(text_with_marks, found)


def refuse_values(text: str, names: Names, reason: str, way: str) -> None:
    """Refuse a text with a value that does not come from the file. `way` is what to do instead."""
    for placeholder in mark_values(text, names).placeholders.values():
        raise placeholder.refusal(reason, way)


def _with_numbers(command: MarkedText) -> MarkedText:
    """The command with its numbers filled in, except directly before a redirection."""
    kept: dict[int, Placeholder] = {}

    def put(mark: re.Match[str]) -> str:
        placeholder = command.placeholders[int(mark[1])]
        is_number = placeholder.is_harmless and bool(placeholder.text)
        if is_number and not _REDIRECTION.match(command.text, mark.end()):
            return placeholder.text
        kept[int(mark[1])] = placeholder
        return mark[0]

    return MarkedText(MARK.sub(put, command.text), kept)


def _refuse_marks(text: str) -> None:
    if _OPEN in text or _CLOSE in text:
        raise invalid_input(f"'{excerpt(text)}' has a character that is reserved (U+F0000 or U+F0001)")


def _is_harmless(value: Any, shows: str, written: Expression) -> bool:
    """Whether it is a number, empty, or a joined list of numbers: these mean the same anywhere."""
    if not shows or value is None or isinstance(value, int | float):
        return True
    is_number = _ONE_NUMBER if written.separator is None else _NUMBERS
    return isinstance(value, str) and is_number.fullmatch(shows) is not None


# -- the template with calls in place of expressions


@lru_cache(maxsize=1024)
def _prepare(text: str, is_query: bool) -> tuple[Template, tuple[Expression, ...]]:
    tree = compile_template(text, lambda: VALUES.parse(text))
    _refuse_other_statements(tree, text)
    local, sources = Locals(tree), [*_sources(text)]
    numbered = dict(zip(map(id, _expressions(tree)), range(len(sources)), strict=True))
    written = [Expression(source) for source in sources]
    for output, is_repeated in _outputs(tree.body):
        for at, expression in enumerate(output.nodes):
            if id(expression) in numbered:
                number = numbered[id(expression)]
                inner = _without_doubling(expression) if is_query else None
                value = inner or expression
                written[number] = Expression(
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
    return compile_template(text, lambda: VALUES.from_string(tree)), tuple(written)


def _refuse_other_statements(tree: nodes.Template, text: str) -> None:
    for node in tree.find_all(nodes.Stmt):
        is_recursive = isinstance(node, nodes.For) and node.recursive
        if not isinstance(node, _STATEMENTS) or is_recursive:
            raise invalid_input(
                f"'{excerpt(text)}' is a command or a query, and has a statement that is not allowed there: "
                f"use 'if', 'for' (not recursive), 'set', 'with' and 'macro', or {TRUST}"
            )


def _outputs(body: Iterable[nodes.Node], is_repeated: bool = False) -> Iterator[tuple[nodes.Output, bool]]:
    """The outputs of the text itself, not those of a macro or a `set`; and whether each is in a loop."""
    for node in body:
        if isinstance(node, nodes.Output):
            yield node, is_repeated
        elif not isinstance(node, nodes.Macro | nodes.AssignBlock):
            yield from _outputs(node.iter_child_nodes(), is_repeated or isinstance(node, nodes.For))


def _expressions(tree: nodes.Template) -> Iterator[nodes.Expr]:
    """Each `{{ … }}` of the text, in order."""
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
    """The separator of a final `join`; None where there is none."""
    while isinstance(expression, nodes.Filter):
        if expression.name == "join":
            separator = expression.args[0] if expression.args else None
            return str(separator.value) if isinstance(separator, nodes.Const) else ""
        expression = expression.node
    return None


def _without_doubling(expression: nodes.Expr) -> nodes.Expr | None:
    """The expression inside of a final `replace("'", "''")`; None where there is none."""
    if isinstance(expression, nodes.Filter) and expression.name == "replace":
        inner = expression.node
    elif isinstance(expression, nodes.Call) and isinstance(expression.node, nodes.Getattr):
        inner = expression.node.node if expression.node.attr == "replace" else None
    else:
        return None
    constants = [argument.value for argument in expression.args if isinstance(argument, nodes.Const)]
    return inner if constants == ["'", "''"] else None


def _may_be_nothing(expression: nodes.Expr) -> bool:
    if not isinstance(expression, nodes.CondExpr):
        return False
    branches = (expression.expr1, expression.expr2)
    return any(one is None or (isinstance(one, nodes.Const) and one.value in ("", None)) for one in branches)


def _quotes(expression: nodes.Expr) -> tuple[str, ...]:
    constants = [one.value for one in expression.find_all(nodes.Const) if isinstance(one.value, str)]
    return tuple(text for text in constants if "'" in text)
