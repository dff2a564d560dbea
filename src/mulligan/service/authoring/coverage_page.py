"""Coverage of a workflow file as one HTML page, with the stories of its cells."""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec

from mulligan import __version__
from mulligan.analysis.coverage.results import Case, Coverage
from mulligan.history.story import StoryLine
from mulligan.service.authoring.coverage import PlayedWorkflow
from mulligan.service.rendering.page.coverage import render_coverage_page


class CoveragePage(msgspec.Struct, frozen=True):
    coverage: Coverage
    html: str


def make_page(played: PlayedWorkflow, file: str, *, seed: int = 0, pairs: bool = True) -> CoveragePage:
    """The page, and what it shows. A case whose story cannot be played has none."""
    found = played.cover(seed=seed, pairs=pairs)

    def story_of(case: Case) -> Sequence[StoryLine]:
        return played.story_of_case(case.step, case.failure, case.times).story

    html = render_coverage_page(found, story_of, file=os.path.basename(file), made_by=f"mulligan {__version__}")
    return CoveragePage(found, html)
