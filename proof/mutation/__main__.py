"""`python -m proof.mutation [MODULE …]`: change the code in thousands of places, and ask its tests about each."""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from . import judged
from .ledger import Ledger
from .line_coverage import LineCoverage, measure
from .mutant_runs import MutantTask, run_mutants
from .mutants import Mutant
from .parts import PARTS, project_of
from .project import Project

_PROGRESS_SECONDS = 10


class Row(NamedTuple):
    """The results for the mutants of one module."""

    module: str
    killed: int
    timed_out: int
    survivors: list[Mutant]
    unknown: int

    @property
    def total(self) -> int:
        return self.killed + self.timed_out + len(self.survivors)

    @property
    def share(self) -> float:
        return (self.killed + self.timed_out) / self.total if self.total else 1.0


class Search:
    """The mutants of some modules, what is known of them, and the runs of the others."""

    def __init__(self, project: Project, modules: Sequence[str], options: argparse.Namespace) -> None:
        self.project = project
        self.options = options
        self.mutants = {module: project.sources[module].mutants() for module in modules}
        self.ledgers = {module: Ledger(project, module, options.fresh) for module in modules}
        self.judgements = judged.read(project.judged)
        self.judged = {(one.module, one.name) for one in self.judgements}
        self.tried = 0

    def run(self) -> None:
        """Hunt whatever is not known. What was found is kept, however this ends."""
        measure(self.project, self.options.fresh, _say)
        coverage = LineCoverage(self.project)
        tasks = self._tasks(coverage)
        _say(f"{len(tasks)} mutants to run")
        shown = time.monotonic()
        try:
            for result in run_mutants(self.project, tasks, coverage.imports):
                self.ledgers[tasks[result.number].mutant.module].note(tasks[result.number], result)
                self.tried += 1
                if time.monotonic() - shown > _PROGRESS_SECONDS:
                    shown = time.monotonic()
                    _say(f"{self.tried} of {len(tasks)} tried")
                    self._keep()
        finally:
            self._keep()

    def _tasks(self, coverage: LineCoverage) -> list[MutantTask]:
        for test in coverage.broken:
            _say(f"not asked, since it fails without any change: {test}")
        mutants = [mutant for module in self.mutants.values() for mutant in module if not self._is_settled(mutant)]
        if self.options.functions:
            mutants = [mutant for mutant in mutants if not mutant.unit.is_fixed]
        found = (self.ledgers[mutant.module].task(mutant, coverage, self.options.patience) for mutant in mutants)
        tasks = [task for task in found if task is not None]
        if self.options.sample and self.options.sample < len(tasks):
            tasks = random.Random(self.options.seed).sample(tasks, self.options.sample)
        return tasks

    def _is_settled(self, mutant: Mutant) -> bool:
        """Skip a survivor that was judged: new tests do not run it again."""
        is_judged = (mutant.module, mutant.name) in self.judged
        return is_judged and self.ledgers[mutant.module].status(mutant) == "survived"

    def _keep(self) -> None:
        for ledger in self.ledgers.values():
            ledger.keep()

    def rows(self) -> list[Row]:
        return [self._row(module) for module in self.mutants]

    def _row(self, module: str) -> Row:
        status = {mutant.name: self.ledgers[module].status(mutant) for mutant in self.mutants[module]}
        count = Counter(status.values())
        survivors = [mutant for mutant in self.mutants[module] if status[mutant.name] == "survived"]
        return Row(module, count["killed"], count["timed_out"], survivors, count[""])


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def table(rows: Sequence[Row], accepted: set[tuple[str, str]]) -> str:
    """A line per module, and one for all."""
    head = f"{'module':<14}{'mutants':>9}{'killed':>8}{'timed out':>11}{'survived':>10}{'judged':>8}{'share':>8}"
    return "\n".join([head, *(_line(row, accepted) for row in [*rows, _together(rows)])])


def _together(rows: Sequence[Row]) -> Row:
    survivors = [mutant for row in rows for mutant in row.survivors]
    return Row(
        "all", sum(r.killed for r in rows), sum(r.timed_out for r in rows), survivors, sum(r.unknown for r in rows)
    )


def _line(row: Row, accepted: set[tuple[str, str]]) -> str:
    said = sum((mutant.module, mutant.name) in accepted for mutant in row.survivors)
    figures = f"{row.total:>9}{row.killed:>8}{row.timed_out:>11}{len(row.survivors):>10}{said:>8}{row.share:>8.1%}"
    return f"{row.module:<14}{figures}"


def summary(search: Search, seconds: float) -> int:
    """Print the findings; return 1 if a mutant survived that was not judged."""
    rows, judgements, accepted = search.rows(), search.judgements, search.judged
    names = {module: {mutant.name for mutant in mutants} for module, mutants in search.mutants.items()}
    wrong = list(judged.faults((one for one in judgements if one.module in names), names))
    open_ = [mutant for row in rows for mutant in row.survivors if (mutant.module, mutant.name) not in accepted]
    for row in rows:
        _write_survivors(search.project, row.module, [mutant for mutant in open_ if mutant.module == row.module])
    print(table(rows, accepted))
    print(f"\n{search.tried} tried in {seconds / 60:.0f} minutes; the others are known from before")
    unknown = sum(row.unknown for row in rows)
    if unknown:
        print(f"{unknown} not tried")
    for fault in wrong:
        print(f"judged.toml: {fault}")
    if open_:
        print(f"{len(open_)} survived that nobody has judged: they are in {search.project.kept / 'survivors'}")
        modules = " ".join(sorted({mutant.module for mutant in open_}))
        print(f"to see them again: make mutants PART={search.options.part} MODULE='{modules}'")
    return 1 if open_ or wrong else 0


def _write_survivors(project: Project, module: str, survivors: list[Mutant]) -> None:
    path = project.kept / "survivors" / f"{module}.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(judged.written(module, survivors))


def _options(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m proof.mutation", description=__doc__)
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="modules of the part; all, if none is named")
    parser.add_argument("--part", choices=PARTS, default="core", help="which part of the product (default core)")
    parser.add_argument("--fresh", action="store_true", help="believe nothing that is known from before")
    parser.add_argument("--patience", type=float, default=60, help="seconds of processor time for one mutant")
    parser.add_argument(
        "--functions", action="store_true", help="only changes in functions: each takes a tenth of a second"
    )
    parser.add_argument("--sample", type=int, default=0, help="try so many, taken at random")
    parser.add_argument("--seed", type=int, default=0, help="which sample")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None, project: Project | None = None) -> int:
    options = _options(words)
    project = project or project_of(options.part)
    unknown = [module for module in options.modules if module not in project.sources]
    if unknown:
        _say(f"no module of {options.part}: {', '.join(unknown)}")
        return 2
    search = Search(project, options.modules or sorted(project.sources), options)
    began = time.monotonic()
    try:
        search.run()
    except KeyboardInterrupt:
        _say("interrupted")
    return summary(search, time.monotonic() - began)


if __name__ == "__main__":
    sys.exit(main())
