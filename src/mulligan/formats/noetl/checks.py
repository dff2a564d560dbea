"""Templates and code of a playbook are read when the file is: what is no template, or no Python, is refused there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from jinja2 import Environment, TemplateSyntaxError

from mulligan.formats.noetl.steps import Step
from mulligan.formats.noetl.texts import is_word
from mulligan.formats.noetl.tools import Tool, input_of
from mulligan.language.nodes import Mapping, Node, Refusal, Scalar, Sequence, Source, shorten

_JINJA = Environment(extensions=["jinja2.ext.do"])
_NO_TEMPLATES = frozenset({"code", "desc", "description", "name", "step"})
# What tells the tool, in one dialect or another.
_KINDS = ("kind", "type", "tool")
_RAW = "what is no template stands between '{% raw %}' and '{% endraw %}'"


class _Wrong(NamedTuple):
    """What is wrong with a text, and in which line of it."""

    message: str
    line: int


def refuse_unreadable(nodes: Iterable[Node], source: Source) -> None:
    """Note each template in `nodes` that is none, and each code that is no Python."""
    for node in nodes:
        if isinstance(node, Mapping):
            _look_into(node, source)
        elif isinstance(node, Sequence):
            refuse_unreadable(node.items, source)
        elif isinstance(node.value, str) and (wrong := _template(node.value)):
            source.note(_refusal(node, wrong, f"this is no template: {wrong.message}", _RAW, source))


def _look_into(node: Mapping, source: Source) -> None:
    code = node.get("code")
    is_python = any(is_word(node.get(key), "python") for key in _KINDS)
    if is_python and isinstance(code, Scalar) and (wrong := _python(code.text)):
        source.note(_refusal(code, wrong, f"the code is no Python: {wrong.message}", "", source))
    inner = (value for key, (_, value) in node.entries.items() if key not in _NO_TEMPLATES)
    refuse_unreadable(inner, source)


def _refusal(node: Scalar, wrong: _Wrong, message: str, hint: str, source: Source) -> Refusal:
    lines = node.text.split("\n")
    if len(lines) < 2 or not 1 <= wrong.line <= len(lines):
        return source.refuse("noetl", message, node, hint=hint)
    line = lines[wrong.line - 1]
    offset = sum(len(before) + 1 for before in lines[: wrong.line - 1]) + len(line) - len(line.lstrip())
    return source.refuse_in("noetl", message, node, offset, max(1, len(line.strip())), hint=hint)


@lru_cache(maxsize=1024)
def _template(text: str) -> _Wrong | None:
    if "{{" not in text and "{%" not in text:
        return None
    try:
        _JINJA.parse(text)
    except TemplateSyntaxError as wrong:
        return _Wrong(_worded(wrong.message or "it cannot be read"), wrong.lineno)
    return None


@lru_cache(maxsize=1024)
def _python(code: str) -> _Wrong | None:
    """A `return` outside of any function is none of its faults."""
    try:
        ast.parse(code)
    except SyntaxError as wrong:
        return _Wrong(_worded(wrong.msg), wrong.lineno or 0)
    except ValueError as wrong:  # a NUL
        return _Wrong(_worded(str(wrong)), 0)
    return None


def _worded(message: str) -> str:
    """As we say things: no capital at the beginning, no full stop at the end."""
    return f"{message[:1].lower()}{message[1:]}".rstrip(".")


# The keys of each tool under which its program stands.
_TEXTS = {
    "shell": ("cmds", "cmd", "command"),
    "postgres": ("command", "commands", "query", "sql"),
    "duckdb": ("command", "commands", "query", "queries", "cmd", "cmds"),
}
_WHOLE = re.compile(r"\s*\{\{-?\s*([A-Za-z_]\w*)\s*(?:[.\[|][^{}]*)?-?\}\}\s*;?\s*")
_HINT = "write it in the file, and templates for the values in it; --trust-templates takes it as it is"


def refuse_given_programs(steps: Iterable[Step], source: Source) -> None:
    """Note each command and each query that is, as a whole, what a step gave."""
    all_steps = [*steps]
    names = {name for step in all_steps for name in (step.name, step.name.replace("-", "_"))}
    for step in all_steps:
        for tool in step.tools.all:
            for node in _texts(tool):
                found = _WHOLE.fullmatch(node.text)
                if found and found[1] in names - _own_names(step, tool):
                    what = "a command" if tool.kind == "shell" else "a query"
                    message = f"'{shorten(node.text.strip())}' is {what} as a whole, and its value comes from a step"
                    source.note(source.refuse("noetl", message, node, hint=_HINT))


def _texts(tool: Tool) -> Iterator[Scalar]:
    for key in _TEXTS.get(tool.kind, ()):
        node = tool.node.get(key)
        for one in node.items if isinstance(node, Sequence) else (node,):
            if isinstance(one, Scalar) and isinstance(one.value, str):
                yield one


def _own_names(step: Step, tool: Tool) -> set[str]:
    """The names that mean something else in this step: what it is given, and its item."""
    inputs: list[Node | None] = [step.input, input_of(tool.node)]
    given = {key.text for node in inputs if isinstance(node, Mapping) for key, _ in node.items()}
    return given | ({step.loop.iterator} if step.loop is not None else set())
