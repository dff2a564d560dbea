"""Steps that are faked: they run nothing, and end as somebody has said. For trying the rest of a workflow.

A fake takes the place of a step's action. All that the step does about its end is real: its check, its retries, its
handler, its edges. The workflow that a run has pinned says which steps were faked, and so does the log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from mulligan.core.deciding.lifecycle import add_location
from mulligan.core.model import events as e
from mulligan.core.model.failure import Failure, failure
from mulligan.core.model.workflow import FAKE, Action, Command, Step, Workflow
from mulligan.core.state.scope import Now
from mulligan.core.state.state import Place

# What of a step is about the action that it does not have.
_ACTION_DEFAULTS: dict[str, Any] = {
    **{"map": None, "do": (), "env": {}, "cwd": None, "logs": {}},
    **{"timeout": None, "resources": None, "breaker": None, "capture": "text"},
}


class FakeEnd(msgspec.Struct, frozen=True, omit_defaults=True):
    """How one attempt of a faked step ends: with an output, or with a failure."""

    output: Any = None
    failure: Failure | None = None


def with_fakes(workflow: Workflow, fakes: Mapping[str, Sequence[FakeEnd]]) -> Workflow:
    """The workflow with these steps faked: attempt by attempt, the last end for all that follow."""
    steps = tuple(_fake_step(step, fakes[step.name]) if step.name in fakes else step for step in workflow.steps)
    return msgspec.structs.replace(workflow, steps=steps)


def action_kind(step: Command) -> str:
    """What a step does: the kind of its action, "map" where it has items."""
    if isinstance(step, Step) and step.map is not None:
        return "map"
    return step.action.kind if step.action is not None else ""


def _fake_step(step: Step, ends: Sequence[FakeEnd]) -> Step:
    params = {"of": action_kind(step), "ends": [msgspec.to_builtins(end) for end in ends]}
    return msgspec.structs.replace(
        step, action=Action(FAKE, params), validator=_fake_validator(step), **_ACTION_DEFAULTS
    )


def _fake_validator(step: Step) -> Command | None:
    """Its check; one that only looks for the files it writes, where it has none: no worker does that for a fake."""
    if not step.writes or step.validate is not None:
        return step.validator
    check = step.validator or Command(action=Action("shell", {"text": ":"}))
    return msgspec.structs.replace(check, writes=step.writes)


def is_faked(spec: Command) -> bool:
    return spec.action is not None and spec.action.kind == FAKE


def end_attempt(now: Now, place: Place) -> e.Fact:
    """The end of the present attempt of a faked step."""
    assert place.spec.action is not None
    ends = place.spec.action.params["ends"]
    found = msgspec.convert(ends[min(place.attempt, len(ends)) - 1], FakeEnd)
    if found.failure is None:
        return e.AttemptSucceeded(place.key, place.attempt, now.keep(place, "output", found.output))
    said = found.failure
    fields = {name: getattr(said, name) for name in ("severity", "retryable", "exit_code", "signal", "details")}
    return e.AttemptFailed(
        place.key, place.attempt, add_location(now, place, failure(said.code, said.message, **fields))
    )
