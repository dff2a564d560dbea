"""Checks a definition that another process has compiled: it has to be one that this language could have made.

A client of a server sends its workflow compiled, since the files that it is made of are with the client. What the
engine relies on without asking again is checked: names, the graph, expressions with the names that they read, patterns.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import msgspec

from mulligan.core.deciding.bounded_regex import NotSearchable, refuse_unsearchable
from mulligan.core.model.durations import DURATION_SECONDS_MAX
from mulligan.core.model.graph import Graph
from mulligan.core.model.workflow import (
    END,
    Action,
    Command,
    Expression,
    Rule,
    Step,
    Workflow,
    all_commands,
    decode,
    encode,
)
from mulligan.core.state.scope import holes
from mulligan.errors import CodecError, InputInvalid
from mulligan.language.expressions import ExpressionRefused, check
from mulligan.language.nodes import shorten

_STEP_NAME = re.compile(r"[A-Za-z0-9_-]+")


def read_definition(data: bytes) -> tuple[Workflow, bytes]:
    """A workflow that somebody has sent, checked, and its canonical JSON. `InputInvalid`."""
    try:
        # When runs of it start is said where it is published: a run does not have it.
        workflow = msgspec.structs.replace(decode(data), schedules={})
        check_definition(workflow)
        return workflow, encode(workflow)
    except CodecError as error:
        raise _refusal(error.message) from None
    except RecursionError:
        raise _refusal("it is nested too deeply") from None


def check_definition(workflow: Workflow) -> None:
    """Refuse a definition that no text of ours compiles to. `InputInvalid`."""
    if not workflow.name or not workflow.name.isprintable():
        raise _refusal("it has no name")
    _check_links(workflow)
    try:
        Graph(workflow)
    except (LookupError, ValueError, AssertionError) as error:
        raise _refusal(f"its steps do not fit together: {error}") from None
    for command in all_commands((*workflow.steps, workflow.end)):
        _check_command(command, workflow)
    for expression in dict.fromkeys(_expressions(workflow)):
        _check_expression(expression)
    for child in workflow.children.values():
        check_definition(child)


def _check_links(workflow: Workflow) -> None:
    names = {step.name for step in workflow.steps}
    for name in names:
        if name == END or _STEP_NAME.fullmatch(name) is None:
            raise _refusal(f"'{shorten(name)}' cannot be the name of a step")
    if len(names) != len(workflow.steps):
        raise _refusal("two of its steps have one name")
    for members in workflow.groups.values():
        _require(members, names, "step")
    targets = {*names, END}
    for step in workflow.steps:
        _require((need.of for need in step.needs if not need.is_group), names, "step")
        _require((need.of for need in step.needs if need.is_group), workflow.groups, "group")
        _require((edge.to for edge in step.edges), targets, "step")
        if [edge.index for edge in step.edges] != [*range(len(step.edges))]:
            raise _refusal(f"the edges of step '{step.name}' are not in order")
    if workflow.workspace is not None:
        _require((workflow.workspace.opens, workflow.workspace.closes), names, "step")


def _check_command(command: Command, workflow: Workflow) -> None:
    if command.breaker is not None:
        _require((command.breaker,), workflow.breakers, "breaker")
    if isinstance(command, Step) and (command.map is None) != (not command.do):
        raise _refusal(f"step '{command.name}' has items without commands, or commands without items")
    if command.action is not None:
        _check_action(command.action, workflow)
    for rule in command.rules:
        _check_pattern(rule)
    for value in _numbers(command):
        if not 0 <= value <= DURATION_SECONDS_MAX:
            raise _refusal(f"{value:g} is no duration and no share")


def _check_action(action: Action, workflow: Workflow) -> None:
    used = {*holes(action.params), *action.paths.values()}
    _require(used, action.bindings, "value")
    if action.kind == "workflow" and isinstance(file := action.params.get("file"), str):
        _require((file,), workflow.children, "workflow")


def _check_pattern(rule: Rule) -> None:
    if rule.pattern is None:
        return
    try:
        re.compile(rule.pattern)
        refuse_unsearchable(rule.pattern)
    except (re.error, NotSearchable, OverflowError) as error:
        raise _refusal(f"'{shorten(rule.pattern)}' is not a pattern: {error}") from None


def _check_expression(expression: Expression) -> None:
    """What an expression reads decides what it is given, and is not believed."""
    try:
        found = check(expression.source)
    except ExpressionRefused as error:
        raise _refusal(f"'{shorten(expression.source)}' is no expression: {error.message}") from None
    if set(found.reads) != set(expression.reads):
        raise _refusal(f"'{shorten(expression.source)}' does not read what the definition says")


def _require(names: Iterable[str], known: Collection[str], what: str) -> None:
    for name in names:
        if name not in known:
            raise _refusal(f"it names the {what} '{shorten(str(name))}', and has none of that name")


def _expressions(value: Any) -> Iterator[Expression]:
    """The expressions of a definition, without those of the workflows that it calls."""
    if isinstance(value, Expression):
        yield value
    elif isinstance(value, msgspec.Struct):
        for field in value.__struct_fields__:
            if field != "children":
                yield from _expressions(getattr(value, field))
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _expressions(inner)
    elif isinstance(value, tuple | list):
        for inner in value:
            yield from _expressions(inner)


def _numbers(command: Command) -> Iterator[float]:
    """The durations and shares of a command. What has no end is none of them."""
    parts: list[Any] = [command, command.on_failure, command.resources]
    for rule in command.rules:
        parts += [rule.backoff, rule.adjust]
    if isinstance(command, Step):
        parts += [command.map, command.triage, *(edge.backoff for edge in command.edges)]
    for part in filter(None, parts):
        for field in part.__struct_fields__:
            value = getattr(part, field)
            if isinstance(value, float) and not math.isinf(value):
                yield value
            elif field == "delays":
                yield from value


def _refusal(why: str) -> InputInvalid:
    return InputInvalid(
        f"this definition cannot be run: {why}", hint="send what 'mulligan run' sends, of the server's version"
    )
