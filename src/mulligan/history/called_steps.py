"""The calls of a program as steps for readers: where each was made, which ones it followed, how its failure was caught.

A run of a program has one step in its definition, and a further one for each call. Who shows or draws a run by its
definition asks here for that of the run: `workflow_of_run`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from mulligan.core.model.program_events import StepAdded, StepRan
from mulligan.core.model.text.lazy_regex import lazy_regex
from mulligan.core.model.workflow import Action, Need, Workflow
from mulligan.core.state.program_progress import RecordedCall, is_raised_with
from mulligan.core.state.state import State

_replace = msgspec.structs.replace
# What a handler of one of these catches: the failure of a call among others.
_CATCHING = frozenset({"StepFailed", "Rejected", "Exception", "BaseException", "ExceptionGroup", "BaseExceptionGroup"})
_SOURCES_KEPT = 16
# What `ast.parse` calls. The module itself has a hundred classes, which each command would wait for.
_ONLY_AST = 0x0400
# A call that follows more of them is said to follow the first ones: two large gathers would make millions of pairs.
FOLLOWED_MAX = 100
_CODE = lazy_regex(r"[A-Z][A-Z0-9_]*")
_TRIES = frozenset({"Try", "TryStar"})
_FUNCTIONS = frozenset({"FunctionDef", "AsyncFunctionDef"})


class CalledStep(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a program called a step."""

    # `nightly.py:31`; "" if it is not known.
    at: str
    # `branch 3 of 12`; "" in the program's own line of calls.
    branch: str = ""
    # Where the program caught its failure: `nightly.py:33`.
    handled_at: str = ""


class WorkflowOfRun(Workflow, frozen=True, omit_defaults=True):
    """The workflow of a program, with the steps that a run of it has called. Each needs those that it followed."""

    called: dict[str, CalledStep] = msgspec.field(default_factory=dict)


def workflow_of_run(state: State) -> Workflow:
    """The steps of a run with those that a program has called; the definition itself for any other run."""
    if not state.calls:
        return state.workflow
    followed = _followed(state)
    steps = [*state.workflow.steps]
    for name, sources in followed.items():
        needs = tuple(Need(source, "always") for source in sources)
        steps.append(_replace(state.graph.nodes[name].step, name=name, needs=needs))
    plain = {field: getattr(state.workflow, field) for field in Workflow.__struct_fields__}
    called = {name: called_step(state, name) for name in followed}
    return WorkflowOfRun(**{**plain, "steps": tuple(steps), "called": called})


def with_called_steps(state: State) -> Workflow:
    """The same without what followed what: for those who compare or count the steps."""
    if not state.calls:
        return state.workflow
    steps = [_replace(node.step, name=name) for name, node in state.graph.nodes.items()]
    return _replace(state.workflow, steps=tuple(steps))


def called_step(state: State, name: str) -> CalledStep:
    """Where the program of a run called this step."""
    call = state.calls[name]
    return CalledStep(line_text(call), branch_text(call), handled_at(state, name))


def call_text(state: State, name: str) -> str:
    """Where a step was called: `nightly.py:31, branch 3 of 12`; "" for a step of a file."""
    call = state.calls.get(name)
    return "" if call is None else where_text(call)


def where_text(call: RecordedCall | StepAdded | StepRan) -> str:
    """`nightly.py:31, branch 3 of 12`."""
    return ", ".join(filter(None, (line_text(call), branch_text(call))))


def branch_text(call: RecordedCall | StepAdded | StepRan) -> str:
    """The branch of a call in words: `branch 3 of 12`; "" for the program itself."""
    numbers = branch_numbers(call.branch)
    if not numbers:
        return ""
    *above, last = numbers
    count = ""
    if call.position is not None:
        # The number in its own gather: branches are numbered over all of them.
        last, count = call.position[0] + 1, f" of {call.position[1]:,}"
    return f"branch {last:,}{count}" + "".join(f" of branch {number:,}" for number in reversed(above))


def branch_numbers(branch: str) -> list[int]:
    """The number of a branch in that above it, and so on, from 1; empty for the program itself."""
    return [int(one) + 1 for one in _line_of(branch).replace("/", ".").split(".") if one.isdecimal()]


def line_text(call: RecordedCall | StepAdded | StepRan) -> str:
    """The line that made a call: `nightly.py:31`; "" if it is not known."""
    return f"{_file_name(call.file)}:{call.line}" if call.line else ""


