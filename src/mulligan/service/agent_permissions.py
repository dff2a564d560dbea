"""What a person should know before agents run that never ask for permission."""

from __future__ import annotations

import os
from collections.abc import Iterator

from mulligan.core.model.workflow import Workflow, all_commands
from mulligan.service.run_list import RunQuery, list_runs
from mulligan.service.run_reader import RunReader

# What `skip_permissions` adds to our default command of each agent.
OPTIONS = {"claude": "--dangerously-skip-permissions", "codex": "--dangerously-bypass-approvals-and-sandbox"}


def first_run_note(reader: RunReader, workflow: Workflow) -> str:
    """One sentence before the first run of a workflow whose agents skip permissions; "" for every other run.

    A command that the environment names decides itself what it does with `skip_permissions`.
    """
    names = list(_unasked_agents(workflow))
    if not names or list_runs(reader, RunQuery(workflows=(workflow.name,), limit=1)).runs:
        return ""
    options = " and ".join(f"{name} runs with {OPTIONS[name]}" for name in names)
    return f"{options}: without asking, it edits files and runs commands as your user"


def _unasked_agents(workflow: Workflow) -> Iterator[str]:
    """The agents that skip permissions, if this process would start them with our default command."""
    actions = (command.action for command in all_commands(workflow.steps) if command.action is not None)
    found = {action.params.get("provider", "claude") for action in actions if action.params.get("skip_permissions")}
    if found and not os.environ.get("MULLIGAN_AGENTS"):
        yield from (name for name in OPTIONS if name in found and not os.environ.get(f"MULLIGAN_AGENT_{name.upper()}"))
