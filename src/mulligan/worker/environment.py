"""What a task finds in its environment: what every step is told, and the values that its text reads."""

from __future__ import annotations

from mulligan.core.effects.tasks import Task
from mulligan.language.shell import environment_value
from mulligan.ports import Lease
from mulligan.worker.folders import Sides

# What only some tasks have: a worker that a step has started must not hand on what that step was told.
_OF_SOME = (
    *("MULLIGAN_ITEM", "MULLIGAN_RETRY", "MULLIGAN_ERROR_CODE", "MULLIGAN_RETURN_CODE", "MULLIGAN_FAILURE_CONTEXT"),
    *("MULLIGAN_PROMPT_FILE", "MULLIGAN_CONTEXT_FILE", "MULLIGAN_MODEL", "MULLIGAN_MEMORY"),
    *("MULLIGAN_BUDGET_TOKENS", "MULLIGAN_BUDGET_COST", "MULLIGAN_BUDGET_CALLS"),
)


# May have a password in it, and many a step prints its environment. One that needs it can be given it as a secret.
_OF_NONE = ("MULLIGAN_STORE",)


def of_worker(name: str, inherited: dict[str, str]) -> dict[str, str]:
    """What is the same for all tasks of a worker."""
    ours = {key: value for key, value in inherited.items() if key not in _OF_SOME and key not in _OF_NONE}
    return {**ours, "MULLIGAN_WORKER": name}


def of_task(lease: Lease, sides: Sides, output_folder: str) -> dict[str, str]:
    """What differs from task to task; InputInvalid where a value does not fit."""
    task = lease.task
    values = {
        "MULLIGAN_RUN_ID": str(task.run_id),
        "MULLIGAN_WORKFLOW": task.workflow,
        "MULLIGAN_STEP": task.step,
        "MULLIGAN_VISIT": str(task.visit),
        "MULLIGAN_ATTEMPT": str(task.env_attempt or task.attempt),
        "MULLIGAN_OUTPUT_DIR": output_folder,
        "MULLIGAN_OUTPUT": sides.output,
        "MULLIGAN_ERROR": sides.error,
        "MULLIGAN_FENCE": str(lease.token),
        "MULLIGAN_IDEMPOTENCY_KEY": task.idempotency_key,
        "MULLIGAN_CPUS": f"{task.cpus:g}",
    }
    if task.item is not None:
        values["MULLIGAN_ITEM"] = str(task.item)
    if task.tries:
        values["MULLIGAN_RETRY"] = str(task.tries)
    if task.error_code:
        values["MULLIGAN_ERROR_CODE"] = task.error_code
    if task.return_code is not None:
        values["MULLIGAN_RETURN_CODE"] = str(task.return_code)
    if task.memory is not None:
        values["MULLIGAN_MEMORY"] = str(task.memory)
    if task.context:
        values["MULLIGAN_FAILURE_CONTEXT"] = sides.context
    for name, value in task.env.items():
        values[name] = environment_value(name, value)
    return values


def folder_of(task: Task) -> str:
    """Where the task runs. Relative folders are relative to where `run` was called."""
    folder = environment_value("cwd", task.cwd)
    if folder.startswith("/"):
        return folder
    return f"{task.home}/{folder}" if folder else task.home or "/"
