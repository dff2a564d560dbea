"""The verbs of `Service` that a server needs: its runs, that its workers drive, and what is left of damaged ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from mulligan.service.home import Home
from mulligan.service.runs.stored.run_reader import RunReader

if TYPE_CHECKING:
    from mulligan.errors import RunDamaged, UnknownRun
    from mulligan.service.driving.driver import Driver
    from mulligan.service.driving.shown_runs import RunDisplay, ShownRun
    from mulligan.service.runs.stored.damaged_runs import RemovedRuns


class RemoteVerbs:
    """A part of `Service`."""

    home: Home
    reader: RunReader

    def ping(self) -> None:
        """Ask the store for something small: raises if it does not answer, or refuses."""
        self.reader.store.now()

    def follow_shown(
        self, begin: Callable[[Driver | None], int], display: RunDisplay, *, wait_seconds: float
    ) -> ShownRun:
        """Show the run that `begin` starts or finds, until it ends or waits, and close the display."""
        from mulligan.service.driving import followed_runs

        return followed_runs.follow_shown(self.reader, lambda: begin(None), display, wait_seconds=wait_seconds)

    def follow_quietly(self, begin: Callable[[Driver | None], int], *, wait_seconds: float) -> int:
        """The same without showing anything; the signal that ended the waiting, or 0."""
        from mulligan.service.driving import followed_runs

        return self.follow_shown(begin, followed_runs.QuietDisplay(), wait_seconds=wait_seconds).interrupted_by

    def explain_damage(self, run_ids: Iterable[int] | None, error: Exception) -> RunDamaged | UnknownRun | None:
        """The error to show in place of this one, if one of these runs is damaged or gone; None: those named before."""
        from mulligan.service.runs.stored import damaged_runs

        return damaged_runs.explain_damage(self.reader, run_ids, error)

    def remove_run(self, run_id: int, *, is_dry: bool = False) -> RemovedRuns:
        """Remove a run that has ended or is damaged, and those that it called. `RunNotFinished`, `Refused`."""
        from mulligan.service.runs.stored import damaged_runs

        return damaged_runs.remove_run(self.reader, run_id, is_dry=is_dry)

    def check_store(self) -> None:
        """`StoreOvertaken` if a newer Mulligan has migrated the store: this process must not use it any more."""
        if self.home.is_there:
            self.reader.store.check_schema()
