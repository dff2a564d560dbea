"""The steps of a matrix as one row of a table, with a collapsible list of all of them below the table."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mulligan.core.model.text.formatting import pluralize
from mulligan.history.matrices import count_statuses, group_counts, group_status, group_title
from mulligan.service.rendering.page import ui
from mulligan.service.rendering.page.markup import Html, element, join_html
from mulligan.service.rendering.page.styles import status_label, status_tone
from mulligan.service.runs.views.report import Report
from mulligan.service.runs.views.report.build import StepRow

SQUARES_MAX = 20_000


def matrix_of(report: Report) -> dict[str, str]:
    """The matrix of each step that belongs to one."""
    return {step.name: step.matrix for step in report.steps if step.matrix}


def group_by_matrix(steps: Sequence[StepRow]) -> list[StepRow]:
    """The steps, with one row for each matrix at the position of its first step."""
    found: dict[str, list[StepRow]] = {}
    for step in steps:
        # No step's name contains a colon.
        found.setdefault(f"matrix:{step.matrix}" if step.matrix else step.name, []).append(step)
    return [one[0] if not one[0].matrix else _together(one) for one in found.values()]


def steps_by_matrix(steps: Sequence[StepRow]) -> dict[str, list[StepRow]]:
    """The steps of each matrix."""
    found: dict[str, list[StepRow]] = {}
    for step in steps:
        if step.matrix:
            found.setdefault(step.matrix, []).append(step)
    return found


def status_counts(steps: Sequence[StepRow]) -> str:
    """`8 failed, 292 completed`."""
    return group_counts(count_statuses(step.status for step in steps))


def render_matrix(name: str, steps: Sequence[StepRow], rows: Callable[[Sequence[StepRow]], Html]) -> Html:
    """All steps of a matrix, collapsed: a square and a row for each."""
    title = f"{group_title(name, len(steps))}: {status_counts(steps)}"
    return ui.details(title, draw_mosaic(steps), rows(steps))


def _together(steps: Sequence[StepRow]) -> StepRow:
    first = steps[0]
    return StepRow(
        name=group_title(first.matrix, len(steps)),
        action=first.action,
        status=group_status(count_statuses(step.status for step in steps)),
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


def draw_mosaic(steps: Sequence[StepRow]) -> Html:
    """All steps of a large run at a glance: one small square per step, coloured by status."""
    squares = (
        element("i", class_=status_tone(step.status), title=f"{step.name}: {status_label(step.status)}")
        for step in steps[:SQUARES_MAX]
    )
    left = len(steps) - SQUARES_MAX
    more = ui.note(f"and {pluralize(left, 'more step')}") if left > 0 else ""
    label = f"{pluralize(min(len(steps), SQUARES_MAX), 'step')}, each a square in the colour of its status"
    return join_html([element("div", *squares, class_="mosaic", role="img", aria_label=label), more])
