"""Actions that are functions: called with their parameters by name, in a warm child of our own interpreter."""

from __future__ import annotations

import sys

from mulligan.core.effects.tasks import Task
from mulligan.ports import Lease
from mulligan.worker.actions import python
from mulligan.worker.folders import Folders, ScratchFiles
from mulligan.worker.programs import Programs
from mulligan.worker.warm_child import CallRequest

# They are imported in the child alone: what they need costs nobody else anything.
BUILT_IN = {
    "http": "mulligan.worker.actions.http:run",
    "sql": "mulligan.worker.actions.sql:run",
}
PLUGIN = "mulligan.worker.actions.plugin:run"
_OURS = "mulligan."
# Which children run nothing but our own code.
BUILT_IN_CHILDREN = "built in"


def is_known(task: Task) -> bool:
    """Whether it is one of ours, or the file says itself which function it is (see `mulligan.language.plugins`)."""
    return task.kind in BUILT_IN or "call" in task.params


def is_built_in(task: Task) -> bool:
    """Whether no code but ours runs in it: nothing that it knew is left when it has ended."""
    return task.kind in BUILT_IN


def build_call(lease: Lease, scratch: ScratchFiles, folders: Folders) -> CallRequest:
    """What the child is to do. InputInvalid where a value does not fit."""
    params = lease.task.params
    call = BUILT_IN.get(lease.task.kind, PLUGIN)
    is_ours = is_built_in(lease.task) or str(params["call"]).startswith(_OURS)
    return python.make_call(lease, scratch, folders, params, call=call, is_ours=is_ours)


def interpreter_of(task: Task, programs: Programs) -> str:
    """Ours: whatever interpreter the workflow names for its own code, these are installed beside us."""
    return sys.executable


def child_group_of(task: Task) -> str:
    """Our own code may serve everybody. What a plugin has imported is nothing to another, or to another workflow."""
    return BUILT_IN_CHILDREN if task.kind in BUILT_IN else f"{task.kind} {task.version}"
