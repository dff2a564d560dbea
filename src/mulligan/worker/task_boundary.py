"""The one way into a task and out of it: what it needs is put in its hands, what it gave is looked at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from mulligan.core.model.reports import TaskEnded
from mulligan.ports import Artifacts, Lease
from mulligan.worker.fetching import fetched, located
from mulligan.worker.redactor import Redactor
from mulligan.worker.results import Results
from mulligan.worker.secrets import Secrets


class TaskBoundary:
    """Every task goes in through `inward`, and every result comes out through `outward`."""

    def __init__(self, secrets: Secrets, artifacts: Artifacts | None = None) -> None:
        self._secrets = secrets
        self._artifacts = artifacts
        self._results = Results(artifacts)

    def inward(self, lease: Lease, *, is_called: bool) -> Lease:
        """The lease with every value of its task in hand; an exception where one cannot be had.

        What is large stays in its artifact, and so does what a called function reads: see `fetching`.
        NotYet while a secret is looked up: then it is to be asked again.
        """
        if lease.task.secrets:
            lease = msgspec.structs.replace(lease, task=self._secrets.given(lease.task))
        # Last: what is in an artifact is nothing to look into.
        return lease if self._artifacts is None else self._fetched(lease, self._artifacts, is_called)

    def _fetched(self, lease: Lease, artifacts: Artifacts, is_called: bool) -> Lease:
        task = fetched(lease.task, artifacts, is_called=is_called)
        return lease if task is lease.task else msgspec.structs.replace(lease, task=task)

    def files(self, value: Any, spool: Callable[[bytes], str]) -> dict[str, str]:
        """The files of the artifacts that a value refers to, by name; InputInvalid where one cannot be had."""
        return {} if self._artifacts is None else located(value, self._artifacts, spool)

    @property
    def keeps_large(self) -> bool:
        """Whether there is a place for large outputs beside the log."""
        return self._artifacts is not None

    def secrets(self, lease: Lease) -> list[str]:
        """The secrets that the task may know."""
        return sorted(self._secrets.values(lease.task))

    def redactor(self, lease: Lease) -> Redactor | None:
        """What hides the secrets that the task may know; None where it can know none."""
        return self._secrets.redactor(lease.task)

    def outward(self, lease: Lease, report: TaskEnded) -> TaskEnded:
        """What may be told of the task's end."""
        redactor = self.redactor(lease)
        if redactor is not None:
            report = redactor.report(report)
        return self._results.kept(lease.task, report)
