"""Refuse invalid templates and Python code, and programs that come from a step, when the file is read.

Whether a value may stand in a program is otherwise known only with the value: a number may stand where a text may not.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from jinja2 import Environment, TemplateError, TemplateSyntaxError, nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import TemplateAssertionError
from jinja2.nodes import EvalContextModifier, Impossible

from mulligan.formats.noetl.steps import Step
from mulligan.formats.noetl.texts import is_word, texts
from mulligan.formats.noetl.tools import Tool, input_of
from mulligan.language.text.nodes import Mapping, Node, Refusal, Scalar, Sequence, Source, shorten
from mulligan.language.text.suggestions import did_you_mean


class _WithoutConstants(CodeGenerator):
    """Calls no filter of a constant when it compiles, which could fill the memory of this process."""

    def _output_child_to_const(self, *_: object) -> str:
        raise Impossible

    def visit_EvalContextModifier(self, node: EvalContextModifier, frame: Frame) -> None:  # noqa: N802
        pass


_JINJA = Environment(extensions=["jinja2.ext.do"], optimized=False)  # noqa: S701
_JINJA.code_generator_class = _WithoutConstants
# A shorter text cannot be nested too deep for Python, whose code Jinja2 makes of it.
_DEEP_CHARS_MIN = 200
_DEEP_CODE_CHARS_MIN = 900
_TOO_DEEP = "it is nested too deep, or a calculation in it is too long"
_NO_TEMPLATES = frozenset({"code", "desc", "description", "name", "step"})
# Keys that name the kind of a tool, in any dialect.
_KINDS = ("kind", "type", "tool")
_VALUE = re.compile(r"\{\{.*?\}\}", re.DOTALL)
_RAW = "write text that is not a template between '{% raw %}' and '{% endraw %}'"


class _Mistake(NamedTuple):
    """What is wrong with a text, and in which line."""

    message: str
    line: int


def refuse_unreadable(written: Iterable[Node], source: Source) -> None:
    """Note each invalid template in these nodes, and each code that is not Python."""
    for node in written:
        if isinstance(node, Mapping):
            _check_mapping(node, source)
        elif isinstance(node, Sequence):
            refuse_unreadable(node.items, source)
        elif isinstance(node.value, str) and (wrong := _template(node.value)):
            source.note(_refusal(node, wrong, f"this template is invalid: {wrong.message}", _RAW, source))


def _check_mapping(node: Mapping, source: Source) -> None:
    code = node.get("code")
    is_python = any(is_word(node.get(key), "python") for key in _KINDS)
    if is_python and isinstance(code, Scalar) and (wrong := _python(code.text) and _python(_without_values(code.text))):
        source.note(_refusal(code, wrong, f"this Python code is invalid: {wrong.message}", "", source))
    inner = (value for key, (_, value) in node.entries.items() if key not in _NO_TEMPLATES)
    refuse_unreadable(inner, source)


def _refusal(node: Scalar, wrong: _Mistake, message: str, hint: str, source: Source) -> Refusal:
    lines = node.text.split("\n")
    if len(lines) < 2 or not 1 <= wrong.line <= len(lines):
        return source.refuse("noetl", message, node, hint=hint)
    line = lines[wrong.line - 1]
    offset = sum(len(before) + 1 for before in lines[: wrong.line - 1]) + len(line) - len(line.lstrip())
    return source.refuse_in("noetl", message, node, offset, max(1, len(line.strip())), hint=hint)


@lru_cache(maxsize=1024)
def _template(text: str) -> _Mistake | None:
    if "{{" not in text and "{%" not in text:
        return None
    try:
        _JINJA.parse(text)
        if len(text) > _DEEP_CHARS_MIN:
            _JINJA.compile(text)
    except TemplateAssertionError:
        pass  # such as an unknown filter: it counts only where it is called
    except TemplateSyntaxError as wrong:
        return _Mistake(_in_our_style(wrong.message or "it cannot be read"), wrong.lineno)
    except (RecursionError, MemoryError, SyntaxError):
        return _Mistake(_TOO_DEEP, 0)
    except (ValueError, OverflowError):
        return _Mistake("a number in it is too long", 0)
    return None


def _without_values(code: str) -> str:
    """Code with a name in place of each template. Statements of templates may write any code, so then there is none."""
    if ("{{" not in code and "{%" not in code) or _template(code):
        return code
    return "" if "{%" in code else _VALUE.sub("value", code)


@lru_cache(maxsize=1024)
def _python(code: str) -> _Mistake | None:
    """What is wrong with Python code. A `return` outside of functions is allowed."""
    try:
        tree = ast.parse(code)
    except SyntaxError as wrong:
        return _Mistake(_in_our_style(wrong.msg), wrong.lineno or 0)
    except (RecursionError, MemoryError):
        return _Mistake(_TOO_DEEP, 0)
    except ValueError as wrong:  # a NUL
        return _Mistake(_in_our_style(str(wrong)), 0)
    return _Mistake(_TOO_DEEP, 0) if len(code) > _DEEP_CODE_CHARS_MIN and _is_too_deep(tree) else None


def _is_too_deep(tree: ast.Module) -> bool:
    """Whether Python reads the code, but cannot compile it."""
    try:
        compile(tree, "<code>", "exec", dont_inherit=True)
    except (RecursionError, MemoryError):
        return True
    except (SyntaxError, ValueError):
        pass  # a `return` outside of functions is allowed
    return False


def _in_our_style(message: str) -> str:
    """The message in our style: no capital at the beginning, no full stop at the end."""
    return f"{message[:1].lower()}{message[1:]}".rstrip(".")


# The keys of each tool that hold its program.
_TEXTS = {
    "shell": ("cmds", "cmd", "command"),
    "postgres": ("command", "commands", "query", "sql"),
    "duckdb": ("command", "commands", "query", "queries", "cmd", "cmds"),
}
_WHOLE = re.compile(r"\s*\{\{-?\s*([A-Za-z_]\w*)\s*(?:[.\[|][^{}]*)?-?\}\}\s*;?\s*")
_HINT = "write it in the file, with templates for the values only; or use --trust-templates"


def refuse_programs_from_steps(steps: Iterable[Step], source: Source) -> None:
    """Note each command and each query whose whole text is the result of a step."""
    all_steps = [part for step in steps for part in (*step.before, step)]
    names = {name for step in all_steps for name in (step.name, step.name.replace("-", "_"))}
    for step in all_steps:
        for tool in step.tools.all:
            for node in _texts(tool):
                found = _WHOLE.fullmatch(node.text)
                if found and found[1] in names - _own_names(step, tool):
                    what = "a command" if tool.kind == "shell" else "a query"
                    message = f"'{shorten(node.text.strip())}' is the whole of {what}, and its value comes from a step"
                    source.note(source.refuse("noetl", message, node, hint=_HINT))


def _texts(tool: Tool) -> Iterator[Scalar]:
    for key in _TEXTS.get(tool.kind, ()):
        node = tool.node.get(key)
        for one in node.items if isinstance(node, Sequence) else (node,):
            if isinstance(one, Scalar) and isinstance(one.value, str):
                yield one


def _own_names(step: Step, tool: Tool) -> set[str]:
    """The names that mean something else in this step: its input, and its item."""
    inputs: list[Node | None] = [step.input, input_of(tool.node)]
    given = {key.text for node in inputs if isinstance(node, Mapping) for key, _ in node.items()}
    return given | ({step.loop.iterator} if step.loop is not None else set())


# -- names that nothing has -----------------------------------------------------------------------------------------


_WORD = re.compile(r"[A-Za-z_]\w*")
_WORKLOAD = "workload"
# What every template may read, and what Jinja2 has.
_ALWAYS = frozenset(
    "args catalog_id context ctx cycler dict error event execution_id input item iter job joiner keychain loop "
    "loop_index namespace outcome output page payload range response result results self steps this vars workload "
    "_index _loop _prev _retry".split()
)


def warn_of_unknown_names(root: Mapping, workload: set[str], steps: set[str], source: Source) -> None:
    """Warn of a name in a template that nothing in the playbook has, and that looks like one that it has.

    What a template may read is known only during a run: steps set values, and tools return them. So a name counts as
    known if it is anywhere in the file as a key or a value.
    """
    known = {*_ALWAYS, *workload, *steps, *(name.replace("-", "_") for name in steps)}
    known |= {word for text in texts(root) if "{{" not in text and "{%" not in text for word in _WORD.findall(text)}
    for node in _templates(root):
        for owner, name in _names(node.value):
            if name not in known and (hint := did_you_mean(name, workload if owner else {*workload, *steps})):
                start = next((found.start() for found in re.finditer(rf"\b{name}\b", node.text)), 0)
                source.warn_in("unknown_name", f"'{name}' is not known here", node, start, len(name), hint=hint)


def _templates(node: Node) -> Iterator[Scalar]:
    if isinstance(node, Mapping):
        for key, value in node.items():
            if key.text not in _NO_TEMPLATES:
                yield from _templates(value)
    elif isinstance(node, Sequence):
        for item in node.items:
            yield from _templates(item)
    elif isinstance(node.value, str) and ("{{" in node.value or "{%" in node.value):
        yield node


@lru_cache(maxsize=1024)
def _names(text: str) -> tuple[tuple[str, str], ...]:
    """The names that a template reads, as ("", name); and the keys of the workload, as ("workload", key)."""
    try:
        tree = _JINJA.parse(text)
    except (TemplateError, RecursionError, ValueError):
        return ()
    names = [*tree.find_all(nodes.Name)]
    own = {name.name for name in names if name.ctx != "load"}
    own |= {macro.name for macro in tree.find_all(nodes.Macro)}
    found = [("", name.name) for name in names if name.ctx == "load" and name.name not in own]
    for read in tree.find_all(nodes.Getattr):
        if isinstance(read.node, nodes.Name) and read.node.name == _WORKLOAD:
            found.append((_WORKLOAD, read.attr))
    return tuple(dict.fromkeys(found))
