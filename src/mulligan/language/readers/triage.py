"""Reads `triage`: which failures of a step are parked, and the agent that is asked before a person."""

from __future__ import annotations

from typing import Any

from mulligan.core.model.actions import AGENT
from mulligan.core.model.workflow import TRIAGER_TIMEOUT_SECONDS, Action, Command, Template, Triage, TriageAgent
from mulligan.core.state.scope import reads_secrets
from mulligan.language.keys.value_schemas import Fields
from mulligan.language.readers.settings import Settings
from mulligan.language.scope import Scope
from mulligan.language.value_templates import read_value

# The keys that limit what an agent may decide.
_LIMITS = ("may", "min_confidence", "max_per_run", "memory_max", "timeout_max")


def read_triage(form: Fields | bool, scope: Scope, settings: Settings) -> Triage | None:
    """The policy; None for `triage: false`. `settings` are those that the commands of the step inherit."""
    if not isinstance(form, Fields):
        return Triage() if form else None
    agent = _read_agent(form, scope, settings) if form.get("by") == "agent" else None
    stray = next((key for key in ("agent", *_LIMITS) if key in form), None)
    if agent is None and stray is not None:
        message = f"'{stray}' in 'triage' is for an agent, and a person decides here"
        raise scope.source.refuse("triage", message, form.key(stray), hint="add 'by: agent', or remove it")
    return Triage(**form.pick("when", "timeout", "default"), agent=agent)


def _read_agent(form: Fields, scope: Scope, settings: Settings) -> TriageAgent:
    if "agent" not in form:
        message = "'by: agent' in 'triage' does not say which agent is asked"
        raise scope.source.refuse("triage", message, form.key("by"), hint="add 'agent: {provider: NAME}'")
    _refuse_idle_limits(form, scope)
    named = form["agent"]
    fields = named if isinstance(named, Fields) else Fields(form.node, {"provider": named})
    limit = fields.get("timeout", TRIAGER_TIMEOUT_SECONDS)
    command = Command(
        action=_action(fields, scope),
        timeout=limit,
        # From the first moment on, so that a step never waits longer for its agent, whoever is slow.
        deadline=limit,
        cwd=None if settings.cwd is not None and reads_secrets(settings.cwd) else settings.cwd,
    )
    return TriageAgent(fields["provider"], command, **form.pick(*_LIMITS))


def _action(fields: Fields, scope: Scope) -> Action:
    """The action of the agent. Prompt and context of the failure are added for each attempt, by the core."""
    bindings: dict[str, Template] = {}
    params: dict[str, Any] = {"provider": fields["provider"]}
    for key in ("prompt", "model"):
        if key in fields:
            params[key] = read_value(fields.at(key), scope.in_attempt, bindings)
    if any(map(reads_secrets, bindings.values())):
        message = "the prompt of a triager cannot contain a secret: it is made before a worker knows one"
        raise scope.source.refuse("secret", message, fields.key("prompt" if "prompt" in fields else "model"))
    return Action(AGENT, params, bindings)


def _refuse_idle_limits(form: Fields, scope: Scope) -> None:
    """Refuse caps of what a retry gets if the agent may not retry."""
    stray = next((key for key in ("memory_max", "timeout_max") if key in form), None)
    if stray is not None and "may" in form and "retry" not in form["may"]:
        message = f"'{stray}' is for a retry, and the agent may not decide that"
        raise scope.source.refuse("triage", message, form.key(stray), hint="add 'retry' to 'may', or remove it")
