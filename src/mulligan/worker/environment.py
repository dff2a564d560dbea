"""The environment of a task: what every step gets, and the values that its text reads."""

from __future__ import annotations

from functools import lru_cache

from mulligan.core.effects.tasks import Task
from mulligan.core.model.trace_ids import run_identity, traceparent
from mulligan.language.shell.shell import environment_value
from mulligan.ports import Lease
from mulligan.worker.folders import ScratchFiles
from mulligan.worker.git.git_variables import HOOK_VARIABLES

# Variables that are true while one task runs, most of them files. A program takes many tasks.
_ONE_TASK_ONLY = (
    *("MULLIGAN_OUTPUT", "MULLIGAN_ERROR", "MULLIGAN_PROGRESS", "MULLIGAN_ARTIFACTS", "MULLIGAN_DATA"),
    *("MULLIGAN_DATA_SET", "MULLIGAN_FAILURE_CONTEXT", "MULLIGAN_FENCE"),
)
# Says that this is the process of a program: see `mulligan.step_context`.
_PROGRAM = "MULLIGAN_PROGRAM"
# Variables of some tasks only: a worker that was started by a step must not pass on those of that step.
_TASK_ONLY = (
    *(*_ONE_TASK_ONLY, _PROGRAM),
    *("MULLIGAN_ITEM", "MULLIGAN_RETRY", "MULLIGAN_ERROR_CODE", "MULLIGAN_RETURN_CODE"),
    *("MULLIGAN_PROMPT_FILE", "MULLIGAN_CONTEXT_FILE", "MULLIGAN_MODEL", "MULLIGAN_MEMORY"),
    *("MULLIGAN_SKIP_PERMISSIONS", "MULLIGAN_SOURCE"),
    *("MULLIGAN_BUDGET_TOKENS", "MULLIGAN_BUDGET_COST", "MULLIGAN_BUDGET_CALLS"),
)


# It may contain a password, and many steps print their environment. A step that needs it can get it as a secret.
_WORKER_ONLY = (
    *("MULLIGAN_STORE", "MULLIGAN_SERVER", "MULLIGAN_TOKEN", "MULLIGAN_TOKEN_FILE", "MULLIGAN_CONFIG"),
    "MULLIGAN_WORKER_TOKEN_FILE",
)


def worker_environment(name: str, inherited: dict[str, str], own_programs: str = "") -> dict[str, str]:
    """Return the environment that all tasks of a worker share. The folder `own_programs` comes last on the PATH."""
    dropped = {*_TASK_ONLY, *_WORKER_ONLY, *HOOK_VARIABLES}
    ours = {key: value for key, value in inherited.items() if key not in dropped}
    if own_programs and "PATH" in ours:
        ours["PATH"] = f"{ours['PATH']}:{own_programs}"
    return {**ours, "MULLIGAN_WORKER": name}


def task_environment(lease: Lease, scratch: ScratchFiles, output_folder: str) -> dict[str, str]:
    """Return the variables of one task; raise InputInvalid if a value does not fit."""
    task = lease.task
    values = {
        **_lasting_variables(task.run_id, task.workflow, output_folder, scratch),
        "MULLIGAN_STEP": task.step,
        "MULLIGAN_VISIT": str(task.visit),
        "MULLIGAN_ATTEMPT": str(task.env_attempt or task.attempt),
        "MULLIGAN_FENCE": str(lease.token),
        "TRACEPARENT": traceparent(task.uid or run_identity("", task.run_id), task.place, task.attempt),
        "MULLIGAN_IDEMPOTENCY_KEY": task.idempotency_key,
        # A task that waits has not asked for anything, so it may take a whole one, as others do.
        "MULLIGAN_CPUS": f"{1.0 if task.waits else task.cpus:g}",
    }
    if task.item is not None:
        values["MULLIGAN_ITEM"] = str(task.item)
    if task.source:
        values["MULLIGAN_SOURCE"] = task.source
    if task.tries:
        values["MULLIGAN_RETRY"] = str(task.tries)
    if task.error_code:
        values["MULLIGAN_ERROR_CODE"] = task.error_code
    if task.return_code is not None:
        values["MULLIGAN_RETURN_CODE"] = str(task.return_code)
    if task.memory is not None:
        values["MULLIGAN_MEMORY"] = str(task.memory)
    if task.context:
        values["MULLIGAN_FAILURE_CONTEXT"] = scratch.context
    for name, value in task.env.items():
        values[name] = environment_value(name, value)
    return values


def program_environment(lease: Lease, scratch: ScratchFiles, output_folder: str) -> dict[str, str]:
    """Return the variables of the process of a program; raise InputInvalid if a value does not fit."""
    found = task_environment(lease, scratch, output_folder)
    return {_PROGRAM: "1", **{name: value for name, value in found.items() if name not in _ONE_TASK_ONLY}}


@lru_cache(maxsize=256)
def _lasting_variables(run_id: int, workflow: str, output_folder: str, scratch: ScratchFiles) -> dict[str, str]:
    """Return what the tasks of a run that get the same scratch files have in common."""
    return {
        "MULLIGAN_RUN_ID": str(run_id),
        "MULLIGAN_WORKFLOW": workflow,
        "MULLIGAN_OUTPUT_DIR": output_folder,
        "MULLIGAN_OUTPUT": scratch.output,
        "MULLIGAN_ERROR": scratch.error,
        "MULLIGAN_PROGRESS": scratch.progress,
        "MULLIGAN_ARTIFACTS": scratch.artifacts,
        "MULLIGAN_DATA": scratch.data,
        "MULLIGAN_DATA_SET": scratch.data_set,
    }


def working_folder_of(task: Task) -> str:
    """Return where the task runs. Relative folders are relative to where `run` was called."""
    if not task.cwd:
        return task.home or "/"
    folder = environment_value("cwd", task.cwd)
    if folder.startswith("/"):
        return folder
    return f"{task.home}/{folder}" if folder else task.home or "/"
