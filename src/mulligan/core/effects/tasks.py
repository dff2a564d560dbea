"""What a worker is told of a task: everything it needs, and nothing of the run besides."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from mulligan.core.deciding.affinity import bound_host
from mulligan.core.deciding.agent_context import AgentContext, agent_context
from mulligan.core.deciding.breaker import Guard
from mulligan.core.deciding.budgets import remaining_budget
from mulligan.core.deciding.lifecycle import expected_files
from mulligan.core.effects.reuse import Reuse, path_of, reuse_of
from mulligan.core.model.events import Adjusted, Role
from mulligan.core.model.failure import Failure
from mulligan.core.model.workflow import AGENT, Budget, Capture, Command, Resources, Secret, Workflow
from mulligan.core.state.scope import (
    CACHE_KEY,
    FILE,
    FOLDER,
    failure_view,
    fill,
    fill_params,
    holes,
    nearest_failure,
    reads_secrets,
)
from mulligan.core.state.state import Place, State

_NO_RESOURCES = Resources()
_NOT_ADJUSTED = Adjusted()
# The bindings that no shell text reads by their name.
_NOT_IN_SHELL = ("env.", "logs.", FOLDER, FILE, CACHE_KEY)


class Demand(msgspec.Struct, frozen=True):
    """What a task asks for. `host`: where it has to run while that host has a worker; "" for anywhere."""

    cpus: float = 1.0
    memory: int = 0
    gpus: int = 0
    labels: tuple[str, ...] = ()
    host: str = ""


class Task(msgspec.Struct, frozen=True, omit_defaults=True):
    """One attempt at one action. Known by its run, place and attempt: queued twice it is still one."""

    run_id: int
    place: str
    attempt: int
    kind: str
    # The action's parameters with the values filled in; with holes where a secret is to come, see `late`.
    params: dict[str, Any]
    workflow: str
    # Of the workflow: processes that are kept warm are kept apart by it.
    version: str
    step: str
    visit: int
    role: Role = "step"
    item: int | None = None
    # Values for the environment: those that shell text reads, and `env`.
    env: dict[str, Any] = {}
    # Where `run` was called, and the step's own folder, relative to it or absolute.
    home: str = ""
    cwd: Any = ""
    capture: Capture = "text"
    timeout: float | None = None
    # When the time of the whole visit is up.
    deadline: datetime | None = None
    cpus: float = 1.0
    memory: int | None = None
    gpus: int = 0
    labels: tuple[str, ...] = ()
    # It runs where this host is, unless that is gone. "" for anywhere.
    host: str = ""
    # The failure context that a failure edge brought; for an agent in a handler, that of the failure it is to mend.
    context: str = ""
    # Of the failure that a script or handler is about.
    error_code: str = ""
    return_code: int | None = None
    # The attempt that `$MULLIGAN_ATTEMPT` names: for a recovery script the one that failed.
    told_attempt: int = 0
    # Declared files that must be there when it has ended well, by name.
    files: dict[str, str] = {}
    # Where to find the secrets of its workflow: whatever it reads itself, it may print any of them.
    secrets: dict[str, Secret] = {}
    # The run's name in any store.
    uid: str = ""
    # To lose it is to fail: it is not taken ahead of its time.
    is_careful: bool = False
    # The breaker that is asked before it is leased.
    guard: Guard | None = None
    # What an agent is told of what came before it.
    told: AgentContext | None = None
    # Of a task that reads secrets: what each value is made of that holds one, texts and `{"secret": EXPRESSION}`, and
    # the values that are known. By the names of the bindings: `env.NAME`, `cwd`, and what the holes of `params` name.
    late: dict[str, list[Any]] = {}
    bound: dict[str, Any] = {}
    # Paths that are to lead to its logs: of `stdout`, of `stderr`.
    logs: dict[str, Any] = {}
    # How many attempts of this visit have failed before it.
    tries: int = 0
    # The folders that paths with a value in them must stay in: of `cwd`, `logs.stdout`, or a parameter. See `paths`.
    folders: dict[str, str] = {}
    # Of a step whose result may be found again in later runs.
    reuse: Reuse | None = None
    # Of an agent under a budget: what it may spend.
    budget: Budget | None = None

    @property
    def is_small(self) -> bool:
        """It asks for a processor and nothing else: where it does not fit, nothing does."""
        return self.cpus <= 1.0 and not (self.memory or self.gpus or self.labels)

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt of one visit."""
        return f"{self.uid or self.run_id}:{self.place}:{self.visit}"


