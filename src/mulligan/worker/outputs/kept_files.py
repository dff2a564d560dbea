"""The files that a step keeps (`mulligan.artifact`): found by their manifest, searched for secrets, then stored.

`mulligan.step_context.artifacts` writes the manifest in the process of the step.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from mulligan.core.deciding.classify import classify
from mulligan.core.model.artifacts import Artifact
from mulligan.core.model.reports import TaskEnded
from mulligan.core.model.text.table_preview import TablePreview
from mulligan.worker.child.background_jobs import BackgroundJobs
from mulligan.worker.child.warm_child import CallResult
from mulligan.worker.folders import file_size, open_regular_file
from mulligan.worker.outputs import outputs
from mulligan.worker.outputs.output_storage import FileToStore
from mulligan.worker.running_task import RunningTask
from mulligan.worker.secrets.redactor import Redactor
from mulligan.worker.task_boundary import TaskBoundary
from mulligan.worker.task_reports import report_output_error

FIND_SECRETS = "mulligan.worker.outputs.kept_files:find_secrets"
MANIFEST_BYTES_MAX = 4 << 20
# How much is searched at once, and how much of it again with the next part: more than any secret has.
SEARCH_BYTES, OVERLAP_BYTES = 64 << 20, 1 << 20

WIDE_ENCODINGS = ("utf-32-le", "utf-32-be", "utf-16-le", "utf-16-be")


class _Entry(msgspec.Struct):
    """A line of the manifest."""

    reference: dict[str, Any]
    name: str
    is_listed: bool = True
    # Of a table, as the step made it.
    preview: msgspec.Raw = msgspec.Raw(b"null")


class KeptFiles:
    """Take the files of tasks that have ended. `report_end` gets the report when its files were searched."""

    def __init__(
        self, jobs: BackgroundJobs, boundary: TaskBoundary, *, report_end: Callable[[RunningTask, TaskEnded], None]
    ) -> None:
        self._jobs = jobs
        self._boundary = boundary
        self._report = report_end
        # By lease token: tasks whose files are being searched.
        self._searched: dict[int, RunningTask] = {}

    @property
    def storing(self) -> Collection[RunningTask]:
        """Tasks that have ended and whose files are being searched."""
        return self._searched.values()

    def clear(self) -> None:
        """Forget everything that is in progress."""
        self._searched.clear()

    def take(self, running: RunningTask, *, is_reported: bool) -> None:
        """Take the files from the scratch files of a task, or remove them if its end is not reported."""
        manifest = running.scratch.artifacts
        # The usual case, and exceptions are expensive.
        if not os.access(manifest, os.F_OK, follow_symlinks=False):
            return
        for entry in _read_manifest(manifest) if is_reported else ():
            artifact = _artifact_of(entry)
            path = f"{manifest}-{artifact.name.partition('/')[2]}" if artifact is not None else ""
            # Only a file of this task, as it was registered.
            if artifact is None or not _is_beside(path, manifest) or file_size(path) != artifact.size:
                continue
            own = self._jobs.new_path()
            with suppress(OSError):
                os.rename(path, own)
                running.kept_files.append(FileToStore(own, entry.name, artifact, entry.is_listed, _preview_of(entry)))
        _remove_beside(manifest)

    def must_search(self, running: RunningTask) -> bool:
        """Whether files have to be searched for secrets before they are stored."""
        if not running.kept_files or running.are_files_searched:
            return False
        return self._boundary.redactor(running.resolved) is not None

    def search(self, running: RunningTask, report: TaskEnded) -> None:
        """Have the files searched; then `report_end` is called, with a failure if a secret was found."""
        self._searched[running.lease.token] = running
        args = {
            "paths": [one.path for one in running.kept_files],
            "secrets": self._boundary.secrets(running.resolved),
        }
        self._jobs.call(FIND_SECRETS, args, partial(self._on_searched, running, report), {})

    def _on_searched(self, running: RunningTask, report: TaskEnded, answer: CallResult | None) -> None:
        if self._searched.pop(running.lease.token, None) is not running:
            return
        running.are_files_searched = True
        has_failed = answer is None or bool(answer.exception) or not isinstance(answer.output, list)
        found = range(len(running.kept_files)) if has_failed or answer is None else answer.output
        if found:
            name = running.kept_files[found[0]].name
            problem = (
                f"its artifact '{name}' could not be searched for secrets"
                if has_failed
                else f"its artifact '{name}' contains a secret of the run, so it is not kept"
            )
            for one in running.kept_files:
                outputs.remove_file(one.path)
            running.kept_files.clear()
            # A failure stays what it is.
            if classify(report.outcome)[0] is None:
                report = report_output_error(report, problem)
        self._report(running, report)


def find_secrets(paths: list[str], secrets: list[str]) -> list[int]:
    """Return which of these files contain a secret. Runs in a child: see `background_jobs`."""
    redactor = Redactor(secrets)
    # Arrays of texts, and files of other systems, have two or four bytes for each character.
    wide = [secret.encode(encoding) for secret in secrets for encoding in WIDE_ENCODINGS]
    return [number for number, path in enumerate(paths) if _has_secret(path, redactor, wide)]


def _has_secret(path: str, redactor: Redactor, wide: list[bytes]) -> bool:
    before = b""
    with open_regular_file(path) as file:
        while data := file.read(SEARCH_BYTES):
            searched = before + data
            if next(redactor.find_spans(searched), None) is not None or any(one in searched for one in wide):
                return True
            before = data[-OVERLAP_BYTES:]
    return False


def _read_manifest(path: str) -> list[_Entry]:
    try:
        with open_regular_file(path) as file:
            lines = file.read(MANIFEST_BYTES_MAX).split(b"\n")
    except OSError:
        return []
    found = []
    for line in lines:
        # A process that was killed may have left half a line, and the step may write any.
        with suppress(msgspec.DecodeError, RecursionError):
            found.append(msgspec.json.decode(line, type=_Entry))
    return found


def _artifact_of(entry: _Entry) -> Artifact | None:
    try:
        return msgspec.convert(entry.reference, Artifact)
    except msgspec.ValidationError:
        return None


def _preview_of(entry: _Entry) -> TablePreview | None:
    try:
        return msgspec.json.decode(entry.preview, type=TablePreview | None)
    except msgspec.DecodeError:
        return None


def _is_beside(path: str, manifest: str) -> bool:
    return os.path.dirname(path) == os.path.dirname(manifest) and path.startswith(f"{manifest}-")


def _remove_beside(manifest: str) -> None:
    """Remove the manifest, and the files that were not registered."""
    folder, name = os.path.split(manifest)
    with suppress(OSError):
        for one in os.listdir(folder):
            if one.startswith(f"{name}-"):
                outputs.remove_file(f"{folder}/{one}")
    outputs.remove_file(manifest)
