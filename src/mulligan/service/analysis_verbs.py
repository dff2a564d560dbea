"""The verbs of `Service` that learn from stored runs, or play a workflow without running anything."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mulligan.errors import NotFound
from mulligan.service.runs.stored.run_reader import RunReader

if TYPE_CHECKING:
    from mulligan.analysis.coverage.results import Coverage, Times
    from mulligan.analysis.whatif.results import WhatIf
    from mulligan.core.model.workflow import Workflow
    from mulligan.service.authoring.coverage import CaseStory
    from mulligan.service.authoring.coverage_page import CoveragePage
    from mulligan.service.authoring.suggest import DraftedChanges, SuggestedChange, Suggestions, WrittenChanges
    from mulligan.service.authoring.whatif import WhatIfSelection
    from mulligan.service.runs.statistics.stats import AgentStats, RungStats
    from mulligan.service.runs.statistics.usage import StepUsage
    from mulligan.service.runs.stored.replay import ReplayResult
    from mulligan.service.runs.stored.run_cache import RunCache
    from mulligan.service.runs.views.time_travel import TimeTravel
    from mulligan.service.server.catalogue.catalogue import Catalogue
    from mulligan.service.server.catalogue.texts import WorkflowText


class AnalysisVerbs:
    """A part of `Service`."""

    reader: RunReader
    if TYPE_CHECKING:

        @property
        def catalogue(self) -> Catalogue: ...

        @property
        def by(self) -> str: ...

    if TYPE_CHECKING:

        @cached_property
        def cache(self) -> RunCache: ...

    def usage(self, run_id: int) -> list[StepUsage]:
        """What steps asked for, what they used, and what they should ask for."""
        from mulligan.service.runs.statistics import usage

        return usage.measure_usage(self.reader, run_id)

    def stats(
        self, run_id: int | None = None, *, workflow: str | None = None, since: datetime | None = None
    ) -> list[RungStats]:
        """How often retries, handlers, triage and routes were tried, and how often they worked."""
        from mulligan.service.runs.statistics import stats

        return stats.collect_stats(self.reader, run_id, workflow=workflow, since=since).rungs

    def agent_stats(
        self, run_id: int | None = None, *, workflow: str | None = None, since: datetime | None = None
    ) -> list[AgentStats]:
        """How often agents decided about failures, and how often they were right."""
        from mulligan.service.runs.statistics import stats

        return stats.collect_stats(self.reader, run_id, workflow=workflow, since=since).agents

    def replay(self, run_id: int) -> ReplayResult:
        """Fold the log of a run again, and compare the result with the tables."""
        from mulligan.service.runs.stored import replay

        return replay.verify(self.reader, run_id)

    @cached_property
    def past(self) -> TimeTravel:
        """Runs as they were at any of their events."""
        from mulligan.service.runs.views import time_travel

        return time_travel.TimeTravel(self.reader, self.cache)

    def suggest(
        self, workflow: str = "", *, policy: Workflow | None = None, since: datetime | None = None, step: str = ""
    ) -> Suggestions:
        """What the runs of a workflow, or of all, say about its rules and limits; as proposals with their evidence.

        `policy` is the workflow as a file has it now; by default the published version, or that of the newest run.
        """
        from mulligan.service.authoring import suggest

        return suggest.suggest(
            self.reader, named=workflow, policy=policy, published=self._published, since=since, step=step
        )

    @staticmethod
    def write_suggestions(path: Path, chosen: Sequence[SuggestedChange]) -> WrittenChanges:
        """Write proposals into a workflow file. What cannot be written in place is left out, and says why."""
        from mulligan.service.authoring import suggest

        return suggest.write_into_file(path, chosen)

    def draft_suggestions(
        self, workflow: str, chosen: Sequence[SuggestedChange], *, dry_run: bool = False
    ) -> DraftedChanges:
        """Write proposals into a draft of a published workflow. A draft of somebody else stays as it is."""
        from mulligan.service.authoring import suggest

        return suggest.write_into_draft(self.catalogue, self.by, workflow, chosen, dry_run=dry_run)

    @staticmethod
    def choose_suggestions(found: Suggestions, ids: Sequence[str]) -> list[SuggestedChange]:
        """The proposals with these ids; all of them without any."""
        from mulligan.service.authoring import suggest

        return suggest.choose(found, ids)

    def _published(self, name: str) -> Workflow | None:
        try:
            return self.catalogue.load(name)
        except NotFound:
            return None

    @staticmethod
    def coverage(
        file: str | Path, *, step: str = "", failure: str = "", seed: int = 0, pairs: bool = True, **how: Any
    ) -> Coverage:
        """What the workflow in a file does about each failure of each step. It is played in memory: nothing is run.

        With `step` and `failure` only those are played. `pairs`: also failures of two steps in one run. `how` are the
        arguments of `examine_workflow`, and `inputs`.
        """
        from mulligan.service.authoring import coverage

        played = coverage.read_file(file, **how)
        return played.cover(step=step, failure=failure, seed=seed, pairs=pairs)

    @staticmethod
    def coverage_story(file: str | Path, step: str, failure: str, times: Times = "always", **how: Any) -> CaseStory:
        """What happens if a step of the workflow in a file fails in that way, in the words of `explain`."""
        from mulligan.service.authoring import coverage

        return coverage.read_file(file, **how).story_of_case(step, failure, times)

    @staticmethod
    def coverage_page(file: str | Path, *, seed: int = 0, pairs: bool = True, **how: Any) -> CoveragePage:
        """The same as `coverage`, and as one HTML page that has the stories."""
        from mulligan.service.authoring import coverage, coverage_page

        played = coverage.read_file(file, **how)
        return coverage_page.make_page(played, str(file), seed=seed, pairs=pairs)

    # -- for a server, which has texts and no files ------------------------------------------------------------------

    @staticmethod
    def text_coverage(text: str, *, file: str = "workflow.yaml", format: str | None = None) -> Coverage:
        """What the workflow in a text does about each failure of each step. The work is bounded."""
        from mulligan.service.authoring import served_coverage

        return served_coverage.cover_text(served_coverage.WorkflowText(text, file, format))

    @staticmethod
    def text_coverage_story(
        text: str,
        step: str,
        failure: str,
        times: Times = "always",
        *,
        file: str = "workflow.yaml",
        format: str | None = None,
    ) -> CaseStory:
        """What happens if a step of the workflow in a text fails in that way, in the words of `explain`."""
        from mulligan.service.authoring import served_coverage

        given = served_coverage.WorkflowText(text, file, format)
        return served_coverage.story_in_text(given, step, failure, times)

    def published_coverage(self, name: str, version: int | None = None) -> Coverage:
        """The same of a version of a published workflow, the newest by default."""
        from mulligan.service.authoring import served_coverage

        return served_coverage.cover_text(self._published_text(name, version))

    def published_coverage_story(
        self, name: str, version: int | None, step: str, failure: str, times: Times = "always"
    ) -> CaseStory:
        """The same of a version of a published workflow."""
        from mulligan.service.authoring import served_coverage

        return served_coverage.story_in_text(self._published_text(name, version), step, failure, times)

    def _published_text(self, name: str, version: int | None) -> WorkflowText:

        found = self.catalogue.workflow(name, version)
        from mulligan.service.authoring import served_coverage

        return served_coverage.published_text(found.name, found.text or "", found.format)

    def whatif(self, workflow: Workflow, selection: WhatIfSelection | None = None) -> WhatIf:
        """What a changed workflow would have made of its recorded runs. Nothing is executed, and nothing written."""
        from mulligan.service.authoring import whatif

        return whatif.whatif(self.reader, workflow, selection)

    def whatif_of_text(
        self, text: str, selection: WhatIfSelection, *, file: str = "", format: str | None = None
    ) -> WhatIf:
        """The same for the text of a workflow that nobody has published."""
        from mulligan.service.authoring import whatif

        return whatif.whatif_of_text(self.reader, text, selection, file=file, format=format)
