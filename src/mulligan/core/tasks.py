"""What a worker is told of a task: everything it needs, and nothing of the run besides."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec

from .events import Role
from .life import files_due
from .scope import failure_view, filled, holes, nearest_failure
from .state import Place, State
from .workflow import Resources, Secret

Capture = Literal["text", "json", "lines"]

_NO_RESOURCES = Resources()


class Task(msgspec.Struct, frozen=True, omit_defaults=True):
    """One attempt at one action. Known by its run, place and attempt: queued twice it is still one."""

    run_id: int
    place: str
    attempt: int
    kind: str
    # The action's parameters with the values filled in. What holds a secret is `{"${}": […, {"secret": NAME}]}`.
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
    # The failure context that a failure edge brought.
    context: str = ""
    # Of the failure that a script or handler is about.
    error_code: str = ""
    return_code: int | None = None
    # The attempt that `$MULLIGAN_ATTEMPT` names: for a recovery script the one that failed.
    told_attempt: int = 0
    # Declared files that must be there when it has ended well, by name.
    files: dict[str, str] = {}
    secrets: dict[str, Secret] = {}

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt of one visit."""
        return f"{self.run_id}:{self.place}:{self.visit}"


def task(state: State, key: str) -> Task:
    """The task of the place's present attempt."""
    place = state.places[key]
    step = state.step_of(place)
    action = place.spec.action
    assert action is not None, f"'{key}' has nothing to run"
    wanted = place.spec.resources or _NO_RESOURCES
    adjusted = place.climb.adjusted
    about = nearest_failure(state, place) if place.role != "step" else None
    return Task(
        run_id=state.run.run_id,
        place=key,
        attempt=place.attempt,
        kind=action.kind,
        params=filled(action, place.bindings) if place.bindings else action.params,
        workflow=state.workflow.name,
        version=state.run.version,
        step=step.key,
        visit=step.visit,
        role=place.role,
        item=_item(state, place),
        env=_environment(place),
        home=state.run.cwd,
        cwd=place.bindings.get("cwd", ""),
        capture=place.spec.capture,
        timeout=(adjusted.timeout if adjusted else None) or place.spec.timeout,
        deadline=_deadline(place),
        cpus=(adjusted.cpus if adjusted else None) or wanted.cpus or 1.0,
        memory=(adjusted.memory if adjusted else None) or wanted.memory,
        gpus=wanted.gpus or 0,
        labels=wanted.labels,
        host=_host(state, place),
        context=_context(state, step, place),
        error_code=about.code if about else "",
        return_code=about.exit_code if about else None,
        told_attempt=state.places[place.parent].attempt if place.role == "script" else place.attempt,
        files={name: state.workflow.files.get(name, name) for name in files_due(state, place)},
        secrets=state.workflow.secrets,
    )


def _item(state: State, place: Place) -> int | None:
    return next((above.index for above in state.ancestors(place) if above.role == "item"), None)


def _environment(place: Place) -> dict[str, Any]:
    """The names that the action's text reads, and the step's `env`: bindings but for those that fill params."""
    if not place.bindings:
        return {}
    action = place.spec.action
    found: dict[str, Any] = {}
    if action is not None and action.kind == "shell":
        fed = holes(action.params)
        found = {name: place.bindings[name] for name in action.bindings if name not in fed}
    found.update((name[4:], value) for name, value in place.bindings.items() if name.startswith("env."))
    return found


def _deadline(place: Place) -> datetime | None:
    limit = place.spec.deadline
    return None if limit is None else place.entered_at + timedelta(seconds=limit)


def _host(state: State, place: Place) -> str:
    """What belongs to an attempt runs where the attempt ran."""
    if place.role == "step" or place.spec.affinity == "any":
        return ""
    return next((above.host for above in state.ancestors(place) if above.host), "")


def _context(state: State, step: Place, place: Place) -> str:
    if (step.key, step.visit) not in state.informed:
        return ""
    context: str = failure_view(state, place)["context"]
    return context
