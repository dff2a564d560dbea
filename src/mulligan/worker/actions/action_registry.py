"""How each kind of action runs: as a process, or as a call in a warm child."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from mulligan.core.effects.tasks import Task
from mulligan.core.model.reports import TaskEnded
from mulligan.errors import InputInvalid
from mulligan.ports import Lease
from mulligan.worker.actions import agent, called_actions, model, python, shell
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


SPAWNED: dict[str, SpawnedAction] = {"shell": shell, "agent": agent}
_CALLED: dict[str, CalledAction] = {"python": python, called_actions.MODEL: model}


def is_python(task: Task) -> bool:
    """Whether it is a function or code of the workflow, in Python."""
    return _CALLED.get(task.kind) is python


def called_action(task: Task) -> CalledAction:
    """Return the action that calls the task's function; InputInvalid if there is none."""
    if task.kind in _CALLED:
        return _CALLED[task.kind]
    if called_actions.is_known(task):
        return called_actions
    raise InputInvalid(f"this version of mulligan does not have the action '{task.kind}'")
