"""Coverage for a server: of texts that somebody sends, and of published workflows. Bounded, and kept for a while.

A text may be made to cost as much as possible. So a server plays no more than `STEPS_MAX` steps, and each coverage for
at most `SECONDS_MAX` of processor time; what was not played by then is named in the result.
"""

from __future__ import annotations

import time
from functools import lru_cache

from mulligan.analysis.coverage.explore import CaseStory
from mulligan.analysis.coverage.results import Coverage, Times
from mulligan.errors import InputInvalid
from mulligan.service.authoring.coverage import PlayedWorkflow
from mulligan.service.server.catalogue.text_reading import read_apart
from mulligan.service.server.catalogue.texts import WorkflowText, examine_located_text

STEPS_MAX = 2_000
SECONDS_MAX = 5.0
# How many results are kept: a page asks again for each cell that is chosen.
KEPT_MAX = 8


class PlayedText:
    """A text that is played as a workflow of a file is."""

    def __init__(self, text: WorkflowText) -> None:
        self._text = text

    def cover(self) -> Coverage:
        """What the workflow does about failures. `LanguageError` where it is refused."""
        return _kept(self._text)

    def story_of_case(self, step: str, failure: str, times: Times = "always") -> CaseStory:
        """What happens in one case."""
        return _story(self._text, STEPS_MAX, step, failure, times)


@lru_cache(KEPT_MAX)
def _kept(given: WorkflowText) -> Coverage:
    return _cover(given, STEPS_MAX, SECONDS_MAX)


@read_apart
def _cover(given: WorkflowText, steps_max: int, seconds_max: float) -> Coverage:
    # As this thread has worked.
    end = time.thread_time() + seconds_max
    return _read(given, steps_max).cover(may_go_on=lambda: time.thread_time() < end)


@read_apart
def _story(given: WorkflowText, steps_max: int, step: str, failure: str, times: Times) -> CaseStory:
    return _read(given, steps_max).story_of_case(step, failure, times)


def _read(given: WorkflowText, steps_max: int) -> PlayedWorkflow:
    located = examine_located_text(given)
    count = len(located.examined.workflow.steps)
    if count > steps_max:
        raise InputInvalid(
            f"the workflow has {count:,} steps, and a server plays at most {steps_max:,}",
            hint="play it where you have the file: mulligan coverage FILE",
        )
    return PlayedWorkflow(located)
