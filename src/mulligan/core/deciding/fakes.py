"""Faked steps: they run nothing and end in a given way, to try out the rest of a workflow.

A fake replaces the action of a step. Everything else is real: its check, retries, handler and edges. Both the pinned
workflow of the run and the log record which steps were faked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from mulligan.core.deciding.lifecycle import add_location
from mulligan.core.model import events as e
from mulligan.core.model.actions import AGENT, FAKE, shell_command
from mulligan.core.model.failure import Failure, failure
from mulligan.core.model.workflow import Action, Command, Step, Workflow
from mulligan.core.state.scope import DecisionContext
from mulligan.core.state.state import Place

# Fields of a step that belong to its action, without which they are reset.
_ACTION_DEFAULTS: dict[str, Any] = {
    **{"map": None, "do": (), "env": {}, "cwd": None, "logs": {}},
    **{"timeout": None, "resources": None, "breaker": None, "breaker_key": None},
    **{"capture": "text", "tools": None, "session": ""},
}


class FakeEnd(msgspec.Struct, frozen=True, omit_defaults=True):
    """How one attempt of a faked step ends: with an output, or with a failure."""

    output: Any = None
    failure: Failure | None = None


def with_fakes(workflow: Workflow, fakes: Mapping[str, Sequence[FakeEnd]]) -> Workflow:
    """The workflow with these steps faked: one end per attempt, the last one for all further attempts.

    `NAME.triager` fakes the agent that decides about failures of a step: one end per attempt of the step.
    """
    steps = tuple(_with_fakes(step, fakes) for step in workflow.steps)
    return msgspec.structs.replace(workflow, steps=steps)


def action_kind(step: Command) -> str:
    """The kind of a step's action; "map" if it has items."""
    if isinstance(step, Step) and step.map is not None:
        return "map"
    return step.action.kind if step.action is not None else ""


def triager_name(step: str) -> str:
    """The name under which the triager of a step is faked."""
    return f"{step}.triager"


def _with_fakes(step: Step, fakes: Mapping[str, Sequence[FakeEnd]]) -> Step:
    found = _fake_step(step, fakes[step.name]) if step.name in fakes else step
    ends = fakes.get(triager_name(step.name))
    if ends is None or step.triage is None or step.triage.agent is None:
        return found
    agent = step.triage.agent
    params = {"of": AGENT, "ends": [msgspec.to_builtins(end) for end in ends]}
    agent = msgspec.structs.replace(agent, command=Command(action=Action(FAKE, params)))
    return msgspec.structs.replace(found, triage=msgspec.structs.replace(step.triage, agent=agent))


def _fake_step(step: Step, ends: Sequence[FakeEnd]) -> Step:
    params = {"of": action_kind(step), "ends": [msgspec.to_builtins(end) for end in ends]}
    return msgspec.structs.replace(
        step, action=Action(FAKE, params), validator=_fake_validator(step), **_ACTION_DEFAULTS
    )


def _fake_validator(step: Step) -> Command | None:
    """The validator of a faked step. It also checks the declared files, which no worker does for a fake."""
    if not step.writes or step.validate is not None:
        return step.validator
    check = step.validator or Command(action=shell_command(":"))
    return msgspec.structs.replace(check, writes=step.writes)


def end_attempt(now: DecisionContext, place: Place) -> e.Fact:
    """End the current attempt of a faked step."""
    assert place.spec.action is not None
    ends = place.spec.action.params["ends"]
    # A triager is asked once per attempt of its step.
    number = now.state.places[place.parent].attempt if place.role == "triager" else place.attempt
    found = msgspec.convert(ends[min(number, len(ends)) - 1], FakeEnd)
    if found.failure is None:
        return e.AttemptSucceeded(place.key, place.attempt, now.keep(place, "output", found.output))
    wanted = found.failure
    fields = {name: getattr(wanted, name) for name in ("severity", "retryable", "exit_code", "signal", "details")}
    return e.AttemptFailed(
        place.key, place.attempt, add_location(now, place, failure(wanted.code, wanted.message, **fields))
    )
