"""Actions that are functions: called with their parameters by name, in a warm child of our own interpreter."""

from __future__ import annotations

import sys

from mulligan.core.effects.tasks import Task
from mulligan.ports import Lease
from mulligan.worker.actions import python
from mulligan.worker.folders import Folders, ScratchFiles
from mulligan.worker.programs import Programs
from mulligan.worker.warm_child import CallRequest

# Imported only in the child, so that their dependencies cost nothing elsewhere.
BUILT_IN = {
    "http": "mulligan.worker.actions.http:run",
    "sql": "mulligan.worker.actions.sql:run",
    "workspace": "mulligan.worker.workspaces:run",
}
PLUGIN = "mulligan.worker.actions.plugin:run"
_OURS = "mulligan."
# The group of children that run nothing but our own code.
BUILT_IN_CHILDREN = "built in"


def is_known(task: Task) -> bool:
    """Whether it is built in, or the file names the function (see `mulligan.language.plugins`)."""
    return task.kind in BUILT_IN or "call" in task.params


def is_built_in(task: Task) -> bool:
    """Whether it runs only our own code, which leaves no secrets behind in the process."""
    return task.kind in BUILT_IN


def build_call(lease: Lease, scratch: ScratchFiles, folders: Folders) -> CallRequest:
    """Return what the child has to call. InputInvalid if a value does not fit."""
    params = lease.task.params
    call = BUILT_IN.get(lease.task.kind, PLUGIN)
    is_ours = is_built_in(lease.task) or str(params["call"]).startswith(_OURS)
    return python.make_call(lease, scratch, folders, params, call=call, is_ours=is_ours)


def interpreter_of(task: Task, programs: Programs) -> str:
    """Return our own interpreter, where these functions are installed, whatever interpreter the workflow names."""
    return sys.executable


def child_group_of(task: Task) -> str:
    """Share children for our own code. A plugin shares none with another plugin or workflow."""
    return BUILT_IN_CHILDREN if task.kind in BUILT_IN else f"{task.kind} {task.version}"