def make_task(state: State, key: str) -> Task:
    """The task of the place's present attempt."""
    place = state.places[key]
    spec = place.spec
    action = spec.action
    assert action is not None, f"'{key}' has nothing to run"
    is_step = place.role == "step"
    step = place if is_step else state.step_of(place)
    wanted = spec.resources or _NO_RESOURCES
    adjusted = place.climb.adjusted or _NOT_ADJUSTED
    about = None if is_step else _failure_about(state, place)
    told = agent_context(state, place) if action.kind == AGENT else None
    secrets = _secrets(state.workflow) if state.workflow.callers_secrets else state.workflow.secrets
    late = _late_values(spec, place) if secrets and place.bindings else {}
    # By position, in the order of the fields: so many names take five times as long to find their fields.
    return Task(
        state.run.run_id,
        key,
        place.attempt,
        action.kind,
        fill_params(action, place.bindings) if action.bindings and not late else action.params,
        state.workflow.name,
        state.run.present_version,
        step.key,
        step.visit,
        place.role,
        None if is_step else _item(state, place),
        _environment(action.kind, action.params, place.bindings) if place.bindings and not late else {},
        state.run.cwd,
        "" if late else place.bindings.get("cwd", ""),
        spec.capture,
        spec.timeout if adjusted.timeout is None else adjusted.timeout,
        _deadline(state, place),
        _cpus(adjusted, wanted),
        wanted.memory if adjusted.memory is None else adjusted.memory,
        wanted.gpus or 0,
        wanted.labels,
        bound_host(state, place),
        _context(state, step, place, told) if told or state.informed else "",
        about.code if about else "",
        about.exit_code if about else None,
        state.places[place.parent].attempt if place.role == "script" else place.attempt,
        {} if is_step and not spec.writes else _files(state, place),
        secrets,
        state.run.uid,
        spec.on_lost != "rerun" or bool(spec.rules and any("WORKER_LOST" in rule.codes for rule in spec.rules)),
        None if spec.breaker is None else Guard(spec.breaker, state.workflow.breakers[spec.breaker]),
        told,
        late,
        {name: value for name, value in place.bindings.items() if name not in late} if late else {},
        {name: place.bindings[f"logs.{name}"] for name in spec.logs} if spec.logs else {},
        place.climb.tries,
        _folders(place, step) if spec.cwd or spec.logs or action.paths or step.paths else {},
        reuse_of(state, place) if state.run.changed_only or _may_be_reused(step.spec) else None,
        remaining_budget(state, place) if told is not None else None,
    )


def _may_be_reused(spec: Command) -> bool:
    return bool(spec.cache or spec.reads or spec.writes)


def _folders(place: Place, step: Place) -> dict[str, str]:
    """What it was given itself, and what the files of its step were: a check looks for these as well."""
    given = {**step.paths, **place.bindings}
    return {name[len(FOLDER) :]: value for name, value in given.items() if name.startswith(FOLDER)}


def demand(state: State, place: Place) -> Demand:
    """What the place's present attempt asks of a worker."""
    wanted = place.spec.resources or _NO_RESOURCES
    adjusted = place.climb.adjusted or _NOT_ADJUSTED
    memory = wanted.memory if adjusted.memory is None else adjusted.memory
    return Demand(_cpus(adjusted, wanted), memory or 0, wanted.gpus or 0, wanted.labels, bound_host(state, place))


def fill_late_values(task: Task, values: Mapping[str, Any]) -> Task:
    """The task with the values in hand that were late. What a value looks like says nothing: only its name counts."""
    known = {**task.bound, **values}
    return msgspec.structs.replace(
        task,
        params=fill(task.params, known),
        env=_environment(task.kind, task.params, known),
        cwd=known.get("cwd", ""),
        late={},
        bound={},
    )


def _deadline(state: State, place: Place) -> datetime | None:
    """When the visit's time is up. A recovery script has that of what it is to bring back: it is part of its visit."""
    timed = state.places[place.parent] if place.role == "script" else place
    limit = timed.spec.deadline
    return None if limit is None else timed.entered_at + timedelta(seconds=limit)


def _files(state: State, place: Place) -> dict[str, str]:
    step = state.step_of(place)
    return {name: path_of(state, step, name) for name in expected_files(state, place)}


def _cpus(adjusted: Adjusted, wanted: Resources) -> float:
    """What was said, if anything was: nought is a value."""
    said = wanted.cpus if adjusted.cpus is None else adjusted.cpus
    return 1.0 if said is None else said


def _failure_about(state: State, place: Place) -> Failure | None:
    """The failure that a script or a handler, or what belongs to one, is about."""
    if any(above.role in ("script", "handler") for above in state.ancestors(place)):
        return nearest_failure(state, place)
    return None


def _item(state: State, place: Place) -> int | None:
    return next((above.index for above in state.ancestors(place) if above.role == "item"), None)


def _environment(kind: str, params: dict[str, Any], bindings: Mapping[str, Any]) -> dict[str, Any]:
    """The names that a shell text reads, and `env`: the bindings, but for those that fill params."""
    others = {name: value for name, value in bindings.items() if name != "cwd" and not name.startswith(_NOT_IN_SHELL)}
    found = {}
    if kind == "shell" and others:
        fed = holes(params)
        found = {name: value for name, value in others.items() if name not in fed}
    found.update((name[4:], value) for name, value in bindings.items() if name.startswith("env."))
    return found


def _secrets(workflow: Workflow) -> dict[str, Secret]:
    """Its own by their names; those of its callers under names that no expression can say."""
    return {**workflow.secrets, **{f"caller:{i}": secret for i, secret in enumerate(workflow.callers_secrets)}}


def _context(state: State, step: Place, place: Place, told: AgentContext | None) -> str:
    if told is not None:
        return told.failure_text(state.run.run_id)
    if (step.key, step.visit) not in state.informed:
        return ""
    context: str = failure_view(state, place)["context"]
    return context


def _late_values(spec: Command, place: Place) -> dict[str, list[Any]]:
    """What its own templates say of secrets. No other value can name one, whatever it looks like."""
    templates = dict(spec.action.bindings) if spec.action else {}
    templates.update((f"env.{name}", template) for name, template in spec.env.items())
    if spec.cwd:
        templates["cwd"] = spec.cwd
    return {name: place.bindings[name]["${}"] for name, template in templates.items() if reads_secrets(template)}
