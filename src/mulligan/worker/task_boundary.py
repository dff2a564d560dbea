"""The one way into a task and out of it: what it needs is put in its hands, what it gave is looked at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from mulligan.core.model.reports import TaskEnded
from mulligan.ports import Artifacts, Lease
from mulligan.worker.artifact_inputs import fetch_artifacts, locate_artifacts
from mulligan.worker.output_storage import OutputStorage
from mulligan.worker.redactor import Redactor
from mulligan.worker.secrets import Secrets


class TaskBoundary:
    """Every task goes in through `inward`, and every result comes out through `outward`."""

    def __init__(self, secrets: Secrets, artifacts: Artifacts | None = None) -> None:
        self._secrets = secrets
        self._artifacts = artifacts
        self._output_storage = OutputStorage(artifacts)

    def prepare(self, lease: Lease, *, is_called: bool) -> Lease:
        """The lease with every value of its task in hand; an exception where one cannot be had.

        What is large stays in its artifact, and so does what a called function reads: see `fetching`.
        NotReady while a secret is looked up: then it is to be asked again.
        """
        if lease.task.secrets:
            lease = msgspec.structs.replace(lease, task=self._secrets.resolve(lease.task))
        # Last: what is in an artifact is nothing to look into.
        return lease if self._artifacts is None else self._fetch(lease, self._artifacts, is_called)

    def _fetch(self, lease: Lease, artifacts: Artifacts, is_called: bool) -> Lease:
        task = fetch_artifacts(lease.task, artifacts, is_called=is_called)
        return lease if task is lease.task else msgspec.structs.replace(lease, task=task)

    def locate_artifacts(self, value: Any, spool: Callable[[bytes], str]) -> dict[str, str]:
        """The files of the artifacts that a value refers to, by name; InputInvalid where one cannot be had."""
        return {} if self._artifacts is None else locate_artifacts(value, self._artifacts, spool)

    @property
    def can_store_large(self) -> bool:
        """Whether there is a place for large outputs beside the log."""
        return self._artifacts is not None

    def secrets(self, lease: Lease) -> list[str]:
        """The secrets that the task may know."""
        return sorted(self._secrets.values(lease.task))

    def redactor(self, lease: Lease) -> Redactor | None:
        """What hides the secrets that the task may know; None where it can know none."""
        return self._secrets.redactor(lease.task)

    def sanitize(self, lease: Lease, report: TaskEnded) -> TaskEnded:
        """What may be told of the task's end."""
        redactor = self.redactor(lease)
        if redactor is not None:
            report = redactor.redact_report(report)
        return self._output_storage.store(lease.task, report)
