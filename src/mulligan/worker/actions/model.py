"""`agent` with a provider that is a model and no command: a function in a warm child asks it.

Which kind a provider is of is known where the worker runs. So a task of kind `agent` becomes one of kind `model` when a
worker takes it, and nothing else of the engine knows the difference.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any

import msgspec

from mulligan.core.effects.tasks import Task
from mulligan.core.model.reports import TaskEnded
from mulligan.ports import Lease
from mulligan.worker.actions.agent import provider_of
from mulligan.worker.actions.agent_prompt import prompt_params
from mulligan.worker.actions.agent_providers import find_model
from mulligan.worker.actions.called_actions import BUILT_IN_CHILDREN, MODEL
from mulligan.worker.actions.default_agents import DEFAULT_PROVIDER
from mulligan.worker.child.warm_child import CallRequest
from mulligan.worker.environment import task_environment
from mulligan.worker.folders import Folders, ScratchFiles
from mulligan.worker.models.settings import ModelSettings
from mulligan.worker.outputs import outputs
from mulligan.worker.programs import Programs

CALL = "mulligan.worker.models.asking:run"
# The name of the key among the secrets of a task: no expression can use it.
KEY = "provider:key"
USAGE_BYTES_MAX = 16 * 1024
# The parameters of a task of kind `model` that the workflow does not have.
SETTINGS, ACCESS = "settings", "access"


def as_model_task(lease: Lease, programs: Programs) -> Lease:
    """Return the lease of an agent as a task of kind `model`, if it is a model; as it is, if it is a command."""
    task = lease.task
    if not isinstance(task.params.get("provider", DEFAULT_PROVIDER), str):
        return lease
    settings = find_model(provider_of(task), programs)
    if settings is None:
        return lease
    key = (settings.recorded or settings).key
    changed = msgspec.structs.replace(
        task,
        kind=MODEL,
        params={**task.params, SETTINGS: msgspec.to_builtins(settings)},
        secrets={**task.secrets, KEY: key} if key is not None else task.secrets,
    )
    return msgspec.structs.replace(lease, task=changed)


def build_call(lease: Lease, scratch: ScratchFiles, folders: Folders) -> CallRequest:
    """Return what the child has to call. Variables of the step are not set: a proxy among them would get the key."""
    task = lease.task
    texts, references = prompt_params(task)
    others = {name: value for name in ("model", "answer") if (value := task.params.get(name)) is not None}
    asked = msgspec.structs.replace(
        task, params={**texts, **others}, env={}, late={}, bound={}, secrets={}, data={}, reuse=None
    )
    args = {
        "task": msgspec.to_builtins(asked),
        "references": references,
        "settings": task.params[SETTINGS],
        "access": task.params.get(ACCESS, {}),
    }
    env = task_environment(msgspec.structs.replace(lease, task=asked), scratch, folders.outputs(task.run_id))
    return CallRequest(step=task.step, args=args, env=env, cwd="/", call=CALL)


def interpreter_of(task: Task, programs: Programs) -> str:
    """Return our own interpreter."""
    return sys.executable


def child_group_of(task: Task) -> str:
    """Share children with our own actions."""
    return BUILT_IN_CHILDREN


def with_usage(report: TaskEnded, scratch: ScratchFiles) -> TaskEnded:
    """Return the report with what the model has used, as far as the child knew when it ended."""
    if report.reused_run_id:
        return report
    used: Any = None
    with suppress(outputs.OutputInvalid, outputs.OutputNotKept):
        data = outputs.read_if_there(scratch.output, USAGE_BYTES_MAX, "its usage")
        used = outputs.decode_json(data, "its usage") if data else None
    return msgspec.structs.replace(report, usage={**report.usage, **used}) if isinstance(used, dict) else report


def settings_in(task: Task) -> ModelSettings:
    """Return the settings of the provider of a task of kind `model`."""
    return msgspec.convert(task.params[SETTINGS], ModelSettings)
