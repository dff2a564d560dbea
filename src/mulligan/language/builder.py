"""Workflows written in Python: the keys of the file as keyword arguments, read and checked by the same reader.

    from mulligan import Workflow

    release = Workflow("release", timeout="1h")
    release.input("target", default="staging", enum=["staging", "prod"])
    release.step("build", shell="make TARGET=${inputs.target}", retry=3)

    @release.python(needs="build", args={"target": "${inputs.target}"})
    def announce(target: str) -> None: ...

    checked = release.check()

A refusal points at the line of the Python file that said it.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from mulligan.core.model.workflow import Workflow as CheckedWorkflow
from mulligan.errors import LanguageError, Problem
from mulligan.language.document import UNFIT
from mulligan.language.loading import Examined, Files
from mulligan.language.nodes import Mapping, Node, Refusal, Scalar, Sequence, Source, shorten
from mulligan.language.scalars import INTEGER_MAX, INTEGER_MIN
from mulligan.language.workflows import read_workflow

Function = TypeVar("Function", bound=Callable[..., Any])

# How many lines after its first a call is searched for the word that a problem is about.
_CALL_LINES_MAX = 40


class _Said(NamedTuple):
    """Where in a Python file something was said."""

    file: str
    line: int


class Workflow:
    """A workflow as it is put together. `check` gives the checked one."""

    def __init__(self, name: str, **keys: Any) -> None:
        self._places = _Places()
        said = self._places.caller()
        self._root = self._places.mapping({"name": name, **keys}, said)
        self._file = Path(said.file)

    def input(self, name: str, type: str = "string", **keys: Any) -> Workflow:
        """Declare an input. Without a `default` it is required."""
        return self._declare("inputs", name, {"type": type, **keys})

    def secret(self, name: str, **keys: Any) -> Workflow:
        return self._declare("secrets", name, keys)

    def breaker(self, name: str, **keys: Any) -> Workflow:
        return self._declare("breakers", name, keys)

    def file(self, name: str, path: str) -> Workflow:
        """Name a file, for `reads` and `writes`."""
        return self._declare("files", name, path)

    def policy(self, name: str, **keys: Any) -> Workflow:
        """Declare a retry policy."""
        return self._declare("retry_policies", name, keys)

    def handler(self, name: str, *commands: Any, **keys: Any) -> Workflow:
        """Declare a named handler: its commands, or the keys of one."""
        return self._declare("handlers", name, {"commands": list(commands), **keys} if commands else keys)

    def step(self, name: str, **keys: Any) -> Workflow:
        """Add a step. The keywords are the keys of the file."""
        self._append(name, keys, self._places.caller())
        return self

    def python(self, name: str | None = None, **keys: Any) -> Callable[[Function], Function]:
        """Make a function a step: it is called by its module and name, its parameters come from `args`."""
        said = self._places.caller()

        def add(function: Function) -> Function:
            call = f"{function.__module__}:{function.__qualname__}"
            if function.__module__ == "__main__" or "<" in call:
                raise LanguageError([self._places.problem_of_function(function, said)])
            self._append(name or function.__name__, {"python": {"call": call}, **keys}, said)
            return function

        return add

    def end(self, **keys: Any) -> Workflow:
        """Say what runs last, whatever happened."""
        said = self._places.caller()
        self._set(self._root, "end", self._places.node(keys, said), said)
        return self

    def outputs(self, **values: Any) -> Workflow:
        """Say what the run returns."""
        said = self._places.caller()
        self._set(self._root, "outputs", self._places.node(values, said), said)
        return self

    def check(self) -> CheckedWorkflow:
        """The checked workflow, or a LanguageError with all that is wrong with it."""
        return self.examine().workflow

    def examine(self) -> Examined:
        """The checked workflow with its warnings, in one reading."""
        source = _PythonSource(self._places)
        files = Files(self._file.parent, (self._file.resolve(),), {})
        workflow = read_workflow(self._root, source, "workflow", files)
        return Examined(workflow, tuple(sorted(source.warnings, key=lambda warning: (warning.line, warning.column))))

    def _declare(self, section: str, name: str, keys: Any) -> Workflow:
        said = self._places.caller()
        mapping = self._root.get(section)
        if not isinstance(mapping, Mapping):
            mapping = Mapping(self._places.index(said), 0)
            self._set(self._root, section, mapping, said)
        self._set(mapping, name, self._places.node(keys, said), said)
        return self

    def _append(self, name: str, keys: dict[str, Any], said: _Said) -> None:
        steps = self._root.get("steps")
        if not isinstance(steps, Sequence):
            steps = Sequence(self._places.index(said), 0)
            self._set(self._root, "steps", steps, said)
        steps.items.append(self._places.mapping({"step": name, **keys}, said))

    def _set(self, mapping: Mapping, key: str, value: Node, said: _Said) -> None:
        if key in mapping.entries:
            first = self._places.said[mapping.key(key).line].line
            message = f"'{shorten(key)}' is here twice: first in line {first}"
            raise LanguageError([self._places.problem("duplicate_key", message, said, key, "remove one of them")])
        mapping.entries[key] = (self._places.scalar(key, said), value)


class _Places:
    """Numbers the places where something was said, so that a node's line can stand for one of them."""

    def __init__(self) -> None:
        self.said: list[_Said] = []

    def caller(self) -> _Said:
        """The first line outside this module on the way here."""
        frame = sys._getframe(1)
        while frame.f_back and frame.f_code.co_filename == __file__:
            frame = frame.f_back
        return _Said(frame.f_code.co_filename, frame.f_lineno)

    def index(self, said: _Said) -> int:
        if not self.said or self.said[-1] != said:
            self.said.append(said)
        return len(self.said) - 1

    def mapping(self, value: dict[str, Any], said: _Said) -> Mapping:
        node = Mapping(self.index(said), 0)
        for key, inner in value.items():
            node.entries[str(key)] = (self.scalar(str(key), said), self.node(inner, said))
        return node

    def node(self, value: Any, said: _Said) -> Node:
        if isinstance(value, dict):
            return self.mapping(value, said)
        if isinstance(value, list | tuple):
            sequence = Sequence(self.index(said), 0)
            sequence.items = [self.node(item, said) for item in value]
            return sequence
        return self.scalar(value, said)

    def scalar(self, value: Any, said: _Said) -> Scalar:
        value = _plain(value)
        if problem := self._problem_of_value(value, said):
            raise LanguageError([problem])
        text = value if isinstance(value, str) else "" if value is None else _written(value)
        return Scalar(value, text, '"', self.index(said), 0, 0)

    def _problem_of_value(self, value: Any, said: _Said) -> Problem | None:
        """What no file could say either."""
        if isinstance(value, str) and (unfit := UNFIT.search(value)):
            message = f"the text holds the character U+{ord(unfit.group()):04X}, which no program takes"
            return self.problem("character", message, said, "", "remove it")
        if isinstance(value, int) and not INTEGER_MIN <= value <= INTEGER_MAX:
            message = f"the number {shorten(str(value))} does not fit into 64 bits"
            return self.problem("number", message, said, "", "quote it to keep it as text")
        if value is not None and not isinstance(value, str | int | float):
            message = f"a workflow is made of plain values, and this is a {type(value).__name__}"
            return self.problem("value", message, said, "", "")
        return None

    def problem_of_function(self, function: Callable[..., Any], said: _Said) -> Problem:
        message = f"no worker can import the function '{function.__qualname__}'"
        hint = "put it at the top of a module that is not run as a script"
        if function.__module__.startswith("<"):  # see `python_building`
            hint = "call mulligan from the folder of this file, or from one above it"
        return self.problem("function", message, said, function.__qualname__, hint)

    def problem(self, code: str, message: str, said: _Said, word: str, hint: str) -> Problem:
        line, column, length = _find(said, word)
        shown = linecache.getline(said.file, line).rstrip("\n")
        return Problem(f"language.{code}", message, said.file, line, column + 1, length, shown, hint)


