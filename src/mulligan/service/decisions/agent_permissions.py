"""What a person should know before agents run that never ask for permission."""

from __future__ import annotations

import os
from collections.abc import Iterator

from mulligan.core.effects.run_lists import RunFilter
from mulligan.core.model.workflow import Workflow, all_commands
from mulligan.service.runs.stored.run_reader import RunReader
from mulligan.worker.actions.default_agents import DEFAULT_PROVIDER, SKIP_PERMISSIONS


def first_run_note(reader: RunReader, workflow: Workflow) -> str:
    """One sentence before the first run of a workflow whose agents skip permissions; "" for every other run.

    A command that the environment names decides itself what it does with `skip_permissions`.
    """
    names = list(_unasked_agents(workflow))
    if not names or _has_run(reader, workflow.name):
        return ""
    options = " and ".join(f"{name} runs with {SKIP_PERMISSIONS[name]}" for name in names)
    return f"{options}: without asking, it edits files and runs commands as your user"


def _unasked_agents(workflow: Workflow) -> Iterator[str]:
    """The agents that skip permissions, if this process would start them with our default command."""
    found = set(_providers(workflow))
    if found and not os.environ.get("MULLIGAN_AGENTS"):
        ours = (name for name in SKIP_PERMISSIONS if not os.environ.get(f"MULLIGAN_AGENT_{name.upper()}"))
        yield from (name for name in ours if name in found)


def _providers(workflow: Workflow) -> Iterator[str]:
    """The agents with `skip_permissions`, also in `end` and in the workflows that it calls."""
    for command in all_commands((*workflow.steps, workflow.end)):
        if command.action is not None and command.action.params.get("skip_permissions"):
            provider = command.action.params.get("provider", DEFAULT_PROVIDER)
            # Which agent an expression names is known when the step starts: it may be any of them.
            yield from (provider,) if isinstance(provider, str) else SKIP_PERMISSIONS
    for child in workflow.children.values():
        yield from _providers(child)


def _has_run(reader: RunReader, workflow: str) -> bool:
    return reader.home.is_there and bool(reader.store.lists.find(RunFilter(workflows=(workflow,)), limit=1))
