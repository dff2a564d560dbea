"""What became of each mutant, kept between hunts: only what has changed is hunted again."""

from __future__ import annotations

import json
from typing import Any

from .hunt import Quarry, Result
from .mutants import Mutant
from .project import Project
from .touched import Touched, write

# A test that takes longer is asked of nobody: ten thousand mutants would wait for it.
_LONGEST_SECONDS = 3.0


class Ledger:
    """The results of one module. One holds as long as the changed function does, and the tests that were asked."""

    def __init__(self, project: Project, module: str, is_fresh: bool) -> None:
        self.digests = project.digests
        self.path = project.kept / "results" / f"{module}.json"
        self.rows: dict[str, dict[str, Any]] = {}
        if self.path.exists() and not is_fresh:
            self.rows = json.loads(self.path.read_text())

    def status(self, mutant: Mutant) -> str:
        """What is known of a mutant; empty if nothing is."""
        row = self.rows.get(mutant.name)
        return row["status"] if row is not None and row["digest"] == mutant.unit.digest else ""

    def quarry(self, mutant: Mutant, touched: Touched, patience: float) -> Quarry | None:
        """Whoever is still to be asked about a mutant; None if nobody is."""
        killers = [killer for killer in touched.of(mutant) if killer.seconds <= _LONGEST_SECONDS]
        row = self.rows[mutant.name] if self.status(mutant) else None
        if row is not None and row["status"] == "survived":
            if row["patience"] >= patience:
                killers = [killer for killer in killers if row["asked"].get(killer.file) != self.digests[killer.file]]
            return Quarry(mutant, killers, patience) if killers else None
        if row is not None and all(self.digests.get(file) == digest for file, digest in row["asked"].items()):
            return None
        return Quarry(mutant, killers, patience)

    def note(self, quarry: Quarry, result: Result) -> None:
        """A survivor is known to all whom it met; of a dead one it is enough to know who killed it."""
        mutant = quarry.mutant
        asked = {killer.file: self.digests[killer.file] for killer in quarry.killers}
        if result.status != "survived":
            by = result.by.partition("::")[0]
            asked = {by: self.digests[by]} if by in self.digests else {}
        elif self.status(mutant) == "survived":
            asked = {**self.rows[mutant.name]["asked"], **asked}
        self.rows[mutant.name] = {
            "digest": mutant.unit.digest,
            "status": result.status,
            "by": result.by,
            "patience": quarry.patience,
            "asked": asked,
        }

    def keep(self) -> None:
        write(self.path, self.rows)
