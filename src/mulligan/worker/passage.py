"""The one way into a task and out of it: what it needs is put in its hands, what it gave is looked at."""

from __future__ import annotations

from ..core.reports import TaskEnded
from ..ports import Lease
from .secrets import refuse_secrets


class Passage:
    """Every task goes in through `inward`, and every result comes out through `outward`."""

    def inward(self, lease: Lease) -> Lease:
        """The lease with every value of its task in hand; InputInvalid where one cannot be had."""
        refuse_secrets(lease.task)
        return lease

    def outward(self, lease: Lease, report: TaskEnded) -> TaskEnded:
        """What may be told of the task's end."""
        return report
