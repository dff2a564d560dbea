"""Check the output of a task, and store it as an artifact if it is too large for the log."""

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

# JSON is at most seven times as large as MessagePack, and a character has at most six bytes.
_SURELY_INLINE_BYTES = INLINE_BYTES_MAX // 7
_SURELY_INLINE_CHARS = INLINE_BYTES_MAX // 6
_KEY_PACKED = KEY.encode()

_TOO_LARGE = "it contains a number of more than 64 bits, or is nested too deep"
_NO_TEXT = "it contains a lone surrogate"


class NotStorable(Exception):
    """Neither an event nor an artifact can hold the value; the message says why."""


class OutputFile(msgspec.Struct, frozen=True):
    """A placeholder for an output that is in a file of the worker, checked and synced, ready to be stored."""

    path: str
    size: int
    sha256: str
    format: Format


class OutputStorage:
    """Every result passes through here once. Without artifacts all outputs stay in the log."""

    def __init__(self, artifacts: Artifacts | None) -> None:
        self._artifacts = artifacts

    def store(self, task: Task, report: TaskEnded) -> TaskEnded:
        """Return the report with an artifact reference for a large output; refuse what no event can hold.

        Raises StoreUnavailable: then call it again later.
        """
        output = report.output
        if isinstance(output, OutputFile):
            return self._store_file(task, report, output)
        if type(output) is str:
            if len(output) <= _SURELY_INLINE_CHARS and not report.outcome.reported:
                return report
        elif output is None and not report.outcome.reported:
            return report
        try:
            return self._store_value(task, report)
        except StoreRefused as error:
            return report_storage_failure(report, error.message)

    def _store_value(self, task: Task, report: TaskEnded) -> TaskEnded:
        try:
            packed = pack((report.output, report.outcome.reported))
        except NotStorable as problem:
            return _invalid(report, str(problem))
        data_and_format = None if self._artifacts is None else artifact_data(report.output, packed)
        if data_and_format is None or self._artifacts is None:
            return report
        data, format = data_and_format
        return msgspec.structs.replace(
            report, output=make_reference(self._artifacts.keep(_name(task, format), data, format))
        )

    def _store_file(self, task: Task, report: TaskEnded, output: OutputFile) -> TaskEnded:
        """Store a file. Afterwards it is removed, or it is the artifact."""
        assert self._artifacts is not None
        stored = self.store(task, msgspec.structs.replace(report, output=None))
        if stored.outcome is not report.outcome:
            return stored
        artifact = Artifact(_name(task, output.format), output.size, output.sha256, output.format)
        try:
            return msgspec.structs.replace(
                report, output=make_reference(self._artifacts.keep_file(artifact, output.path))
            )
        except StoreRefused as error:
            return report_storage_failure(report, error.message)


def pack(value: Any) -> bytes:
    """Encode as MessagePack, which has the same limit of 64-bit numbers as the store; raise NotStorable."""
    try:
        return msgspec.msgpack.encode(value)
    except UnicodeEncodeError:
        raise NotStorable(_NO_TEXT) from None
    except (OverflowError, RecursionError, TypeError, ValueError):
        raise NotStorable(_TOO_LARGE) from None


def artifact_data(output: Any, packed: bytes) -> tuple[bytes, Format] | None:
    """Return what to store as an artifact, given the packed output; None if it fits into the log."""
    if len(packed) <= _SURELY_INLINE_BYTES and _KEY_PACKED not in packed:
        return None
    data = msgspec.json.encode(output)
    if len(data) <= INLINE_BYTES_MAX and not holds_reference(output):
        return None
    return (output.encode(), "text") if type(output) is str else (data, "json")


def _name(task: Task, format: Format) -> str:
    return f"{artifact_folder_of(task)}/output{ENDINGS[format]}"


def artifact_folder_of(task: Task) -> str:
    """Return the folder of its artifacts, which is unique for run, place (with its item), visit and attempt."""
    return f"{task.run_id}/{file_name(task.place)}/{task.visit}/{task.attempt}"


def storage_error(problem: str) -> str:
    return f"its output cannot be stored: {problem}"


def _invalid(report: TaskEnded, problem: str) -> TaskEnded:
    if report.outcome.reported:
        outcome = msgspec.structs.replace(report.outcome, reported=(), report_error=f"cannot be stored: {problem}")
    else:
        outcome = msgspec.structs.replace(report.outcome, output_error=storage_error(problem))
    return msgspec.structs.replace(report, outcome=outcome, output=None)


def report_storage_failure(report: TaskEnded, reason: str) -> TaskEnded:
    """Report that the output could not be stored: the attempt has failed, and another one may succeed."""
    outcome = Outcome(
        exit_code=None, code="EXCEPTION", message=storage_error(reason), is_stopped=report.outcome.is_stopped
    )
    return msgspec.structs.replace(report, outcome=outcome, output=None)
