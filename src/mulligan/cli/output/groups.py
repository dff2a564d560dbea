"""A matrix in `show`, or the calls of one line of a program: a row for all, below it those that need attention."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping

from mulligan.core.model.program_calls import name_of
from mulligan.service.rendering.console.terminal_text import kinds_text
from mulligan.service.rendering.formatting import ATTENTION, count_statuses, group_counts, group_status, group_title
from mulligan.service.runs.stored.attempts import total
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


def folded_calls(steps: Steps) -> dict[str, list[str]]:
    """The calls of each line of a program that makes more than a few, by the name of each of them."""
    lines: defaultdict[tuple[str, str, int], list[str]] = defaultdict(list)
    for name, step in steps.items():
        if step.call:
            lines[name_of(name), step.call.file, step.call.line].append(name)
    return {name: names for names in lines.values() if len(names) > STEPS_MAX for name in names}


def calls_group(steps: Steps) -> MatrixView:
    """Calls of one line of a program together."""
    statuses = count_statuses(step.status for step in steps.values())
    codes = Counter(step.failure["code"] for step in steps.values() if step.failure and step.status == "failed")
    return MatrixView(
        status=group_status(statuses),
        statuses=statuses,
        failures=dict(codes.most_common()),
        combinations={name: {} for name in steps},
        attempts=sum(step.attempts for step in steps.values()),
        usage=total(step.usage for step in steps.values() if step.usage),
    )


def title(name: str, group: MatrixView) -> str:
    """`sim × 300`."""
    return group_title(name, len(group.combinations))


def counts_text(group: MatrixView) -> str:
    """`8 failed, 292 completed; failures: 6 with EXIT_NONZERO 3, 2 with TIMEOUT after 5s`."""
    kinds = kinds_text(group.failures)
    return group_counts(group.statuses) + (f"; failures: {kinds}" if kinds else "")
