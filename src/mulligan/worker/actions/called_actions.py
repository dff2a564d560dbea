"""Actions that are functions: called with their parameters by name, in a warm child of our own interpreter."""

from __future__ import annotations

import sys

from mulligan.core.effects.tasks import Task
from mulligan.core.model.actions import MCP, TRAITS, WAITS
from mulligan.plugins import CODE_FREE_CALLS
from mulligan.ports import Lease
from mulligan.worker.actions import python
from mulligan.worker.child.warm_child import CallRequest
from mulligan.worker.folders import Folders, ScratchFiles
from mulligan.worker.programs import Programs

# Imported only in the child, so that their dependencies cost nothing elsewhere.
BUILT_IN = {
    "http": "mulligan.worker.actions.http:run",
    "sql": "mulligan.worker.actions.sql:run",
    "workspace": "mulligan.worker.git.workspaces:run",
    MCP: "mulligan.worker.actions.mcp_tools:run",
}
# An agent that is a model: see `actions/model`.
MODEL = "model"
PLUGIN = "mulligan.worker.actions.plugin:run"
_OURS = "mulligan."
# The group of children that run nothing but our own code.
BUILT_IN_CHILDREN = "built in"


def is_known(task: Task) -> bool:
    """Whether it is built in, or the file names the function (see `mulligan.language.keys.plugins`)."""
    return task.kind in BUILT_IN or "call" in task.params


def runs_own_code(task: Task) -> bool:
    """Whether it runs only our own code, which leaves no secrets behind in the process for others."""
    return task.kind in BUILT_IN or task.kind == MODEL or _is_code_free(task)


def _is_code_free(task: Task) -> bool:
    return task.kind in CODE_FREE_CALLS and task.params.get("call") == CODE_FREE_CALLS[task.kind]


def build_call(lease: Lease, scratch: ScratchFiles, folders: Folders) -> CallRequest:
    """Return what the child has to call. InputInvalid if a value does not fit."""
    params = {name: value for name, value in lease.task.params.items() if name not in (WAITS, TRAITS)}
    call = BUILT_IN.get(lease.task.kind, PLUGIN)
    is_ours = lease.task.kind in BUILT_IN or str(params["call"]).startswith(_OURS)
    return python.make_call(lease, scratch, folders, params, call=call, is_ours=is_ours)


def interpreter_of(task: Task, programs: Programs) -> str:
    """Return our own interpreter, where these functions are installed, whatever interpreter the workflow names."""
    return sys.executable


def child_group_of(task: Task) -> str:
    """Share children for our own code. A plugin shares none with another plugin or workflow.

    Nor do steps without code share one with steps that have some: that could read what those keep.
    """
    if task.kind == MCP:
        # Its library is large, and only these tasks need it.
        return f"{BUILT_IN_CHILDREN}: {MCP}"
    if task.kind in BUILT_IN:
        return BUILT_IN_CHILDREN
    return f"{task.kind} {task.version}{' without code' if _is_code_free(task) else ''}"
