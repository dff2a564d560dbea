"""Everything that coverage finds in a workflow, in the order of its file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from mulligan.analysis.coverage.finding_codes import Found, LineOf, WhatIsWritten, named, to_findings
from mulligan.analysis.coverage.played_findings import played_findings
from mulligan.analysis.coverage.possible_codes import PossibleCodes
from mulligan.analysis.coverage.results import Cell, FailureKind, Finding
from mulligan.analysis.coverage.route_findings import route_findings
from mulligan.analysis.coverage.rule_findings import rule_findings
from mulligan.analysis.coverage.step_findings import step_findings
from mulligan.core.model.actions import is_group
from mulligan.core.model.graph import Graph
from mulligan.core.model.workflow import Workflow

_ABOUT_TIME = ("worst_case_exceeds_timeout", "timeout_never_strikes")


def find(
    workflow: Workflow,
    cells: Sequence[Cell] = (),
    failures: Sequence[FailureKind] = (),
    *,
    line_of: LineOf = lambda step, path: 0,
    written: WhatIsWritten | None = None,
) -> tuple[Finding, ...]:
    """What the author of a workflow would want to know before the night. Accepted cells are not looked at."""
    seen = list(_seen(workflow, written or WhatIsWritten()))
    too_long = {found.step.name for found in seen if found.code in _ABOUT_TIME}
    played = played_findings(workflow, cells, failures, too_long=too_long)
    return tuple(to_findings((*seen, *played), workflow, line_of))


def _seen(workflow: Workflow, written: WhatIsWritten, path: str = "") -> Iterator[Found]:
    """What is seen without playing, also in the groups of the workflow."""
    graph = Graph(workflow)
    codes = PossibleCodes(workflow, graph)
    for found in (
        *rule_findings(workflow, codes),
        *route_findings(graph, codes),
        *step_findings(workflow, graph, written.within(path)),
    ):
        yield msgspec.structs.replace(found, step=named(found.step, path)) if path else found
    for step in workflow.steps:
        child = workflow.children.get(str(step.action.params.get("file"))) if step.action is not None else None
        if child is not None and is_group(step.action):
            # A group has the time of its run, and those who are notified about it.
            inner = {"timeout": workflow.timeout, "notify": workflow.notify, "schedules": workflow.schedules}
            yield from _seen(msgspec.structs.replace(child, **inner), written, f"{path}{step.name}/")
