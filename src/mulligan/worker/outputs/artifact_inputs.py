"""The artifacts that a task reads: loaded before it starts, or located for the process that runs it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from mulligan.core.effects.tasks import Task
from mulligan.core.model.artifacts import (
    KEY_AS_JSON,
    VALUE_FORMATS,
    Artifact,
    describe_dropped,
    fetch_references,
    parse_reference,
    references,
)
from mulligan.core.model.reports import TaskEnded
from mulligan.errors import ArtifactDamaged, ArtifactGone, InputInvalid, OutputDropped
from mulligan.language.shell.shell import VALUE_BYTES_MAX, value_too_large
from mulligan.ports import StoredArtifacts
from mulligan.worker.child.warm_child import CallResult
from mulligan.worker.folders import file_size
from mulligan.worker.slots.loop_limits import LOOP_BYTES_MAX, LOOP_BYTES_MAX_REDACTED
from mulligan.worker.task_reports import report_refusal

_encode = msgspec.json.Encoder().encode
# Write data to a file of the worker, whose name ends as the second argument does; return its path.
Spool = Callable[[bytes, str], str]


def fetch_artifacts(task: Task, artifacts: StoredArtifacts, *, is_called: bool, spool: Spool) -> Task | None:
    """Return the task with the content of artifacts in place of references; None if no value refers to one.

    InputInvalid if one is not available.

    In place of a file that an earlier step keeps stands its path.

    References stay in the parameters of a function, which the child resolves itself, and where there is more data
    behind them than the loop may read.
    """
    # One search in the encoded task: most tasks have no references.
    if KEY_AS_JSON not in _encode((task.params, task.env, task.cwd, task.agent_context, task.conversation)):
        return None
    for name, value in {**task.env, "cwd": task.cwd}.items():
        if (size := referenced_bytes(value)) > VALUE_BYTES_MAX:
            raise value_too_large(name, size)
    names = ["env", "cwd"]
    if not is_called and not has_large_input(task):
        names.append("params")
    values = {name: _fetch(getattr(task, name), artifacts, spool) for name in names}
    if task.agent_context and "params" in names:
        values["agent_context"] = task.agent_context.with_outputs(lambda output: _fetch(output, artifacts, spool))
    return msgspec.structs.replace(task, **values)


def has_large_input(task: Task) -> bool:
    """Whether there is more data behind the references in its parameters and briefing than the loop may read."""
    values = values_with_references(task)
    # A briefing is searched for credentials, which takes longer than reading it.
    bytes_max = LOOP_BYTES_MAX_REDACTED if task.agent_context and task.agent_context.hides else LOOP_BYTES_MAX
    return KEY_AS_JSON in _encode(values) and referenced_bytes(values) > bytes_max


def values_with_references(task: Task) -> list[Any]:
    """Return the values that may contain references: the parameters, the outputs in an agent's briefing, its turns."""
    outputs = (one.output for one in task.agent_context.outputs) if task.agent_context else ()
    return [task.params, *outputs, task.conversation]


def referenced_bytes(value: Any) -> int:
    """Return how many bytes the references in a value stand for; files stay where they are."""
    found = map(_parse_reference, references(value))
    return sum(artifact.size for artifact in found if artifact.format in VALUE_FORMATS)


def locate_artifacts(value: Any, artifacts: StoredArtifacts, spool: Spool) -> dict[str, str]:
    """Return the file of each artifact that a value refers to, by name. `spool` writes those that have no file."""
    found: dict[str, str] = {}
    if KEY_AS_JSON not in _encode(value):
        return found
    for reference in references(value):
        artifact = _parse_reference(reference)
        if artifact.name not in found:
            with _as_input_error():
                found[artifact.name] = _locate(artifact, artifacts, spool)
    return found


def _locate(artifact: Artifact, artifacts: StoredArtifacts, spool: Spool) -> str:
    # Programs look at the ending of a file.
    ending = "" if artifact.format in VALUE_FORMATS else os.path.splitext(artifact.name)[1]
    return artifacts.path(artifact) or spool(artifacts.fetch(artifact), ending)


def _path_of(artifact: Artifact, artifacts: StoredArtifacts, spool: Spool) -> str:
    """Return the path of a file for a process, if its size is right. Its content is not read here: it may be large."""
    path = _locate(artifact, artifacts, spool)
    if file_size(path) != artifact.size:
        gone = not os.path.lexists(path)
        raise ArtifactDamaged(f"artifact '{artifact.name}' {'is gone' if gone else 'is damaged: its size has changed'}")
    return path


def _parse_reference(reference: dict[str, Any]) -> Artifact:
    with _as_input_error():
        artifact = parse_reference(reference)
    if artifact.is_dropped:
        raise OutputDropped(describe_dropped(artifact))
    return artifact


def _fetch(value: Any, artifacts: StoredArtifacts, spool: Spool) -> Any:
    with _as_input_error():
        return fetch_references(value, artifacts.fetch, lambda artifact: _path_of(artifact, artifacts, spool))


@contextmanager
def _as_input_error() -> Iterator[None]:
    """Turn a missing or damaged artifact into an invalid input."""
    try:
        yield
    except (ArtifactGone, ArtifactDamaged) as error:
        raise InputInvalid(unavailable_value(error.message)) from error


def unavailable_value(reason: str) -> str:
    """Return the message for a value that a task reads and that is gone or damaged."""
    return f"a value that it reads is not available: {reason}"


class InputPreparation(msgspec.Struct, frozen=True):
    """A function that writes files, and the scratch files they become. `invalid_input` is its result on failure."""

    call: str
    args: dict[str, Any]
    moves: dict[str, str]


def invalid_input(reason: str) -> dict[str, str]:
    """Return what such a function returns for a value that cannot be used. On success it returns None."""
    return {"invalid": reason}


def preparation_failure(task: Task, result: CallResult | None) -> TaskEnded | None:
    """Report a task whose files could not be written; None if they were."""
    if result is None:
        return report_refusal(task, "its input cannot be prepared: the process that prepares it died", "EXCEPTION")
    if result.unreadable:
        return report_refusal(task, unavailable_value(result.unreadable))
    if result.exception:
        return report_refusal(task, f"its files cannot be written: {result.exception}", "EXCEPTION")
    return None if result.output is None else report_refusal(task, result.output["invalid"])
