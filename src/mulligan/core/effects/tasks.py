"""The task that a worker gets: everything it needs to run one attempt, and nothing else of the run."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from mulligan.core.deciding.agents.agent_context import AgentContext, agent_context
from mulligan.core.deciding.agents.budgets import remaining_budget
from mulligan.core.deciding.agents.triage_prompt import triager_params
from mulligan.core.deciding.lifecycle import expected_files, item_index
from mulligan.core.deciding.workers.affinity import avoided_hosts, bound_host
from mulligan.core.deciding.workers.breaker import Guard
from mulligan.core.effects.conversation_task import conversation_of
from mulligan.core.effects.program_history import program_turn
from mulligan.core.effects.reuse import Reuse, path_of, reuse_of
from mulligan.core.model.actions import DEFAULT_CPUS, Traits, default_cpus, traits, traits_of, waits
from mulligan.core.model.clusters.on_dask import LABEL as DASK
from mulligan.core.model.clusters.on_dask import wants_client
from mulligan.core.model.event_types import Adjusted, AvoidedHosts, Role
from mulligan.core.model.failure import Failure
from mulligan.core.model.program_calls import ProgramTurn
from mulligan.core.model.step_plan import StepPlan, is_careful
from mulligan.core.model.workflow import Action, Budget, Capture, Command, Resources, Secret
from mulligan.core.state.deadlines import deadline_of, goes_on_when_stopped
from mulligan.core.state.scope import (
    BREAKER_KEY,
    CACHE_KEY,
    FILE,
    FOLDER,
    breaker_of,
    failure_view,
    fill,
    fill_params,
    holes,
    nearest_failure,
    reads_secrets,
    values_of,
)
from mulligan.core.state.state import Place, State
from mulligan.core.state.workspace import folder_of, folder_of_run, lacks_worktree, opened_items, opens_worktree

_NO_RESOURCES = Resources()
_NOT_ADJUSTED = Adjusted()
# Prefixes of bindings that shell text does not read by name.
_NOT_IN_SHELL = ("env.", "logs.", FOLDER, FILE, CACHE_KEY, BREAKER_KEY)


class Demand(msgspec.Struct, frozen=True):
    """The resources that a task needs. `host`: where it must run while that host has a worker; "" for anywhere."""

    cpus: float = 1.0
    memory: int = 0
    gpus: int = 0
    labels: tuple[str, ...] = ()
    host: str = ""
    avoids: AvoidedHosts | None = None
    nodes: int = 1
    # Its timeout, and the time that it needs because it was interrupted by the end of a worker's time.
    timeout: float = 0.0
    seconds_min: float = 0.0


class Task(msgspec.Struct, frozen=True, omit_defaults=True):
    """One attempt of one action. Identified by run, place and attempt, so that it can be queued twice without harm."""

    run_id: int
    place: str
    attempt: int
    kind: str
    # The parameters of the action with values filled in; with holes where a secret goes, see `late`.
    params: dict[str, Any]
    workflow: str
    # The version of the workflow: warm processes are not shared between versions.
    version: str
    step: str
    visit: int
    role: Role = "step"
    item: int | None = None
    # Environment variables: the values that shell text reads, and `env`.
    env: dict[str, Any] = {}
    # The folder in which `run` was called, and the folder of the step, absolute or relative to it.
    home: str = ""
    cwd: Any = ""
    capture: Capture = "text"
    timeout: float | None = None
    # The deadline of the whole visit.
    deadline: datetime | None = None
    cpus: float = 1.0
    memory: int | None = None
    gpus: int = 0
    labels: tuple[str, ...] = ()
    # The host on which it runs, unless that has no worker; "" for anywhere.
    host: str = ""
    # The failure context of a step reached by a failure edge, or of an agent in a handler.
    context: str = ""
    # Code and exit code of the failure that a script or handler deals with.
    error_code: str = ""
    return_code: int | None = None
    # The value of `$MULLIGAN_ATTEMPT`: in a recovery script the attempt that failed.
    env_attempt: int = 0
    # Declared files that must exist after success, by name.
    files: dict[str, str] = {}
    # Where to find all secrets of the workflow: it may print any of them, so all are redacted.
    secrets: dict[str, Secret] = {}
    # The uid of the run.
    uid: str = ""
    # A lost attempt counts as failed: it is not leased ahead of time.
    is_careful: bool = False
    # The circuit breaker that is checked before it is leased.
    guard: Guard | None = None
    # For an agent: the context of earlier failures and outputs.
    agent_context: AgentContext | None = None
    # For a task that reads secrets: the parts of each value with a secret in it, texts and `{"secret": EXPRESSION}`;
    # and the values that are known. By the names of the bindings: `env.NAME`, `cwd`, and the holes of `params`.
    late: dict[str, list[Any]] = {}
    bound: dict[str, Any] = {}
    # Paths that lead to its logs: for `stdout`, for `stderr`.
    logs: dict[str, Any] = {}
    # How many earlier attempts of this visit have failed.
    tries: int = 0
    # The folders that templated paths must stay in: for `cwd`, `logs.stdout`, or a parameter. See `paths`.
    folders: dict[str, str] = {}
    # For a step whose result later runs may reuse.
    reuse: Reuse | None = None
    # For an agent under a budget: what it may spend.
    budget: Budget | None = None
    # The data of the run.
    data: dict[str, Any] = {}
    # It waits for another machine most of the time, and its file does not say how many processors it needs.
    waits: bool = False
    # Where the run was started, if `home` is a worktree: programs, secrets and links to logs are found from there.
    called_from: str = ""
    # For a question to a model: what was said so far, and the tools that it may call. See `core.model.agent_messages`.
    conversation: dict[str, Any] = {}
    # The hosts that it is kept from, and until when.
    avoids: AvoidedHosts | None = None
    # How many nodes the allocation of its worker must have. With more than one it has the worker for itself.
    nodes: int = 1
    # A worker gets it only if it has so much time left: the end of a worker's time has interrupted it before.
    seconds_min: float = 0.0
    # When the time of its run is up: it does not start after that. None if it may run in a stopped run too. A pause of
    # the run moves this, see `lease_rules`.
    run_due: datetime | None = None
    # For a program: which turn it is, and what has ended since the last one.
    turn: ProgramTurn | None = None
    # Where a worker elsewhere may upload its artifacts itself; "" if only the server can.
    objects: str = ""
    # The folder with the modules that it imports, unless that is where the run was started. The worker fills it in.
    source: str = ""

    @property
    def key(self) -> tuple[str, int]:
        """What it is identified by within its run."""
        return self.place, self.attempt

    @property
    def turn_number(self) -> int:
        """Which turn of a program it is; 0 if it is none."""
        return 0 if self.turn is None else self.turn.turn

    @property
    def seconds_needed(self) -> float:
        """How long a worker must run on to get it; 0 if any may."""
        return max(self.timeout or 0.0, self.seconds_min)

    @property
    def started_in(self) -> str:
        """The folder in which the run was started."""
        return self.called_from or self.home

    @property
    def imports_from(self) -> str:
        """The folder whose modules it imports."""
        return self.source or self.started_in

    @property
    def is_small(self) -> bool:
        """Whether it needs one processor and nothing else: if it does not fit, no task does."""
        return self.cpus <= 1.0 and not (self.memory or self.gpus or self.labels or self.nodes > 1)

    @property
    def idempotency_key(self) -> str:
        """A key that is the same for every attempt of one visit."""
        return f"{self.uid or self.run_id}:{self.place}:{self.visit}"


_CPU_DIGITS = 9


def round_cpus(cpus: float) -> float:
    """A sum of processors without its rounding error: the store compares exactly what is offered and asked for."""
    return round(cpus, _CPU_DIGITS)


def make_task(state: State, key: str) -> Task:
    """The task of the current attempt of a place."""
    place = state.places[key]
    spec = place.spec
    action = spec.action
    assert action is not None, f"'{key}' has nothing to run"
    is_step = place.role == "step"
    step = place if is_step else state.step_of(place)
    asker = place if is_step else values_of(state, place)
    bindings, found = asker.bindings, traits(action.kind, action.params)
    wanted = spec.resources or _NO_RESOURCES
    adjusted = place.climb.adjusted or _NOT_ADJUSTED
    about = None if is_step else _failure_about(state, place)
    context = _agent_context(state, asker) if found.is_agent else None
    secrets = state.workflow.secrets
    if state.workflow.callers_secrets:
        # Under names that no expression can use.
        secrets = {**secrets, **{f"caller:{i}": secret for i, secret in enumerate(state.workflow.callers_secrets)}}
    late = _late_values(asker.spec, asker) if secrets and bindings else {}
    params = fill_params(action, bindings) if _has_bindings(asker) and not late else action.params
    if place.role == "triager":
        params = triager_params(state, place, params)
    if is_step and state.run.worktree_origin is not None and opens_worktree(state, key):
        params = {**params, "origin": _origin_of_worktree(state)}
    cpus, is_waiting = _cpus(adjusted, wanted, action.kind, params)
    may_be_reused = bool(
        state.run.changed_only or step.spec.cache or step.spec.reads or step.spec.writes or spec.reads or spec.writes
    )
    # Few workflows are published with files.
    home = started_in = folder_of_run(state) if state.workflow.source else state.run.cwd
    if state.workflow.workspace is not None:
        # A result of another run is in the worktree of that run.
        may_be_reused, home = False, folder_of(state, place)
        if home == state.run.cwd:
            home = started_in
    # Positional, in field order: with so many fields, keywords take five times as long.
    return Task(
        state.run.run_id,
        key,
        place.attempt,
        action.kind,
        params,
        state.workflow.name,
        state.run.present_version,
        step.key,
        step.visit,
        place.role,
        None if is_step else item_index(state, place),
        _environment(found, action.params, bindings) if bindings and not late else {},
        home,
        "" if late else bindings.get("cwd", ""),
        spec.capture,
        spec.timeout if adjusted.timeout is None else adjusted.timeout,
        _deadline(state, place),
        cpus,
        wanted.memory if adjusted.memory is None else adjusted.memory,
        wanted.gpus or 0,
        _labels(wanted, action),
        bound_host(state, place),
        _failure_context(state, step, place, context) if context or state.informed else "",
        about.code if about else "",
        about.exit_code if about else None,
        state.places[place.parent].attempt if place.role == "script" else place.attempt,
        {} if is_step and not spec.writes else _files(state, place),
        secrets,
        state.run.uid,
        is_careful(spec),
        None if spec.breaker is None else Guard(breaker_of(state, place), state.workflow.breakers[spec.breaker]),
        context,
        late,
        {name: value for name, value in bindings.items() if name not in late} if late else {},
        {name: bindings[f"logs.{name}"] for name in spec.logs} if spec.logs else {},
        place.climb.tries,
        _folders(state, asker, step) if _has_paths(state, asker, spec, step) else {},
        reuse_of(state, place) if may_be_reused else None,
        remaining_budget(state, place) if context is not None else None,
        {name: one.value for name, one in state.run.data.items()} if state.run.data else {},
        is_waiting,
        started_in if home != started_in else "",
        conversation_of(state, asker) if place.role == "model" else {},
        avoided_hosts(state, place),
        wanted.nodes or 1,
        place.climb.seconds_min,
        None if state.run.due is None else _run_due(state, place),
        program_turn(state, place) if found.is_program else None,
    )


def plain_task(state: State, place: Place, plan: StepPlan) -> Task:
    """`make_task` for a step whose plan says that its task has nothing of the run but what every task has.

    In its first attempt, in a run without data, worktree, limit of time and reuse of results.
    """
    run, workflow, key, action = state.run, state.workflow, place.key, place.spec.action
    assert action is not None
    params, env = action.params, {}
    if bindings := place.bindings:
        env = _environment(traits_of(action), params, bindings)
        if action.bindings:
            params = fill_params(action, bindings)
    return Task(
        run.run_id,
        key,
        place.attempt,
        action.kind,
        params,
        workflow.name,
        run.version if run.revision is None else run.revision.version,
        key,
        place.visit,
        env=env,
        home=folder_of_run(state) if state.workflow.source else state.run.cwd,
        capture=plan.capture,
        timeout=plan.timeout,
        cpus=plan.cpus,
        env_attempt=place.attempt,
        uid=run.uid,
        is_careful=plan.is_careful,
        waits=plan.waits,
    )


def _origin_of_worktree(state: State) -> dict[str, Any]:
    """What the worktree of a fork is copied from, with those of the items that go on in it."""
    origin = state.run.worktree_origin
    assert origin is not None
    items = opened_items(state) if lacks_worktree(state) else []
    return {"work": origin.work, "commit": origin.commit, "items": items}


def _run_due(state: State, place: Place) -> datetime | None:
    is_open = state.run.stop is None and not goes_on_when_stopped(state, place)
    return state.run.due if is_open else None


def _agent_context(state: State, asker: Place) -> AgentContext:
    """The context of an agent. What was wrong with its last attempt follows the turns of a conversation, if any."""
    context = agent_context(state, asker)
    is_continued = asker.conversation is not None and asker.conversation.begun > 0
    return msgspec.structs.replace(context, summary=None) if is_continued else context


def _has_bindings(place: Place) -> bool:
    return place.spec.action is not None and bool(place.spec.action.bindings)


def _has_paths(state: State, place: Place, spec: Command, step: Place) -> bool:
    if place.spec.cwd or spec.logs or step.paths or place.paths or (spec.action is not None and spec.action.paths):
        return True
    return bool(place.parent and state.places[place.parent].paths)


def _folders(state: State, place: Place, step: Place) -> dict[str, str]:
    """The folders for its own paths, and for files of its step and its parent, which validators and handlers check."""
    given = {**step.paths, **place.bindings}
    if place.parent:
        given = {**state.places[place.parent].paths, **given}
    return {name[len(FOLDER) :]: value for name, value in given.items() if name.startswith(FOLDER)}


def demand(state: State, place: Place) -> Demand:
    """What the current attempt of a place needs from a worker."""
    wanted = place.spec.resources or _NO_RESOURCES
    adjusted = place.climb.adjusted or _NOT_ADJUSTED
    memory = wanted.memory if adjusted.memory is None else adjusted.memory
    action = place.spec.action
    asker = values_of(state, place)
    has_values = asker.spec.action is not None and all(name in asker.bindings for name in asker.spec.action.bindings)
    cpus, _ = _cpus(
        adjusted,
        wanted,
        action.kind if action else "",
        {} if action is None else fill_params(action, asker.bindings) if has_values else action.params,
    )
    return Demand(
        cpus,
        memory or 0,
        gpus=wanted.gpus or 0,
        labels=_labels(wanted, action),
        host=bound_host(state, place),
        avoids=avoided_hosts(state, place),
        nodes=wanted.nodes or 1,
        timeout=(place.spec.timeout if adjusted.timeout is None else adjusted.timeout) or 0.0,
        seconds_min=place.climb.seconds_min,
    )


def fill_late_values(task: Task, values: Mapping[str, Any]) -> Task:
    """The task with its late values filled in, by name alone, whatever a value looks like."""
    known = {**task.bound, **values}
    return msgspec.structs.replace(
        task,
        params=fill(task.params, known),
        env=_environment(traits(task.kind, task.params), task.params, known),
        cwd=known.get("cwd", ""),
        late={},
        bound={},
    )


def _deadline(state: State, place: Place) -> datetime | None:
    """The deadline of the visit. A recovery script is part of the visit of its parent and has its deadline."""
    timed = state.places[place.parent] if place.role == "script" else place
    return deadline_of(state, timed)


def _files(state: State, place: Place) -> dict[str, str]:
    expected = expected_files(state, place)
    return {name: path_of(state, state.owner_of_file(place, name), name) for name in expected}


def _cpus(adjusted: Adjusted, wanted: Resources, kind: str, params: Mapping[str, Any]) -> tuple[float, bool]:
    """The processors that were granted or declared, otherwise those of its kind; and whether it waits. 0 is valid."""
    cpus = wanted.cpus if adjusted.cpus is None else adjusted.cpus
    if cpus is not None:
        return cpus, False
    return (default_cpus(kind, params), True) if waits(kind, params) else (DEFAULT_CPUS, False)


def _labels(wanted: Resources, action: Action | None) -> tuple[str, ...]:
    """The labels that a worker needs: a step with a client of Dask runs where there is a Dask cluster."""
    if action is None or "on" not in action.params or not wants_client(action.params) or DASK in wanted.labels:
        return wanted.labels
    return (*wanted.labels, DASK)


def _failure_about(state: State, place: Place) -> Failure | None:
    """The failure that a script, handler or triager deals with, if the place is or belongs to one."""
    if any(above.role in ("script", "handler", "triager") for above in state.ancestors(place)):
        return nearest_failure(state, place)
    return None


def _environment(action: Traits, params: dict[str, Any], bindings: Mapping[str, Any]) -> dict[str, Any]:
    """The environment: the bindings that shell text reads, without those that fill params, and `env`."""
    others = {name: value for name, value in bindings.items() if name != "cwd" and not name.startswith(_NOT_IN_SHELL)}
    found = {}
    if action.script and others:
        fed = holes(params)
        found = {name: value for name, value in others.items() if name not in fed}
    found.update((name[4:], value) for name, value in bindings.items() if name.startswith("env."))
    return found


def _failure_context(state: State, step: Place, place: Place, context: AgentContext | None) -> str:
    if context is not None:
        return context.failure_text(state.run.run_id)
    if (step.key, step.visit) not in state.informed:
        return ""
    text: str = failure_view(state, place)["context"]
    return text


def _late_values(spec: Command, place: Place) -> dict[str, list[Any]]:
    """The parts of its own templates that read secrets. No other value can refer to one, whatever it looks like."""
    templates = dict(spec.action.bindings) if spec.action else {}
    templates.update((f"env.{name}", template) for name, template in spec.env.items())
    if spec.cwd:
        templates["cwd"] = spec.cwd
    return {name: place.bindings[name]["${}"] for name, template in templates.items() if reads_secrets(template)}
