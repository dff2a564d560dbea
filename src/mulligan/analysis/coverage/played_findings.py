"""Findings that follow from cases that were played."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mulligan.analysis.coverage.finding_codes import Found, all_steps
from mulligan.analysis.coverage.results import Cell, FailureKind
from mulligan.core.model.failure import RETRYABLE
from mulligan.core.model.formatting import format_duration
from mulligan.core.model.graph import Graph
from mulligan.core.model.workflow import END, Step, Workflow

_ENDS_BADLY = ("fails", "stops")
# Follows from the failure of a step that has a row of its own.
_OF_OTHERS = frozenset({"CHILD_FAILED"})
_NAMES_SHOWN_MAX = 6


def played_findings(workflow: Workflow, cells: Sequence[Cell], failures: Sequence[FailureKind]) -> Iterator[Found]:
    """What the cases show, for the steps of the workflow and of its groups."""
    kinds = {kind.name: kind for kind in failures}
    by_step: dict[str, list[Cell]] = {}
    for cell in cells:
        by_step.setdefault(cell.step, []).append(cell)
    needed = _needed_by(workflow)
    for name, step, _ in all_steps(workflow):
        found = by_step.get(name, [])
        yield from _unhandled(step, [cell for cell in found if not cell.accepted], kinds, needed)
        yield from _too_long(step, found, workflow.timeout)


def _needed_by(workflow: Workflow) -> dict[str, str]:
    """By step: a step that does not run if it fails. Of steps in a group, those that need the group count too."""
    graphs: dict[int, Graph] = {}
    found: dict[str, str] = {}
    for name, _, owner in all_steps(workflow):
        graph = graphs.get(id(owner)) or graphs.setdefault(id(owner), Graph(owner))
        group, _, own = name.rpartition("/")
        node = graph.nodes[own]
        targets = [target for target, on in node.dependents if on != "always"]
        targets += [target for barrier in node.barriers if barrier.on != "always" for target in barrier.targets]
        targets += [arc.to for arc in node.arcs if arc.edge.on == "success" and not arc.is_loop and arc.to != END]
        if targets or group in found:
            found[name] = targets[0] if targets else found[group]
    return found


def _unhandled(step: Step, cells: list[Cell], kinds: dict[str, FailureKind], needed: dict[str, str]) -> Iterator[Found]:
    """Failures that happen once, and fail the run. What no retry mends, such as a refused request, is left out."""
    if step.name not in needed:
        return
    names = [cell.failure for cell in cells if _is_own(kinds.get(cell.failure)) and _fails_at_once(cell)]
    if not names:
        return
    shown = ", ".join(names[:_NAMES_SHOWN_MAX])
    more = f" and {len(names) - _NAMES_SHOWN_MAX} more" if len(names) > _NAMES_SHOWN_MAX else ""
    message = f"one failure of '{step.name}' fails the run, and '{needed[step.name]}' needs it: {shown}{more}"
    hint = "add 'retry', 'on_failure', a failure edge or 'triage', or accept it"
    yield Found("unhandled_failure", message, step, hint)


def _is_own(kind: FailureKind | None) -> bool:
    return kind is not None and kind.of == "step" and RETRYABLE.get(kind.code, True) and kind.code not in _OF_OTHERS


def _fails_at_once(cell: Cell) -> bool:
    return any(case.times == "once" and not case.with_step and case.verdict in _ENDS_BADLY for case in cell.cases)


def _too_long(step: Step, cells: list[Cell], limit: float | None) -> Iterator[Found]:
    """Cases of which the worst takes longer than the run may."""
    if limit is None:
        return
    longest = max(
        ((case.seconds, cell.failure) for cell in cells for case in cell.cases if not case.with_step), default=(0.0, "")
    )
    if longest[0] > limit:
        message = (
            f"if '{step.name}' fails with {longest[1]}, the run can take {format_duration(longest[0])}, and it ends "
            f"after {format_duration(limit)}"
        )
        hint = "repeat it less often, set a 'deadline', or give the run more time"
        yield Found("worst_case_exceeds_timeout", message, step, hint, longest[1])
