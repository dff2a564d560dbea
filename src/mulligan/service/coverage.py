"""Recovery coverage of a workflow: it is played in memory, and nothing of it is run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from mulligan.analysis.coverage.results import Case, Coverage, FailureKind, Times
from mulligan.formats import LocatedWorkflow, examine_located
from mulligan.history.story import StoryLine


class CaseStory(msgspec.Struct, frozen=True):
    """What happens in one case, in the words of `explain`."""

    kind: FailureKind
    case: Case
    story: tuple[StoryLine, ...]


class PlayedWorkflow:
    """A workflow that is read once and played for many cases."""

    def __init__(self, located: LocatedWorkflow, inputs: Mapping[str, Any] | None = None) -> None:
        self.located = located
        self.workflow = located.examined.workflow
        self.inputs = inputs or {}

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
        return Coverage(
            workflow=self.workflow.name,
            steps=tuple(one.name for one in self.workflow.steps),
            failures=(),
            cells=(),
            findings=(),
            cases_count=0,
            seed=seed,
        )

    def story_of_case(self, step: str, failure: str, times: Times = "always") -> CaseStory:
        """What happens if a step fails in that way."""
        raise NotImplementedError


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
    return PlayedWorkflow(located, inputs)
