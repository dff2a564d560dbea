"""Recovery coverage of a workflow: it is played in memory, and nothing of it is run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from mulligan import __version__
from mulligan.analysis.coverage.acceptance import Acceptance
from mulligan.analysis.coverage.accepts import FORM, Accept, UnreadableAccept, accepts_of_comments, accepts_of_keys
from mulligan.analysis.coverage.explore import CaseStory, explore, story_in
from mulligan.analysis.coverage.exploring import Explorer
from mulligan.analysis.coverage.finding_codes import Path as KeyPath
from mulligan.analysis.coverage.finding_codes import WhatIsWritten
from mulligan.analysis.coverage.findings import find
from mulligan.analysis.coverage.played_findings import merge_unhandled
from mulligan.analysis.coverage.results import Case, Coverage, Times
from mulligan.core.model.actions import traits_of
from mulligan.core.model.text.formatting import quote_names
from mulligan.core.model.workflow import Workflow
from mulligan.errors import LanguageError, Problem, UnknownStep
from mulligan.formats import LocatedWorkflow, examine_located
from mulligan.history.called_steps import except_lines
from mulligan.history.story import StoryLine
from mulligan.language.expressions import Cel
from mulligan.language.input_values import check_inputs
from mulligan.language.text.nodes import Mapping as Tree
from mulligan.language.text.step_positions import line_of_key, step_nodes
from mulligan.language.text.suggestions import did_you_mean

# How many lines of a program that catch failures are named.
EXCEPTS_MAX = 5


class CoveragePage(msgspec.Struct, frozen=True):
    coverage: Coverage
    html: str


class PlayedWorkflow:
    """A workflow that is read once and played for many cases."""

    def __init__(self, located: LocatedWorkflow, inputs: Mapping[str, Any] | None = None, file: str = "") -> None:
        """`InputInvalid` for an input that it does not have, or of another type. `file` is for messages."""
        self.located = located
        self.workflow = located.examined.workflow
        self.inputs = _typed(self.workflow, inputs or {})
        self.file = file
        self.evaluator = Cel(os.environ)

    @cached_property
    def explorer(self) -> Explorer:
        """For stories: it has read the workflow already."""
        return Explorer(self.workflow, self.evaluator, self.inputs)

    def cover(
        self,
        *,
        step: str = "",
        failure: str = "",
        seed: int = 0,
        pairs: bool = True,
        may_go_on: Callable[[], bool] = lambda: True,
    ) -> Coverage:
        """What it does about each failure of each step; with `step` and `failure`, only about those.

        When `may_go_on` says no, the rest is not played, and the result says so.
        """
        with self._with_hint(step):
            played = explore(
                self.workflow,
                evaluator=self.evaluator,
                inputs=self.inputs,
                step=step,
                failure=failure,
                seed=seed,
                pairs=pairs,
                may_go_on=may_go_on,
            )
        found = with_findings(played, self.located, self.file, is_whole=not step and not failure and may_go_on())
        if not step and not failure:
            return found
        # Findings of a matrix have its name.
        names = {step, next((one.sweep for one in self.workflow.steps if one.name == step), "")} if step else None
        about = [
            one
            for one in found.findings
            if (names is None or one.step in names) and (not failure or one.failure in ("", failure))
        ]
        return msgspec.structs.replace(found, findings=tuple(about))

    def story_of_case(self, step: str, failure: str, times: Times = "always") -> CaseStory:
        """What happens if a step fails in that way."""
        with self._with_hint(step):
            return story_in(self.explorer, step, failure, times)

    def page(self, *, seed: int = 0, pairs: bool = True) -> CoveragePage:
        """The coverage, and as an HTML page with the stories of its cells. What cannot be played has no story."""
        from mulligan.service.rendering.page.coverage import render_coverage_page

        found = self.cover(seed=seed, pairs=pairs)

        def story_of(case: Case) -> Sequence[StoryLine]:
            return self.story_of_case(case.step, case.failure, case.times).story

        made_by = f"mulligan {__version__}"
        html = render_coverage_page(found, story_of, file=os.path.basename(self.file), made_by=made_by)
        return CoveragePage(found, html)

    @contextmanager
    def _with_hint(self, step: str) -> Iterator[None]:
        """An unknown step may be one that is written almost so."""
        try:
            yield
        except UnknownStep as unknown:
            names = list(self.explorer.rows)
            unknown.hint = did_you_mean(step, names) or f"its steps: {quote_names(names)}"
            raise


def read_file(
    file: str | Path,
    *,
    named: str | None = None,
    trust_templates: bool = False,
    catalogue: Path | None = None,
    options: Mapping[str, Any] | None = None,
    inputs: Mapping[str, Any] | None = None,
) -> PlayedWorkflow:
    """The workflow in a file, ready to be played. `LanguageError` where it is refused."""
    located = examine_located(
        file, named=named, trust_templates=trust_templates, catalogue=catalogue, given=inputs, options=options
    )
    return PlayedWorkflow(located, inputs, str(file))


def _typed(workflow: Workflow, given: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs that are given, with the right types. The others need not be known."""
    optional = {
        name: one if name in given else msgspec.structs.replace(one, has_default=True)
        for name, one in workflow.inputs.items()
    }
    found = check_inputs(msgspec.structs.replace(workflow, inputs=optional), dict(given))
    return {name: found[name] for name in given}


