"""What a task reads that is in artifacts: put in its hands before it starts, or found by the process that runs it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from mulligan.core.effects.tasks import Task
from mulligan.core.model.artifacts import KEY_AS_JSON, Artifact, references, referred, whole
from mulligan.core.model.reports import TaskEnded
from mulligan.errors import ArtifactDamaged, ArtifactGone, InputInvalid
from mulligan.language.shell import VALUE_BYTES_MAX, value_too_large
from mulligan.ports import Artifacts
from mulligan.worker.loop_limits import LOOP_BYTES_MAX, LOOP_BYTES_MAX_REDACTED
from mulligan.worker.task_reports import report_refusal
from mulligan.worker.warm_child import CallResult

_encode = msgspec.json.Encoder().encode


def fetch_artifacts(task: Task, artifacts: Artifacts, *, is_called: bool) -> Task:
    """The task with what is in artifacts in the place of their references; InputInvalid where one cannot be had.

    References stay in the parameters of a function that is called in a child, which reads them itself, and where there
    is more behind them than the loop may read.
    """
    # At once, and not walked through: most tasks read none.
    if KEY_AS_JSON not in _encode((task.params, task.env, task.cwd, task.told)):
        return task
    for name, value in {**task.env, "cwd": task.cwd}.items():
        if (size := referenced_bytes(value)) > VALUE_BYTES_MAX:
            raise value_too_large(name, size)
    names = ["env", "cwd"]
    if not is_called and not has_large_input(task):
        names.append("params")
    values = {name: _fetch(getattr(task, name), artifacts) for name in names}
    if task.told and "params" in names:
        values["told"] = task.told.fetched(lambda output: _fetch(output, artifacts))
    return msgspec.structs.replace(task, **values)


def has_large_input(task: Task) -> bool:
    """Whether there is more behind the references of its parameters, and of what it is told, than the loop may read."""
    values = values_with_references(task)
    # What an agent is told is searched for credentials, which takes longer than to read it: all that is in artifacts.
    bytes_max = LOOP_BYTES_MAX_REDACTED if task.told and task.told.hides else LOOP_BYTES_MAX
    return KEY_AS_JSON in _encode(values) and referenced_bytes(values) > bytes_max


def values_with_references(task: Task) -> list[Any]:
    """The parameters of a task, and the outputs that an agent is told: what may hold references."""
    return [task.params, *((one.output for one in task.told.heard) if task.told else ())]


def referenced_bytes(value: Any) -> int:
    """How many bytes the references in a value stand for."""
    return sum(_parse_reference(reference).size for reference in references(value))


def locate_artifacts(value: Any, artifacts: Artifacts, spool: Callable[[bytes], str]) -> dict[str, str]:
    """The file of each artifact that a value refers to, by name. What is in none `spool` puts into one."""
    found: dict[str, str] = {}
    if KEY_AS_JSON not in _encode(value):
        return found
    for reference in references(value):
        artifact = _parse_reference(reference)
        if artifact.name not in found:
            with _as_input_error():
                found[artifact.name] = artifacts.path(artifact) or spool(artifacts.fetch(artifact))
    return found


def _parse_reference(reference: dict[str, Any]) -> Artifact:
    with _as_input_error():
        return referred(reference)


def _fetch(value: Any, artifacts: Artifacts) -> Any:
    with _as_input_error():
        return whole(value, artifacts.fetch)


@contextmanager
def _as_input_error() -> Iterator[None]:
    """What cannot be had here is an input that is invalid."""
    try:
        yield
    except (ArtifactGone, ArtifactDamaged) as error:
        raise InputInvalid(unavailable_value(error.message)) from error


def unavailable_value(reason: str) -> str:
    """In words: a value that a task reads is not there, or not what it was."""
    return f"a value that it reads cannot be had: {reason}"


class InputPreparation(msgspec.Struct, frozen=True):
    """A function of ours that writes files, and which side files these are to become. See `invalid_input` for its result."""

    call: str
    args: dict[str, Any]
    moves: dict[str, str]


def invalid_input(reason: str) -> dict[str, str]:
    """What such a function returns where a value cannot be used. Where all is well it returns nothing."""
    return {"invalid": reason}


def preparation_failure(task: Task, result: CallResult | None) -> TaskEnded | None:
    """The end of a task whose files could not be written; None where they are."""
    if result is None:
        return report_refusal(
            task, "its input cannot be prepared: the process that was to do so has ended", "EXCEPTION"
        )
    if result.unreadable:
        return report_refusal(task, unavailable_value(result.unreadable))
    if result.exception:
        return report_refusal(task, f"its files cannot be written: {result.exception}", "EXCEPTION")
    return None if result.output is None else report_refusal(task, result.output["invalid"])
