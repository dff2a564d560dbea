"""The results of each mutant, kept between runs: only what has changed is run again."""

from __future__ import annotations

import json
from typing import Any

from .line_coverage import LineCoverage, write
from .mutant_runs import MutantTask, Result
from .mutants import Mutant
from .project import Project

# A slower test is not used: ten thousand mutants would wait for it.
_LONGEST_SECONDS = 3.0


class Ledger:
    """The results of one module. A result is valid while the changed function stays the same, and the tests that it
    has survived or the one that has killed it."""

    def __init__(self, project: Project, module: str, is_fresh: bool) -> None:
        self.project = project
        self.digests = project.digests
        self.path = project.kept / "results" / f"{module}.json"
        self.rows: dict[str, dict[str, Any]] = {}
        if self.path.exists() and not is_fresh:
            self.rows = json.loads(self.path.read_text())

    def status(self, mutant: Mutant) -> str:
        """What is known of a mutant; empty if nothing is."""
        row = self.rows.get(mutant.name)
        return row["status"] if row is not None and row["digest"] == mutant.unit.digest else ""

    def task(self, mutant: Mutant, coverage: LineCoverage, patience: float) -> MutantTask | None:
        """Return the tests that are left to run for a mutant; None if there are none."""
        killers = [killer for killer in coverage.of(mutant) if killer.seconds <= _LONGEST_SECONDS]
        row = self.rows[mutant.name] if self.status(mutant) else None
        if row is not None and row["status"] == "survived":
            if row["patience"] >= patience:
                killers = [killer for killer in killers if row["asked"].get(killer.file) != self.digests[killer.file]]
            return MutantTask(mutant, killers, patience) if killers else None
        if row is not None and all(self.project.test_digest(test) == digest for test, digest in row["asked"].items()):
            return None
        return MutantTask(mutant, killers, patience)

    def note(self, task: MutantTask, result: Result) -> None:
        """Record a result: all files of tests for a survivor; the killer is enough for a killed mutant."""
        mutant = task.mutant
        asked = {killer.file: self.digests[killer.file] for killer in task.killers}
        if result.status != "survived":
            is_test = result.by.partition("::")[0] in self.digests
            asked = {result.by: self.project.test_digest(result.by)} if is_test else {}
        elif self.status(mutant) == "survived":
            asked = {**self.rows[mutant.name]["asked"], **asked}
        self.rows[mutant.name] = {
            "digest": mutant.unit.digest,
            "status": result.status,
            "by": result.by,
            "patience": task.patience,
            "asked": asked,
        }

    def keep(self) -> None:
        write(self.path, self.rows)
