"""What a task reads that is in artifacts: put in its hands before it starts, or found by the process that runs it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from mulligan.core.effects.tasks import Task
from mulligan.core.model.artifacts import KEY_AS_JSON, Artifact, fetch_references, parse_reference, references
from mulligan.errors import ArtifactDamaged, ArtifactGone, InputInvalid
from mulligan.language.shell import VALUE_BYTES_MAX, value_too_large
from mulligan.ports import Artifacts
from mulligan.worker.loop_bounds import LOOP_BYTES_MAX, LOOP_BYTES_MAX_VEILED

_encode = msgspec.json.Encoder().encode


def fetched(task: Task, artifacts: Artifacts, *, is_called: bool) -> Task:
    """The task with what is in artifacts in the place of their references; InputInvalid where one cannot be had.

    References stay in the parameters of a function that is called in a child, which reads them itself, and where there
    is more behind them than the loop may read.
    """
    # At once, and not walked through: most tasks read none.
    if KEY_AS_JSON not in _encode((task.params, task.env, task.cwd, task.agent_context)):
        return task
    for name, value in {**task.env, "cwd": task.cwd}.items():
        if (size := size_behind(value)) > VALUE_BYTES_MAX:
            raise value_too_large(name, size)
    names = ["env", "cwd"]
    if not is_called and not is_large(task):
        names.append("params")
    values = {name: _whole(getattr(task, name), artifacts) for name in names}
    if task.agent_context and "params" in names:
        values["agent_context"] = task.agent_context.with_outputs(lambda output: _whole(output, artifacts))
    return msgspec.structs.replace(task, **values)


def is_large(task: Task) -> bool:
    """Whether there is more behind the references of its parameters, and of what it is told, than the loop may read."""
    values = values_of(task)
    # What an agent is told is searched for credentials, which takes longer than to read it: all that is in artifacts.
    bytes_max = LOOP_BYTES_MAX_VEILED if task.agent_context and task.agent_context.hides else LOOP_BYTES_MAX
    return KEY_AS_JSON in _encode(values) and size_behind(values) > bytes_max


def values_of(task: Task) -> list[Any]:
    """The parameters of a task, and the outputs that an agent is told: what may hold references."""
    return [task.params, *((one.output for one in task.agent_context.outputs) if task.agent_context else ())]


def size_behind(value: Any) -> int:
    """How many bytes the references in a value stand for."""
    return sum(_referred(reference).size for reference in references(value))


def located(value: Any, artifacts: Artifacts, spool: Callable[[bytes], str]) -> dict[str, str]:
    """The file of each artifact that a value refers to, by name. What is in none `spool` puts into one."""
    found: dict[str, str] = {}
    if KEY_AS_JSON not in _encode(value):
        return found
    for reference in references(value):
        artifact = _referred(reference)
        if artifact.name not in found:
            with _required():
                found[artifact.name] = artifacts.path(artifact) or spool(artifacts.fetch(artifact))
    return found


def _referred(reference: dict[str, Any]) -> Artifact:
    with _required():
        return parse_reference(reference)


def _whole(value: Any, artifacts: Artifacts) -> Any:
    with _required():
        return fetch_references(value, artifacts.fetch)


@contextmanager
def _required() -> Iterator[None]:
    """What cannot be had here is an input that is invalid."""
    try:
        yield
    except (ArtifactGone, ArtifactDamaged) as error:
        raise InputInvalid(not_had(error.message)) from error


def not_had(reason: str) -> str:
    """In words: a value that a task reads is not there, or not what it was."""
    return f"a value that it reads cannot be had: {reason}"
