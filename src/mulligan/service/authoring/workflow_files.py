"""Workflow files: checking one and saying what is in it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from mulligan.core.model.actions import traits_of
from mulligan.core.model.workflow import Workflow, all_commands
from mulligan.errors import LanguageError, Problem
from mulligan.formats import OURS, LoadResult, examine
from mulligan.language.published import finding_published as finding_published
from mulligan.language.python.python_files import as_python_file


class Validation(msgspec.Struct, frozen=True):
    """What a check of a workflow file found. Of a file that was refused only `file`, `problems` and `error`."""

    ok: bool
    file: str
    # Which system the file is of; our own is called `mulligan`.
    format: str | None = None
    name: str | None = None
    steps: int | None = None
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    # Links that the file has (needs and edges), and inputs.
    edges: int = 0
    inputs: int = 0
    error: LanguageError | None = None


def validate(
    path: Path, *, named: str | None = None, trust_templates: bool = False, catalogue: Path | None = None
) -> Validation:
    """Check a workflow file. Nothing is run."""
    try:
        examined = examine(path, named=named, trust_templates=trust_templates, catalogue=catalogue)
    except LanguageError as refused:
        return Validation(False, str(path), problems=tuple(refused.problems), error=refused)
    found = describe(str(path), examined)
    return msgspec.structs.replace(found, warnings=(*found.warnings, *_agent_warnings(str(path), examined.workflow)))


def _agent_warnings(file: str, workflow: Workflow) -> Iterator[Problem]:
    """Models that could not be asked from here. The worker may be elsewhere, so the file is not refused."""
    if not _has_agents(workflow):
        return
    from mulligan.service.decisions import agent_checks

    for agent in agent_checks.unavailable_agents(workflow, os.environ):
        hint = f"step '{agent.step}' asks it: this matters if its worker has the same environment"
        yield Problem("warning.agent", agent.problem, file=file, hint=hint)


def _has_agents(workflow: Workflow) -> bool:
    commands = all_commands((*workflow.steps, workflow.end))
    is_asked = any(traits_of(command.action).is_agent for command in commands)
    return is_asked or any(map(_has_agents, workflow.children.values()))


def replay_warnings(file: str, workflow: Workflow) -> Iterator[Problem]:
    """What a program reads that may be something else when it is replayed: the clock, chance, its environment."""
    for step in workflow.steps:
        if step.action is None or not traits_of(step.action).is_program:
            continue
        from mulligan.programs.source_checks import check_source

        source = str(step.action.params.get("source", ""))
        program = str(step.action.params.get("call", "")).rpartition(":")[2]
        python = as_python_file(Path(file))
        written_in = file if python is None else str(python.path)
        lines = source.splitlines()
        for found in check_source(source, file, program=program):
            line = lines[found.line - 1] if found.line <= len(lines) else ""
            yield Problem(
                "warning.replay",
                found.message,
                file=written_in,
                line=found.line,
                column=found.column,
                source_line=line,
                hint=found.hint,
            )


def describe(file: str, examined: LoadResult) -> Validation:
    """What is said about a file that was not refused."""
    workflow, warnings = examined
    return Validation(
        ok=True,
        file=file,
        format=workflow.origin or OURS,
        name=workflow.name,
        steps=len(workflow.steps),
        warnings=(*warnings, *replay_warnings(file, workflow)),
        edges=sum(len(step.needs) + len(step.edges) for step in workflow.steps),
        inputs=len(workflow.inputs),
    )
