"""Which action is carried out how: as a process of its own, or as a call in a warm child."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from mulligan.core.effects.tasks import Task
from mulligan.core.model.reports import TaskEnded
from mulligan.errors import InputInvalid
from mulligan.ports import Lease
from mulligan.worker.actions import agent, calls, python, shell
from mulligan.worker.artifact_inputs import InputPreparation
from mulligan.worker.folders import Folders, Logs, ScratchFiles
from mulligan.worker.programs import Programs
from mulligan.worker.task_reports import ProcessExit
from mulligan.worker.warm_child import CallRequest


class SpawnedAction(Protocol):
    """An action that is a process: what the supervisor starts, and how its end is read."""

    def build_command(
        self, lease: Lease, scratch: ScratchFiles, folders: Folders, programs: Programs, /
    ) -> tuple[tuple[Any, ...], bool]: ...

    def prepare_input(self, task: Task, scratch: ScratchFiles, new_path: Callable[[], str], /) -> InputPreparation:
        """Of a task that reads more than the loop may."""

    def read_end(
        self,
        lease: Lease,
        logs: Logs | ScratchFiles,
        scratch: ScratchFiles,
        process_exit: ProcessExit,
        is_out_of_memory: bool,
        programs: Programs,
        /,
    ) -> TaskEnded: ...


class CalledAction(Protocol):
    """An action that is a function: what a warm child is told, and which one."""

    def build_call(self, lease: Lease, scratch: ScratchFiles, folders: Folders, /) -> CallRequest: ...

    def interpreter_of(self, task: Task, programs: Programs, /) -> str: ...

    def child_group_of(self, task: Task, /) -> str:
        """A child that has run one task runs another only where this is the same."""


SPAWNED: dict[str, SpawnedAction] = {"shell": shell, "agent": agent}
_CALLED: dict[str, CalledAction] = {"python": python}


def called_action(task: Task) -> CalledAction:
    """How the task's function is called; InputInvalid where nobody here knows such an action."""
    if task.kind in _CALLED:
        return _CALLED[task.kind]
    if calls.is_known(task):
        return calls
    raise InputInvalid(f"this version of mulligan knows no action '{task.kind}'")
