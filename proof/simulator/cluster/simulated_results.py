"""Earlier results in a simulated cluster: the worker's own cache, for tasks that run nothing and read no files."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from msgspec.structs import replace

from mulligan.core.model.reports import Report, TaskEnded
from mulligan.ports import Clock, Lease, Store
from mulligan.worker.child.background_jobs import BackgroundJobs
from mulligan.worker.folders import ScratchFiles
from mulligan.worker.outputs.result_cache import ResultCache
from mulligan.worker.running_task import RunningTask


class SimulatedResults:
    """Does what a local executor does: look before a task starts, record what it came to.

    `on_reuse` is called with each task that need not run, before its report is there.
    """

    def __init__(self, store: Store, clock: Clock, on_reuse: Callable[[Lease, TaskEnded], None]) -> None:
        self._clock = clock
        self._on_reuse = on_reuse
        self._tasks: dict[int, RunningTask] = {}
        # Without files nothing is read by a child, so no job is ever given to one.
        self._cache = ResultCache(
            cast(BackgroundJobs, None),
            store.tagged_rows,
            store.artifacts,
            on_ready=lambda: None,
            report_end=lambda running, report: None,
        )

    def find(self, lease: Lease) -> TaskEnded | None:
        """Return the report of a task that need not run. `StoreUnavailable`: ask again."""
        if lease.task.reuse is None:
            return None
        running = self._tasks.setdefault(lease.token, RunningTask(lease, lease, cast(ScratchFiles, None)))
        found = self._cache.find(running)
        if found is None:
            return None
        self._on_reuse(lease, found)
        return replace(found, at=self._clock.now())

    def record(self, lease: Lease, report: Report) -> Report:
        """Return the report with what later runs find it by."""
        running = self._tasks.pop(lease.token, None)
        if running is None:
            return report
        self._cache.forget(running)
        if not isinstance(report, TaskEnded) or report.reused_run_id:
            return report
        return self._cache.record(running, report) or report

    def clear(self) -> None:
        self._tasks.clear()
        self._cache.clear()
