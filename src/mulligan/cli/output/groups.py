"""A matrix in `show`: one row for all its steps, and below it those that need attention."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from mulligan.service.rendering.console.terminal_text import kinds_text
from mulligan.service.rendering.formatting import ATTENTION, group_counts, group_title
from mulligan.service.runs.views.run_view import MatrixView, StepView

# A matrix with up to this many steps is shown in full; of a larger one this many have a row.
STEPS_MAX = 8

Steps = Mapping[str, StepView]


def listed_steps(group: MatrixView, steps: Steps) -> list[str]:
    """The steps of a matrix that get a row, in the order of the file; failed ones are chosen first."""
    names = list(group.combinations)
    if len(names) <= STEPS_MAX:
        return names
    wanted = [name for status in ATTENTION for name in names if steps[name].status == status]
    # A row "1 more" takes as much room as the step itself.
    shown = wanted if len(wanted) == STEPS_MAX + 1 else wanted[:STEPS_MAX]
    return sorted(shown, key=names.index)


def unlisted_text(group: MatrixView, steps: Steps, listed: Collection[str]) -> str:
    """The unlisted steps that need attention: `5 more failed, 2 more running`; "" if all are listed."""
    return more_text(Counter(steps[name].status for name in group.combinations if name not in listed))


def more_text(left: Mapping[str, int]) -> str:
    """Those that need attention among steps that are counted: `5 more failed, 2 more running`; "" if there are none."""
    return ", ".join(group_counts({status: left[status]}, "more ") for status in ATTENTION if left.get(status))


def title(name: str, group: MatrixView) -> str:
    """`sim × 300`."""
    return group_title(name, len(group.combinations))


def counts_text(group: MatrixView) -> str:
    """`8 failed, 292 completed; failures: 6 with EXIT_NONZERO 3, 2 with TIMEOUT after 5s`."""
    kinds = kinds_text(group.failures)
    return group_counts(group.statuses) + (f"; failures: {kinds}" if kinds else "")
