"""Which action is carried out how: as a process of its own, or as a call in a warm child."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from mulligan.core.effects.tasks import Task
from mulligan.core.model.reports import TaskEnded
from mulligan.errors import InputInvalid
from mulligan.ports import Lease
from mulligan.worker.actions import agent, calls, python, shell
from mulligan.worker.children import Order
from mulligan.worker.ended import Ended
from mulligan.worker.folders import Folders, Logs, Sides
from mulligan.worker.preparation import Preparation
from mulligan.worker.programs import Programs


class Spawned(Protocol):
    """An action that is a process: what the supervisor starts, and how its end is read."""

    def order(
        self, lease: Lease, sides: Sides, folders: Folders, programs: Programs, /
    ) -> tuple[tuple[Any, ...], bool]: ...

    def preparation(self, task: Task, sides: Sides, new_path: Callable[[], str], /) -> Preparation:
        """Of a task that reads more than the loop may."""

    def read_end(
        self,
        lease: Lease,
        logs: Logs | Sides,
        sides: Sides,
        ended: Ended,
        is_out_of_memory: bool,
        programs: Programs,
        /,
    ) -> TaskEnded: ...


class Called(Protocol):
    """An action that is a function: what a warm child is told, and which one."""

    def order(self, lease: Lease, sides: Sides, folders: Folders, /) -> Order: ...

    def interpreter_of(self, task: Task, programs: Programs, /) -> str: ...

    def kept_apart_by(self, task: Task, /) -> str:
        """A child that has run one task runs another only where this is the same."""


SPAWNED: dict[str, Spawned] = {"shell": shell, "agent": agent}
_CALLED: dict[str, Called] = {"python": python}


def called(task: Task) -> Called:
    """How the task's function is called; InputInvalid where nobody here knows such an action."""
    if task.kind in _CALLED:
        return _CALLED[task.kind]
    if calls.is_known(task):
        return calls
    raise InputInvalid(f"this version of mulligan knows no action '{task.kind}'")
