"""Coverage in a few figures and one sentence: how many failures are dealt with, and how long the worst case takes."""

from __future__ import annotations

import msgspec

from mulligan.analysis.coverage.results import DEALT_WITH, VERDICTS, AgentCosts, Case, Cell, Coverage, Verdict

# Of one and of several failures.
_WORDS: dict[Verdict, tuple[str, str]] = {
    "parked": ("waits for a person", "wait for a person"),
    "fails": ("fails the run", "fail the run"),
    "stops": ("stops everything", "stop everything"),
    "unknown": ("is unknown", "are unknown"),
}


class Figures(msgspec.Struct, frozen=True):
    """Counts of the cells of a table: each is one step and one failure."""

    total: int
    dealt_with: int
    # Not dealt with, and the workflow says why that is right.
    accepted: int
    # Of `total`, what is dealt with or accepted; 100 if there is nothing that can fail. Rounded down.
    percent: int
    # How many cells have each verdict; those that no cell has are left out.
    verdicts: dict[Verdict, int]
    # The longest run of all cases that were played, in seconds.
    worst_seconds: float = 0.0
    slowest: Case | None = None
    # What agents may cost; None if there are none.
    agent_costs: AgentCosts | None = None

    def reaches(self, percent_min: int) -> bool:
        """Whether at least so many of a hundred failures are dealt with or accepted."""
        return (self.dealt_with + self.accepted) * 100 >= percent_min * self.total


def count_figures(coverage: Coverage) -> Figures:
    """The figures of a coverage."""
    verdicts: dict[Verdict, int] = {}
    for verdict in VERDICTS:
        if found := sum(cell.verdict == verdict for cell in coverage.cells):
            verdicts[verdict] = found
    total = len(coverage.cells)
    dealt_with = sum(found for verdict, found in verdicts.items() if verdict in DEALT_WITH)
    accepted = sum(is_accepted(cell) for cell in coverage.cells)
    cases = [case for cell in coverage.cells for case in cell.cases]
    slowest = max(cases, key=lambda case: case.seconds, default=None)
    return Figures(
        total=total,
        dealt_with=dealt_with,
        accepted=accepted,
        percent=(dealt_with + accepted) * 100 // total if total else 100,
        verdicts=verdicts,
        worst_seconds=slowest.seconds if slowest else 0.0,
        slowest=slowest,
        agent_costs=coverage.agent_costs,
    )


def is_accepted(cell: Cell) -> bool:
    """Whether nothing deals with the failure, and the workflow says that this is right."""
    return bool(cell.accepted) and cell.verdict not in DEALT_WITH


def is_open(cell: Cell) -> bool:
    """Whether nothing deals with the failure, and nobody has accepted that."""
    return not cell.accepted and cell.verdict not in DEALT_WITH


def describe_figures(figures: Figures) -> str:
    """`31 of 44 failures are dealt with; 9 wait for a person; 4 fail the run (1 of these 13 is accepted)`."""
    if not figures.total:
        return "there is no step that could fail"
    noun = "failure is" if figures.total == 1 else "failures are"
    parts = [f"{figures.dealt_with:,} of {figures.total:,} {noun} dealt with"]
    for verdict, (one, several) in _WORDS.items():
        if found := figures.verdicts.get(verdict, 0):
            parts.append(f"{found:,} {one if found == 1 else several}")
    left = figures.total - figures.dealt_with
    if figures.accepted == left == 1:
        parts[-1] += " (accepted)"
    elif figures.accepted:
        are = "is" if figures.accepted == 1 else "are"
        parts[-1] += f" ({figures.accepted:,} of these {left:,} {are} accepted)"
    return "; ".join(parts)
