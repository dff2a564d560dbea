"""Recovery coverage of a program: its rehearsed path is played, with fakes in place of its steps.

The code of the program runs, in processes that are killed with the coverage; no step of it does.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from mulligan import __version__
from mulligan.analysis.coverage.explore import CaseStory, worst
from mulligan.analysis.coverage.exploring import TIMES
from mulligan.analysis.coverage.programs.exploring import ProgramExplorer, Rehearsed
from mulligan.analysis.coverage.programs.rehearsal import Misbehaved, NeededFake
from mulligan.analysis.coverage.results import Case, Cell, Coverage, FailureKind, Times
from mulligan.core.model.actions import traits_of
from mulligan.core.model.text.formatting import quote_names
from mulligan.errors import InputInvalid, Refused, UnknownStep
from mulligan.formats import LocatedWorkflow, examine_located
from mulligan.history.story import StoryLine
from mulligan.language.expressions import Cel
from mulligan.language.input_values import check_inputs
from mulligan.language.readers.fakes import load_fakes, read_call_fakes
from mulligan.language.text.suggestions import did_you_mean
from mulligan.service.authoring.coverage import CoveragePage, accepted_in
from mulligan.service.authoring.program_processes import TURN_SECONDS, Rehearsals

# How many failures that lead to a call without a fake are named in one sentence.
CELLS_MAX = 4
# How many warnings about what a program does itself are listed.
WARNINGS_MAX = 5


class RehearsedProgram:
    """A program that is rehearsed with fakes, and then played for many cases."""

    def __init__(self, located: LocatedWorkflow, fakes: Path, inputs: Mapping[str, Any], file: str) -> None:
        """`InputInvalid` for an input or a fake that is refused. `file` is for messages."""
        self.located = located
        self.workflow = located.examined.workflow
        self.file = file
        self.fakes_file = fakes
        self.fakes = read_call_fakes(load_fakes(fakes))
        self.inputs = check_inputs(self.workflow, dict(inputs))
        self.evaluator = Cel(os.environ)
        # How long the program may compute between two calls.
        self.turn_seconds = TURN_SECONDS

    def cover(
        self,
        *,
        step: str = "",
        failure: str = "",
        seed: int = 0,
        pairs: bool = True,
        may_go_on: Callable[[], bool] = lambda: True,
    ) -> Coverage:
        """What it does about each failure of each call; with `step` and `failure`, only about those.

        Pairs of failures are not played.
        """
        with self._explored() as explorer:
            return self._cover(explorer, step, failure, may_go_on)

    def story_of_case(self, step: str, failure: str, times: Times = "always") -> CaseStory:
        """What happens if a call fails in that way."""
        if times not in TIMES:
            raise InputInvalid(f"'{times}' is not how often a failure happens", hint=f"use {', '.join(TIMES)}")
        with self._explored(keeps_stories=True) as explorer:
            if step not in explorer.rows:
                # It may only be called after a failure.
                for _ in explorer.cases():
                    if step in explorer.rows:
                        break
            self._check_step(explorer, step)
            kinds = {kind.name.lower(): kind for kind in explorer.kinds[step]}
            kind = kinds.get(failure.lower())
            if kind is None:
                known = ", ".join(one.name for one in kinds.values()) or "none"
                raise InputInvalid(f"'{step}' cannot fail with '{failure}'", hint=f"its failures are: {known}")
            case = explorer.case_alone(explorer.rows[step], kind, times)
            return CaseStory(kind.shown, case, explorer.stories[step, kind.name, times])

    def page(self, *, seed: int = 0, pairs: bool = True) -> CoveragePage:
        """The coverage, and as an HTML page with the stories of its cells."""
        from mulligan.service.rendering.page.coverage import render_coverage_page

        with self._explored(keeps_stories=True) as explorer:
            found = self._cover(explorer, "", "", lambda: True)

            def story_of(case: Case) -> Sequence[StoryLine]:
                return explorer.stories.get((case.step, case.failure, case.times), ())

            made_by = f"mulligan {__version__}"
            html = render_coverage_page(found, story_of, file=os.path.basename(self.file), made_by=made_by)
        return CoveragePage(found, html)

    # -- how it is played

    @contextmanager
    def _explored(self, *, keeps_stories: bool = False) -> Iterator[ProgramExplorer]:
        """An explorer that knows the rehearsed path; its processes end with this."""
        with Rehearsals(os.getcwd(), self.turn_seconds) as rehearsals:
            explorer = ProgramExplorer(
                self.workflow,
                self.evaluator,
                self.inputs,
                self.fakes,
                rehearsals.turns,
                keeps_stories=keeps_stories,
            )
            path = explorer.rehearse()
            self._refuse_path(explorer, path)
            self._refuse_difference(rehearsals, path)
            explorer.unknown += list(rehearsals.warnings)[:WARNINGS_MAX]
            yield explorer

    def _cover(self, explorer: ProgramExplorer, step: str, failure: str, may_go_on: Callable[[], bool]) -> Coverage:
        explorer.choose(step, failure)
        by_cell: dict[tuple[str, str], list[Case]] = {}
        for case in explorer.cases():
            by_cell.setdefault((case.step, case.failure), []).append(case)
            if not may_go_on():
                explorer.unknown.append("not all failures were played: the time was up")
                break
        if step or failure:
            if step:
                self._check_step(explorer, step)
            explorer.check_chosen()
        cells = tuple(
            Cell(name, kind.name, worst(cases), tuple(cases))
            for name in explorer.rows
            for kind in explorer.kinds[name]
            if (cases := by_cell.get((name, kind.name)))
        )
        played = Coverage(
            workflow=self.workflow.name,
            steps=tuple(name for name in explorer.rows if not step or name == step),
            failures=tuple(_columns(explorer)),
            cells=cells,
            findings=(),
            cases_count=sum(len(cell.cases) for cell in cells),
            unknown=(*self._needed(explorer), *explorer.unknown, *self._unused(explorer, step, failure)),
            called_at={name: row.at for name, row in explorer.rows.items()},
            fakes=str(self.fakes_file),
        )
        return self._with_accepted(explorer, played, is_whole=not step and not failure)

    def _with_accepted(self, explorer: ProgramExplorer, played: Coverage, *, is_whole: bool) -> Coverage:
        file = os.path.basename(str(self.file).rpartition(":")[0] or self.file)
        lines = {name: row.line for name, row in explorer.rows.items() if row.at.startswith(f"{file}:")}
        acceptance = accepted_in(self.located, played, self.file, lines)
        cells = acceptance.apply_to_cells(played.cells)
        unused = tuple(acceptance.unused()) if is_whole else ()
        return msgspec.structs.replace(played, cells=cells, findings=unused)

    # -- what is said

    def _check_step(self, explorer: ProgramExplorer, step: str) -> None:
        if step in explorer.rows:
            return
        names = list(explorer.rows)
        hint = did_you_mean(step, names) or f"its calls: {quote_names(names)}"
        raise UnknownStep(f"'{step}' is no call of the rehearsed path of '{self.workflow.name}'", hint=hint, step=step)

    def _refuse_path(self, explorer: ProgramExplorer, path: Rehearsed) -> None:
        """A path that does not complete by itself says nothing about failures."""
        if path.needed is not None and not path.problem:
            needed = path.needed
            unused = [name for name in self.fakes if name not in explorer.used]
            hint = did_you_mean(needed.name, unused) or f"add to {self.fakes_file}: {_example(needed)}"
            message = f"the call of '{needed.label}' ({needed.at}) has no fake, and it is on the rehearsed path"
            raise InputInvalid(message, hint=hint)
        if path.problem:
            raise Refused(
                f"the rehearsal of '{self.workflow.name}' does not complete: {path.problem}",
                hint=f"correct the program, or what {self.fakes_file} and -i give it",
            )

    def _refuse_difference(self, rehearsals: Rehearsals, path: Rehearsed) -> None:
        for state in path.states:
            try:
                difference = rehearsals.differs(state)
            except Misbehaved as problem:
                difference = problem.why
            if difference:
                raise Refused(
                    f"the program '{state.workflow.name}' is not the same in a replay: {difference}",
                    hint="take the time, random numbers and ids from mulligan.now, random and uuid4",
                )

    def _needed(self, explorer: ProgramExplorer) -> Iterator[str]:
        """What has no fake, with the failures that lead there, and how to give one."""
        by_call: dict[tuple[str, str, str], list[tuple[str, str]]] = {}
        names: dict[tuple[str, str, str], NeededFake] = {}
        for needed, cells in explorer.needs.items():
            key = (needed.name, needed.at, needed.problem)
            by_call.setdefault(key, []).extend(dict.fromkeys(cells))
            names.setdefault(key, needed)
        for key, cells in by_call.items():
            needed, cells = names[key], list(dict.fromkeys(cells))
            # Of the first call; the others are often those of the same gather.
            failures = [failure for step, failure in cells if step == cells[0][0]][:CELLS_MAX]
            shown = f"'{cells[0][0]}' fails with {', '.join(failures)}"
            more = f", and in {len(cells) - len(failures):,} more cells" if len(cells) > len(failures) else ""
            if needed.problem:
                why = needed.problem + (f", behind its call at {needed.at}" if needed.at else "")
            else:
                why = f"'{needed.name}' ({needed.at}) has no fake; add to {self.fakes_file}: {_example(needed)}"
            yield f"unknown if {shown}{more}: {why}"

    def _unused(self, explorer: ProgramExplorer, step: str, failure: str) -> Iterator[str]:
        unused = [] if step or failure else [name for name in self.fakes if name not in explorer.used]
        if unused:
            noun = "the fake of" if len(unused) == 1 else "the fakes of"
            yield f"no call used {noun} {quote_names(unused)}"


def _columns(explorer: ProgramExplorer) -> Iterator[FailureKind]:
    """All kinds of failures, each name once, those of calls first."""
    found: dict[str, FailureKind] = {}
    for name, kinds in explorer.kinds.items():
        for kind in kinds:
            if explorer.is_chosen(name, kind):
                found.setdefault(kind.name, kind.shown)
    yield from sorted(found.values(), key=lambda kind: kind.of != "step")


def _example(needed: NeededFake) -> str:
    return f"{needed.name}: {{output: …}}"


def read_program(
    file: str | Path,
    fakes: Path,
    *,
    named: str | None = None,
    trust_templates: bool = False,
    catalogue: Path | None = None,
    options: Mapping[str, Any] | None = None,
    inputs: Mapping[str, Any] | None = None,
) -> RehearsedProgram:
    """The program in a file, ready to be rehearsed. Refused for what is no program."""
    located = examine_located(
        file, named=named, trust_templates=trust_templates, catalogue=catalogue, given=inputs, options=options
    )
    workflow = located.examined.workflow
    if not any(traits_of(step.action).is_program for step in workflow.steps):
        message = f"'{workflow.name}' is no program, so there is nothing to rehearse"
        raise InputInvalid(message, hint="leave --rehearse out: a workflow file is played without fakes")
    return RehearsedProgram(located, fakes, inputs or {}, str(file))