def with_findings(played: Coverage, located: LocatedWorkflow, file: str, *, is_whole: bool = True) -> Coverage:
    """A coverage with what is found in it, and with what its author accepts.

    `is_whole`: all cases were played, so that it can be said that something is accepted which does not occur.
    `LanguageError` for a comment that accepts what does not exist, or does not say why.
    """
    workflow = located.examined.workflow
    places = _Positions(located)
    acceptance = accepted_in(located, played, file, located.lines)
    cells = acceptance.apply_to_cells(played.cells)
    written = WhatIsWritten(places.has_key)
    found = find(workflow, cells, played.failures, line_of=places.line_of, written=written)
    findings = merge_unhandled(acceptance.apply_to_findings(found))
    unused = tuple(acceptance.unused()) if is_whole else ()
    decided = (*played.unknown, *_decided_by_code(workflow, os.path.basename(file)))
    return msgspec.structs.replace(played, cells=cells, findings=(*findings, *unused), unknown=decided)


def accepted_in(located: LocatedWorkflow, played: Coverage, file: str, lines: Mapping[str, int]) -> Acceptance:
    """What the author accepts. `lines` are those of its steps, or of the calls of a program."""
    accepts = _accepts(located, _Positions(located), file, lines)
    acceptance = Acceptance(accepts, located.examined.workflow, played.failures)
    unknown = [_unknown_name(one, acceptance.names, located.text, file) for one in acceptance.unknown()]
    if unknown:
        raise LanguageError(unknown)
    return acceptance


def _decided_by_code(workflow: Workflow, file: str) -> Iterator[str]:
    """What a program does about the failures of its calls: that is not played."""
    for step in workflow.steps:
        if step.action is None or not traits_of(step.action).is_program:
            continue
        lines = except_lines(str(step.action.params.get("source", "")))
        caught = [f"{file}:{line}" for line in lines[:EXCEPTS_MAX]] + (["…"] if len(lines) > EXCEPTS_MAX else [])
        how = f"it catches failures at {', '.join(caught)}" if caught else "it catches no failure"
        yield (
            f"what follows from the failure of a call of '{step.name}' is decided by code: {how}; "
            "to play it, say how its calls end: --rehearse FAKES"
        )


class _Positions:
    """Where things are written in the file of a workflow."""

    def __init__(self, located: LocatedWorkflow) -> None:
        self._lines = located.lines
        self._nodes = step_nodes(located.tree)
        if isinstance(located.tree, Tree):
            # The workflow itself.
            self._nodes[""] = located.tree

    def line_of(self, step: str, path: KeyPath) -> int:
        node = self._nodes.get(step)
        return self._lines.get(step, 0) if node is None else line_of_key(node, path)

    def has_key(self, step: str, key: str) -> bool | None:
        node = self._nodes.get(step)
        return None if node is None else key in node.entries


def _accepts(located: LocatedWorkflow, places: _Positions, file: str, lines: Mapping[str, int]) -> Iterator[Accept]:
    """What the keys and the comments of the file accept."""
    yield from accepts_of_keys(located.examined.workflow, places.line_of)
    found = list(accepts_of_comments(located.text, lines))
    if bad := [_unreadable(one, file) for one in found if isinstance(one, UnreadableAccept)]:
        raise LanguageError(bad)
    yield from (one for one in found if isinstance(one, Accept))


def _unreadable(one: UnreadableAccept, file: str) -> Problem:
    length = max(1, len(one.source_line.rstrip()) - one.column + 1)
    return Problem(
        "language.coverage_comment",
        one.message,
        file,
        one.line,
        one.column,
        length,
        one.source_line,
        hint=f"write {FORM}",
    )


def _unknown_name(one: Accept, names: list[str], text: str, file: str) -> Problem:
    lines = text.splitlines()
    shown = lines[one.line - 1] if 0 < one.line <= len(lines) else ""
    column = shown.find(one.what) + 1
    hint = did_you_mean(one.what, names) or "name a failure of the table, or the code of a finding"
    message = f"'{one.what}' is neither a failure nor a finding"
    return Problem("language.coverage_comment", message, file, one.line, column, len(one.what), shown, hint)
