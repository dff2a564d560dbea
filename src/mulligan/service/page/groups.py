"""The steps of a matrix as one row of a table, with a fold below the table that has them all."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mulligan.history.matrices import counted_statuses, group_counts, group_status, group_title, values_text
from mulligan.service.page.markup import Html, element, joined
from mulligan.service.page.mosaic import mosaic
from mulligan.service.report import Report
from mulligan.service.report.gathering import StepLine


def matrix_of(report: Report) -> dict[str, str]:
    """The matrix that a step belongs to, of those that belong to one."""
    return {step.name: step.matrix for step in report.steps if step.matrix}


def grouped(steps: Sequence[StepLine]) -> list[StepLine]:
    """The steps, those of a matrix as one line at the place of its first."""
    found: dict[str, list[StepLine]] = {}
    for step in steps:
        # No name of a step has a colon.
        found.setdefault(f"matrix:{step.matrix}" if step.matrix else step.name, []).append(step)
    return [one[0] if not one[0].matrix else _together(one) for one in found.values()]


def members(steps: Sequence[StepLine]) -> dict[str, list[StepLine]]:
    """The steps of each matrix."""
    found: dict[str, list[StepLine]] = {}
    for step in steps:
        if step.matrix:
            found.setdefault(step.matrix, []).append(step)
    return found


def counts(steps: Sequence[StepLine]) -> str:
    """`8 failed, 292 completed`."""
    return group_counts(counted_statuses(step.status for step in steps))


def fold(name: str, steps: Sequence[StepLine], table: Callable[[Sequence[StepLine]], Html]) -> Html:
    """All steps of a matrix, closed: a square each, and a row each."""
    title = f"{group_title(name, len(steps))}: {counts(steps)}"
    inside = joined([mosaic(steps), table(steps)])
    return element("details", element("summary", title), inside, class_="inner")


def values(step: StepLine) -> str:
    return values_text(step.values)


def _together(steps: Sequence[StepLine]) -> StepLine:
    first = steps[0]
    return StepLine(
        name=group_title(first.matrix, len(steps)),
        action=first.action,
        status=group_status(counted_statuses(step.status for step in steps)),
        visits=0,
        attempts=sum(step.attempts for step in steps),
        recovered=False,
        undone=False,
        items=sum(step.items for step in steps),
        items_failed=sum(step.items_failed for step in steps),
        wall_seconds=sum(step.wall_seconds for step in steps),
        cpu_seconds=sum(step.cpu_seconds for step in steps),
        peak_memory=max(step.peak_memory for step in steps),
        matrix=first.matrix,
    )
