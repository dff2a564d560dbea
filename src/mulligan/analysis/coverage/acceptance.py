"""Applies what an author accepts to the cells and findings of a coverage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from mulligan.analysis.coverage.accepts import ANY, Accept
from mulligan.analysis.coverage.finding_codes import FINDINGS, all_steps
from mulligan.analysis.coverage.results import DEALT_WITH, Cell, FailureKind, Finding
from mulligan.core.model.failure import CODES
from mulligan.core.model.workflow import Workflow

_replace = msgspec.structs.replace


class Acceptance:
    """What is accepted in one workflow, and which of it has been needed."""

    def __init__(self, accepts: Iterable[Accept], workflow: Workflow, failures: Sequence[FailureKind]) -> None:
        self.accepts = tuple(accepts)
        self._sweeps = {name: step.sweep for name, step, _ in all_steps(workflow) if step.sweep}
        self._names = {ANY, *FINDINGS, *CODES, *(kind.name for kind in failures)}
        self._used: set[Accept] = set()
        self._by_step: dict[str, list[Accept]] = {}
        for one in self.accepts:
            self._by_step.setdefault(one.step, []).append(one)

    def unknown(self) -> Iterator[Accept]:
        """Those that name neither a failure nor a finding."""
        return (one for one in self.accepts if one.what not in self._names)

    @property
    def names(self) -> list[str]:
        """What may be accepted."""
        return sorted(self._names)

    def apply_to_cells(self, cells: Iterable[Cell]) -> tuple[Cell, ...]:
        """The cells, with the reason where one that is not dealt with is accepted."""
        return tuple(
            cell
            if cell.verdict in DEALT_WITH or not (reason := self._reason(cell.step, {cell.failure, ANY}))
            else _replace(cell, accepted=reason)
            for cell in cells
        )

    def apply_to_findings(self, findings: Iterable[Finding]) -> tuple[Finding, ...]:
        """The findings, with the reason where one is accepted, by its code or by its failure."""
        return tuple(
            _replace(one, accepted=reason)
            if (reason := self._reason(one.step, {one.code, one.failure or ANY, ANY}))
            else one
            for one in findings
        )

    def unused(self) -> Iterator[Finding]:
        """A finding for each that has accepted nothing. A comment may be for several steps: one of them is enough."""
        used = {(one.what, one.line) for one in self._used if one.line}
        seen: set[tuple[str, int]] = set()
        for one in self.accepts:
            key = (one.what, one.line)
            if key in used or (one.line and key in seen) or one in self._used:
                continue
            seen.add(key)
            where = f"of '{one.step}'" if one.step else "in this workflow"
            message = f"'{one.what}' {where} is accepted, and there is nothing to accept"
            hint = "remove the comment: the failure is dealt with, or does not happen"
            yield Finding("accept_unused", message, one.step, hint=hint, line=one.line)

    def _reason(self, step: str, names: set[str]) -> str:
        where = (step, self._sweeps.get(step, ""), "")
        found = [one for name in dict.fromkeys(where) for one in self._by_step.get(name, ()) if one.what in names]
        self._used.update(found)
        return found[0].reason if found else ""
