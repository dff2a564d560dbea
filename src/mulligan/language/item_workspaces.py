"""Reads `workspace` of a map step: each item works in its own worktree, which is merged into that of the run."""

from __future__ import annotations

from typing import Any

from mulligan.core.model.workflow import WORKSPACE, Action, Command, Expression, Template
from mulligan.language.nodes import Node, Source
from mulligan.language.workflow_keys import ITEM_WORKSPACE

# The step that opens the worktree of a run.
OPENS = "workspace"
# What it returned: where the run works.
WORK = Template((Expression(f"steps.{OPENS}.output", (f"steps.{OPENS}",)),))
_ITEM_WORK = Template((Expression("outputs[0]", ("outputs",)),))
_INDEX = Template((Expression("index", ("index",)),))
_OUTPUT = Template((Expression("output", ("output",)),))
_STEP = Template((Expression("step.name", ("step",)),))
_RUN_ID = Template((Expression("run.id", ("run",)),))


def workspace_action(params: dict[str, Any], bindings: dict[str, Template]) -> Action:
    """An action that opens, merges or removes a worktree."""
    holes = {name: {"${}": name} for name in bindings}
    return Action(WORKSPACE, {**params, **holes}, bindings)


def read_item_workspace(node: Node, commands: tuple[Command, ...], source: Source) -> dict[str, Any]:
    """The fields of a map step whose items have their own worktrees: `do` with what opens and merges one."""
    ITEM_WORKSPACE.read(node, "'workspace'", source)
    opening = workspace_action({"verb": "open_item"}, {"run": WORK, "index": _INDEX})
    merging = workspace_action({"verb": "merge_item"}, {"run": WORK, "item": _ITEM_WORK, "result": _OUTPUT})
    return {"do": (Command(action=opening), *commands, Command(action=merging)), "has_worktrees": True}
