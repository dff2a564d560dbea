"""Workflow files: checking one and saying what is in it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from mulligan.errors import LanguageError, Problem
from mulligan.formats import OURS, LoadResult, examine


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
    return describe(str(path), examined)


def describe(file: str, examined: LoadResult) -> Validation:
    """What is said about a file that was not refused."""
    workflow, warnings = examined
    return Validation(
        ok=True,
        file=file,
        format=workflow.origin or OURS,
        name=workflow.name,
        steps=len(workflow.steps),
        warnings=tuple(warnings),
        edges=sum(len(step.needs) + len(step.edges) for step in workflow.steps),
        inputs=len(workflow.inputs),
    )
