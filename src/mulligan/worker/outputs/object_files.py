"""Artifacts in object storage: what a task reads is downloaded before it starts, what it returns is uploaded after it.

Children do both (see `background_jobs`), so that the worker's loop waits for no bucket. A result is reported when all
of it was uploaded.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, cast

import msgspec

from mulligan.core.deciding.classify import classify
from mulligan.core.effects.tasks import Task
from mulligan.core.model.artifacts import (
    VALUE_FORMATS,
    Artifact,
    Format,
    describe_artifact,
    object_name,
    parse_reference,
    references,
    verify_content,
)
from mulligan.core.model.reports import TaskEnded
from mulligan.errors import ArtifactDamaged, ArtifactGone, ObjectStoreFailed, StoreLibraryMissing
from mulligan.ports import Artifacts
from mulligan.worker.child.background_jobs import BackgroundJobs
from mulligan.worker.child.warm_child import CallResult
from mulligan.worker.outputs import outputs
from mulligan.worker.outputs.artifact_inputs import unavailable_value, values_with_references
from mulligan.worker.outputs.output_storage import report_storage_failure
from mulligan.worker.running_task import RunningTask
from mulligan.worker.secrets.secret_commands import NotReady
from mulligan.worker.task_boundary import TaskBoundary
from mulligan.worker.task_reports import report_refusal

UPLOAD, DOWNLOAD = (f"mulligan.worker.outputs.object_files:{name}" for name in ("upload", "download"))
_GONE = "INPUT_INVALID"


class ObjectStorage(msgspec.Struct, frozen=True):
    """Where a worker has its objects: the place for the artifacts of a task, "" for none; and which it reads itself."""

    place_of: Callable[[Task], str] = lambda task: ""
    reads: Callable[[str], bool] = lambda place: False


NO_OBJECTS = ObjectStorage()


class ObjectFiles:
    """`after_preparing` gets a task that may be started, or why it may not; `report_end` gets the final report.

    From now on tasks read and store artifacts through `inputs` and `outputs`.
    """

    def __init__(
        self,
        jobs: BackgroundJobs,
        boundary: TaskBoundary,
        storage: ObjectStorage,
        *,
        after_preparing: Callable[[RunningTask, TaskEnded | None], None],
        report_end: Callable[[RunningTask, TaskEnded], None],
    ) -> None:
        self._jobs = jobs
        self._after_preparing = after_preparing
        self._report = report_end
        # Without artifacts all outputs stay in the log, and nothing is asked of these.
        own = boundary.artifacts
        self.inputs = ObjectInputs(cast(Artifacts, own), storage, self._download)
        self.outputs = ObjectOutputs(cast(Artifacts, own), storage, jobs)
        if own is not None:
            boundary.use_objects(self.inputs, self.outputs)
        # By lease token: tasks whose input is downloaded, and tasks whose output is uploaded.
        self._downloading: dict[int, RunningTask] = {}
        self._uploading: dict[int, RunningTask] = {}

    @property
    def storing(self) -> Collection[RunningTask]:
        """Tasks that have ended and whose artifacts are being uploaded."""
        return self._uploading.values()

    def clear(self) -> None:
        """Forget everything that is in progress."""
        self._downloading.clear()
        self._uploading.clear()

    def forget(self, running: RunningTask) -> None:
        """Forget a task that ended before it was started."""
        self._downloading.pop(running.lease.token, None)

    # -- inputs

    def _download(self, running: RunningTask, wanted: list[Artifact]) -> None:
        """Have files written; `after_preparing` is called then. Always raises NotReady."""
        token = running.lease.token
        if self._downloading.get(token) is not running:
            self._downloading[token] = running
            # Programs look at the ending of a file.
            paths = {
                one.name: self._jobs.new_path("" if one.format in VALUE_FORMATS else os.path.splitext(one.name)[1])
                for one in wanted
            }
            args = {"files": [(msgspec.to_builtins(one), paths[one.name]) for one in wanted]}
            self._jobs.call(DOWNLOAD, args, partial(self._on_downloaded, running, paths), {})
        raise NotReady

    def _on_downloaded(self, running: RunningTask, paths: dict[str, str], answer: CallResult | None) -> None:
        is_current = self._downloading.pop(running.lease.token, None) is running
        trouble = _trouble(answer)
        if is_current and trouble is None:
            running.object_files.update(paths)
            running.spooled_files.extend(paths.values())
        else:
            for path in paths.values():
                outputs.remove_file(path)
        if is_current:
            task = running.lease.task
            refusal = None if trouble is None else report_refusal(task, unavailable_value(trouble[0]), trouble[1])
            self._after_preparing(running, refusal)

    # -- outputs

    def upload(self, running: RunningTask, report: TaskEnded) -> None:
        """Upload the files of a final report; then `report_end` gets it, or a failure in place of it."""
        self._uploading[running.lease.token] = running
        args = {"files": [(msgspec.to_builtins(artifact), path) for artifact, path in running.uploads]}
        self._jobs.call(UPLOAD, args, partial(self._on_uploaded, running, report), {})

    def _on_uploaded(self, running: RunningTask, report: TaskEnded, answer: CallResult | None) -> None:
        for _, path in running.uploads:
            outputs.remove_file(path)
        if self._uploading.pop(running.lease.token, None) is not running:
            return
        if (trouble := _trouble(answer)) is not None:
            reason, code = trouble
            lost = msgspec.structs.replace(report, artifacts=(), output=None)
            # A failure stays what it is.
            has_failed = classify(report.outcome)[0] is not None
            report = lost if has_failed else report_storage_failure(lost, reason, code=code)
        self._report(running, report)


class ObjectInputs:
    """`Artifacts` for reading: an object is a file that was downloaded for the task. NotReady until it is there.

    `running` is the task that is being started; without one, objects are fetched where they are asked for.
    """

    def __init__(
        self, own: Artifacts, storage: ObjectStorage, download: Callable[[RunningTask, list[Artifact]], None]
    ) -> None:
        self._own = own
        self._storage = storage
        self._download = download
        self.running: RunningTask | None = None

    def path(self, artifact: Artifact) -> str:
        if self.running is None or not self._is_downloaded(artifact):
            return self._own.path(artifact)
        if artifact.name not in self.running.object_files:
            task = self.running.lease.task
            found = map(parse_reference, references([*values_with_references(task), task.env, task.cwd]))
            wanted = {one.name: one for one in found if self._is_downloaded(one)}
            self._download(self.running, [*({artifact.name: artifact} | wanted).values()])
        return self.running.object_files[artifact.name]

    def _is_downloaded(self, artifact: Artifact) -> bool:
        return bool(artifact.place) and self._storage.reads(artifact.place)

    def fetch(self, artifact: Artifact) -> bytes:
        if self.running is None or not self._is_downloaded(artifact):
            return self._own.fetch(artifact)
        with open(self.path(artifact), "rb") as file:
            return verify_content(artifact, file.read(artifact.size + 1))


class ObjectOutputs:
    """`Artifacts` for storing: what belongs into a bucket is noted with its task, and uploaded later."""

    def __init__(self, own: Artifacts, storage: ObjectStorage, jobs: BackgroundJobs) -> None:
        self._own = own
        self._storage = storage
        self._jobs = jobs
        self.running: RunningTask | None = None

    def keep(self, name: str, data: bytes, format: Format) -> Artifact:
        if not (place := self._place):
            return self._own.keep(name, data, format)
        return self._noted(describe_artifact(name, data, format), self._jobs.write(data), place)

    def keep_file(self, artifact: Artifact, path: str) -> Artifact:
        place = self._place
        return self._noted(artifact, path, place) if place else self._own.keep_file(artifact, path)

    def path(self, artifact: Artifact) -> str:
        """Where a file that is stored now will be; "" for a row of a database, which has less room."""
        return self._own.path(artifact) or self._place

    @property
    def _place(self) -> str:
        return "" if self.running is None else self._storage.place_of(self.running.lease.task)

    def _noted(self, artifact: Artifact, path: str, place: str) -> Artifact:
        assert self.running is not None
        stored = msgspec.structs.replace(artifact, name=object_name(artifact), place=place)
        self.running.uploads.append((stored, path))
        return stored


def _trouble(answer: CallResult | None) -> tuple[str, str] | None:
    """What went wrong, and the code of the failure; None for nothing."""
    if answer is None:
        return "the process that moves it died", "EXCEPTION"
    if answer.exception:
        return answer.exception, "EXCEPTION"
    return None if answer.output is None else (answer.output["reason"], answer.output["code"])


# -- in a child ------------------------------------------------------------------------------------------------------


def upload(files: list[tuple[dict[str, Any], str]]) -> dict[str, str] | None:
    """Upload files; return what is wrong, or None."""
    return _moved(files, lambda bucket, artifact, path: bucket.put_file(artifact, path))


def download(files: list[tuple[dict[str, Any], str]]) -> dict[str, str] | None:
    """Write files; return what is wrong, or None."""
    return _moved(files, lambda bucket, artifact, path: bucket.fetch_to(artifact, path))


def _moved(
    files: list[tuple[dict[str, Any], str]], move: Callable[[Any, Artifact, str], None]
) -> dict[str, str] | None:
    from mulligan.object_store.bucket import bucket_of

    try:
        for described, path in files:
            artifact = msgspec.convert(described, Artifact)
            move(bucket_of(artifact.place), artifact, path)
    except ObjectStoreFailed as error:
        return {"reason": error.message, "code": error.failure_code}
    except (ArtifactGone, ArtifactDamaged) as error:
        return {"reason": error.message, "code": _GONE}
    except StoreLibraryMissing as error:
        return {"reason": f"{error.message}; {error.hint}", "code": "REQUIREMENTS_FAILED"}
    return None
