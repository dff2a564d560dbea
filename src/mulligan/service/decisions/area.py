"""What waits for a person, and decisions about it, as `Service.decisions` gives them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mulligan.service.decisions.decisions import (
        DecidedStep,
        Decision,
    )
    from mulligan.service.decisions.pending import PendingEntry, PendingPage
    from mulligan.service.runs.changes.changes import Changes
    from mulligan.service.runs.stored.run_reader import RunReader


class Decisions:
    """An area of `Service`, opened when it is first asked for."""

    def __init__(self, reader: RunReader, changes: Callable[[], Changes]) -> None:
        self._reader = reader
        self._changes = changes

    def list_pending(self) -> list[PendingEntry]:
        """What waits for a person, over all runs: parked steps, approvals, pauses."""
        from mulligan.service.decisions import pending

        return pending.list_pending(self._reader)

    def pending_page(self, *, after: tuple[int, str] | None = None, limit: int = 100) -> PendingPage:
        """A page of what waits for a person, oldest run first: what comes behind run and step `after`."""
        from mulligan.service.decisions import pending

        return pending.pending_page(self._reader, after=after, limit=limit)

    def preview_decisions(self, decided: Sequence[Decision]) -> list[DecidedStep]:
        """What would follow from decisions about parked steps, one after the other. Raises if any would be refused."""
        from mulligan.service.decisions import decisions

        return decisions.preview_decisions(self._changes(), decided)

    def find_approval(self, run_id: int, step: str) -> str:
        """The place of a step that waits for an approval: the step, or one command below it."""
        from mulligan.service.decisions import pending

        return pending.find_approval(self._reader, run_id, step)
