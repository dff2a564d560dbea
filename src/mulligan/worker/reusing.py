"""Earlier results in the place of work: found before a task starts, and recorded when one has ended.

The files that a task reads and writes are hashed here, where they are: on the host that runs it. What is larger than
the loop may read, a child reads.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec

from mulligan.core.deciding.classify import classify
from mulligan.core.effects.fingerprints import Result, fingerprint, result_of
from mulligan.core.effects.tasks import Task
from mulligan.core.model.artifacts import holds_reference, parse_reference, references
from mulligan.core.model.file_records import FileRecord
from mulligan.core.model.reports import TaskEnded
from mulligan.errors import ArtifactDamaged, CodecError
from mulligan.ports import Artifacts, FindResults
from mulligan.worker.children import Answer
from mulligan.worker.file_hashes import DESCRIBE, Remembered, are_small, describe, is_untouched
from mulligan.worker.jobs import Jobs
from mulligan.worker.lookups import NotYet
from mulligan.worker.running import Running

# The newest results under one fingerprint: they differ in their files alone.
RESULTS_MAX = 5

# What is at a path: None where nothing is.
_Found = dict[str, FileRecord | None]


class Reusing:
    """`on_ready` is called when a task may be asked about again; `tell` with the end of one that is recorded."""

    def __init__(
        self,
        jobs: Jobs,
        results: FindResults | None,
        artifacts: Artifacts | None,
        on_ready: Callable[[], None],
        tell: Callable[[Running, TaskEnded], None],
    ) -> None:
        self._jobs = jobs
        self._results = results
        self._artifacts = artifacts
        self._on_ready = on_ready
        self._tell = tell
        self._remembered = Remembered()
        # By the tokens of leases: what was read for a task that is to start; None while a child reads.
        self._read: dict[int, _Found | None] = {}
        self._recording: dict[int, Running] = {}

    @property
    def recording(self) -> Collection[Running]:
        """Tasks that have ended, and whose files are being read."""
        return self._recording.values()

    def give_up(self, running: Running) -> None:
        """The task is over, or has started: nothing more is looked for."""
        self._read.pop(running.lease.token, None)

    def forget_all(self) -> None:
        """Nobody waits any more for what is under way."""
        self._read.clear()
        self._recording.clear()

    # -- before

    def find(self, running: Running) -> TaskEnded | None:
        """The end of a task that need not be run; None for one that is to start. NotYet while a child reads files."""
        task, token = running.lease.task, running.lease.token
        about = task.reuse
        if about is None:
            return None
        found = self._contents(token, [_absolute(task, path) for path in about.reads.values()])
        records = {name: found[_absolute(task, path)] for name, path in about.reads.items()}
        if any(record is not None and not record.sha256 for record in records.values()):
            return None  # what cannot be read cannot be compared
        contents = {name: record.sha256 if record else "" for name, record in records.items()}
        running.fingerprint = known_by = fingerprint(task, contents)
        running.read = {_absolute(task, path): contents[name] for name, path in about.reads.items()}
        if not about.looks or self._results is None:
            return None
        try:
            rows = self._results(known_by, RESULTS_MAX)
        except CodecError:
            return None  # the trouble of the run whose row it is, and not of this one
        for row in rows:
            result = result_of(*row, task)
            if result is not None and self._is_kept(result.output) and self._is_there(token, task, result):
                return _taken_over(task, result, known_by)
        return None

    def _is_kept(self, output: Any) -> bool:
        """Whether the files of what is large in an output are there: somebody may have removed them to make room."""
        if self._artifacts is None or not holds_reference(output):
            return True
        try:
            found = [parse_reference(one) for one in references(output)]
        except ArtifactDamaged:
            return False
        return all(_has_size(self._artifacts.path(one), one.size) for one in found)

    def _is_there(self, token: int, task: Task, result: Result) -> bool:
        """Whether all that the task has to write is there, as that run wrote it."""
        written = {record.name: record for record in result.files}
        if {name: record.path for name, record in written.items()} != task.files:
            return False
        touched = [record for record in written.values() if not is_untouched(record, _absolute(task, record.path))]
        found = self._contents(token, [_absolute(task, record.path) for record in touched])
        return all(_is_same(record, found[_absolute(task, record.path)]) for record in touched)

    def _contents(self, token: int, paths: Iterable[str]) -> _Found:
        """What is at each path. NotYet while a child reads: then this is asked again."""
        known = self._read.setdefault(token, {})
        if known is None:
            raise NotYet
        missing = [path for path in dict.fromkeys(paths) if path not in known]
        known.update(self._at_hand(missing))
        missing = [path for path in missing if path not in known]
        if missing:
            self._read[token] = None
            self._jobs.start(DESCRIBE, {"paths": missing}, partial(self._on_read, token, known, missing), {})
            raise NotYet
        return known

    def _at_hand(self, paths: list[str]) -> _Found:
        """What is remembered; and the others, where the loop may read them itself."""
        found: _Found = {path: record for path in paths if (record := self._remembered.find(path)) is not None}
        others = [path for path in paths if path not in found]
        if are_small(others):
            found.update((path, self._remember(describe(path))) for path in others)
        return found

    def _remember(self, record: FileRecord | None) -> FileRecord | None:
        if record is not None:
            self._remembered.keep(record)
        return record

    def _on_read(self, token: int, known: _Found, paths: list[str], answer: Answer | None) -> None:
        if self._read.get(token, known) is None:
            self._read[token] = {**known, **self._answered(paths, answer)}
            self._on_ready()

    def _answered(self, paths: list[str], answer: Answer | None) -> _Found:
        if answer is None or answer.exception or not isinstance(answer.output, list):
            return {path: FileRecord(path, path) for path in paths}
        found = (None if one is None else msgspec.convert(one, FileRecord) for one in answer.output)
        return {path: self._remember(one) for path, one in zip(paths, found, strict=True)}

    # -- after

    def record(self, running: Running, report: TaskEnded) -> TaskEnded | None:
        """The report with what the task wrote; None while a child reads that: then `tell` is called with it."""
        task, token = running.lease.task, running.lease.token
        if task.reuse is None and not task.files:
            return report
        if classify(report.outcome)[0] is not None:
            return report
        if running.fingerprint:
            report = msgspec.structs.replace(report, fingerprint=running.fingerprint)
        # What it has read is looked at again: it may have been changed before the task came to it.
        found: _Found = {path: record for path in running.read if (record := self._remembered.find(path)) is not None}
        paths = [*(_absolute(task, path) for path in task.files.values()), *running.read]
        paths = [path for path in dict.fromkeys(paths) if path not in found]
        if are_small(paths):
            return _recorded(running, report, {**found, **{path: describe(path) for path in paths}})
        self._recording[token] = running
        self._jobs.start(DESCRIBE, {"paths": paths}, partial(self._on_recorded, running, report, found, paths), {})
        return None

    def _on_recorded(
        self, running: Running, report: TaskEnded, found: _Found, paths: list[str], answer: Answer | None
    ) -> None:
        if self._recording.pop(running.lease.token, None) is running:
            self._tell(running, _recorded(running, report, {**found, **self._answered(paths, answer)}))


def _has_size(path: str, size: int) -> bool:
    """Whether a file is of that size. What is in no file is in the store, with the row that refers to it."""
    try:
        return not path or os.stat(path).st_size == size
    except OSError:
        return False


def _absolute(task: Task, path: str) -> str:
    return os.path.join(task.home or "/", path)


def _is_same(record: FileRecord, found: FileRecord | None) -> bool:
    return found is not None and bool(record.sha256) and found.sha256 == record.sha256


def _taken_over(task: Task, result: Result, known_by: str) -> TaskEnded:
    return TaskEnded(
        datetime.now(UTC),
        task.place,
        task.attempt,
        output=result.output,
        files=result.files,
        fingerprint=known_by,
        reused_run_id=result.run_id,
    )


def _recorded(running: Running, report: TaskEnded, found: _Found) -> TaskEnded:
    """The report with its files.

    The result is no other run's where a file has vanished meanwhile or cannot be read, and where one that the task
    reads is not what it was before: then nobody can say which of the contents the result is of.
    """
    task, records = running.lease.task, []
    for name, path in task.files.items():
        record = found[_absolute(task, path)]
        if record is not None:
            records.append(msgspec.structs.replace(record, name=name, path=path))
    is_whole = len(records) == len(task.files) and all(record.sha256 for record in records)
    if not (is_whole and all(_is_still(content, found[path]) for path, content in running.read.items())):
        report = msgspec.structs.replace(report, fingerprint="")
    return msgspec.structs.replace(report, files=tuple(records)) if records else report


def _is_still(content: str, found: FileRecord | None) -> bool:
    """Whether a file has the content that it had; "" where there was none."""
    return not content if found is None else bool(content) and found.sha256 == content
