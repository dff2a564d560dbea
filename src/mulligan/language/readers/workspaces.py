"""Reads `workspace` of a workflow."""

from __future__ import annotations

from typing import Any

from mulligan.language.keys.value_schemas import Fields
from mulligan.language.keys.workflow_keys import WORKSPACE
from mulligan.language.readers.commands import read_handler
from mulligan.language.readers.settings import Settings
from mulligan.language.readers.workspace_steps import COMMITS, MERGES, OPENS, WorkspaceDraft
from mulligan.language.scope import NO_STEPS, Draft, Scope, read_template
from mulligan.language.text.nodes import Node, Source


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
