"""What goes into a task and what comes out of it: values are resolved before, results are sanitized after."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from mulligan.core.effects.tasks import Task
from mulligan.core.model.clusters.scheduler_job import WorkerJob
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.reports import TaskEnded
from mulligan.ports import Artifacts, Lease, NewArtifacts, StoredArtifacts
from mulligan.worker.actions.called_actions import MODEL
from mulligan.worker.outputs.artifact_inputs import Spool, fetch_artifacts, locate_artifacts
from mulligan.worker.outputs.output_storage import FileToStore, OutputStorage
from mulligan.worker.secrets.redactor import Redactor
from mulligan.worker.secrets.secrets import SecretMissing, Secrets

_SUCCESS = Outcome()


class ProviderKeyMissing(SecretMissing):
    """The key of a provider is not available to the worker."""

    def __init__(self, provider: str, missing: SecretMissing) -> None:
        super().__init__(provider, missing.reason, missing.code)
        self.args = (f"agent '{provider}' has no key: {missing.reason}",)


class TaskBoundary:
    """Every task goes in through `prepare`, and every result comes out through `sanitize`."""

    def __init__(self, secrets: Secrets, artifacts: Artifacts | None = None, job: WorkerJob | None = None) -> None:
        self._secrets = secrets
        self.artifacts = artifacts
        self._artifacts: StoredArtifacts | None = artifacts
        self._output_storage = OutputStorage(artifacts)
        # The job of a scheduler in which tasks run: whoever looks into a failure wants to know it.
        self._job = job

    def use_objects(self, inputs: StoredArtifacts, outputs: NewArtifacts) -> None:
        """Read and store artifacts through these from now on."""
        self._artifacts, self._output_storage = inputs, OutputStorage(outputs)

    def prepare(self, lease: Lease, *, is_called: bool, spool: Spool) -> tuple[Lease, bool]:
        """Return the lease with every value of its task resolved, and whether one may still refer to an artifact.

        Raise if a value is not available.

        Large values stay in their artifacts, and so do those that a called function reads: see `artifact_inputs`.
        NotReady while a secret is being looked up: then call it again.
        """
        if lease.task.secrets:
            lease = msgspec.structs.replace(lease, task=self._secrets.resolve(lease.task))
        if lease.task.kind == MODEL:
            lease = msgspec.structs.replace(lease, task=self._with_access(lease.task))
        # Last, so that the content of artifacts is not searched for references to secrets.
        if self._artifacts is None:
            return lease, True
        task = fetch_artifacts(lease.task, self._artifacts, is_called=is_called, spool=spool)
        return (lease, False) if task is None else (msgspec.structs.replace(lease, task=task), True)

    def _with_access(self, task: Task) -> Task:
        """Return a call of a model with its key. A cassette also gets the secrets that it must not record."""
        # Few tasks ask a model.
        from mulligan.worker.actions.model import ACCESS, KEY, settings_in
        from mulligan.worker.models.settings import Access

        settings = settings_in(task)
        access = Access()
        if KEY in task.secrets:
            try:
                access = Access(self._secrets.find(task, KEY))
            except SecretMissing as missing:
                raise ProviderKeyMissing(settings.name, missing) from None
        if settings.kind == "cassette":
            access = Access(access.key, tuple(sorted(self._secrets.values(task))))
        return msgspec.structs.replace(task, params={**task.params, ACCESS: msgspec.to_builtins(access)})

    def locate_artifacts(self, value: Any, spool: Spool) -> dict[str, str]:
        """Return the files of the artifacts that a value refers to, by name; InputInvalid if one is not available."""
        return {} if self._artifacts is None else locate_artifacts(value, self._artifacts, spool)

    @property
    def can_store_large(self) -> bool:
        """Whether large outputs can be stored as artifacts."""
        return self._artifacts is not None

    def secrets(self, lease: Lease) -> list[str]:
        """Return the secrets that the task may know."""
        return sorted(self._secrets.values(lease.task))

    def scope(self, lease: Lease) -> str:
        """Name the tasks that may share a process with one that may know secrets: see `Secrets.scope`."""
        return self._secrets.scope(lease.task)

    def redactor(self, lease: Lease) -> Redactor | None:
        """Return the redactor for the secrets that the task may know; None if there are none."""
        return self._secrets.redactor(lease.task)

    def sanitize(self, lease: Lease, report: TaskEnded, kept_files: Sequence[FileToStore] = ()) -> TaskEnded:
        """Return the report without secrets, and with a large output and kept files stored as artifacts."""
        redactor = self._secrets.redactor(lease.task)
        if redactor is not None:
            report = redactor.redact_report(report)
            for one in kept_files:
                one.name = redactor.redact_text(one.name)
                if one.preview is not None:
                    # Its texts are cut, and a secret may be cut with them.
                    shown = {name: getattr(one.preview, name) for name in ("columns", "rows")}
                    redacted = redactor.redact_value(shown, is_truncated=True)
                    one.preview = msgspec.structs.replace(one.preview, **redacted)
        if self._job is not None and report.outcome != _SUCCESS:
            report = msgspec.structs.replace(report, job=self._job)
        return self._output_storage.store(lease.task, report, kept_files)
