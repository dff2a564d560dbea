"""Reads `workspace`, and adds the steps that open and end the Git worktree of a run.

Steps that can start first need the one that opens it. The one that ends it needs all others, whatever became of them:
the core skips it if the run has not succeeded.
"""

from __future__ import annotations

from typing import Any

import msgspec

from mulligan.core.model.graph import Graph
from mulligan.core.model.workflow import (
    Expression,
    Handler,
    MergeKind,
    Need,
    Step,
    Template,
    Workflow,
    Workspace,
)
from mulligan.language.commands import read_handler
from mulligan.language.item_workspaces import OPENS, WORK, workspace_action
from mulligan.language.nodes import Node, Source
from mulligan.language.scope import NO_STEPS, Draft, Scope, read_template
from mulligan.language.settings import Settings
from mulligan.language.shapes import Fields
from mulligan.language.workflow_keys import WORKSPACE

MERGES, COMMITS = "workspace_merge", "workspace_commit"
_ALL_STEPS = "all steps of the workspace"
_RUN_ID = Template((Expression("run.id", ("run",)),))
DEFAULT_BRANCH = Template(("mulligan/", Expression("run.id", ("run",))))


class WorkspaceDraft(msgspec.Struct, frozen=True):
    """What a file says about the workspace."""

    branch: Template = DEFAULT_BRANCH
    merge: MergeKind = "none"
    on_failure: Handler | None = None


def read_workspace(node: Node, draft: Draft, settings: Settings) -> WorkspaceDraft:
    """The `workspace` of a workflow."""
    fields: Fields = WORKSPACE.read(node, "'workspace'", draft.source)
    scope = Scope(draft, "'workspace'", reader=NO_STEPS)
    values: dict[str, Any] = fields.pick("merge")
    if "branch" in fields:
        with scope.noting:
            values["branch"] = read_template(fields.at("branch"), scope)
            if any(read.startswith("secrets") for read in values["branch"].reads):
                raise draft.source.refuse("secret", "the name of a branch cannot contain a secret", fields.at("branch"))
    if "on_failure" in fields:
        with scope.noting:
            any_step = Scope(draft, "'workspace'", reader=None)
            values["on_failure"], _ = read_handler(fields.at("on_failure"), any_step, settings.for_commands())
            if values.get("merge", "none") == "none":
                message = "'on_failure' is for a merge that fails, and this workspace is not merged"
                hint = "add 'merge: merge', or remove it"
                raise draft.source.refuse("stray_key", message, fields.key("on_failure"), hint=hint)
    return WorkspaceDraft(**values)


def refuse_reserved_names(names: Any, node: Node, source: Source) -> None:
    """Refuse steps with the names of those that are added."""
    for name in (OPENS, MERGES, COMMITS):
        if name in names:
            message = f"with 'workspace' the step '{name}' is added, and the file has one of that name"
            source.note(source.refuse("duplicate_step", message, node, hint="rename the step"))


def with_workspace(workflow: Workflow, draft: WorkspaceDraft) -> Workflow:
    """The workflow, with the steps that open and end the worktree of a run."""
    closes = COMMITS if draft.merge == "none" else MERGES
    opening = _step(OPENS, {"verb": "open"}, {"run": _RUN_ID, "branch": draft.branch})
    starts = frozenset(Graph(workflow).starts)
    steps = tuple(_after_opening(step) if step.name in starts else step for step in workflow.steps)
    names = (OPENS, *(step.name for step in steps))
    closing = _step(closes, {"verb": "close", "merge": draft.merge}, {"run": _RUN_ID, "work": WORK})
    closing = msgspec.structs.replace(
        closing, needs=(Need(_ALL_STEPS, "always", is_group=True),), on_failure=draft.on_failure
    )
    return msgspec.structs.replace(
        workflow,
        steps=(opening, *steps, closing),
        groups={**workflow.groups, _ALL_STEPS: names},
        workspace=Workspace(OPENS, closes, draft.merge),
    )


def _after_opening(step: Step) -> Step:
    return msgspec.structs.replace(step, needs=(Need(OPENS), *step.needs))


def _step(name: str, params: dict[str, Any], bindings: dict[str, Template]) -> Step:
    return Step(name=name, action=workspace_action(params, bindings), capture="json")