class _PythonSource(Source):
    """Problems of a workflow that was written in Python: they point into the Python file."""

    def __init__(self, places: _Places) -> None:
        super().__init__("", "")
        self._places = places

    def number(self, node: Node) -> int:
        return self._places.said[node.line].line

    def refuse(self, code: str, message: str, node: Node, *, hint: str = "") -> Refusal:
        word = node.text if isinstance(node, Scalar) else ""
        said = self._places.said[node.line]
        return Refusal(self._places.problem(code, message, said, shorten(word), hint))

    def place(self, scalar: Scalar, offset: int) -> None:
        """Text may be computed, so nothing points into it."""
        return None


def _plain(value: Any) -> Any:
    """A value as YAML would have read it: an enumeration's member is its text or number."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bool):
        return value
    kind = next((kind for kind in (str, int, float) if isinstance(value, kind)), None)
    return value if kind is None else value[:] if kind is str else kind(value)


def _written(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _find(said: _Said, word: str) -> tuple[int, int, int]:
    """The line, column and length of `word` in the call that starts at `said`, or of the call itself."""
    first = linecache.getline(said.file, said.line)
    indent = len(first) - len(first.lstrip())
    for number in range(said.line, said.line + _CALL_LINES_MAX if word else said.line):
        line = linecache.getline(said.file, number)
        if number > said.line and line.strip() and len(line) - len(line.lstrip()) < indent:
            break
        for written in (f'"{word}"', f"'{word}'", f"{word}="):
            if written in line:
                return number, line.index(written) + (written[0] in "\"'"), len(word)
    return said.line, indent, max(1, len(first.strip()))
