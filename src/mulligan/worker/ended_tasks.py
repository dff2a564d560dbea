"""Tasks that have ended, until the engine gets their reports: large outputs, kept files and logs are stored first."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mulligan.core.model.reports import CallsMade, Report, TaskEnded
from mulligan.errors import StoreUnavailable
from mulligan.ports import Lease
from mulligan.worker.logs.log_shipping import LogShipping
from mulligan.worker.outputs.kept_files import KeptFiles
from mulligan.worker.outputs.large_values import LargeValues
from mulligan.worker.outputs.object_files import ObjectFiles
from mulligan.worker.outputs.outputs import LargeOutput
from mulligan.worker.running_task import RunningTask
from mulligan.worker.task_boundary import TaskBoundary


class EndedTasks:
    """While the store is unavailable, reports wait here. `shipping` is None if whoever reads logs has the files.

    `judge` says whether the machine is to blame for a failure of a task in a folder. It is asked when all of a report
    is stored, since that may fail as well.
    """

    def __init__(
        self,
        boundary: TaskBoundary,
        shipping: LogShipping | None,
        judge: Callable[[TaskEnded, str], TaskEnded],
    ) -> None:
        self._boundary = boundary
        self._shipping = shipping
        self._judge = judge
        # The reports that are complete.
        self.done: list[tuple[Lease, Report]] = []
        # They wait for the store to accept their output.
        self._unstored: list[tuple[RunningTask, TaskEnded]] = []
        # They wait for the store to accept their logs.
        self._unshipped: list[tuple[Lease, Report]] = []
        # The last error of the store that made one wait.
        self.store_error: StoreUnavailable | None = None

    @property
    def waiting(self) -> Iterator[Lease]:
        """Those that wait for the store."""
        yield from (running.lease for running, _ in self._unstored)
        yield from (lease for lease, _ in self._unshipped)

    def clear(self) -> None:
        self._unstored.clear()
        self._unshipped.clear()
        self.done.clear()

    def add(self, lease: Lease, report: Report) -> None:
        """Add a report that needs nothing more."""
        self.done.append((lease, report))

    def report(
        self,
        running: RunningTask,
        report: TaskEnded,
        large: LargeValues,
        kept_files: KeptFiles,
        objects: ObjectFiles,
    ) -> None:
        """Store a large output first, then add the report. While the store is unavailable the report waits."""
        if isinstance(report.output, LargeOutput):
            large.store(running, report, report.output)
            return
        if kept_files.must_search(running):
            kept_files.search(running, report)
            return
        try:
            objects.outputs.running = running
            sanitized = self._boundary.sanitize(running.resolved, report, running.kept_files)
        except StoreUnavailable as error:
            self._unstored.append((running, report))
            self.store_error = error
            return
        if running.uploads:
            objects.upload(running, sanitized)
        else:
            self.finish(running, sanitized)

    def finish(self, running: RunningTask, sanitized: TaskEnded) -> None:
        """Add a report of which everything is stored."""
        self.done.append((running.lease, self._judge(sanitized, running.resolved.task.home)))

    def report_plain(self, running: RunningTask, report: TaskEnded, objects: ObjectFiles) -> None:
        """`report` for a plain task that has returned something: no file of it is kept, and nothing is to blame."""
        objects.outputs.running = running
        try:
            sanitized = self._boundary.sanitize(running.resolved, report)
        except StoreUnavailable as error:
            self._unstored.append((running, report))
            self.store_error = error
            return
        if running.uploads:
            objects.upload(running, sanitized)
        else:
            self.done.append((running.lease, sanitized))

    def take_unstored(self) -> list[tuple[RunningTask, TaskEnded]]:
        """Those that wait for the store to accept their output: the caller reports them again."""
        unstored, self._unstored = self._unstored, []
        return unstored

    def take(self) -> list[tuple[Lease, Report]]:
        """The complete reports. The logs of their tasks are shipped first."""
        done, self.done = self.done, []
        if self._shipping is None:
            return done
        done, self._unshipped = self._unshipped + done, []
        try:
            self._shipping.ship_ended((lease.task for lease, report in done if _is_waiting(report)), goes_on=True)
            self._shipping.ship_ended(lease.task for lease, report in done if not _is_waiting(report))
        except StoreUnavailable:
            self._unshipped = done
            raise
        return done


def _is_waiting(report: Report) -> bool:
    """Whether it is of a program that has not ended: its turn goes on, or another one follows."""
    if isinstance(report, CallsMade):
        return True
    return isinstance(report, TaskEnded) and report.turn is not None and not report.turn.how
