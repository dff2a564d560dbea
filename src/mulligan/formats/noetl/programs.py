"""Commands and queries that are nothing but what a step gave: refused when the file is read, not first when it runs.

Whatever else is no place for a value is known only with the value: a number may stand where a text may not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from mulligan.formats.noetl.steps import Step
from mulligan.formats.noetl.tools import Tool, input_of
from mulligan.language.nodes import Mapping, Node, Scalar, Sequence, Source, shorten

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
