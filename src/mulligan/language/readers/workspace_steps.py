"""The steps that open and end the Git worktree of a run, added to a checked workflow.

Steps that can start first need the one that opens it. The one that ends it needs all others, whatever became of them:
the core skips it if the run has not succeeded.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from mulligan.core.model.actions import WORKSPACE, traits_of
from mulligan.core.model.graph import Graph
from mulligan.core.model.workflow import (
    Action,
    Expression,
    Handler,
    MergeKind,
    Need,
    Resources,
    Step,
    Template,
    Workflow,
    Workspace,
)
from mulligan.errors import InputInvalid

OPENS, MERGES, COMMITS = "workspace", "workspace_merge", "workspace_commit"
# What the step that opens it returned: where the run works.
WORK = Template((Expression(f"steps.{OPENS}.output", (f"steps.{OPENS}",)),))
DEFAULT_BRANCH = Template(("mulligan/", Expression("run.id", ("run",))))
_ALL_STEPS = "all steps of the workspace"
_RUN_ID = Template((Expression("run.id", ("run",)),))


class WorkspaceDraft(msgspec.Struct, frozen=True):
    """What a file says about the workspace."""

    branch: Template = DEFAULT_BRANCH
    merge: MergeKind = "none"
    on_failure: Handler | None = None


def workspace_action(params: dict[str, Any], bindings: dict[str, Template]) -> Action:
    """An action that opens, merges or removes a worktree."""
    holes = {name: {"${}": name} for name in bindings}
    return Action(WORKSPACE, {**params, **holes}, bindings)


def with_workspace(workflow: Workflow, draft: WorkspaceDraft) -> Workflow:
    """The workflow, with the steps that open and end the worktree of a run."""
    closes = COMMITS if draft.merge == "none" else MERGES
    opening = _step(OPENS, {"verb": "open"}, {"run": _RUN_ID, "branch": draft.branch})
    closing = _step(closes, {"verb": "close", "merge": draft.merge}, {"run": _RUN_ID, "work": WORK})
    labels = _common_labels(workflow.steps)
    resources = Resources(labels=labels) if labels else None
    opening = msgspec.structs.replace(opening, resources=resources)
    closing = msgspec.structs.replace(
        closing,
        needs=(Need(_ALL_STEPS, "always", is_group=True),),
        on_failure=draft.on_failure,
        resources=resources,
    )
    return _framed(workflow, opening, closing, Workspace(OPENS, closes, draft.merge))


def with_default_workspace(workflow: Workflow) -> Workflow:
    """The workflow with a worktree for each run, which is kept. Raises InputInvalid if it has steps of those names."""
    if workflow.workspace is not None:
        return workflow
    if taken := next((step.name for step in workflow.steps if step.name in (OPENS, MERGES, COMMITS)), None):
        raise InputInvalid(f"with a worktree the step '{taken}' is added, and the file has one of that name")
    return with_workspace(workflow, WorkspaceDraft())


def keep_workspace(corrected: Workflow, before: Workflow) -> Workflow:
    """The corrected workflow of a run. A run that works in a worktree stays there, whatever the file says now."""
    workspace = before.workspace
    if workspace is None or corrected.workspace is not None:
        return corrected
    steps = {step.name: step for step in before.steps}
    return _framed(corrected, steps[workspace.opens], steps[workspace.closes], workspace)


def _framed(workflow: Workflow, opening: Step, closing: Step, workspace: Workspace) -> Workflow:
    """The workflow with one step before its first steps, and one after all others."""
    starts = frozenset(Graph(workflow).starts)
    steps = tuple(_after_opening(step) if step.name in starts else step for step in workflow.steps)
    names = (opening.name, *(step.name for step in steps))
    return msgspec.structs.replace(
        workflow,
        steps=(opening, *steps, closing),
        groups={**workflow.groups, _ALL_STEPS: names},
        workspace=workspace,
    )


def _common_labels(steps: Iterable[Step]) -> tuple[str, ...]:
    """The labels that all tasks of these steps need: the worktree has to be on a host that runs them."""
    commands = [command for step in steps for command in (step.do or (step,)) if command.action is not None]
    found = [(one, traits_of(one.action)) for one in commands if one.action is not None]
    tasks = [one for one, action in found if action.runs_in != "engine" and not action.opens_worktrees]
    asked = [one.resources.labels if one.resources else () for one in tasks]
    return tuple(label for label in (asked[0] if asked else ()) if all(label in labels for labels in asked))


def _after_opening(step: Step) -> Step:
    return msgspec.structs.replace(step, needs=(Need(OPENS), *step.needs))


def _step(name: str, params: dict[str, Any], bindings: dict[str, Template]) -> Step:
    return Step(name=name, action=workspace_action(params, bindings), capture="json")
