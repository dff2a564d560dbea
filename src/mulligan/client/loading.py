"""Workflows as a program gives them: a file, a loaded file, a workflow built in Python, a flow."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

from mulligan.client.session import ExplainedErrors
from mulligan.core.model.workflow import Workflow as CheckedWorkflow
from mulligan.errors import InputInvalid, MulliganError, Problem
from mulligan.service.authoring.area import Workflows


@runtime_checkable
class BuiltWorkflow(Protocol):
    """A workflow that is built in Python: `mulligan.Workflow`."""

    def check(self) -> Any:
        """The checked workflow."""


@runtime_checkable
class SupportsWorkflow(Protocol):
    """An object that makes a workflow: a function with `@mulligan.flow`."""

    def __mulligan_workflow__(self) -> Any:
        """The workflow, as it is built in Python."""


class WorkflowFile:
    """A workflow that was read from a file, checked and ready to run."""

    def __init__(self, workflow: CheckedWorkflow, file: Path, warnings: tuple[Problem, ...] = ()) -> None:
        self.workflow = workflow
        self.file = file
        # Likely mistakes in the file, which do not keep it from running.
        self.warnings = warnings

    @property
    def name(self) -> str:
        """The name of the workflow."""
        return self.workflow.name

    @property
    def inputs(self) -> Mapping[str, Any]:
        """The declared inputs by name."""
        return self.workflow.inputs

    @property
    def steps(self) -> tuple[str, ...]:
        """The names of the steps, in the order of the file."""
        return tuple(step.name for step in self.workflow.steps)

    def _repr_html_(self) -> str:
        return _workflow_html(self.workflow)

    def __repr__(self) -> str:
        steps = f"{len(self.steps)} step{'s' * (len(self.steps) != 1)}"
        return f"<WorkflowFile {self.name!r} from {os.path.relpath(self.file)!r}: {steps}>"


# What `mulligan.run` accepts.
Runnable: TypeAlias = str | os.PathLike[str] | WorkflowFile | CheckedWorkflow | BuiltWorkflow | SupportsWorkflow


def source_file(flow: Runnable) -> Path:
    """The file that says what a workflow is: `sales.py:nightly` for a flow. `InputInvalid` for one without a file."""
    if isinstance(flow, str | os.PathLike):
        return Path(flow)
    if isinstance(flow, WorkflowFile):
        return flow.file
    function = getattr(flow, "fn", None)
    file = getattr(getattr(function, "__code__", None), "co_filename", "")
    if not os.path.isfile(file):
        what = getattr(flow, "name", type(flow).__name__)
        raise InputInvalid(f"'{what}' is not written in a file, so it cannot be published", hint="put it into one")
    return Path(f"{file}:{flow.__name__}")  # type: ignore[union-attr]


def load(
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    trust_templates: bool = False,
    catalogue: str | os.PathLike[str] | None = None,
    inputs: Mapping[str, Any] | None = None,
    map: str | Iterable[str] = (),
    max_iterations: int | None = None,
    worktree: bool = False,
) -> WorkflowFile:
    """Read and check a workflow file: of Mulligan (YAML, JSON, Python) or of another system.

    `format` names the system that the file belongs to; by default it is recognised. `trust_templates` lets any value
    become part of a command or a query of a NoETL file, and `catalogue` is the folder of the playbooks that such a
    file calls; `inputs` that choose such a playbook must be known here. `map` (patterns of files) and `max_iterations`
    run the steps of a Prodigy file several times. `worktree` runs the steps of any file in a Git worktree on a branch.
    Raises `LanguageError` with every problem of the file.

        flow = mulligan.load("nightly.yaml")
        run = mulligan.run(flow, target="prod")
    """
    file = Path(path)
    with ExplainedErrors():
        from mulligan.formats import examine
        from mulligan.service.authoring.format_options import read_format_options

        examined = examine(
            file,
            named=format,
            trust_templates=trust_templates,
            catalogue=None if catalogue is None else Path(catalogue),
            given=inputs,
            options=read_format_options((map,) if isinstance(map, str) else tuple(map), max_iterations),
        )
        from mulligan.language.readers.workspace_steps import with_default_workspace

        workflow = with_default_workspace(examined.workflow) if worktree else examined.workflow
    return WorkflowFile(workflow, file.absolute(), examined.warnings)


class Given(NamedTuple):
    """A checked workflow, and the file that it came from: "" for one that was built in this program."""

    workflow: CheckedWorkflow
    file: str = ""


def find_workflow(
    flow: Runnable, inputs: Mapping[str, Any] | None = None, options: Mapping[str, Any] | None = None
) -> Given:
    """The checked workflow behind what a program gives.

    A file is read for the `inputs` that it will be run with, and with the `options` of its system.
    """
    if isinstance(flow, str | os.PathLike):
        with ExplainedErrors():
            workflow = Workflows.load_workflow(Path(flow), given=inputs, options=options)
            return Given(workflow, str(Path(flow).absolute()))
    if isinstance(flow, WorkflowFile):
        return Given(flow.workflow, str(flow.file))
    if isinstance(flow, CheckedWorkflow):
        return Given(flow)
    with ExplainedErrors():
        built = flow.__mulligan_workflow__() if isinstance(flow, SupportsWorkflow) else flow
        checked = built.check() if isinstance(built, BuiltWorkflow) else built
        if isinstance(checked, CheckedWorkflow):
            return Given(checked)
        kind = type(flow).__name__
        raise InputInvalid(
            f"a workflow is expected, not '{kind}'",
            hint="give the path of a file, mulligan.load(…), a mulligan.Workflow, or a function with @mulligan.flow",
        )


def _flow_html(flow: Runnable) -> str | None:
    """The graph of a workflow for a notebook; None if it is refused, since a notebook shows its text then."""
    try:
        return _workflow_html(find_workflow(flow).workflow)
    except MulliganError:
        return None


def _workflow_html(workflow: CheckedWorkflow) -> str:
    # A program outside of a notebook never loads it.
    from mulligan.client import notebook_html

    return notebook_html.workflow_html(workflow)
