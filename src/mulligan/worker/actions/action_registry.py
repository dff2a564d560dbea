"""How each kind of action runs: as a process, or as a call in a warm child."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from mulligan.core.effects.tasks import Task
from mulligan.core.model.actions import AGENT
from mulligan.core.model.reports import TaskEnded
from mulligan.errors import InputInvalid
from mulligan.ports import Lease
from mulligan.worker.actions import called_actions, python, shell
from mulligan.worker.child.warm_child import CallRequest
from mulligan.worker.folders import Folders, ScratchFiles
from mulligan.worker.outputs.artifact_inputs import InputPreparation
from mulligan.worker.programs import Programs
from mulligan.worker.task_reports import ExitedTask


class SpawnedAction(Protocol):
    """An action that is a process: what the supervisor starts, and how its exit is read."""

    def build_command(
        self, lease: Lease, scratch: ScratchFiles, folders: Folders, programs: Programs, /
    ) -> tuple[tuple[Any, ...], bool]: ...

    def prepare_input(self, task: Task, scratch: ScratchFiles, new_path: Callable[[], str], /) -> InputPreparation:
        """Return how to write the input of a task that reads more than the loop may."""

    def read_exit(self, exited: ExitedTask, /) -> TaskEnded: ...


class CalledAction(Protocol):
    """An action that is a function: what a warm child calls, and which child."""

    def build_call(self, lease: Lease, scratch: ScratchFiles, folders: Folders, /) -> CallRequest: ...

    def interpreter_of(self, task: Task, programs: Programs, /) -> str: ...

    def child_group_of(self, task: Task, /) -> str:
        """Return the group of the task: a child runs tasks of one group only."""


def _agent() -> SpawnedAction:
    # Few runs have agents: what reads their prompts and providers is not loaded for the others.
    from mulligan.worker.actions import agent

    return agent


def _model() -> CalledAction:
    from mulligan.worker.actions import model

    return model


_SPAWNED: dict[str, Callable[[], SpawnedAction]] = {"shell": lambda: shell, "agent": _agent}
_CALLED: dict[str, CalledAction] = {"python": python}
_CALLED_BY_FEW: dict[str, Callable[[], CalledAction]] = {called_actions.MODEL: _model}
# The kinds of actions that are processes.
SPAWNED = frozenset(_SPAWNED)


def spawned_action(kind: str) -> SpawnedAction:
    """Return the action of a kind that is in `SPAWNED`."""
    return _SPAWNED[kind]()


def as_model_task(lease: Lease, programs: Programs) -> Lease:
    """Return the lease of an agent that is a model, as a task of kind `model`; any other lease as it is."""
    if lease.task.kind != AGENT:
        return lease
    from mulligan.worker.actions import model

    return model.as_model_task(lease, programs)


def with_usage(task: Task, report: TaskEnded, scratch: ScratchFiles) -> TaskEnded:
    """Return the report of a model with what it has used; any other report as it is."""
    if task.kind != called_actions.MODEL:
        return report
    from mulligan.worker.actions import model

    return model.with_usage(report, scratch)


def is_python(task: Task) -> bool:
    """Whether it is a function or code of the workflow, in Python."""
    return _CALLED.get(task.kind) is python


def called_action(task: Task) -> CalledAction:
    """Return the action that calls the task's function; InputInvalid if there is none."""
    if task.kind in _CALLED:
        return _CALLED[task.kind]
    if task.kind in _CALLED_BY_FEW:
        return _CALLED_BY_FEW[task.kind]()
    if called_actions.is_known(task):
        return called_actions
    raise InputInvalid(f"this version of mulligan does not have the action '{task.kind}'")
