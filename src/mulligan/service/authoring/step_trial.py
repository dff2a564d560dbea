"""One step of a workflow alone: one attempt, no retries, no handlers, no edges; and workflows with faked steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from mulligan.core.deciding.agents.agent_context import reads_upstream
from mulligan.core.deciding.fakes import FakeEnd
from mulligan.core.deciding.fakes import with_fakes as with_fakes
from mulligan.core.model.actions import shell_command
from mulligan.core.model.event_types import Kept
from mulligan.core.model.workflow import END, Command, Edge, Expression, Need, Step, Workflow
from mulligan.errors import InputInvalid, Refused, UnknownStep
from mulligan.language.readers.fakes import load_fakes, parse_fakes, read_fakes
from mulligan.language.text.suggestions import did_you_mean

# What is removed from a command: everything that reacts to a failure, and all that comes after.
BARE: dict[str, Any] = {
    "rules": (),
    "max_attempts": None,
    "on_failure": None,
    "handler_failure_fatal": False,
    "on_success": (),
    "continue_on_error": False,
    "on_lost": "fail",
    "breaker": None,
    "breaker_key": None,
    # These links would point to files that are removed after the trial.
    "logs": {},
}
ALONE: dict[str, Any] = {
    **{"needs": (), "edges": (), "when": None, "triage": None, "undo": None, "is_start": True},
    # It runs, whatever an earlier run returned.
    **{"cache": False, "cache_key": None, "cache_code": True},
}


def isolate_step(workflow: Workflow, step: str) -> Workflow:
    """A workflow of this step, with stand-ins for the steps whose results it reads."""
    wanted = find_step(workflow, step)
    if wanted.has_worktrees:
        wanted = msgspec.structs.replace(wanted, do=wanted.do[1:-1], has_worktrees=False)
    bare = msgspec.structs.replace(wanted, **BARE, **ALONE, do=tuple(map(_bared, wanted.do)))
    # An agent is given the results of what it needs, so its stand-ins must have ended when it starts.
    needs = tuple(Need(name) for name in _heard_steps(workflow, wanted))
    return with_stand_ins(workflow, msgspec.structs.replace(bare, needs=needs))


def with_stand_ins(workflow: Workflow, step: Step) -> Workflow:
    """A workflow of this (changed) step, with stand-ins for the steps whose results it reads."""
    read = set(read_steps(workflow, step.name))
    others = [_stand_in(other) for other in workflow.steps if other.name in read]
    plain_end = Step(name=END, timeout=workflow.end.timeout)
    return msgspec.structs.replace(
        workflow,
        steps=(*others, step),
        end=plain_end,
        outputs={},
        groups={},
        timeout=None,
        fail_fast="never",
        # A step alone works in this folder.
        workspace=None,
    )


def read_steps(workflow: Workflow, step: str) -> list[str]:
    """The steps whose results a step reads, or is given as an agent, in file order."""
    wanted = find_step(workflow, step)
    read, heard = set(_reads(wanted)), _heard_steps(workflow, wanted)
    others = [other for other in workflow.steps if other.name != step]
    return [other.name for other in others if _is_read(other, read) or other.name in heard]


def _is_read(step: Step, read: set[str]) -> bool:
    """Whether it is read by its name, by that of its matrix, or with all steps."""
    return (
        f"steps.{step.name}" in read
        or "steps" in read
        or bool(step.matrix_name and f"steps.{step.matrix_name}" in read)
    )


def _heard_steps(workflow: Workflow, step: Step) -> list[str]:
    """The steps that an agent needs, and those whose edges lead to it."""
    if not reads_upstream(step):
        return []
    needed = {name for need in step.needs for name in (workflow.groups[need.of] if need.is_group else (need.of,))}
    before = {other.name for other in workflow.steps if any(_leads_on(edge, step.name) for edge in other.edges)}
    return [other.name for other in workflow.steps if other.name in needed | before and other.name != step.name]


def _leads_on(edge: Edge, step: str) -> bool:
    """Whether the edge leads to the step from a result: a failed step has none."""
    return edge.to == step and edge.on != "failure"


def stand_ins(workflow: Workflow, step: str, given: Mapping[str, Any]) -> list[Kept]:
    """The results that the step finds: those that are given, otherwise null."""
    read = read_steps(workflow, step)
    given = _by_step(workflow, given)
    for name in given:
        if name not in read:
            hint = did_you_mean(name, read) or (f"it reads {', '.join(read)}" if read else "it reads no results")
            raise UnknownStep(f"step '{step}' does not read the result of '{name}'", hint=hint, step=name)
    return [Kept(name, "completed", given.get(name)) for name in read]


def _by_step(workflow: Workflow, given: Mapping[str, Any]) -> dict[str, Any]:
    """The results by step: a list for a matrix holds those of its steps, in order."""
    found: dict[str, Any] = {}
    for name, result in given.items():
        members = [step.name for step in workflow.steps if step.matrix_name and step.matrix_name == name]
        if members and not (isinstance(result, list) and len(result) == len(members)):
            hint = "give a list, with null for a step without a result"
            raise Refused(f"'{name}' is a matrix of {len(members):,} steps and needs as many results", hint=hint)
        found |= dict(zip(members, result, strict=True)) if members else {name: result}
    return found


def find_step(workflow: Workflow, step: str) -> Step:
    """The step of that name; raises `UnknownStep`."""
    found = next((one for one in workflow.steps if one.name == step), None)
    if found is None:
        first = next((one.name for one in workflow.steps if one.matrix_name and one.matrix_name == step), None)
        if first is not None:
            message = f"'{step}' is a matrix of workflow '{workflow.name}': name one of its steps"
            raise UnknownStep(message, hint=f"for example '{first}'", step=step)
        names = [one.name for one in workflow.steps]
        hint = did_you_mean(step, names) or "list the steps: mulligan graph FILE"
        raise UnknownStep(f"'{step}' is not a step of workflow '{workflow.name}'", hint=hint, step=step)
    return found


def _bared(command: Command) -> Command:
    return msgspec.structs.replace(command, **BARE)


def _stand_in(step: Step) -> Step:
    return Step(name=step.name, action=shell_command("true"), matrix=step.matrix, sweep=step.matrix_name)


def _reads(value: Any) -> Iterator[str]:
    """The names that all expressions in a value read."""
    if isinstance(value, Expression):
        yield from value.reads
    elif isinstance(value, msgspec.Struct):
        for field in value.__struct_fields__:
            yield from _reads(getattr(value, field))
    elif isinstance(value, Mapping):
        for below in value.values():
            yield from _reads(below)
    elif isinstance(value, tuple | list):
        for below in value:
            yield from _reads(below)


Fakes = dict[str, tuple[FakeEnd, ...]]


def read_fakes_given(workflow: Workflow, words: Sequence[str] = (), file: Path | None = None) -> Fakes:
    """How the faked steps end, as the command line says and, for other steps, as the file says."""
    in_file = {} if file is None else load_fakes(file)
    return read_fakes(workflow, {**in_file, **parse_fakes(workflow, words)})


def step_results(
    workflow: Workflow, step: str, fakes: Fakes, typed: Sequence[str], given: Mapping[str, Any]
) -> list[Kept]:
    """The results that an isolated step finds: those of faked steps, those that are given, otherwise null.

    A file may fake any step, so only the steps that are read count; a fake that was typed has to be of one of them.
    """
    read, named = read_steps(workflow, step), {word.partition("=")[0] for word in typed}
    results = {}
    for name, ends in fakes.items():
        if name not in read and name not in named:
            continue
        if (failure := ends[-1].failure) is not None:
            message = f"step '{name}' is faked to fail with {failure.code}, but '{step}' reads its result"
            raise InputInvalid(message, hint="to see what follows from a failure: mulligan rehearse FILE --fake …")
        results[name] = ends[-1].output
    return stand_ins(workflow, step, {**results, **given})