def _file_name(path: str) -> str:
    return path.rpartition("/")[2]


def _line_of(branch: str) -> str:
    """The line of calls that a branch is a part of: a call with a key stands in that of its parent."""
    return branch.rpartition("/")[0] if "/" in branch else branch


# -- what followed what ------------------------------------------------------------------------------------------------


def _followed(state: State) -> dict[str, list[str]]:
    """The steps that each called step followed: the one before in its line, or the ends of the lines that it joined."""
    lines = {"": _Line([state.graph.program])}
    found: dict[str, list[str]] = {}
    for label, call in state.calls.items():
        if call.kind == "value":
            continue
        name = _line_of(call.branch)
        line = lines.get(name)
        if line is None:
            above = lines[_above(name, lines)]
            above.join(state, call.known)
            line = lines[name] = _Line(above.ends)
            above.within.append(line)
        line.join(state, call.known)
        found[label] = line.ends
        line.ends = [label]
    return found


class _Line:
    """Calls that were made one after the other: of the program, of a gathered call or of a task."""

    def __init__(self, after: list[str]) -> None:
        # The calls that led to the first one; the last ones; the lines that began in this one and were not joined.
        self.after = after
        self.ends = after
        self.within: list[_Line] = []
        # How many ends of calls the program knew when it was looked which of them have ended.
        self._known = -1

    def join(self, state: State, known: int) -> None:
        """Go on behind the lines in this one that had ended when the program knew as many ends of calls as this."""
        if known == self._known:
            return
        self._known = known
        joined = [one for one in self.within if one.has_ended(state, known)]
        if joined:
            gone = set(map(id, joined))
            self.within = [one for one in self.within if id(one) not in gone]
            # What led to the joined lines is before their ends anyway.
            earlier = {source for one in joined for source in one.after}
            ends = [one for one in self.ends if one not in earlier]
            self.ends = [*ends, *(end for one in joined for end in one.all_ends())][:FOLLOWED_MAX]

    def all_ends(self) -> list[str]:
        return list(dict.fromkeys((*self.ends, *(end for one in self.within for end in one.all_ends()))))

    def has_ended(self, state: State, known: int) -> bool:
        """Whether all of it had ended when a program knew as many ends of calls as this."""
        deliveries = (state.places[label].delivery for label in self.all_ends())
        return all(one is not None and one[0] <= known for one in deliveries)


def _above(line: str, lines: Mapping[str, object]) -> str:
    while line not in lines:
        line = line.rpartition(".")[0]
    return line


# -- what was caught ---------------------------------------------------------------------------------------------------


def handled_at(state: State, name: str) -> str:
    """Where the program caught the failure of a call: `nightly.py:33`; "" if it did not, or nobody can say."""
    call, place = state.calls[name], state.places[name]
    if place.status != "failed" or not call.line or _has_let_through(state, call.program, name):
        return ""
    return except_line(state.graph.nodes[call.program].step.action, call)


def except_line(program: Action | None, call: RecordedCall | StepAdded) -> str:
    """The `except` around a call that catches its failure, by the source of the program; "" if there is none."""
    params = {} if program is None else program.params
    file = _file_name(call.file)
    if _file_name(str(params.get("file", ""))) != file:
        # A module that the program imports.
        return ""
    line = _except_lines(str(params.get("source", ""))).get(call.line, 0)
    return f"{file}:{line}" if line else ""


def _has_let_through(state: State, program: str, call: str) -> bool:
    progress = state.places[program].program
    if progress is None or progress.end is None:
        return False
    escaped = progress.end.call
    return escaped == call or is_raised_with(state.calls[call], state.calls.get(escaped))


def except_lines(source: str) -> list[int]:
    """The lines of all `except` that catch failures of calls."""
    return sorted(set(_except_lines(source).values()))


@lru_cache(_SOURCES_KEPT)
def _except_lines(source: str) -> dict[int, int]:
    """For each line within a `try` that may catch the failure of a call: the line of that `except`."""
    try:
        tree = compile(source, "", "exec", _ONLY_AST, dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError):
        return {}
    found: dict[int, int] = {}
    # From the outside in: the innermost one wins.
    for node in _walk(tree):
        if type(node).__name__ in _TRIES and (caught := next(_catching(node), 0)):
            for statement in node.body:
                found.update(
                    dict.fromkeys(range(statement.lineno, (statement.end_lineno or statement.lineno) + 1), caught)
                )
    return found


