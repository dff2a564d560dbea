"""What a task gave, as an event can hold it: checked, and kept beside the log where it is large."""

from __future__ import annotations

from typing import Any

import msgspec

from mulligan.core.effects.tasks import Task
from mulligan.core.model.artifacts import (
    ENDINGS,
    INLINE_BYTES_MAX,
    KEY,
    Artifact,
    Format,
    holds_reference,
    make_reference,
)
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.place_keys import file_name
from mulligan.core.model.reports import TaskEnded
from mulligan.errors import StoreRefused
from mulligan.ports import Artifacts

# As JSON nothing is more than seven times as large as packed, no character more than six bytes.
_SURELY_INLINE_BYTES = INLINE_BYTES_MAX // 7
_SURELY_INLINE_CHARS = INLINE_BYTES_MAX // 6
_KEY_PACKED = KEY.encode()

_TOO_LARGE = "it has a number of more than 64 bits, or is nested too deep"
_NO_TEXT = "it has half of a character in it"


class NotKeepable(Exception):
    """No event can hold such a value, nor can an artifact; the message says why."""


class InFile(msgspec.Struct, frozen=True):
    """In the place of an output: it is in a file of the worker's, checked and on the disk, and is to be kept."""

    path: str
    size: int
    sha256: str
    format: Format


class Results:
    """Every result comes by here, once. Without a place for artifacts all of them stay in the log."""

    def __init__(self, artifacts: Artifacts | None) -> None:
        self._artifacts = artifacts

    def kept(self, task: Task, ended: TaskEnded) -> TaskEnded:
        """The report with what no event can hold refused, and a large output as the reference to an artifact.

        StoreUnavailable where that is away: then it is to be asked again.
        """
        output = ended.output
        if isinstance(output, InFile):
            return self._with_file(task, ended, output)
        if type(output) is str:
            if len(output) <= _SURELY_INLINE_CHARS and not ended.outcome.reported:
                return ended
        elif output is None and not ended.outcome.reported:
            return ended
        try:
            return self._looked_at(task, ended)
        except StoreRefused as error:
            return refused_output(ended, error.message)

    def _looked_at(self, task: Task, ended: TaskEnded) -> TaskEnded:
        try:
            packed = pack((ended.output, ended.outcome.reported))
        except NotKeepable as problem:
            return _invalid(ended, str(problem))
        found = None if self._artifacts is None else beside_the_log(ended.output, packed)
        if found is None or self._artifacts is None:
            return ended
        data, format = found
        return msgspec.structs.replace(
            ended, output=make_reference(self._artifacts.keep(_name(task, format), data, format))
        )

    def _with_file(self, task: Task, ended: TaskEnded, output: InFile) -> TaskEnded:
        """The file is removed, or is the artifact's now."""
        assert self._artifacts is not None
        told = self.kept(task, msgspec.structs.replace(ended, output=None))
        if told.outcome is not ended.outcome:
            return told
        artifact = Artifact(_name(task, output.format), output.size, output.sha256, output.format)
        try:
            return msgspec.structs.replace(
                ended, output=make_reference(self._artifacts.keep_file(artifact, output.path))
            )
        except StoreRefused as error:
            return refused_output(ended, error.message)


def pack(value: Any) -> bytes:
    """JSON knows numbers of any size; what keeps them knows 64 bits, as packed values do. NotKeepable without those."""
    try:
        return msgspec.msgpack.encode(value)
    except UnicodeEncodeError:
        raise NotKeepable(_NO_TEXT) from None
    except (OverflowError, RecursionError, TypeError, ValueError):
        raise NotKeepable(_TOO_LARGE) from None


def beside_the_log(output: Any, packed: bytes) -> tuple[bytes, Format] | None:
    """What is kept as an artifact of an output, which is also there packed; None where the log has room for it."""
    if len(packed) <= _SURELY_INLINE_BYTES and _KEY_PACKED not in packed:
        return None
    data = msgspec.json.encode(output)
    if len(data) <= INLINE_BYTES_MAX and not holds_reference(output):
        return None
    return (output.encode(), "text") if type(output) is str else (data, "json")


def _name(task: Task, format: Format) -> str:
    return f"{folder_of(task)}/output{ENDINGS[format]}"


def folder_of(task: Task) -> str:
    """Where its artifacts are: another for each run, place (with its item), visit and attempt; none is ever shared."""
    return f"{task.run_id}/{file_name(task.place)}/{task.visit}/{task.attempt}"


def invalid_output(problem: str) -> str:
    return f"its output cannot be kept: {problem}"


def _invalid(ended: TaskEnded, problem: str) -> TaskEnded:
    if ended.outcome.reported:
        outcome = msgspec.structs.replace(ended.outcome, reported=(), report_error=f"cannot be kept: {problem}")
    else:
        outcome = msgspec.structs.replace(ended.outcome, output_error=invalid_output(problem))
    return msgspec.structs.replace(ended, outcome=outcome, output=None)


def refused_output(ended: TaskEnded, reason: str) -> TaskEnded:
    """There is no room for it, or no place: the attempt has failed, and another one may do."""
    outcome = Outcome(
        exit_code=None, code="EXCEPTION", message=invalid_output(reason), is_stopped=ended.outcome.is_stopped
    )
    return msgspec.structs.replace(ended, outcome=outcome, output=None)
