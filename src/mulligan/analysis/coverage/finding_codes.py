"""What coverage can find, by code. The codes are stable: people accept findings by them, and scripts look for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from mulligan.analysis.coverage.results import Finding
from mulligan.core.model.actions import is_group
from mulligan.core.model.workflow import Step, Workflow

# Code → what it means, as the documentation says it.
FINDINGS: dict[str, str] = {
    "unhandled_failure": "one failure of a step fails the run, and steps that need it do not run",
    "remediation_never_runs": "no failure leads to a remediation",
    "route_never_taken": "a route is never taken: the failure cannot happen, or an earlier route takes it",
    "routes_contradict": "two routes match the same failure and lead to different steps",
    "rule_never_applies": "a rule never grants a retry: its failure cannot happen, or another rule takes it",
    "retry_cannot_help": "a retry meets what failed the attempt before",
    "retry_repeats_side_effect": "a retry does something twice that should happen once",
    "handler_failure_lost": "a handler fails, and the step counts as recovered",
    "loop_spends_budget": "a loop ends only when its visits are spent",
    "triage_waits_forever": "a parked step waits for a person without a limit, and nobody is notified",
    "approval_never_expires": "an unattended run waits for an approval, without a limit",
    "event_never_comes": "an unattended run waits for an event, without a limit",
    "worst_case_exceeds_timeout": "the attempts of one step can take longer than the run may",
    "timeout_never_strikes": "a step may take longer than the run: its timeout has no effect",
    "allowed_failure_read": "a step may fail, and another reads its output",
    "accept_unused": "something is accepted that does not occur",
}

# Keys and positions that lead to what a finding is about, within a step of the file.
Path = tuple[str | int, ...]
# The line of a step, or of what is written in it at a path; 0 if it is not known.
LineOf = Callable[[str, Path], int]


class Found(msgspec.Struct, frozen=True):
    """A finding before it has a line."""

    code: str
    message: str
    step: Step
    hint: str = ""
    failure: str = ""
    path: Path = ()


class WhatIsWritten:
    """Whether a step of the file has a key. Without a file: what differs from the default is written."""

    def __init__(self, has_key: Callable[[str, str], bool | None] | None = None, path: str = "") -> None:
        self._has_key = has_key
        self._path = path

    def within(self, path: str) -> WhatIsWritten:
        """The same for the steps of a group."""
        return WhatIsWritten(self._has_key, path)

    def has(self, step: Step, key: str, *, otherwise: bool) -> bool:
        """Whether the key is written; `otherwise` if that is not known."""
        found = self._has_key(self._path + (step.sweep or step.name), key) if self._has_key is not None else None
        return otherwise if found is None else found


def all_steps(workflow: Workflow, path: str = "") -> Iterator[tuple[str, Step, Workflow]]:
    """The steps with the names that coverage gives them, and their workflows; those of groups as `group/step`."""
    for step in workflow.steps:
        yield f"{path}{step.name}", named(step, path), workflow
        if is_group(step.action) and step.action is not None:
            child = workflow.children.get(str(step.action.params.get("file")))
            if child is not None:
                yield from all_steps(child, f"{path}{step.name}/")


def named(step: Step, path: str) -> Step:
    """A step of a group, with the name of the group before its own."""
    if not path:
        return step
    return msgspec.structs.replace(step, name=path + step.name, sweep=path + step.sweep if step.sweep else "")


def to_findings(found: Iterable[Found], workflow: Workflow, line_of: LineOf) -> Iterator[Finding]:
    """The findings in the order of the file. What is found in several steps of a matrix is one finding."""
    order = {name: index for index, (name, _, _) in enumerate(all_steps(workflow))}
    matrices: dict[tuple[str, str, Path, str], list[Found]] = {}
    for one in found:
        key = (one.code, one.step.matrix_name or one.step.name, one.path, "" if one.step.sweep else one.message)
        matrices.setdefault(key, []).append(one)
    rows = [(order.get(group[0].step.name, len(order)), _placed(group, line_of)) for group in matrices.values()]
    for _, finding in sorted(rows, key=lambda row: (row[0], row[1].line, row[1].code)):
        yield finding


def _placed(group: list[Found], line_of: LineOf) -> Finding:
    first = group[0]
    name = first.step.matrix_name or first.step.name
    others = len(group) - 1
    more = f" (and {others} more of the matrix '{name}')" if others else ""
    line = line_of(name, first.path)
    return Finding(first.code, first.message + more, name, first.failure, first.hint, line)
