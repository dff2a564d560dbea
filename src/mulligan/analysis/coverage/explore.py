"""Recovery coverage: what a workflow does about every failure of every step. Nothing of it is run.

coverage = explore(workflow, evaluator=evaluator)
story = story_in(Explorer(workflow, evaluator), "fetch", "exit 11", "always")
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from mulligan.analysis.coverage.agent_costs import agent_costs
from mulligan.analysis.coverage.case_end import judge
from mulligan.analysis.coverage.exploring import TIMES, Explorer, Row, make_case
from mulligan.analysis.coverage.failure_kinds import Kind, unexplained_patterns
from mulligan.analysis.coverage.injection import path_of
from mulligan.analysis.coverage.pairs import explore_pairs
from mulligan.analysis.coverage.results import VERDICTS, Case, Cell, Coverage, FailureKind, Times
from mulligan.analysis.playing.player import Player
from mulligan.core.model.actions import traits_of
from mulligan.core.model.place_keys import step_name
from mulligan.core.model.workflow import Workflow
from mulligan.core.state.scope import Evaluator
from mulligan.errors import InputInvalid, UnknownStep
from mulligan.history.story import StoryLine, story

# How many assumptions are listed one by one.
_ASSUMED_MAX = 20


class CaseStory(msgspec.Struct, frozen=True):
    """What happens in one case, in the words of `explain`."""

    kind: FailureKind
    case: Case
    story: tuple[StoryLine, ...]


def explore(
    workflow: Workflow,
    *,
    evaluator: Evaluator,
    inputs: Mapping[str, Any] | None = None,
    step: str = "",
    failure: str = "",
    seed: int = 0,
    pairs: bool = True,
    may_go_on: Callable[[], bool] = lambda: True,
) -> Coverage:
    """Play every failure of every step, and failures of two steps together; with `step` and `failure` only those.

    `may_go_on` is asked between cases: if it says no, the rest is not played, and `unknown` says so. The findings are
    left empty.
    """
    explorer = Explorer(workflow, evaluator, inputs)
    if step or failure:
        explorer.choose(step, failure)
    by_cell: dict[tuple[str, str], list[Case]] = {}
    for case in explorer.cases():
        by_cell.setdefault((case.step, case.failure), []).append(case)
        if not may_go_on():
            explorer.is_cut = True
            break
    cells = tuple(
        Cell(name, kind.name, worst(cases), tuple(cases))
        for name in explorer.rows
        for kind in explorer.kinds[name]
        if (cases := by_cell.get((name, kind.name)))
    )
    found: list[Case] = []
    is_sample, pairs_count = False, 0
    if pairs and not explorer.is_cut and not (step or failure):
        found, pairs_count, is_sample = explore_pairs(explorer, cells, seed, may_go_on)
    return Coverage(
        workflow=workflow.name,
        steps=tuple(explorer.rows),
        failures=tuple(_columns(explorer)),
        cells=cells,
        findings=(),
        cases_count=sum(len(cell.cases) for cell in cells),
        pairs_count=pairs_count,
        is_sample=is_sample,
        seed=seed,
        unknown=tuple(_unknown(explorer, workflow)),
        pairs=tuple(found),
        agent_costs=agent_costs(workflow),
    )


def worst(cases: list[Case]) -> Any:
    """The worst verdict of these cases."""
    return max((case.verdict for case in cases), key=VERDICTS.index)


def _columns(explorer: Explorer) -> Iterator[FailureKind]:
    """All kinds of failures, each name once, those of steps first."""
    found: dict[str, FailureKind] = {}
    for kinds in explorer.kinds.values():
        for kind in kinds:
            found.setdefault(kind.name, kind.shown)
    parts = ("step", "model")
    yield from sorted(found.values(), key=lambda kind: kind.of not in parts)


def _unknown(explorer: Explorer, workflow: Workflow) -> Iterator[str]:
    """What was assumed and what was not played, in words."""
    yield from explorer.unknown
    if explorer.is_cut:
        yield "not all failures were played: the time was up"
    for pattern in unexplained_patterns(workflow):
        yield f"no example of a message for '{pattern}' is known, so this rule was not made to match"
    assumed = list(explorer.assumed.items())
    for source, value in assumed[:_ASSUMED_MAX]:
        if isinstance(value, bool):
            yield f"'{source}' is not known before a run: assumed to be {str(value).lower()}"
        elif isinstance(value, list):
            yield f"'{source}' is not known before a run: assumed to have {len(value)} items"
    if workflow.breakers:
        yield "circuit breakers were taken to be closed"


# -- one case --------------------------------------------------------------------------------------------------------


def story_in(explorer: Explorer, step: str, failure: str, times: Times = "always") -> CaseStory:
    """What happens if a step fails in that way, in the words of `explain`, without steps that it does not concern."""
    row, kind = find_case(explorer, step, failure)
    if times not in TIMES:
        raise InputInvalid(f"'{times}' is not how often a failure happens", hint=f"use {', '.join(TIMES)}")
    player = explorer.play_case(row, kind, TIMES[times])
    end = judge(player, row.path, row.step, kind)
    return CaseStory(kind.shown, make_case(row, kind, times, end), tuple(story_lines(player, row, kind)))


def story_lines(player: Player, row: Row, kind: Kind) -> list[StoryLine]:
    """The story of a case that was played, without steps that it does not concern."""
    lines: list[StoryLine] = []
    for run in player.runs:
        path = path_of(run)
        prefix = "/".join(path)
        of_run = [
            line
            if not prefix
            else msgspec.structs.replace(line, place=f"{prefix}/{line.place}" if line.place else prefix)
            for line in story(run.entries, run.state.workflow)
            if _concerns(line, row if path == row.path else None, kind)
        ]
        lines += of_run
    lines.sort(key=lambda line: line.at)
    return lines


def _concerns(line: StoryLine, row: Row | None, kind: Kind) -> bool:
    """Whether a line belongs to the story of a case: not that another step went well."""
    if not line.place or line.tone != "good" or row is None:
        return True
    # A program says what it caught when it has ended.
    programs = (step.name for step in row.workflow.steps if traits_of(step.action).is_program)
    return step_name(line.place) in (row.step.name, kind.target, *programs)


def find_case(explorer: Explorer, step: str, failure: str) -> tuple[Row, Kind]:
    """The row and the kind of failure with these names."""
    row = explorer.rows.get(step)
    if row is None:
        raise UnknownStep(f"'{step}' is not a step of workflow '{explorer.workflow.name}'", step=step)
    kinds = {kind.name: kind for kind in explorer.kinds[step]}
    kind = kinds.get(failure) or next((one for name, one in kinds.items() if name.lower() == failure.lower()), None)
    if kind is None:
        known = ", ".join(kinds) or "none"
        raise InputInvalid(f"step '{step}' cannot fail with '{failure}'", hint=f"its failures are: {known}")
    return row, kind