def codes_named(source: str, line: int, function: str) -> tuple[str, ...]:
    """The codes of failures that a program names for a call in this line, or that the function of its step raises."""
    named = _codes(source)
    compared = [code for scope, codes in named.compared if scope.may_have(line) for code in codes]
    return tuple(dict.fromkeys((*compared, *named.raised.get(function, ()))))


class _Scope(msgspec.Struct, frozen=True):
    """The lines whose calls may fail with what is compared: of a `try` or a function, and of what that calls."""

    lines: tuple[range, ...]

    def may_have(self, line: int) -> bool:
        return any(line in one for one in self.lines)


class _Codes(msgspec.Struct, frozen=True):
    """The codes that are compared with the `code` of a failure; and those that each function raises as a StepError."""

    compared: tuple[tuple[_Scope, tuple[str, ...]], ...] = ()
    raised: dict[str, tuple[str, ...]] = {}


@lru_cache(_SOURCES_KEPT)
def _codes(source: str) -> _Codes:
    try:
        tree = compile(source, "", "exec", _ONLY_AST, dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError):
        return _Codes()
    functions = [node for node in _walk(tree) if type(node).__name__ in _FUNCTIONS]
    handlers = [(one, node) for node in _walk(tree) if type(node).__name__ in _TRIES for one in node.handlers]
    compared: list[tuple[_Scope, tuple[str, ...]]] = []
    for node in _walk(tree):
        if not (codes := _compared(node)):
            continue
        # The innermost `except` around it, else the innermost function: from the outside in, they come last.
        caught = [around.body for one, around in handlers if node.lineno in _lines(one)]
        within = caught or [one.body for one in functions if node.lineno in _lines(one)] or [tree.body]
        compared.append((_Scope(tuple(_reached(within[-1], functions))), codes))
    raised = {node.name: _plain_codes(_walk_raised(node)) for node in functions}
    return _Codes(tuple(compared), raised)


def _reached(body: list[Any], functions: list[Any]) -> Iterator[range]:
    """The lines of these statements, and of the functions of the file that they name, and so on."""
    left, seen = list(body), set[str]()
    yield range(body[0].lineno, _lines(body[-1]).stop)
    while left:
        names = {one.id for one in _walk(left.pop()) if type(one).__name__ == "Name"} - seen
        seen |= names
        for one in functions:
            if one.name in names:
                yield _lines(one)
                left.append(one)


def _compared(node: Any) -> tuple[str, ...]:
    """The codes with which this compares that of a failure."""
    kind = type(node).__name__
    if kind == "Compare" and any(_is_code(one) for one in (node.left, *node.comparators)):
        return _plain_codes(_texts(node))
    if kind == "Match" and _is_code(node.subject):
        return _plain_codes(text for case in node.cases for text in _texts(case.pattern))
    return ()


def _walk_raised(function: Any) -> Iterator[str]:
    for one in _walk(function):
        if type(one).__name__ == "Call" and one.args and _is_step_error(one.func):
            yield from _texts(one.args[0])


def _plain_codes(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text for text in texts if _CODE.fullmatch(text)))


def _lines(node: Any) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def _is_code(node: Any) -> bool:
    return type(node).__name__ == "Attribute" and node.attr == "code"


def _is_step_error(node: Any) -> bool:
    return "StepError" in (getattr(node, "id", ""), getattr(node, "attr", ""))


def _texts(node: Any) -> list[str]:
    return [one.value for one in _walk(node) if type(one).__name__ == "Constant" and isinstance(one.value, str)]


def _walk(tree: Any) -> Iterator[Any]:
    """The nodes of a tree, from the outside in: as `ast.walk`."""
    todo = deque([tree])
    while todo:
        node = todo.popleft()
        for field in node._fields:
            value = getattr(node, field, None)
            todo.extend(one for one in (value if isinstance(value, list) else [value]) if hasattr(one, "_fields"))
        yield node


def _catching(node: Any) -> Iterator[int]:
    for handler in node.handlers:
        parts = list(_walk(handler.type)) if handler.type is not None else []
        names = {
            part.id if type(part).__name__ == "Name" else part.attr
            for part in parts
            if type(part).__name__ in ("Name", "Attribute")
        }
        if handler.type is None or names & _CATCHING:
            yield handler.lineno
