"""The one way into a task and out of it: what it needs is put in its hands, what it gave is looked at."""

from __future__ import annotations

import msgspec

from ..core.reports import TaskEnded
from ..ports import Artifacts, Lease
from .fetching import fetched
from .results import Results
from .secrets import refuse_secrets


class Passage:
    """Every task goes in through `inward`, and every result comes out through `outward`."""

    def __init__(self, artifacts: Artifacts | None = None) -> None:
        self._artifacts = artifacts
        self._results = Results(artifacts)

    def inward(self, lease: Lease) -> Lease:
        """The lease with every value of its task in hand; InputInvalid where one cannot be had."""
        refuse_secrets(lease.task)
        # Last: what is in an artifact is nothing to look into.
        return lease if self._artifacts is None else self._fetched(lease, self._artifacts)

    def _fetched(self, lease: Lease, artifacts: Artifacts) -> Lease:
        task = fetched(lease.task, artifacts)
        return lease if task is lease.task else msgspec.structs.replace(lease, task=task)

    def outward(self, lease: Lease, report: TaskEnded) -> TaskEnded:
        """What may be told of the task's end."""
        return self._results.kept(lease.task, report)
