"""Whether agents that are models could be asked from here: their keys and files, looked up as a worker does.

Commands are not checked: a program may be there only where the worker runs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from mulligan.core.model.actions import traits_of
from mulligan.core.model.workflow import Workflow, all_commands
from mulligan.errors import InputInvalid
from mulligan.worker.actions.agent_providers import described_names, find_model
from mulligan.worker.actions.default_agents import DEFAULT_PROVIDER
from mulligan.worker.models.settings import DEFAULT_KEYS, DEFAULT_URLS, ModelSettings
from mulligan.worker.programs import Programs
from mulligan.worker.secrets.secrets import problem_of


class UnavailableAgent(NamedTuple):
    """An agent that cannot be asked from here, the first step that asks it, and why not."""

    name: str
    step: str
    problem: str


def unavailable_agents(workflow: Workflow, environment: Mapping[str, str]) -> Iterator[UnavailableAgent]:
    """The models of a workflow, and of those that it calls, that cannot be asked with this environment."""
    asked = dict(_asked_agents(workflow))
    programs = Programs(environment, is_direct=False) if asked else None
    for name, step in asked.items():
        if programs is not None and (problem := agent_problem(name, programs, environment)):
            yield UnavailableAgent(name, step, problem)


def agent_problem(name: str, programs: Programs, environment: Mapping[str, str]) -> str:
    """Why an agent that is a model cannot be asked; "" if it can, or is a command."""
    try:
        settings = find_model(name, programs)
    except InputInvalid as error:
        return error.message
    return _settings_problem(settings, environment) if settings is not None else ""


def _settings_problem(settings: ModelSettings, environment: Mapping[str, str]) -> str:
    real = settings.recorded or settings
    if real.key is not None and (problem := problem_of(real.key, "", environment)) is not None:
        return f"agent '{real.name}' has no key: {problem}"
    if settings.file and settings.recorded is None and not os.path.exists(settings.file):
        return f"agent '{settings.name}' has no answers: there is no file '{settings.file}'"
    return ""


def _asked_agents(workflow: Workflow) -> Iterator[tuple[str, str]]:
    """The agents that the file names itself, each with a step that asks it; the first step counts."""
    found: dict[str, str] = {}
    for step in (*workflow.steps, workflow.end):
        for command in all_commands((step,)):
            if command.action is not None and traits_of(command.action).is_agent:
                provider = command.action.params.get("provider", DEFAULT_PROVIDER)
                # Which agent an expression names is known when the step starts.
                if isinstance(provider, str):
                    found.setdefault(provider, step.name)
    for child in workflow.children.values():
        for provider, step_name in _asked_agents(child):
            found.setdefault(provider, step_name)
    return iter(found.items())


def agents_here(environment: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """The models that this environment sets up, and what is wrong with others that it describes."""
    programs = Programs(environment, is_direct=False)
    names = [*described_names(programs), *(name for name in DEFAULT_URLS if environment.get(DEFAULT_KEYS[name]))]
    ready, problems = [], []
    for name in dict.fromkeys(names):
        settings = find_model(name, programs)
        if settings is None:
            continue
        if problem := _settings_problem(settings, environment):
            problems.append(problem)
        else:
            ready.append(name)
    return ready, problems
