"""What a task reads that is in artifacts, put in its hands before it starts."""

from __future__ import annotations

from typing import Any

import msgspec

from ..core.artifacts import KEY_AS_JSON, whole
from ..core.credentials import hide_in
from ..core.tasks import Task
from ..errors import ArtifactDamaged, ArtifactGone, InputInvalid
from ..ports import Artifacts

_encode = msgspec.json.Encoder().encode


def fetched(task: Task, artifacts: Artifacts) -> Task:
    """The task with what is in artifacts in the place of their references; InputInvalid where one cannot be had."""
    # At once, and not walked through: most tasks read none.
    if KEY_AS_JSON not in _encode((task.params, task.env, task.cwd, task.told)):
        return task
    values = {name: _whole(getattr(task, name), artifacts) for name in ("env", "cwd")}
    # An agent's prompt and context: what was small enough for an event is without credentials already.
    hides = task.told is not None and task.told.hides
    values["params"] = _whole(task.params, artifacts, hides=hides)
    told = task.told and task.told.fetched(lambda output: _whole(output, artifacts))
    return msgspec.structs.replace(task, told=told, **values)


def _whole(value: Any, artifacts: Artifacts, *, hides: bool = False) -> Any:
    try:
        return whole(value, artifacts.fetch, hide_in if hides else None)
    except (ArtifactGone, ArtifactDamaged) as error:
        raise InputInvalid(f"a value that it reads cannot be had: {error.message}") from error
