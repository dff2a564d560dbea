"""The verbs of `Service` that learn from stored runs, or play a workflow without running anything."""

from __future__ import annotations

from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING

from mulligan.service.lazy_modules import LazyModule
from mulligan.service.run_reader import RunReader

if TYPE_CHECKING:
    from mulligan.service import replay, stats, time_travel, usage
    from mulligan.service.replay import ReplayResult
    from mulligan.service.run_cache import RunCache
    from mulligan.service.stats import AgentStats, RungStats
    from mulligan.service.time_travel import TimeTravel
    from mulligan.service.usage import StepUsage
else:
    replay = LazyModule("mulligan.service.replay")
    stats = LazyModule("mulligan.service.stats")
    time_travel = LazyModule("mulligan.service.time_travel")
    usage = LazyModule("mulligan.service.usage")


class AnalysisVerbs:
    """A part of `Service`."""

    reader: RunReader

    if TYPE_CHECKING:

        @cached_property
        def cache(self) -> RunCache: ...

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

    @cached_property
    def past(self) -> TimeTravel:
        """Runs as they were at any of their events."""
        return time_travel.TimeTravel(self.reader, self.cache)
