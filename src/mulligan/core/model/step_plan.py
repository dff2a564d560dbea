"""What is known of a step before any run: which stages its tasks pass, and what may follow from its success.

Most steps are *ordinary*: a worker runs them, and their success completes them. What else could be asked of each of
their tasks (is it an agent, has it a deadline, is its result checked …) has an answer that never changes, so it is
asked once for each definition.
"""

from __future__ import annotations

from operator import itemgetter

import msgspec

from mulligan.core.model.actions import DEFAULT_CPUS, TABLE, default_cpus, traits_of, waits
from mulligan.core.model.clusters.on_dask import wants_client
from mulligan.core.model.workflow import Action, Capture, Command, Step, Template


class StepPlan(msgspec.Struct, frozen=True):
    """The stages of a step, by the keys that ask for them. Those of an ordinary step are empty."""

    # What is decided, or set up, when it is entered, before a worker gets its task.
    before: tuple[str, ...] = ()
    # What is decided after its task has succeeded, before the step is complete.
    after: tuple[str, ...] = ()
    # Its attempts have values: arguments, variables, paths.
    has_values: bool = False
    # Nothing of its task depends on the run, but what every task has of it, and values in its parameters and its
    # environment. Then these are right:
    has_plain_task: bool = True
    capture: Capture = "text"
    timeout: float | None = None
    cpus: float = DEFAULT_CPUS
    waits: bool = False
    # A lost attempt counts as failed.
    is_careful: bool = False
    # Its limit: an attempt that has used more gets a warning.
    memory: int | None = None

    @property
    def is_ordinary(self) -> bool:
        return not (self.before or self.after)


# Keys of which each asks for a stage, by their names in a definition.
_BEFORE = ("when", "map", "deadline", "file_paths", "tools", "session")
_AFTER = ("validate", "validator", "on_success", "session")
# Keys that give values to an attempt.
_VALUES = ("env", "cwd", "logs", "cache_key", "breaker_key", "file_paths")
# Keys that a task has a part of, besides the values and those below.
_IN_TASK = ("resources", "breaker", "reads", "writes", "cache")
_PLAIN = ("capture", "timeout", "on_lost", "rules", "max_visits")
# Of the values, those that are in a task and nowhere else.
_FILLED_IN = ("env",)

_NOT_FILLED_IN = tuple(name for name in _VALUES if name not in _FILLED_IN)

_DEFAULTS = dict(zip(Step.__struct_fields__, msgspec.structs.astuple(Step()), strict=True))
_ASKED = tuple(dict.fromkeys((*_BEFORE, *_AFTER, *_VALUES, *_IN_TASK, *_PLAIN)))
_astuple = msgspec.structs.astuple
# Picks from all values of a step at once, which costs less than three single lookups.
_asked = itemgetter(*map(Step.__struct_fields__.index, _ASKED))
_NOTHING_ASKED = tuple(_DEFAULTS[name] for name in _ASKED)


def plan_of(step: Step) -> StepPlan:
    """The plan of a step. Nearly all steps share one of a few."""
    action = step.action
    if action is not None and _asked(_astuple(step)) == _NOTHING_ASKED:
        plain = (_PLANS_WITH_VALUES if action.bindings else _PLAIN_PLANS).get(action.kind)
        if plain is not None and "on" not in action.params and not action.paths:
            return plain
    return _made(step)


def _made(step: Step) -> StepPlan:
    action = step.action
    values = zip(_ASKED, _asked(_astuple(step)), _NOTHING_ASKED, strict=True)
    asked = frozenset([name for name, value, default in values if value != default])
    given = traits_of(action)
    before, after = [name for name in _BEFORE if name in asked], [name for name in _AFTER if name in asked]
    if given.runs_in == "engine" or given.is_agent or given.opens_worktrees or given.is_program:
        before.append("action")
        after.append("action")
    if step.max_visits < 1:
        before.append("max_visits")
    has_values = (action is not None and bool(action.bindings)) or not asked.isdisjoint(_VALUES)
    is_plain = not before and asked.isdisjoint((*_IN_TASK, *_NOT_FILLED_IN)) and not _is_for_dask(action)
    if has_values:
        # What an action with an address asks for depends on its values; a path has to stay in its folder.
        is_plain = is_plain and action is not None and not given.address and not action.paths
    params = {} if action is None else action.params
    is_waiting = action is not None and waits(action.kind, params)
    return StepPlan(
        before=tuple(before),
        after=tuple(after),
        has_values=has_values,
        has_plain_task=is_plain,
        capture=step.capture,
        timeout=step.timeout,
        cpus=default_cpus(action.kind, params) if action is not None and is_waiting else DEFAULT_CPUS,
        waits=is_waiting,
        is_careful=is_careful(step),
        memory=step.resources.memory if step.resources is not None else None,
    )


def is_careful(command: Command) -> bool:
    """Whether a lost attempt counts as failed: then it is not leased ahead of time."""
    return command.on_lost != "rerun" or any("WORKER_LOST" in rule.codes for rule in command.rules)


def _is_for_dask(action: Action | None) -> bool:
    return action is not None and "on" in action.params and wants_client(action.params)


def _plain_plans(bindings: dict[str, Template]) -> dict[str, StepPlan]:
    """The plans of steps that say nothing but their action, by its kind, where that alone decides."""
    kinds = (kind for kind, one in TABLE.items() if not (one.address or one.opens_worktrees or one.is_program))
    return {kind: _made(Step(action=Action(kind, bindings=bindings))) for kind in kinds}


_PLAIN_PLANS, _PLANS_WITH_VALUES = _plain_plans({}), _plain_plans({"value": Template(())})
