"""All steps of a large run at a glance: a small square each, in the order of the file, coloured by status."""

from __future__ import annotations

from collections.abc import Sequence

from mulligan.core.model.formatting import pluralize
from mulligan.service.page.colours import STATUSES
from mulligan.service.page.markup import Html, element, joined
from mulligan.service.page.words import said
from mulligan.service.report.gathering import StepLine

SQUARES_MAX = 20_000


def mosaic(steps: Sequence[StepLine]) -> Html:
    """The squares, and how many are left out."""
    squares = joined(_square(step) for step in steps[:SQUARES_MAX])
    left = len(steps) - SQUARES_MAX
    note = element("p", f"and {pluralize(left, 'more step')}", class_="note") if left > 0 else ""
    label = f"{pluralize(min(len(steps), SQUARES_MAX), 'step')}, each a square in the colour of its status"
    return joined([element("div", squares, class_="mosaic", role="img", aria_label=label), note])


def _square(step: StepLine) -> Html:
    return element("i", class_=STATUSES.get(step.status, "idle"), title=f"{step.name}: {said(step.status)}")
