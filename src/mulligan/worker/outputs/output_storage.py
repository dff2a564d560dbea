"""Check the output of a task, and store it as an artifact if it is too large for the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    references,
    replace_references,
)
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.place_keys import file_name
from mulligan.core.model.reports import TaskEnded
from mulligan.core.model.text.formatting import format_size
from mulligan.core.model.text.table_preview import IN_RESULT_BYTES_MAX, TablePreview, bounded_preview
from mulligan.errors import StoreRefused
from mulligan.ports import NewArtifacts
from mulligan.worker.outputs import outputs
from mulligan.worker.slots.machine_trouble import trouble_of

# JSON is at most seven times as large as MessagePack, and a character has at most six bytes.
_SURELY_INLINE_BYTES = INLINE_BYTES_MAX // 7
_SURELY_INLINE_CHARS = INLINE_BYTES_MAX // 6
_KEY_PACKED = KEY.encode()
# The name of a file that a step keeps, until it is stored: see `mulligan.step_context.artifacts`.
NEW = "new/"
DIGEST_CHARS = 64

# The largest output with references to files: it stays in the log, because nothing reads references in an artifact.
WITH_FILES_BYTES_MAX = 1 << 20
# The largest file that is stored as a row of a database.
ROW_BYTES_MAX = 256 << 20
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


class FileToStore(msgspec.Struct):
    """A file that a step keeps, in the folder of the worker until it is stored."""

    path: str
    # The file name, as the step gave it.
    name: str
    # As the step knows it: its name begins with `new/`.
    artifact: Artifact
    # Whether it is one of the artifacts of the attempt, or only part of its output.
    is_listed: bool = True
    # The columns and the first rows of a table, as the step wrote them.
    preview: TablePreview | None = None
    stored: Artifact | None = None


# By the name that a step knows: the reference as the step has it, and as the fact holds it.
_Known = Mapping[str, tuple[dict[str, Any], dict[str, Any]]]


class OutputStorage:
    """Every result passes through here once. Without artifacts all outputs stay in the log."""

    def __init__(self, artifacts: NewArtifacts | None) -> None:
        self._artifacts = artifacts

    def store(self, task: Task, report: TaskEnded, kept_files: Sequence[FileToStore] = ()) -> TaskEnded:
        """Return the report with an artifact reference for a large output; refuse what no event can hold.

        The files that the step keeps are stored too; they may be part of its output.
        Raises StoreUnavailable: then call it again later.
        """
        if kept_files and self._artifacts is not None:
            try:
                self._store_files(task, kept_files, self._artifacts)
            except NotStorable as problem:
                _remove_unstored(kept_files)
                return _invalid(report, str(problem))
            except StoreRefused as error:
                _remove_unstored(kept_files)
                return _refused(report, error)
            listed = (one.stored for one in kept_files if one.is_listed and one.stored is not None)
            report = msgspec.structs.replace(report, artifacts=tuple(map(make_reference, listed)))
        output = report.output
        if isinstance(output, OutputFile):
            return self._store_file(task, report, output)
        if type(output) is str:
            if len(output) <= _SURELY_INLINE_CHARS and not report.outcome.reported:
                return report
        elif output is None and not report.outcome.reported:
            return report
        try:
            return self._store_value(task, report, kept_files)
        except StoreRefused as error:
            return _refused(report, error)

    def _store_files(self, task: Task, kept_files: Sequence[FileToStore], artifacts: NewArtifacts) -> None:
        for one in kept_files:
            if one.stored is not None:
                continue  # the store was not available for a later one
            name = f"{artifact_folder_of(task)}/{file_name(one.name)}"
            artifact = msgspec.structs.replace(one.artifact, name=name)
            if artifact.size > ROW_BYTES_MAX and not artifacts.path(artifact):
                most = format_size(ROW_BYTES_MAX)
                raise NotStorable(f"the file '{one.name}' has more than {most}, the limit of a shared store")
            stored = artifacts.keep_file(artifact, one.path)
            preview = None if one.preview is None else bounded_preview(one.preview)
            one.stored = msgspec.structs.replace(stored, preview=preview)

    def _store_value(self, task: Task, report: TaskEnded, kept_files: Sequence[FileToStore] = ()) -> TaskEnded:
        try:
            packed = pack((report.output, report.outcome.reported))
            if _KEY_PACKED in packed and self._artifacts is not None:
                output = with_known_references(report.output, _known_references(task, kept_files))
                if output is not None:
                    return msgspec.structs.replace(report, output=output)
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
            return _refused(report, error)


def _remove_unstored(kept_files: Sequence[FileToStore]) -> None:
    """Remove files that will not be stored: the folder of a worker exists for as long as the worker."""
    for one in kept_files:
        if one.stored is None:
            outputs.remove_file(one.path)


def _known_references(task: Task, kept_files: Sequence[FileToStore]) -> _Known:
    """Return the references that a step may return: to files that it keeps, and those in its arguments."""
    given = {one[KEY]["name"]: (one, one) for one in references(task.params)}
    own = (one for one in kept_files if one.stored is not None)
    return given | {
        one.artifact.name: (make_reference(one.artifact), make_reference(one.stored)) for one in own if one.stored
    }


def with_known_references(output: Any, known: _Known) -> Any:
    """Return the output with final references to files that the step keeps; None if it has no reference of ours.

    Raises NotStorable if others are beside them: only a worker writes references.
    """
    found = list(references(output))
    are_known = [_is_known(one, known) for one in found]
    if not any(are_known):
        if lost := next((one for one in found if _is_new(one)), None):
            raise NotStorable(
                f"it refers to the file '{lost[KEY]['name']}', which the step has not kept, or has changed"
            )
        return None
    if not all(are_known):
        raise NotStorable(f"it has the key '{KEY}' in it, which is reserved for artifacts")
    output = _with_previews(output, known)
    if len(msgspec.json.encode(output)) > WITH_FILES_BYTES_MAX:
        most = format_size(WITH_FILES_BYTES_MAX)
        raise NotStorable(f"it has more than {most} beside the files that it refers to; keep some of it in a file, too")
    return output


def _with_previews(output: Any, known: _Known) -> Any:
    """Return the output with final references, and previews of its first tables: many would fill the log."""
    room = IN_RESULT_BYTES_MAX

    def final(reference: dict[str, Any]) -> dict[str, Any]:
        nonlocal room
        found = known[reference[KEY]["name"]][1]
        if "preview" not in found[KEY]:
            return found
        room -= len(msgspec.json.encode(found[KEY]["preview"]))
        return found if room >= 0 else {KEY: {name: value for name, value in found[KEY].items() if name != "preview"}}

    return replace_references(output, final)


def _is_known(reference: dict[str, Any], known: _Known) -> bool:
    named = reference[KEY].get("name") if isinstance(reference[KEY], dict) else None
    return isinstance(named, str) and named in known and known[named][0] == reference


def _is_new(reference: dict[str, Any]) -> bool:
    """Whether it is a reference as only `mulligan.artifact` and tables make it."""
    about = reference[KEY]
    if not isinstance(about, dict) or not str(about.get("name")).startswith(NEW):
        return False
    return len(str(about.get("sha256"))) == DIGEST_CHARS


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


def _refused(report: TaskEnded, error: StoreRefused) -> TaskEnded:
    cause = error.__cause__
    return report_storage_failure(report, error.message, cause.errno if isinstance(cause, OSError) else None)


def report_storage_failure(
    report: TaskEnded, reason: str, error_number: int | None = None, *, code: str = "EXCEPTION"
) -> TaskEnded:
    """Report that the output could not be stored: the attempt has failed, and another one may succeed."""
    trouble = trouble_of(error_number)
    outcome = Outcome(
        exit_code=None,
        code=code,
        message=storage_error(reason),
        is_stopped=report.outcome.is_stopped,
        machine=trouble,
        is_machine_broken=bool(trouble),
    )
    return msgspec.structs.replace(report, outcome=outcome, output=None)
