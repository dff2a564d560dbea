"""What a task reads that is in artifacts, put in its hands before it starts."""

from __future__ import annotations

from typing import Any

import msgspec

from ..core.artifacts import content, holds_reference, referred, replaced
from ..core.tasks import Task
from ..errors import ArtifactDamaged, ArtifactGone, InputInvalid
from ..ports import Artifacts

_FIELDS = ("params", "env", "cwd")


def fetched(task: Task, artifacts: Artifacts) -> Task:
    """The task with what is in artifacts in the place of their references; InputInvalid where one cannot be had."""
    held = {name: value for name in _FIELDS if holds_reference(value := getattr(task, name))}
    is_told = task.told is not None and any(holds_reference(one.output) for one in task.told.heard)
    if not held and not is_told:
        return task
    found: dict[str, Any] = {name: _whole(value, artifacts) for name, value in held.items()}
    if task.told is not None and is_told:
        found["told"] = task.told.fetched(lambda output: _whole(output, artifacts))
    return msgspec.structs.replace(task, **found)


def _whole(value: Any, artifacts: Artifacts) -> Any:
    def content_of(reference: dict[str, Any]) -> Any:
        artifact = referred(reference)
        return content(artifact, artifacts.fetch(artifact))

    try:
        return replaced(value, content_of)
    except (ArtifactGone, ArtifactDamaged) as error:
        raise InputInvalid(f"a value that it reads cannot be had: {error.message}") from error
