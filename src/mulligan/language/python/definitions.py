"""Checks a definition that another process has compiled: it has to be one that this language could have made.

A client of a server sends its workflow compiled, since the files that it is made of are with the client. What the
engine relies on without asking again is checked: names, the graph, expressions with the names that they read, patterns.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from mulligan.core.deciding.bounded_regex import NotSearchable, refuse_unsearchable
from mulligan.core.deciding.report_checks import check_values
from mulligan.core.model.graph import link_problem
from mulligan.core.model.text.durations import DURATION_SECONDS_MAX
from mulligan.core.model.workflow import (
    Command,
    Expression,
    Step,
    Workflow,
    all_commands,
    decode,
    encode,
    expressions_in,
)
from mulligan.core.state.scope import holes
from mulligan.errors import CodecError, InputInvalid
from mulligan.language.expressions import ExpressionRefused, check
from mulligan.language.readers.notices import rules_problem
from mulligan.language.text.nodes import shorten


def read_definition(data: bytes) -> tuple[Workflow, bytes]:
    """A workflow that somebody has sent, checked, and its canonical JSON. `InputInvalid`."""
    try:
        # When runs of it start is said where it is published: a run does not have it.
        workflow = msgspec.structs.replace(decode(data), schedules={})
        if problem := link_problem(workflow):
            raise _refusal(problem)
        check_values(workflow)
        _check_parts(workflow)
        return workflow, encode(workflow)
    except CodecError as error:
        raise _refusal(error.message) from None
    except RecursionError:
        raise _refusal("it is nested too deeply") from None


def _check_parts(workflow: Workflow) -> None:
    """Refuse what the engine would meet only in the middle of a run."""
    if problem := rules_problem(workflow.notify):
        raise _refusal(problem)
    for command in all_commands((*workflow.steps, workflow.end)):
        _check_command(command)
    for expression in dict.fromkeys(expressions_in(msgspec.structs.replace(workflow, children={}))):
        _check_expression(expression)
    for child in workflow.children.values():
        _check_parts(child)


def _check_command(command: Command) -> None:
    if (action := command.action) is not None:
        for name in (*holes(action.params), *action.paths.values()):
            if name not in action.bindings:
                raise _refusal(f"it refers to the value '{shorten(str(name))}', which it does not have")
    for rule in command.rules:
        if rule.pattern is not None:
            _check_pattern(rule.pattern)
    for value in _numbers(command):
        if not 0 <= value <= DURATION_SECONDS_MAX:
            raise _refusal(f"{value:g} is neither a duration nor a share")


def _check_pattern(pattern: str) -> None:
    try:
        re.compile(pattern)
        refuse_unsearchable(pattern)
    except (re.error, NotSearchable, OverflowError) as error:
        raise _refusal(f"'{shorten(pattern)}' is not a pattern: {error}") from None


def _check_expression(expression: Expression) -> None:
    """What an expression reads decides what it is given, and is not believed."""
    try:
        found = check(expression.source)
    except ExpressionRefused as error:
        raise _refusal(f"'{shorten(expression.source)}' is no expression: {error.message}") from None
    if set(found.reads) != set(expression.reads):
        raise _refusal(f"'{shorten(expression.source)}' does not read what the definition says")


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
