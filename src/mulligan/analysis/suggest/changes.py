"""A proposed change of a workflow: what it makes of the definition, and how it is written in a file.

`apply_change` says what the changed file must mean. Whoever edits a text compares the two, so that a text is written
only if it means exactly that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from mulligan.analysis.coverage.side_effects import side_effect
from mulligan.core.model.workflow import Backoff, Breaker, Resources, Rule, Step, Workflow
from mulligan.history.consumption import written_duration, written_size

_replace = msgspec.structs.replace


class AddRule(msgspec.Struct, frozen=True, tag="add_rule", tag_field="change"):
    """One more retry rule of a step, behind those that it has."""

    step: str
    max_retries: int
    # Seconds.
    delay: float
    # Exactly one of these is set.
    codes: tuple[str, ...] = ()
    exit_codes: tuple[int, ...] = ()
    pattern: str = ""
    exceptions: tuple[str, ...] = ()

    @property
    def rule(self) -> Rule:
        return Rule(
            codes=self.codes,
            exit_codes=self.exit_codes,
            exceptions=self.exceptions,
            pattern=self.pattern or None,
            max_retries=self.max_retries,
            backoff=Backoff(delay=self.delay),
        )

    @property
    def keys(self) -> dict[str, Any]:
        """The keys of the rule in a file."""
        found: dict[str, Any] = {}
        if self.codes:
            found["codes"] = list(self.codes)
        elif self.exit_codes:
            found["exit_codes"] = list(self.exit_codes)
        elif self.exceptions:
            found["exceptions"] = list(self.exceptions)
        else:
            found["pattern"] = self.pattern
        found["max_retries"] = self.max_retries
        return {**found, "delay": written_duration(self.delay)} if self.delay else found


class RemoveRule(msgspec.Struct, frozen=True, tag="remove_rule", tag_field="change"):
    """A retry rule less. `index` is its position among the rules of the step."""

    step: str
    index: int


class SetLimit(msgspec.Struct, frozen=True, tag="set_limit", tag_field="change"):
    """Another limit of a step: memory in bytes, or its timeout in seconds."""

    step: str
    what: Literal["memory", "timeout"]
    value: float

    @property
    def written(self) -> str:
        return written_size(int(self.value)) if self.what == "memory" else written_duration(self.value)


class AddBreaker(msgspec.Struct, frozen=True, tag="add_breaker", tag_field="change"):
    """A circuit breaker for a step. Unless there is one of this name, it is declared too."""

    step: str
    name: str
    failures: int
    # Seconds.
    reset: float

    @property
    def keys(self) -> dict[str, Any]:
        """The keys of its declaration in a file."""
        return {"failures": self.failures, "reset": written_duration(self.reset)}


Change = AddRule | RemoveRule | SetLimit | AddBreaker


def apply_change(workflow: Workflow, change: Change) -> Workflow:
    """The workflow with the change. Of a matrix, every step changes."""
    if isinstance(change, AddRule):
        return _with_steps(workflow, change.step, lambda step: _replace(step, rules=(*step.rules, change.rule)))
    if isinstance(change, RemoveRule):
        at = change.index
        return _with_steps(
            workflow, change.step, lambda step: _replace(step, rules=(*step.rules[:at], *step.rules[at + 1 :]))
        )
    if isinstance(change, SetLimit):
        return _with_steps(workflow, change.step, lambda step: _with_limit(step, change))
    declared = {change.name: Breaker(failures=change.failures, reset=change.reset), **workflow.breakers}
    changed = _with_steps(workflow, change.step, lambda step: _replace(step, breaker=change.name))
    return _replace(changed, breakers=declared)


def _with_steps(workflow: Workflow, name: str, change: Callable[[Step], Step]) -> Workflow:
    return _replace(
        workflow, steps=tuple(change(step) if name in (step.sweep, step.name) else step for step in workflow.steps)
    )


def _with_limit(step: Step, change: SetLimit) -> Step:
    if change.what == "timeout":
        return _replace(step, timeout=change.value)
    return _replace(step, resources=_replace(step.resources or Resources(), memory=int(change.value)))


def steps_by_name(workflow: Workflow) -> dict[str, list[Step]]:
    """The steps that a file has under each name: one, or all of a matrix."""
    found: defaultdict[str, list[Step]] = defaultdict(list)
    for step in workflow.steps:
        found[step.sweep or step.name].append(step)
    return dict(found)


def has_items(step: Step) -> bool:
    """Whether the limits of a step are those of the commands of its items."""
    return bool(step.do) or step.map is not None


def is_risky_to_repeat(step: Step) -> bool:
    """Whether the step is known to change something outside each time, and nothing undoes that.

    Its author says so with `on_lost: fail`, or its command shows it.
    """
    return step.undo is None and (step.on_lost == "fail" or bool(side_effect(step.action)))
