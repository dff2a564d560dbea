"""Everything that coverage finds in a workflow, in the order of its file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mulligan.analysis.coverage.finding_codes import Found, LineOf, WhatIsWritten, to_findings
from mulligan.analysis.coverage.possible_codes import PossibleCodes
from mulligan.analysis.coverage.results import Cell, FailureKind, Finding
from mulligan.analysis.coverage.route_findings import route_findings
from mulligan.analysis.coverage.rule_findings import rule_findings
from mulligan.analysis.coverage.step_findings import step_findings
from mulligan.core.model.graph import Graph
from mulligan.core.model.workflow import Workflow


def find(
    workflow: Workflow,
    cells: Sequence[Cell] = (),
    failures: Sequence[FailureKind] = (),
    *,
    line_of: LineOf = lambda step, path: 0,
    written: WhatIsWritten | None = None,
) -> tuple[Finding, ...]:
    """What the author of a workflow would want to know before the night. Accepted cells are not looked at."""
    found = _found(workflow, cells, failures, written or WhatIsWritten())
    return tuple(to_findings(found, workflow, line_of))


def _found(
    workflow: Workflow, cells: Sequence[Cell], failures: Sequence[FailureKind], written: WhatIsWritten
) -> Iterator[Found]:
    graph = Graph(workflow)
    codes = PossibleCodes(workflow, graph)
    yield from rule_findings(workflow, codes)
    yield from route_findings(graph, codes)
    yield from step_findings(workflow, graph, written)
