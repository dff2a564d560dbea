"""One step of a workflow alone: one attempt, no retries, no handlers, no edges; and workflows with faked steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from mulligan.core.deciding.agent_context import reads_upstream
from mulligan.core.deciding.fakes import FakeEnd, with_fakes
from mulligan.core.model.events import Kept
from mulligan.core.model.workflow import END, Action, Command, Edge, Expression, Need, Step, Workflow
from mulligan.errors import InputInvalid, Refused, UnknownStep
from mulligan.language.fakes import load_fakes, parse_fakes, read_fakes
from mulligan.language.suggestions import did_you_mean

# What a command loses: everything that is done about a failure, and all that comes after.
BARE: dict[str, Any] = {
    "rules": (),
    "max_attempts": None,
    "on_failure": None,
    "handler_failure_fatal": False,
    "on_success": (),
    "continue_on_error": False,
    "on_lost": "fail",
    "breaker": None,
    # They would lead to what is gone when the trial is over, and no more to what a run wrote.
    "logs": {},
}
ALONE: dict[str, Any] = {
    **{"needs": (), "edges": (), "when": None, "triage": None, "undo": None, "is_start": True},
    # It is to be tried, whatever an earlier run gave.
    **{"cache": False, "cache_key": None},
}


def isolate_step(workflow: Workflow, step: str) -> Workflow:
    """A workflow of this step, and of stand-ins for the steps whose results it reads."""
    wanted = find_step(workflow, step)
    bare = msgspec.structs.replace(wanted, **BARE, **ALONE, do=tuple(map(_bared, wanted.do)))
    # What it needs it is told of: its stand-ins have ended when it starts.
    needs = tuple(Need(name) for name in _heard_steps(workflow, wanted))
    return with_stand_ins(workflow, msgspec.structs.replace(bare, needs=needs))


def with_stand_ins(workflow: Workflow, step: Step) -> Workflow:
    """A workflow of this step, however it was changed, and of stand-ins for the steps whose results it reads."""
    read = set(read_steps(workflow, step.name))
    others = [_stand_in(other) for other in workflow.steps if other.name in read]
    plain_end = Step(name=END, timeout=workflow.end.timeout)
    return msgspec.structs.replace(
        workflow, steps=(*others, step), end=plain_end, outputs={}, groups={}, timeout=None, fail_fast="never"
    )


def read_steps(workflow: Workflow, step: str) -> list[str]:
    """The steps whose results a step reads, or is told as an agent, in file order."""
    wanted = find_step(workflow, step)
    read, heard = set(_reads(wanted)), _heard_steps(workflow, wanted)
    others = [other for other in workflow.steps if other.name != step]
    return [other.name for other in others if _is_read(other, read) or other.name in heard]


def _is_read(step: Step, read: set[str]) -> bool:
    """Whether it is read by its name, by that of its matrix, or with all others."""
    return (
        f"steps.{step.name}" in read
        or "steps" in read
        or bool(step.matrix_name and f"steps.{step.matrix_name}" in read)
    )


def _heard_steps(workflow: Workflow, step: Step) -> list[str]:
    """Of an agent: the steps that it needs, and those whose edges lead to it."""
    if not reads_upstream(step):
        return []
    needed = {name for need in step.needs for name in (workflow.groups[need.of] if need.is_group else (need.of,))}
    before = {other.name for other in workflow.steps if any(_leads_on(edge, step.name) for edge in other.edges)}
    return [other.name for other in workflow.steps if other.name in needed | before and other.name != step.name]


def _leads_on(edge: Edge, step: str) -> bool:
    """Whether what it comes from gives something: what has failed gives nothing."""
    return edge.to == step and edge.on != "failure"


def stand_ins(workflow: Workflow, step: str, given: Mapping[str, Any]) -> list[Kept]:
    """The results that the step finds: those that were given, else null."""
    read = read_steps(workflow, step)
    given = _by_step(workflow, given)
    for name in given:
        if name not in read:
            hint = did_you_mean(name, read) or (f"it reads {', '.join(read)}" if read else "it reads none")
            raise UnknownStep(f"step '{step}' reads no result of '{name}'", hint=hint, step=name)
    return [Kept(name, "completed", given.get(name)) for name in read]


def _by_step(workflow: Workflow, given: Mapping[str, Any]) -> dict[str, Any]:
    """The results by step: what was given for a matrix as a list is of its steps, in their order."""
    found: dict[str, Any] = {}
    for name, result in given.items():
        members = [step.name for step in workflow.steps if step.matrix_name and step.matrix_name == name]
        if members and not (isinstance(result, list) and len(result) == len(members)):
            hint = "give a list, with null where a step gave nothing"
            raise Refused(f"'{name}' is a matrix of {len(members):,} steps, so that many results are needed", hint=hint)
        found |= dict(zip(members, result, strict=True)) if members else {name: result}
    return found


def find_step(workflow: Workflow, step: str) -> Step:
    """The step of that name; `UnknownStep` if there is none."""
    found = next((one for one in workflow.steps if one.name == step), None)
    if found is None:
        first = next((one.name for one in workflow.steps if one.matrix_name and one.matrix_name == step), None)
        if first is not None:
            message = f"'{step}' is a matrix of workflow '{workflow.name}', and one of its steps must be named"
            raise UnknownStep(message, hint=f"such as '{first}'", step=step)
        names = [one.name for one in workflow.steps]
        hint = did_you_mean(step, names) or "list the steps: mulligan graph FILE"
        raise UnknownStep(f"'{step}' is not a step of workflow '{workflow.name}'", hint=hint, step=step)
    return found


def _bared(command: Command) -> Command:
    return msgspec.structs.replace(command, **BARE)


def _stand_in(step: Step) -> Step:
    return Step(name=step.name, action=Action("shell", {"text": "true"}), matrix=step.matrix, sweep=step.matrix_name)


def _reads(value: Any) -> Iterator[str]:
    """The names that expressions read, wherever they stand."""
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
    """How the faked steps end: as the words say, else as the file does. Refused where anything makes no sense."""
    in_file = {} if file is None else load_fakes(file)
    return read_fakes(workflow, {**in_file, **parse_fakes(workflow, words)})


def apply_fakes(workflow: Workflow, fakes: Fakes) -> Workflow:
    """The workflow with these steps faked."""
    return with_fakes(workflow, fakes)


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
