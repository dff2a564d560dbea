"""The areas of `Service` that a server asks for, and that need nothing but its store."""

from __future__ import annotations

from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from mulligan.lazy_modules import LazyModule

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from mulligan.service.decisions import inbox
    from mulligan.service.decisions.inbox import Inbox
    from mulligan.service.logs import log_lines, log_pages
    from mulligan.service.logs.log_lines import LogLines
    from mulligan.service.logs.log_pages import LogPages
    from mulligan.service.rendering import documentation
    from mulligan.service.rendering.documentation import Documentation
    from mulligan.service.runs.changes import unattended_runs
    from mulligan.service.runs.changes.run_control import RunControl
    from mulligan.service.runs.changes.unattended_runs import UnattendedRuns
    from mulligan.service.runs.statistics import recent_runs, trends
    from mulligan.service.runs.statistics.recent_runs import RecentRuns
    from mulligan.service.runs.statistics.trends import Trends
    from mulligan.service.runs.stored import run_workflows
    from mulligan.service.runs.stored.run_cache import RunCache
    from mulligan.service.runs.stored.run_reader import RunReader
    from mulligan.service.runs.stored.run_workflows import RunWorkflow
    from mulligan.service.runs.views import failure_details, run_views, step_history
    from mulligan.service.runs.views.failure_details import Failures
    from mulligan.service.runs.views.run_views import RunViews
    from mulligan.service.runs.views.step_history import StepHistories
    from mulligan.service.server import audit, logins, retention, server_changes
    from mulligan.service.server.audit import AuditLog
    from mulligan.service.server.catalogue.catalogue import Catalogue
    from mulligan.service.server.logins import Logins
    from mulligan.service.server.retention import Retention
    from mulligan.service.server.telemetry import telemetry
    from mulligan.service.server.telemetry.telemetry import Telemetry
    from mulligan.service.server.tokens import tokens
    from mulligan.service.server.tokens.tokens import Tokens
else:
    audit, logins = LazyModule("mulligan.service.server.audit"), LazyModule("mulligan.service.server.logins")
    documentation = LazyModule("mulligan.service.rendering.documentation")
    failure_details = LazyModule("mulligan.service.runs.views.failure_details")
    inbox = LazyModule("mulligan.service.decisions.inbox")
    recent_runs = LazyModule("mulligan.service.runs.statistics.recent_runs")
    retention = LazyModule("mulligan.service.server.retention")
    log_lines = LazyModule("mulligan.service.logs.log_lines")
    log_pages = LazyModule("mulligan.service.logs.log_pages")
    run_views = LazyModule("mulligan.service.runs.views.run_views")
    run_workflows = LazyModule("mulligan.service.runs.stored.run_workflows")
    server_changes = LazyModule("mulligan.service.server.server_changes")
    step_history = LazyModule("mulligan.service.runs.views.step_history")
    telemetry = LazyModule("mulligan.service.server.telemetry.telemetry")
    tokens = LazyModule("mulligan.service.server.tokens.tokens")
    trends = LazyModule("mulligan.service.runs.statistics.trends")
    unattended_runs = LazyModule("mulligan.service.runs.changes.unattended_runs")


class ServerAreas:
    """Each area is an object of its own, made when it is first asked for."""

    reader: RunReader
    is_for_others: bool

    if TYPE_CHECKING:
        # Of `Service`.
        @property
        def by(self) -> str: ...

        @cached_property
        def control(self) -> RunControl: ...

        @cached_property
        def catalogue(self) -> Catalogue: ...

        def now(self) -> datetime: ...

        @property
        def cache(self) -> RunCache: ...

    @cached_property
    def audit(self) -> AuditLog:
        """Who changed what through a server."""
        return audit.AuditLog(self.reader)

    def remove_old(self, now: datetime) -> datetime:
        """Remove a batch of old rows and abandoned files, as `[retention]` says; when to look again."""
        return self._retention.remove_due(now)

    @cached_property
    def _retention(self) -> Retention:
        return retention.Retention(self.reader.home, self.reader.store)

    @cached_property
    def documentation(self) -> Documentation:
        """Our own pages for users."""
        return documentation.open_documentation()

    @property
    def failure_details(self) -> Failures:
        """Single failures, with everything that helps to decide about them."""
        return failure_details.Failures(self.reader, self.cache)

    @cached_property
    def inbox(self) -> Inbox:
        """Single things that wait for a person, with what helps to decide."""
        return inbox.Inbox(self.reader)

    @cached_property
    def logins(self) -> Logins:
        """Links and sessions for browsers."""
        return logins.Logins(self.reader)

    @cached_property
    def recent_runs(self) -> RecentRuns:
        """What fails now, and how the runs of the last days ended."""
        return recent_runs.RecentRuns(self.reader, self.now)

    def count_in_background(self, call: Callable[[Callable[[ServerAreas], Any]], Future[Any]]) -> None:
        """Have runs of a large store counted in the background: `call` runs a function with another service."""
        self.reader.counts.count_in_background = lambda count: call(lambda other: count(other.reader.store))

    @cached_property
    def tokens(self) -> Tokens:
        """Who may do what with a server."""
        kind = server_changes.RemoteTokens if self.reader.home.is_remote else tokens.Tokens
        return kind(self.reader, lambda: self.by, self.now)

    @cached_property
    def views(self) -> RunViews:
        """Runs as pages show them: graph, grid, events in words, two runs beside each other."""
        return run_views.RunViews(self.reader, self.cache, lambda: self.catalogue)

    @cached_property
    def telemetry(self) -> Telemetry:
        """Metrics and traces."""
        return telemetry.Telemetry(self.reader)

    @property
    def log_lines(self) -> LogLines:
        """Logs by line: how many there are, and which have a text."""
        return log_lines.LogLines(self.reader.log_ranges, self.cache.counted_logs)

    @property
    def log_pages(self) -> LogPages:
        """Parts of logs, by line."""
        return log_pages.LogPages(self.reader, self.cache.counted_logs)

    @property
    def step_histories(self) -> StepHistories:
        """Single steps and items in detail: attempts, and the recovery ladder of each failed visit."""
        return step_history.StepHistories(self.reader, self.cache)

    @cached_property
    def trends(self) -> Trends:
        """What many runs together say."""
        return trends.Trends(self.reader)

    @property
    def unattended_runs(self) -> UnattendedRuns:
        """Starting and changing runs for a caller that cannot drive them itself."""
        return unattended_runs.UnattendedRuns(self.control, lambda: self.catalogue, is_for_others=self.is_for_others)

    def run_workflow(self, run_id: int) -> RunWorkflow:
        """The workflow of a run as somebody has written it."""
        return run_workflows.read_run_workflow(self.reader, self.catalogue, run_id)
