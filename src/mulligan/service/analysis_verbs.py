"""The verbs of `Service` that learn from stored runs, or play a workflow without running anything."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mulligan.service.lazy_modules import LazyModule
from mulligan.service.run_reader import RunReader

if TYPE_CHECKING:
    from mulligan.analysis.coverage.results import Coverage, Times
    from mulligan.analysis.whatif.results import WhatIf
    from mulligan.core.model.workflow import Workflow
    from mulligan.history.story import StoryLine
    from mulligan.service import coverage, replay, stats, usage, whatif
    from mulligan.service.replay import ReplayResult
    from mulligan.service.stats import AgentStats, RungStats
    from mulligan.service.usage import StepUsage
    from mulligan.service.whatif import WhatIfSelection
else:
    coverage = LazyModule("mulligan.service.coverage")
    replay = LazyModule("mulligan.service.replay")
    stats = LazyModule("mulligan.service.stats")
    usage = LazyModule("mulligan.service.usage")
    whatif = LazyModule("mulligan.service.whatif")


class AnalysisVerbs:
    """A part of `Service`."""

    reader: RunReader

    def usage(self, run_id: int) -> list[StepUsage]:
        """What steps asked for, what they used, and what they should ask for."""
        return usage.measure_usage(self.reader, run_id)

    def stats(
        self, run_id: int | None = None, *, workflow: str | None = None, since: datetime | None = None
    ) -> list[RungStats]:
        """How often retries, handlers, triage and routes were tried, and how often they worked."""
        return stats.collect_stats(self.reader, run_id, workflow=workflow, since=since)

    def agent_stats(
        self, run_id: int | None = None, *, workflow: str | None = None, since: datetime | None = None
    ) -> list[AgentStats]:
        """How often agents decided about failures, and how often they were right."""
        return stats.collect_agent_stats(self.reader, run_id, workflow=workflow, since=since)

    def replay(self, run_id: int) -> ReplayResult:
        """Fold the log of a run again, and compare the result with the tables."""
        return replay.verify(self.reader, run_id)

    @staticmethod
    def coverage(
        file: str | Path,
        *,
        named: str | None = None,
        trust_templates: bool = False,
        catalogue: Path | None = None,
        options: Mapping[str, Any] | None = None,
        inputs: Mapping[str, Any] | None = None,
        step: str = "",
        failure: str = "",
        seed: int = 0,
        pairs: bool = True,
    ) -> Coverage:
        """What a workflow does about each failure of each step. It is played in memory: nothing of it is run.

        With `step` and `failure` only those are played. `pairs`: also failures of two steps in one run.
        """
        return coverage.cover(
            file,
            named=named,
            trust_templates=trust_templates,
            catalogue=catalogue,
            options=options,
            inputs=inputs,
            step=step,
            failure=failure,
            seed=seed,
            pairs=pairs,
        )

    @staticmethod
    def coverage_story(
        file: str | Path,
        step: str,
        failure: str,
        times: Times = "always",
        *,
        named: str | None = None,
        trust_templates: bool = False,
        catalogue: Path | None = None,
        options: Mapping[str, Any] | None = None,
        inputs: Mapping[str, Any] | None = None,
    ) -> list[StoryLine]:
        """What happens if a step fails in that way, in the words of `explain`."""
        return coverage.story_of_case(
            file,
            step,
            failure,
            times,
            named=named,
            trust_templates=trust_templates,
            catalogue=catalogue,
            options=options,
            inputs=inputs,
        )

    def whatif(self, workflow: Workflow, selection: WhatIfSelection | None = None) -> WhatIf:
        """What a changed workflow would have made of its recorded runs. Nothing is executed, and nothing written."""
        return whatif.whatif(self.reader, workflow, selection)
