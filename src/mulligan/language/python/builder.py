"""Workflows written in Python: keyword arguments are the keys of the file, read and checked by the same reader.

    from mulligan import Workflow

    release = Workflow("release", timeout="1h")
    release.input("target", default="staging", enum=["staging", "prod"])
    release.step("build", shell="make TARGET=${inputs.target}", retry=3)

    @release.python(needs="build", args={"target": "${inputs.target}"})
    def announce(target: str) -> None: ...

    checked = release.check()

A refusal points at the line of the Python file.
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
from mulligan.language.checked_files import LoadResult
from mulligan.language.garbage_collection import pause_garbage_collection
from mulligan.language.loading import IncludedFiles
from mulligan.language.text.document import UNUSABLE_CHARACTER
from mulligan.language.text.nodes import Mapping, Node, Refusal, Scalar, Sequence, Source, plain, shorten
from mulligan.language.text.scalars import INTEGER_MAX, INTEGER_MIN
from mulligan.language.text.step_positions import step_nodes
from mulligan.language.workflows import read_workflow

Function = TypeVar("Function", bound=Callable[..., Any])

# How many lines of a call are searched for the word that a problem is about.
_CALL_LINES_MAX = 40


class CallSite(NamedTuple):
    """The position of a call in a Python file."""

    file: str
    line: int


class Located:
    """A value inside the keys of a step that was written at another place than the step."""

    __slots__ = ("site", "value")

    def __init__(self, value: Any, site: CallSite) -> None:
        self.value = value
        self.site = site


class Workflow:
    """A workflow that is being built. `check` returns the checked one."""

    # How deep its child workflows are nested, known after `examine`.
    depth = 0

    def __init__(self, name: str, **keys: Any) -> None:
        self._sites = _CallSites()
        self._set_up({"name": name, **keys}, self._sites.caller())

    @classmethod
    def at(cls, site: CallSite, keys: dict[str, Any]) -> Workflow:
        """A workflow whose top-level keys were written at `site`."""
        workflow = cls.__new__(cls)
        workflow._sites = _CallSites()
        workflow._set_up(keys, site)
        return workflow

    def _repr_html_(self) -> str | None:
        """Its graph, in a notebook."""
        import mulligan

        html: str | None = mulligan._flow_html(self)
        return html

    def _set_up(self, keys: dict[str, Any], site: CallSite) -> None:
        self._root = self._sites.mapping(keys, site)
        self._file = Path(site.file)
        self._children: dict[str, Workflow] = {}

    def step_at(self, site: CallSite, name: str, keys: dict[str, Any]) -> None:
        """Add a step that was written at `site`."""
        self._append(name, keys, site)

    def child(self, name: str, workflow: Workflow) -> None:
        """Let `workflow={"file": name}` mean this workflow instead of a file."""
        self._children[name] = workflow

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
        self._append(name, keys, self._sites.caller())
        return self

    def python(self, name: str | None = None, **keys: Any) -> Callable[[Function], Function]:
        """Make a function a step. It is called by module and name, with the parameters in `args`."""
        site = self._sites.caller()

        def add(function: Function) -> Function:
            call = f"{function.__module__}:{function.__qualname__}"
            if function.__module__ == "__main__" or "<" in call:
                raise LanguageError([self._sites.problem_of_function(function, site)])
            self._append(name or function.__name__, {"python": {"call": call}, **keys}, site)
            return function

        return add

    def end(self, **keys: Any) -> Workflow:
        """Set what runs last, whatever happened."""
        site = self._sites.caller()
        self._set(self._root, "end", self._sites.node(keys, site), site)
        return self

    def outputs(self, **values: Any) -> Workflow:
        """Set what the run returns."""
        site = self._sites.caller()
        self._set(self._root, "outputs", self._sites.node(values, site), site)
        return self

    def check(self) -> CheckedWorkflow:
        """The checked workflow, or a LanguageError with all its problems."""
        return self.examine().workflow

    def examine(self) -> LoadResult:
        """The checked workflow with its warnings."""
        source = _PythonSource(self._sites)
        files = _Children(self._children, self._file)
        with pause_garbage_collection():
            workflow = read_workflow(self._root, source, "workflow", files)
        self.depth = files.depth
        return LoadResult(workflow, tuple(sorted(source.warnings, key=lambda warning: (warning.line, warning.column))))

    def step_lines(self, file: str) -> dict[str, int]:
        """The lines of this file in which steps are written, by name; of a matrix, by its name."""
        sites = {name: self._sites.sites[step.line] for name, step in step_nodes(self._root).items()}
        return {name: site.line for name, site in sites.items() if site.file == file}

    def plain_keys(self) -> dict[str, Any]:
        """Its keys and values, as a workflow file would have them."""
        keys: dict[str, Any] = plain(self._root)
        return keys

    def first_child(self) -> str:
        """The name of a workflow that it calls and that is not a file; "" if there is none."""
        return next(iter(self._children), "").removeprefix("flow:")

    def _declare(self, section: str, name: str, keys: Any) -> Workflow:
        site = self._sites.caller()
        mapping = self._root.get(section)
        if not isinstance(mapping, Mapping):
            mapping = Mapping(self._sites.index(site), 0)
            self._set(self._root, section, mapping, site)
        self._set(mapping, name, self._sites.node(keys, site), site)
        return self

    def _append(self, name: str, keys: dict[str, Any], site: CallSite) -> None:
        steps = self._root.get("steps")
        if not isinstance(steps, Sequence):
            steps = Sequence(self._sites.index(site), 0)
            self._set(self._root, "steps", steps, site)
        steps.items.append(self._sites.mapping({"step": name, **keys}, site))

    def _set(self, mapping: Mapping, key: str, value: Node, site: CallSite) -> None:
        if key in mapping.entries:
            first = self._sites.sites[mapping.key(key).line].line
            message = f"'{shorten(key)}' appears twice: first in line {first}"
            raise LanguageError([self._sites.problem("duplicate_key", message, site, key, "remove one of them")])
        mapping.entries[key] = (self._sites.scalar(key, site), value)


class _Children(IncludedFiles):
    """The workflows that `workflow` actions name: those given as objects, and files."""

    def __init__(self, given: dict[str, Workflow], file: Path) -> None:
        super().__init__(file.parent, (file.resolve(),), {})
        self._given = given

    def child(self, file: str, node: Node, source: Source) -> CheckedWorkflow:
        given = self._given.get(file)
        if given is None:
            return super().child(file, node, source)
        try:
            checked = given.check()
        except LanguageError as error:
            source.problems.extend(error.problems[1:])
            raise Refusal(error.problems[0]) from None
        self.refuse_too_deep(len(self.stack) + given.depth, node, source)
        self.depth = max(self.depth, given.depth + 1)
        return checked


class _CallSites:
    """Numbers the call sites. The line of a node is the number of its call site."""

    def __init__(self) -> None:
        self.sites: list[CallSite] = []
        # A located value that is used again has the same node, as an alias has in YAML.
        self._located: dict[int, tuple[Located, Node]] = {}

    def caller(self) -> CallSite:
        """The call site outside this module."""
        frame = sys._getframe(1)
        while frame.f_back and frame.f_code.co_filename == __file__:
            frame = frame.f_back
        return CallSite(frame.f_code.co_filename, frame.f_lineno)

    def index(self, site: CallSite) -> int:
        if not self.sites or self.sites[-1] != site:
            self.sites.append(site)
        return len(self.sites) - 1

    def mapping(self, value: dict[str, Any], site: CallSite) -> Mapping:
        return self._mapping(value, site, self.index(site))

    def node(self, value: Any, site: CallSite) -> Node:
        return self._node(value, site, self.index(site))

    def scalar(self, value: Any, site: CallSite) -> Scalar:
        return self._scalar(value, site, self.index(site))

    def _mapping(self, value: dict[str, Any], site: CallSite, line: int) -> Mapping:
        node = Mapping(line, 0)
        entries = node.entries
        for key, inner in value.items():
            if isinstance(inner, Located):  # its key was written there, too
                name = self.scalar(str(key), inner.site)
            else:
                name = self._scalar(str(key), site, line)
            entries[str(key)] = (name, self._node(inner, site, line))
        return node

    def _node(self, value: Any, site: CallSite, line: int) -> Node:
        if type(value) is str:  # most values are texts
            return self._scalar(value, site, line)
        if isinstance(value, dict):
            return self._mapping(value, site, line)
        if isinstance(value, list | tuple):
            sequence = Sequence(line, 0)
            sequence.items = [self._node(item, site, line) for item in value]
            return sequence
        if isinstance(value, Located):
            if id(value) not in self._located:
                self._located[id(value)] = (value, self.node(value.value, value.site))
            return self._located[id(value)][1]
        return self._scalar(value, site, line)

    def _scalar(self, value: Any, site: CallSite, line: int) -> Scalar:
        if type(value) is str and value.isascii() and value.isprintable():
            return Scalar(value, value, '"', line, 0, 0)
        value = _plain(value)
        if problem := self._problem_of_value(value, site):
            raise LanguageError([problem])
        if isinstance(value, str):
            text = value
        else:
            text = "" if value is None else str(value).lower() if isinstance(value, bool) else repr(value)
        return Scalar(value, text, '"', line, 0, 0)

    def _problem_of_value(self, value: Any, site: CallSite) -> Problem | None:
        """The problem of a value that no file could contain either, if there is one."""
        if isinstance(value, str) and (unusable := UNUSABLE_CHARACTER.search(value)):
            message = f"the text contains the character U+{ord(unusable.group()):04X}, which is not allowed"
            return self.problem("character", message, site, "", "remove it")
        if isinstance(value, int) and not INTEGER_MIN <= value <= INTEGER_MAX:
            message = f"the number {shorten(str(value))} does not fit into 64 bits"
            return self.problem("number", message, site, "", "quote it to keep it as text")
        if value is not None and not isinstance(value, str | int | float):
            message = f"a workflow is made of plain values, and this is a {type(value).__name__}"
            return self.problem("value", message, site, "", "")
        return None

    def problem_of_function(self, function: Callable[..., Any], site: CallSite) -> Problem:
        message = f"workers cannot import the function '{function.__qualname__}'"
        hint = "put it at the top of a module that is not run as a script"
        if function.__module__.startswith("<"):  # see `python_file_process`
            hint = "call mulligan from the folder of this file, or from one above it"
        return self.problem("function", message, site, function.__qualname__, hint)

    def problem(self, code: str, message: str, site: CallSite, word: str, hint: str) -> Problem:
        return problem_at(site, code, message, word, hint)


def problem_at(site: CallSite, code: str, message: str, word: str, hint: str) -> Problem:
    """A problem that points at `word` in the call at `site`, or at the whole line."""
    line, column, length = _locate(site, word)
    shown = linecache.getline(site.file, line).rstrip("\n")
    return Problem(f"language.{code}", message, site.file, line, column + 1, length, shown, hint)


class _PythonSource(Source):
    """The source of a workflow built in Python: problems point into the Python file."""

    def __init__(self, sites: _CallSites) -> None:
        super().__init__("", "")
        self._sites = sites

    def number(self, node: Node) -> int:
        return self._sites.sites[node.line].line

    def refuse(self, code: str, message: str, node: Node, *, hint: str = "") -> Refusal:
        word = node.text if isinstance(node, Scalar) else ""
        site = self._sites.sites[node.line]
        return Refusal(self._sites.problem(code, message, site, shorten(word), hint))

    def position(self, scalar: Scalar, offset: int) -> None:
        """None: text may be computed, so a problem cannot point into it."""
        return None


def _plain(value: Any) -> Any:
    """A value as YAML would read it: a member of an enumeration is its text or number."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bool):
        return value
    kind = next((kind for kind in (str, int, float) if isinstance(value, kind)), None)
    return value if kind is None else value[:] if kind is str else kind(value)


def _locate(site: CallSite, word: str) -> tuple[int, int, int]:
    """The line, column and length of `word` in the call that starts at `site`, or of the call itself."""
    first = linecache.getline(site.file, site.line)
    indent = len(first) - len(first.lstrip())
    for number in range(site.line, site.line + _CALL_LINES_MAX if word else site.line):
        line = linecache.getline(site.file, number)
        if number > site.line and line.strip() and len(line) - len(line.lstrip()) < indent:
            break
        for written in (f'"{word}"', f"'{word}'", f"{word}="):
            if written in line:
                return number, line.index(written) + (written[0] in "\"'"), len(word)
    return site.line, indent, max(1, len(first.strip()))
