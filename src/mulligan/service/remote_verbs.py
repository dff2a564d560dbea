"""The verbs of `Service` about runs that a server has and its workers drive."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mulligan.lazy_modules import LazyModule
from mulligan.service.run_reader import RunReader

if TYPE_CHECKING:
    from mulligan.service import followed_runs
    from mulligan.service.driver import Driver
    from mulligan.service.shown_runs import RunDisplay, ShownRun
else:
    followed_runs = LazyModule("mulligan.service.followed_runs")


class RemoteVerbs:
    """A part of `Service`."""

    reader: RunReader

    def ping(self) -> None:
        """Ask the store for something small: raises if it does not answer, or refuses."""
        self.reader.store.now()

    def follow_shown(
        self, begin: Callable[[Driver | None], int], display: RunDisplay, *, wait_seconds: float
    ) -> ShownRun:
        """Show the run that `begin` starts or finds, until it ends or waits, and close the display."""
        return followed_runs.follow_shown(self.reader, lambda: begin(None), display, wait_seconds=wait_seconds)

    def follow_quietly(self, begin: Callable[[Driver | None], int], *, wait_seconds: float) -> int:
        """The same without showing anything; the signal that ended the waiting, or 0."""
        return self.follow_shown(begin, followed_runs.QuietDisplay(), wait_seconds=wait_seconds).interrupted_by
