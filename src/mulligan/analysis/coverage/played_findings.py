"""Findings that follow from cases that were played."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

import msgspec

from mulligan.analysis.coverage.failure_kinds import failing_command
from mulligan.analysis.coverage.finding_codes import Found, all_steps
from mulligan.analysis.coverage.results import Cell, FailureKind, Finding
from mulligan.core.deciding.conditions import matching_rule
from mulligan.core.model.actions import traits_of
from mulligan.core.model.failure import RETRYABLE, failure
from mulligan.core.model.graph import Graph
from mulligan.core.model.text.formatting import format_duration
from mulligan.core.model.workflow import END, Step, Workflow

_ENDS_BADLY = ("fails", "stops")
# Follows from the failure of a step that has a row of its own.
_OF_OTHERS = frozenset({"CHILD_FAILED"})
# A worker that is lost again and again, each time just before the step is done, is not what anybody plans for.
_NOT_TIMED = frozenset({"WORKER_LOST"})
_NAMES_SHOWN_MAX = 6


def played_findings(
    workflow: Workflow, cells: Sequence[Cell], failures: Sequence[FailureKind], *, too_long: Collection[str] = ()
) -> Iterator[Found]:
    """What the cases show, for the steps of the workflow and of its groups.

    `too_long`: the steps of which it is known already that they may take longer than the run.
    """
    kinds = {kind.name: kind for kind in failures}
    by_step: dict[str, list[Cell]] = {}
    for cell in cells:
        by_step.setdefault(cell.step, []).append(cell)
    needed = _needed_by(workflow)
    for name, step, _ in all_steps(workflow):
        found = by_step.get(name, [])
        if name in needed and not _is_ours(step) and not _fails_anyway(step, found):
            is_answered = {"TIMEOUT"} if name in too_long else set()
            names = [
                cell.failure
                for cell in found
                if not cell.accepted and cell.failure not in is_answered and _is_unhandled(step, cell, kinds)
            ]
            yield from _unhandled(step, names, needed[name])
        if name not in too_long:
            yield from _too_long(step, found, workflow.timeout)


def _needed_by(workflow: Workflow) -> dict[str, str]:
    """By step: a step that does not run if it fails. Of steps in a group, those that need the group count too."""
    graphs: dict[int, Graph] = {}
    found: dict[str, str] = {}
    for name, _, owner in all_steps(workflow):
        graph = graphs.get(id(owner)) or graphs.setdefault(id(owner), Graph(owner))
        group, _, own = name.rpartition("/")
        user = _first_user(graph, own)
        if user or group in found:
            found[name] = user or found[group]
    return found


def _first_user(graph: Graph, name: str) -> str:
    """A step of the author's that needs this one, perhaps by way of steps that were added; "" if there is none."""
    seen, stack = {name}, [name]
    while stack:
        node = graph.nodes[stack.pop()]
        targets = [target for target, on in node.dependents if on != "always"]
        targets += [target for barrier in node.barriers if barrier.on != "always" for target in barrier.targets]
        targets += [arc.to for arc in node.arcs if arc.edge.on == "success" and not arc.is_loop and arc.to != END]
        for target in targets:
            if not _is_ours(graph.nodes[target].step):
                return target
        stack += [target for target in targets if target not in seen]
        seen.update(targets)
    return ""


def _is_ours(step: Step) -> bool:
    """Whether the step was not written by the author: the reader of another system's file, or a workspace, added it."""
    action = step.action
    if action is None:
        return False
    return traits_of(action).opens_worktrees or str(action.params.get("call", "")).startswith("mulligan.")


def _fails_anyway(step: Step, cells: list[Cell]) -> bool:
    """Whether the run fails also if its worker is lost once, which repeats the step: then the failure is not why."""
    names_it = any("WORKER_LOST" in rule.codes for rule in failing_command(step).rules)
    lost = [cell for cell in cells if cell.failure == "WORKER_LOST"]
    return step.on_lost == "rerun" and not names_it and any(map(_fails_at_once, lost))


def _is_unhandled(step: Step, cell: Cell, kinds: dict[str, FailureKind]) -> bool:
    """Whether the failure happens once, and fails the run, and nobody meant it to.

    What no retry mends, such as a refused request, is left out; so is what a rule names that grants no retries.
    """
    kind = kinds.get(cell.failure)
    if kind is None or kind.of != "step" or kind.code in _OF_OTHERS or not RETRYABLE.get(kind.code, True):
        return False
    # What no rule is for is decided by a person or an agent.
    if step.triage is not None or not _fails_at_once(cell):
        return False
    rules = failing_command(step).rules
    index = matching_rule(rules, failure(kind.code, exit_code=kind.exit_code, exceptions=kind.exceptions))
    return index is None or rules[index].max_retries > 0


def _fails_at_once(cell: Cell) -> bool:
    return any(case.times == "once" and not case.with_step and case.verdict in _ENDS_BADLY for case in cell.cases)


def _unhandled(step: Step, names: list[str], needed_by: str) -> Iterator[Found]:
    if not names:
        return
    shown = ", ".join(names[:_NAMES_SHOWN_MAX])
    more = f" and {len(names) - _NAMES_SHOWN_MAX} more" if len(names) > _NAMES_SHOWN_MAX else ""
    message = f"one failure of '{step.name}' fails the run, and '{needed_by}' needs it: {shown}{more}"
    hint = "add 'retry', 'on_failure', a failure edge or 'triage', or accept it"
    yield Found("unhandled_failure", message, step, hint, shown + more)


def merge_unhandled(findings: Iterable[Finding]) -> Iterator[Finding]:
    """The findings, with one for all steps whose same failures nobody deals with: the first of them stands for all."""
    found: list[Finding | None] = list(findings)
    groups: dict[str, list[int]] = {}
    for index, one in enumerate(found):
        if one is not None and one.code == "unhandled_failure" and not one.accepted:
            groups.setdefault(one.failure, []).append(index)
    for failures, places in groups.items():
        first = found[places[0]]
        if len(places) > 1 and first is not None:
            steps = [one.step for index in places if (one := found[index]) is not None]
            names = ", ".join(f"'{name}'" for name in steps[:_NAMES_SHOWN_MAX])
            more = f" and {len(steps) - _NAMES_SHOWN_MAX} more" if len(steps) > _NAMES_SHOWN_MAX else ""
            message = f"one failure of any of {len(steps)} steps fails the run, and others need them: {failures}"
            found[places[0]] = msgspec.structs.replace(first, message=f"{message} ({names}{more})")
            for index in places[1:]:
                found[index] = None
    return (one for one in found if one is not None)


def _too_long(step: Step, cells: list[Cell], limit: float | None) -> Iterator[Found]:
    """Cases of which the worst takes longer than the run may."""
    if limit is None:
        return
    longest = max(
        (
            (case.seconds, cell.failure)
            for cell in cells
            for case in cell.cases
            if cell.failure not in _NOT_TIMED and not case.with_step
        ),
        default=(0.0, ""),
    )
    if longest[0] > limit:
        message = (
            f"if '{step.name}' fails with {longest[1]}, the run can take {format_duration(longest[0])}, and it ends "
            f"after {format_duration(limit)}"
        )
        hint = "repeat it less often, set a 'deadline', or give the run more time"
        yield Found("worst_case_exceeds_timeout", message, step, hint, longest[1])
