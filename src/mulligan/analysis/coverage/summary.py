"""Coverage in short, for a reader who pays for every word: the figures, what is not dealt with, and the findings."""

from __future__ import annotations

import msgspec

from mulligan.analysis.coverage.figures import Figures, count_figures, describe_figures
from mulligan.analysis.coverage.results import Coverage, Finding, Verdict
from mulligan.analysis.coverage.table import arrange_table

# So many holes and findings are listed.
HOLES_MAX, FINDINGS_MAX, STEPS_MAX = 100, 50, 5


class Hole(msgspec.Struct, frozen=True):
    """A failure that nothing deals with. `steps`: the first of those to which the same happens."""

    steps: tuple[str, ...]
    steps_count: int
    failure: str
    # What happens if it goes on, and what if it happens once.
    verdict: Verdict
    once: Verdict


class CoverageSummary(msgspec.Struct, frozen=True):
    workflow: str
    sentence: str
    figures: Figures
    # The worst first; those that the author accepts are not among them.
    holes: tuple[Hole, ...]
    holes_count: int
    findings: tuple[Finding, ...]
    findings_count: int
    # What was assumed, and what was not played.
    unknown: tuple[str, ...]


def summarize(coverage: Coverage) -> CoverageSummary:
    """The summary of a coverage."""
    holes = [
        Hole(row.steps[:STEPS_MAX], len(row.steps), kind.name, mark.verdict, mark.once)
        for row in arrange_table(coverage, shows_all=True).rows
        for kind in coverage.failures
        if (mark := row.marks.get(kind.name)) is not None and mark.is_open
    ]
    findings = [one for one in coverage.findings if not one.accepted]
    figures = count_figures(coverage)
    return CoverageSummary(
        workflow=coverage.workflow,
        sentence=describe_figures(figures),
        figures=figures,
        holes=tuple(holes[:HOLES_MAX]),
        holes_count=len(holes),
        findings=tuple(findings[:FINDINGS_MAX]),
        findings_count=len(findings),
        unknown=coverage.unknown,
    )
