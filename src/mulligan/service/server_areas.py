"""The areas of `Service` that a server asks for, and that need nothing but its store."""

from __future__ import annotations

from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from mulligan.service.decisions.inbox import Inbox
    from mulligan.service.logs.log_lines import LogLines
    from mulligan.service.logs.log_pages import LogPages
    from mulligan.service.rendering.documentation import Documentation
    from mulligan.service.runs.changes.run_control import RunControl
    from mulligan.service.runs.changes.unattended_runs import UnattendedRuns
    from mulligan.service.runs.statistics.recent_runs import RecentRuns
    from mulligan.service.runs.statistics.trends import Trends
    from mulligan.service.runs.stored.run_cache import RunCache
    from mulligan.service.runs.stored.run_reader import RunReader
    from mulligan.service.runs.stored.run_workflows import RunWorkflow
    from mulligan.service.runs.views.failure_details import Failures
    from mulligan.service.runs.views.run_views import RunViews
    from mulligan.service.runs.views.step_history import StepHistories
    from mulligan.service.server.audit import AuditLog
    from mulligan.service.server.catalogue.catalogue import Catalogue
    from mulligan.service.server.logins import Logins
    from mulligan.service.server.retention import Retention
    from mulligan.service.server.telemetry.telemetry import Telemetry
    from mulligan.service.server.tokens.tokens import Tokens


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
        from mulligan.service.server import audit

        return audit.AuditLog(self.reader)

    def remove_old(self, now: datetime) -> datetime:
        """Remove a batch of old rows and abandoned files, as `[retention]` says; when to look again."""
        return self._retention.remove_due(now)

    @cached_property
    def _retention(self) -> Retention:
        from mulligan.service.server import retention

        return retention.Retention(self.reader.home, self.reader.store)

    @cached_property
    def documentation(self) -> Documentation:
        """Our own pages for users."""
        from mulligan.service.rendering import documentation

        return documentation.open_documentation()

    @property
    def failure_details(self) -> Failures:
        """Single failures, with everything that helps to decide about them."""
        from mulligan.service.runs.views import failure_details

        return failure_details.Failures(self.reader, self.cache)

    @cached_property
    def inbox(self) -> Inbox:
        """Single things that wait for a person, with what helps to decide."""
        from mulligan.service.decisions import inbox

        return inbox.Inbox(self.reader)

    @cached_property
    def logins(self) -> Logins:
        """Links and sessions for browsers."""
        from mulligan.service.server import logins

        return logins.Logins(self.reader)

    @cached_property
    def recent_runs(self) -> RecentRuns:
        """What fails now, and how the runs of the last days ended."""
        from mulligan.service.runs.statistics import recent_runs

        return recent_runs.RecentRuns(self.reader, self.now)

    def count_in_background(self, call: Callable[[Callable[[ServerAreas], Any]], Future[Any]]) -> None:
        """Have runs of a large store counted in the background: `call` runs a function with another service."""
        self.reader.counts.count_in_background = lambda count: call(lambda other: count(other.reader.store))

    @cached_property
    def tokens(self) -> Tokens:
        """Who may do what with a server."""
        from mulligan.service.server.tokens import tokens

        kind = tokens.Tokens
        if self.reader.home.is_remote:
            from mulligan.service.server.server_changes import RemoteTokens

            kind = RemoteTokens
        return kind(self.reader, lambda: self.by, self.now)

    @cached_property
    def views(self) -> RunViews:
        """Runs as pages show them: graph, grid, events in words, two runs beside each other."""
        from mulligan.service.runs.views import run_views

        return run_views.RunViews(self.reader, self.cache, lambda: self.catalogue)

    @cached_property
    def telemetry(self) -> Telemetry:
        """Metrics and traces."""
        from mulligan.service.server.telemetry import telemetry

        return telemetry.Telemetry(self.reader)

    @property
    def log_lines(self) -> LogLines:
        """Logs by line: how many there are, and which have a text."""
        from mulligan.service.logs import log_lines

        return log_lines.LogLines(self.reader.log_ranges, self.cache.counted_logs)

    @property
    def log_pages(self) -> LogPages:
        """Parts of logs, by line."""
        from mulligan.service.logs import log_pages

        return log_pages.LogPages(self.reader, self.cache.counted_logs)

    @property
    def step_histories(self) -> StepHistories:
        """Single steps and items in detail: attempts, and the recovery ladder of each failed visit."""
        from mulligan.service.runs.views import step_history

        return step_history.StepHistories(self.reader, self.cache)

    @cached_property
    def trends(self) -> Trends:
        """What many runs together say."""
        from mulligan.service.runs.statistics import trends

        return trends.Trends(self.reader)

    @property
    def unattended_runs(self) -> UnattendedRuns:
        """Starting and changing runs for a caller that cannot drive them itself."""
        from mulligan.service.runs.changes import unattended_runs

        return unattended_runs.UnattendedRuns(self.control, lambda: self.catalogue, is_for_others=self.is_for_others)

    def run_workflow(self, run_id: int) -> RunWorkflow:
        """The workflow of a run as somebody has written it."""
        from mulligan.service.runs.stored import run_workflows

        return run_workflows.read_run_workflow(self.reader, self.catalogue, run_id)
