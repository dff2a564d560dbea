"""What a task reads that is in artifacts, put in its hands before it starts."""

from __future__ import annotations

from typing import Any

import msgspec

from ..core.artifacts import KEY_AS_JSON, whole
from ..core.tasks import Task
from ..errors import ArtifactDamaged, ArtifactGone, InputInvalid
from ..ports import Artifacts

_encode = msgspec.json.Encoder().encode


def fetched(task: Task, artifacts: Artifacts) -> Task:
    """The task with what is in artifacts in the place of their references; InputInvalid where one cannot be had."""
    # At once, and not walked through: most tasks read none.
    if KEY_AS_JSON not in _encode((task.params, task.env, task.cwd, task.told)):
        return task
    values = {name: _whole(getattr(task, name), artifacts) for name in ("params", "env", "cwd")}
    told = task.told and task.told.fetched(lambda output: _whole(output, artifacts))
    return msgspec.structs.replace(task, told=told, **values)


def _whole(value: Any, artifacts: Artifacts) -> Any:
    try:
        return whole(value, artifacts.fetch)
    except (ArtifactGone, ArtifactDamaged) as error:
        raise InputInvalid(f"a value that it reads cannot be had: {error.message}") from error
