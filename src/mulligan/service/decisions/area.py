"""What waits for a person, and decisions about it, as `Service.decisions` gives them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from mulligan.service.decisions.decisions import (
        Decision,
        DecisionPreview,
        DecisionResult,
    )
    from mulligan.service.decisions.pending import PendingEntry, PendingPage
    from mulligan.service.runs.changes.run_control import RunControl
    from mulligan.service.runs.stored.run_reader import RunReader


class Decisions:
    """An area of `Service`, opened when it is first asked for."""

    def __init__(self, reader: RunReader, control: Callable[[], RunControl]) -> None:
        self._reader = reader
        self._control = control

    def list_pending(self) -> list[PendingEntry]:
        """What waits for a person, over all runs: parked steps, approvals, pauses."""
        from mulligan.service.decisions import pending

        return pending.list_pending(self._reader)

    def pending_page(self, *, after: tuple[int, str] | None = None, limit: int = 100) -> PendingPage:
        """A page of what waits for a person, oldest run first: what comes behind run and step `after`."""
        from mulligan.service.decisions import pending

        return pending.pending_page(self._reader, after=after, limit=limit)

    def preview_decision(self, one: Decision) -> DecisionPreview:
        """What would follow from a decision about a parked step. Changes nothing."""
        from mulligan.service.decisions import decisions

        return decisions.preview_decision(self._control(), one)

    def preview_decisions(self, decided: Sequence[Decision]) -> list[DecisionPreview]:
        """What would follow from decisions about parked steps. Changes nothing."""
        from mulligan.service.decisions import decisions

        return decisions.preview_decisions(self._control(), decided)

    def record_decisions(self, decided: Sequence[Decision]) -> Iterator[DecisionResult]:
        """Record decisions one by one. One that comes too late is refused; the others count."""
        from mulligan.service.decisions import decisions

        return decisions.record_decisions(self._control(), decided)

    def find_approval(self, run_id: int, step: str) -> str:
        """The place of a step that waits for an approval: the step, or one command below it."""
        from mulligan.service.decisions import pending

        return pending.find_approval(self._reader, run_id, step)
