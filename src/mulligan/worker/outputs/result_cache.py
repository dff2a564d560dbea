"""Reuse earlier results: look one up before a task starts, and record the files of a task that has ended.

The files that a task reads and writes are hashed on the host that runs it. A child reads what is too large for the
loop.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec

from mulligan.core.deciding.classify import classify
from mulligan.core.effects.fingerprints import Result, fingerprint, parts_of, result_of
from mulligan.core.effects.tasks import Task
from mulligan.core.model.artifacts import holds_reference, parse_reference, references
from mulligan.core.model.file_records import FileRecord
from mulligan.core.model.reports import TaskEnded
from mulligan.errors import ArtifactDamaged, CodecError
from mulligan.ports import Artifacts, FindResults
from mulligan.worker.actions.action_registry import is_python
from mulligan.worker.child.background_jobs import BackgroundJobs
from mulligan.worker.child.warm_child import CallResult
from mulligan.worker.outputs.code_files import CODE_DIGEST, Code, CodeRequest, code_request_of
from mulligan.worker.outputs.file_hashes import RECORD_FILES, FileHashCache, are_small_enough, is_untouched, record_file
from mulligan.worker.running_task import RunningTask
from mulligan.worker.secrets.secret_commands import NotReady

# The newest results under one fingerprint: they differ only in their files.
RESULTS_MAX = 5
# How many functions have their code remembered.
CODES_MAX = 10_000

# The record of each path; None if there is nothing.
_Files = dict[str, FileRecord | None]


class ResultCache:
    """`on_ready` is called when `find` can be called again; `report_end` gets the report of a recorded task."""

    def __init__(
        self,
        jobs: BackgroundJobs,
        results: FindResults | None,
        artifacts: Artifacts | None,
        *,
        on_ready: Callable[[], None],
        report_end: Callable[[RunningTask, TaskEnded], None],
    ) -> None:
        self._jobs = jobs
        self._results = results
        self._artifacts = artifacts
        self._on_ready = on_ready
        self._report = report_end
        self._hashes = FileHashCache()
        # By lease token: the files that were read for a task that has not started; None while a child reads.
        self._contents_by_token: dict[int, _Files | None] = {}
        self._recording: dict[int, RunningTask] = {}
        # The code of functions; an empty list while a child reads it.
        self._codes: dict[CodeRequest, list[Code | None]] = {}

    @property
    def storing(self) -> Collection[RunningTask]:
        """Tasks that have ended and whose files are being read."""
        return self._recording.values()

    def forget(self, running: RunningTask) -> None:
        """Forget a task that has ended or started."""
        self._contents_by_token.pop(running.lease.token, None)

    def clear(self) -> None:
        """Forget everything that is in progress."""
        self._codes = {request: code for request, code in self._codes.items() if code}
        self._contents_by_token.clear()
        self._recording.clear()

    # -- before a task

    def find(self, running: RunningTask) -> TaskEnded | None:
        """Return the report of a task that need not run; None if it has to. NotReady while a child reads files."""
        task, token = running.lease.task, running.lease.token
        about = task.reuse
        if about is None:
            return None
        files = self._read_files(token, [_absolute(task, path) for path in about.reads.values()])
        records = {name: files[_absolute(task, path)] for name, path in about.reads.items()}
        if any(record is not None and not record.sha256 for record in records.values()):
            return None  # a file that cannot be read cannot be compared
        contents = {name: record.sha256 if record else "" for name, record in records.items()}
        if about.code and is_python(task):
            running.code = self._find_code(task)
            if running.code is None:
                return None  # nobody knows which code the result would belong to
        running.fingerprint = tag = fingerprint(task, contents, running.code.digest if running.code else "")
        running.input_hashes = {_absolute(task, path): contents[name] for name, path in about.reads.items()}
        if not about.looks or self._results is None:
            return None
        try:
            rows = self._results(tag, RESULTS_MAX, task.run_id)
        except CodecError:
            return None  # the row of another run is damaged, which does not concern this one
        for row in rows:
            result = result_of(*row, task)
            if result is not None and self._has_artifacts(result.output) and self._has_files(token, task, result):
                return _report_reused(task, result, tag)
        return None

    def _has_artifacts(self, output: Any) -> bool:
        """Whether the artifacts of an output still exist: they may have been removed to free space."""
        if self._artifacts is None or not holds_reference(output):
            return True
        try:
            files = [parse_reference(item) for item in references(output)]
        except ArtifactDamaged:
            return False
        return all(_has_size(self._artifacts.path(item), item.size) for item in files)

    def _has_files(self, token: int, task: Task, result: Result) -> bool:
        """Whether all files that the task declares exist, as that run wrote them."""
        written = {record.name: record for record in result.files}
        if {name: record.path for name, record in written.items()} != task.files:
            return False
        touched = [record for record in written.values() if not is_untouched(record, _absolute(task, record.path))]
        files = self._read_files(token, [_absolute(task, record.path) for record in touched])
        return all(_is_same(record, files[_absolute(task, record.path)]) for record in touched)

    def _read_files(self, token: int, paths: Iterable[str]) -> _Files:
        """Return what is at each path. NotReady while a child reads: then call it again."""
        files = self._contents_by_token.setdefault(token, {})
        if files is None:
            raise NotReady
        missing = [path for path in dict.fromkeys(paths) if path not in files]
        files.update(self._read_small_files(missing))
        missing = [path for path in missing if path not in files]
        if missing:
            self._contents_by_token[token] = None
            self._jobs.call(RECORD_FILES, {"paths": missing}, partial(self._on_read, token, files, missing), {})
            raise NotReady
        return files

    def _read_small_files(self, paths: list[str]) -> _Files:
        """Return what is cached, and the other files if the loop may read them itself."""
        files: _Files = {path: record for path in paths if (record := self._hashes.find(path)) is not None}
        others = [path for path in paths if path not in files]
        if are_small_enough(others):
            files.update((path, self._remember(record_file(path))) for path in others)
        return files

    def _remember(self, record: FileRecord | None) -> FileRecord | None:
        if record is not None:
            self._hashes.keep(record)
        return record

    def _on_read(self, token: int, files: _Files, paths: list[str], answer: CallResult | None) -> None:
        if self._contents_by_token.get(token, files) is None:
            self._contents_by_token[token] = {**files, **self._files_from(paths, answer)}
            self._on_ready()

    def _files_from(self, paths: list[str], answer: CallResult | None) -> _Files:
        if answer is None or answer.exception or not isinstance(answer.output, list):
            return {path: FileRecord(path, path) for path in paths}
        files = (None if item is None else msgspec.convert(item, FileRecord) for item in answer.output)
        return {path: self._remember(item) for path, item in zip(paths, files, strict=True)}

    def _find_code(self, task: Task) -> Code | None:
        """Return the code of a Python task; None if it cannot be read. NotReady while a child reads it."""
        request = code_request_of(task)
        if request is None:
            return Code()
        known = self._codes.get(request)
        if known is not None and not known:
            raise NotReady
        if known and known[0] is not None and known[0].is_unchanged:
            return known[0]
        if known and known[0] is None:
            del self._codes[request]  # it is tried again for the next task
            return None
        if len(self._codes) >= CODES_MAX:
            self._codes = {one: code for one, code in self._codes.items() if not code}
        self._codes[request] = []
        self._jobs.call(CODE_DIGEST, request.arguments, partial(self._on_code, request), {})
        raise NotReady

    def _on_code(self, request: CodeRequest, answer: CallResult | None) -> None:
        is_known = answer is not None and not answer.exception and isinstance(answer.output, dict)
        if self._codes.get(request) == []:
            self._codes[request] = [msgspec.convert(answer.output, Code) if answer and is_known else None]
            self._on_ready()

    # -- after a task

    def record(self, running: RunningTask, report: TaskEnded) -> TaskEnded | None:
        """Return the report with the files of the task; None while a child reads them: then `report_end` gets it."""
        task, token = running.lease.task, running.lease.token
        if task.reuse is None and not task.files:
            return report
        if classify(report.outcome)[0] is not None:
            return report
        if running.fingerprint and (running.code is None or running.code.is_unchanged):
            reads = task.reuse.reads if task.reuse is not None else {}
            contents = {name: running.input_hashes.get(_absolute(task, path), "") for name, path in reads.items()}
            made_of = parts_of(task, contents, running.code.parts if running.code is not None else {})
            report = msgspec.structs.replace(report, fingerprint=running.fingerprint, made_of=made_of)
        # Check again what it has read: it may have changed before the task read it.
        files: _Files = {
            path: record for path in running.input_hashes if (record := self._hashes.find(path)) is not None
        }
        paths = [*(_absolute(task, path) for path in task.files.values()), *running.input_hashes]
        paths = [path for path in dict.fromkeys(paths) if path not in files]
        if are_small_enough(paths):
            return _with_files(running, report, {**files, **{path: record_file(path) for path in paths}})
        self._recording[token] = running
        self._jobs.call(RECORD_FILES, {"paths": paths}, partial(self._on_recorded, running, report, files, paths), {})
        return None

    def _on_recorded(
        self, running: RunningTask, report: TaskEnded, files: _Files, paths: list[str], answer: CallResult | None
    ) -> None:
        if self._recording.pop(running.lease.token, None) is running:
            self._report(running, _with_files(running, report, {**files, **self._files_from(paths, answer)}))


def _has_size(path: str, size: int) -> bool:
    """Whether a file has that size. An artifact without a file is in the store, with the row that refers to it."""
    try:
        return not path or os.stat(path).st_size == size
    except OSError:
        return False


def _absolute(task: Task, path: str) -> str:
    return os.path.join(task.home or "/", path)


def _is_same(record: FileRecord, files: FileRecord | None) -> bool:
    return files is not None and bool(record.sha256) and files.sha256 == record.sha256


def _report_reused(task: Task, result: Result, tag: str) -> TaskEnded:
    return TaskEnded(
        datetime.now(UTC),
        task.place,
        task.attempt,
        output=result.output,
        files=result.files,
        fingerprint=tag,
        reused_run_id=result.run_id,
    )


def _with_files(running: RunningTask, report: TaskEnded, files: _Files) -> TaskEnded:
    """Return the report with its files.

    No other run may reuse the result if a file is gone or cannot be read, or if a file that the task reads has
    changed: then it is unknown which content the result belongs to.
    """
    task, records = running.lease.task, []
    for name, path in task.files.items():
        record = files[_absolute(task, path)]
        if record is not None:
            records.append(msgspec.structs.replace(record, name=name, path=path))
    is_whole = len(records) == len(task.files) and all(record.sha256 for record in records)
    if not (is_whole and all(_is_unchanged(content, files[path]) for path, content in running.input_hashes.items())):
        report = msgspec.structs.replace(report, fingerprint="", made_of={})
    return msgspec.structs.replace(report, files=tuple(records)) if records else report


def _is_unchanged(content: str, files: FileRecord | None) -> bool:
    """Whether a file still has this content; "" means that it did not exist."""
    return not content if files is None else bool(content) and files.sha256 == content
