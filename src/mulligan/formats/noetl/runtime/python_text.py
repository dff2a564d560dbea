"""Templates in Python code: values from the file are text of the code, other values stay values.

Each other value is a name while the code is parsed. In a string it becomes part of that string; by itself it becomes
the value that its text is in Python or JSON; anywhere else, where it would be code, it is refused.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from jinja2 import TemplateError
from jinja2.meta import find_undeclared_variables

from mulligan import StepError
from mulligan.formats.noetl.runtime.call import Call
from mulligan.formats.noetl.runtime.credentials import invalid_input
from mulligan.formats.noetl.runtime.placeholders import MARK, MarkedText, Placeholder, mark_values
from mulligan.formats.noetl.runtime.sandbox import VALUES
from mulligan.formats.noetl.runtime.templates import is_template, render_text

_NOT_LITERAL = (ValueError, SyntaxError, TypeError, MemoryError, RecursionError)


class Code(NamedTuple):
    """Parsed code: `text` is what tracebacks show, `values` are those that it has under names of ours."""

    text: str
    tree: ast.Module
    values: dict[str, Any]


def parse_plain(code: str, filename: str) -> Code:
    """Parse code without templates. INPUT_INVALID where it is not Python."""
    return Code(code, _parse(code, filename), {})


def parse_code(code: str, call: Call, filename: str) -> Code:
    """Parse code with its templates rendered. INPUT_INVALID where it is not Python, or a value would be code."""
    if not _is_template(code, call):
        return parse_plain(code, filename)
    if call.trusts_templates:
        return parse_plain(render_text(code, call.names), filename)
    marked = mark_values(code, call.names)
    if not marked.placeholders:
        return parse_plain(marked.text, filename)
    return _with_values(marked, filename)


def _is_template(code: str, call: Call) -> bool:
    """Whether the code has templates. Braces of Python, as in an f-string, are none: nothing in them is known here."""
    if not is_template(code):
        return False
    try:
        read = find_undeclared_variables(VALUES.parse(code))
    except (TemplateError, RecursionError, ValueError):
        return False  # as in NoETL
    return not read or not read.isdisjoint(call.names)


def _parse(code: str, filename: str) -> ast.Module:
    try:
        return ast.parse(code, filename)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise invalid_code(error) from None


def invalid_code(error: BaseException) -> StepError:
    """The failure of code that Python cannot read."""
    line = f" in line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
    if isinstance(error, RecursionError | MemoryError):
        reason = "it is nested too deep, or a calculation in it is too long"
    else:
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
    return invalid_input(f"the Python code is invalid{line}: {reason}")


def _with_values(marked: MarkedText, filename: str) -> Code:
    prefix = "_value"
    while prefix in marked.text:
        prefix += "_"
    text = MARK.sub(lambda mark: f"{prefix}{mark[1]}_", marked.text)
    names = re.compile(rf"{prefix}(\d+)_")
    tree = _Strings(names, marked.placeholders).visit(_parse(text, filename))
    values = {name: _literal(marked.placeholders[number]) for name, number in _whole_names(tree, names, marked)}
    shown = MARK.sub(lambda mark: marked.placeholders[int(mark[1])].written.source, marked.text)
    return Code(shown, tree, values)


class _Strings(ast.NodeTransformer):
    """Puts values into the strings that they are written in."""

    def __init__(self, names: re.Pattern[str], placeholders: dict[int, Placeholder]) -> None:
        self._names = names
        self._placeholders = placeholders

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        if isinstance(node.value, str):
            node.value = self._fill(node.value)
        elif isinstance(node.value, bytes):
            node.value = self._fill(node.value.decode("latin-1")).encode("utf-8")
        return node

    def _fill(self, text: str) -> str:
        return self._names.sub(lambda name: self._placeholders[int(name[1])].text, text)


def _whole_names(tree: ast.Module, names: re.Pattern[str], marked: MarkedText) -> Iterator[tuple[str, int]]:
    """The values that are an expression of the code by themselves. Others would be code, and are refused."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant):
            continue
        for text in _texts(node):
            found = names.search(text)
            if found is None:
                continue
            if not (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and names.fullmatch(text)):
                placeholder = marked.placeholders[int(found[1])]
                raise placeholder.refusal("is a name in the code", "write the name in the file")
            yield text, int(found[1])


def _texts(node: ast.AST) -> Iterator[str]:
    for _, value in ast.iter_fields(node):
        for one in value if isinstance(value, list) else (value,):
            if isinstance(one, str):
                yield one


def _literal(placeholder: Placeholder) -> Any:
    """The value that the text is as Python, otherwise as JSON."""
    for read in (ast.literal_eval, json.loads):
        try:
            return read(placeholder.text)
        except _NOT_LITERAL:
            continue
    raise placeholder.refusal("is code without quotes around it", "write it in quotes, or pass it in 'input'")
