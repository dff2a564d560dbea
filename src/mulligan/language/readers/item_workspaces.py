"""Reads `workspace` of a map step: each item works in its own worktree, which is merged into that of the run."""

from __future__ import annotations

from typing import Any

from mulligan.core.model.workflow import Command, Expression, Resources, Template
from mulligan.language.keys.workflow_keys import ITEM_WORKSPACE
from mulligan.language.readers.workspace_steps import WORK, workspace_action
from mulligan.language.text.nodes import Node, Source

_ITEM_WORK = Template((Expression("outputs[0]", ("outputs",)),))
_INDEX = Template((Expression("index", ("index",)),))
_OUTPUT = Template((Expression("output", ("output",)),))


def read_item_workspace(node: Node, commands: tuple[Command, ...], source: Source) -> dict[str, Any]:
    """The fields of a map step whose items have their own worktrees: `do` with what opens and merges one."""
    ITEM_WORKSPACE.read(node, "'workspace'", source)
    opening = workspace_action({"verb": "open_item"}, {"run": WORK, "index": _INDEX})
    merging = workspace_action({"verb": "merge_item"}, {"run": WORK, "item": _ITEM_WORK, "result": _OUTPUT})
    # It opens on a host that can run the commands, which then go to that host.
    asked = commands[0].resources
    labelled = Resources(labels=asked.labels) if asked is not None and asked.labels else None
    return {
        "do": (Command(action=opening, resources=labelled), *commands, Command(action=merging)),
        "has_worktrees": True,
    }
