"""Everything that a face can ask for: `Service` opens a home or a server, and gives areas.

A face (the command line, an API, a page, an MCP tool) calls one method of an area and shows the answer: a typed
struct, which `to_json` turns into plain data. An area is a class in its own room, imported and opened when it is first
asked for, since a command should not wait for what it does not use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from mulligan.core.model.scopes import allows
from mulligan.ports.server_records import TokenLimits
from mulligan.service.home import Home, find_home, find_worker_home
from mulligan.service.home_names import HOOKS_MARK
from mulligan.service.runs.stored.run_reader import RunReader

if TYPE_CHECKING:
    from concurrent.futures import Future

    from mulligan.core.model.workflow import NoticeRule
    from mulligan.ports import TokenRecord
    from mulligan.service.authoring.area import Workflows
    from mulligan.service.decisions.inbox import Decisions
    from mulligan.service.driving.area import Driving
    from mulligan.service.host.area import Machine
    from mulligan.service.logs.area import Logs
    from mulligan.service.rendering.documentation import Documentation
    from mulligan.service.runs.area import Runs
    from mulligan.service.runs.changes.changes import Changes
    from mulligan.service.runs.changes.fork_at import EventForks
    from mulligan.service.runs.changes.starting import Starts
    from mulligan.service.runs.changes.workflow_sources import WorkflowSources
    from mulligan.service.runs.statistics.recent_runs import RecentRuns
    from mulligan.service.runs.statistics.trends import Trends
    from mulligan.service.runs.stored.run_cache import RunCache
    from mulligan.service.runs.views.failure_details import Failures
    from mulligan.service.runs.views.run_details import RunDetails
    from mulligan.service.runs.views.step_history import StepHistories
    from mulligan.service.runs.views.time_travel import TimeTravel
    from mulligan.service.server.audit import AuditLog, AuditWithRun
    from mulligan.service.server.catalogue.catalogue import Catalogue
    from mulligan.service.server.logins import Logins
    from mulligan.service.server.notices.buttons import Buttons
    from mulligan.service.server.notices.notices import Notices
    from mulligan.service.server.schedules.schedules import Schedules
    from mulligan.service.server.store_calls import StoreCalls
    from mulligan.service.server.telemetry.telemetry import Telemetry
    from mulligan.service.server.tokens.decision_ledger import DecisionLedger
    from mulligan.service.server.tokens.tokens import Tokens
    from mulligan.service.server.webhooks.area import Webhooks


def open_service(home: str | None = None, by: str = "", token: str = "") -> Service:
    """A service over a folder, by default `$MULLIGAN_HOME` or `.mulligan`, in the name of `by`. To be closed.

    A URL is that of a server; `token` is then by default what `mulligan login` has stored, or the environment has.
    """
    return Service(find_home(home, token=token), by)


def open_worker_service(home: str | None = None, *, server: str = "", token: str = "", token_file: str = "") -> Service:
    """A service for a worker of a store; or of the server at that URL, with a token for workers."""
    return Service(find_worker_home(home, server=server, token=token, token_file=token_file))


@contextmanager
def open_temporary_service() -> Iterator[Service]:
    """A service over a folder that is removed in the end, whatever store the environment names."""
    import tempfile

    temporary_folder = tempfile.TemporaryDirectory(prefix="mulligan-")
    with temporary_folder as folder, Service(Home(Path(folder) / "home")) as service:
        yield service


class Service:
    """Every verb, over the runs of one home. As a context manager it closes itself."""

    def __init__(self, home: Home, by: str = "") -> None:
        self.home = home
        self.reader = RunReader(home)
        self._by = by
        # Where it starts runs and keeps workflows and schedules: a name space of the store, see `ports.server_records`.
        self.project = ""
        # Whether it was opened by a server, for the call of a client.
        self.is_for_others = False
        # Whether the caller drives the runs that he changes. For others, workers or a process in the background do.
        self.drives = True
        # What the token of that client may do less than its scopes say.
        self.limits = TokenLimits()
        self.may_decide = True
        self.ledger: DecisionLedger | None = None

    def __enter__(self) -> Service:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()
        if isinstance(error, OSError) and self.home.holds(error.filename):
            raise self.home.trouble(error) from error

    def close(self) -> None:
        if "notices" in self.__dict__:
            # Who wants to have sent everything has waited for it before.
            self.notices.close(is_hurried=True)
        self.reader.close()

    @cached_property
    def changes(self) -> Changes:
        """Starting runs and changing them: every verb once, each with `dry_run`."""
        from mulligan.service.runs.changes import changes

        return changes.Changes(
            self.reader,
            self._by,
            self._rules_for_new_runs,
            self.limits,
            self.ledger,
            may_decide=self.may_decide,
            drives=self.drives,
            is_for_others=self.is_for_others,
        )

    def _rules_for_new_runs(self) -> tuple[NoticeRule, ...]:
        """The notice rules of the project. Looking for them takes longer than a start, so few homes are asked."""
        may_have_some = self.is_for_others or self.home.store_url or (self.home.folder / HOOKS_MARK).exists()
        return self.notices.rules_for_new_runs() if may_have_some else ()

    @property
    def by(self) -> str:
        """The name under which changes are recorded."""
        return self.changes.by

    def as_user(self, by: str, *, project: str | None = None) -> Service:
        """The same service for one call in the name of another user. It shares the connection, so it is not closed.

        With a project it knows nothing of the others; without one it knows what this service knows.
        """
        other = Service(self.home, by)
        other.reader, other.cache = self.reader, self.cache
        other.project = self.project
        if project is not None:
            other.project, other.reader = project, self.reader.in_project(project)
            other.cache = self.cache.seen_by(other.reader)
        other.is_for_others, other.drives = True, False
        return other

    def for_token(
        self, token: TokenRecord, audit: AuditWithRun | None = None, ledger: DecisionLedger | None = None
    ) -> Service:
        """The service of one call with a token: in the name of its user, for its project, within its limits.

        Rows for the audit are written with the run that it creates; those of decisions by the ledger.
        """
        other = self.as_user(token.user, project=token.project).within(token, ledger)
        if audit is not None:
            other.reader = other.reader.limited(audit.store)
        return other

    def within(self, token: TokenRecord, ledger: DecisionLedger | None = None) -> Service:
        """The same service in the name of a token's user, and within its limits. What it sees stays the same."""
        other = self.as_user(token.user)
        other.limits, other.ledger, other.is_for_others = token.limits, ledger, self.is_for_others
        other.may_decide = allows(token.scopes, "decide")
        if token.limits != TokenLimits() or ledger is not None:
            from mulligan.service.server.tokens import limits

            other.reader = other.reader.limited(lambda store: limits.limited(store, token, ledger))
        return other

    @cached_property
    def store_calls(self) -> StoreCalls:
        """The calls of a store over HTTP."""
        from mulligan.service.server import store_calls

        return store_calls.StoreCalls(self.changes)

    @cached_property
    def cache(self) -> RunCache:
        """The states of the runs that are looked at again and again."""
        from mulligan.service.runs.stored import run_cache

        return run_cache.RunCache(self.reader)

    @cached_property
    def details(self) -> RunDetails:
        """Runs in bounded pieces: a head without the steps, pages of events and story, files, failure handlers."""
        from mulligan.service.runs.views import run_details

        return run_details.RunDetails(self.reader, self.cache, lambda: self.catalogue)

    @cached_property
    def catalogue(self) -> Catalogue:
        """Published workflows and drafts."""
        from mulligan.service.server.catalogue import catalogue

        kind = catalogue.Catalogue
        if self.home.is_remote:
            from mulligan.service.server.server_changes import RemoteCatalogue

            kind = RemoteCatalogue
        return kind(self.reader, self.by, self.project, self.now, lambda: self.schedules)

    @cached_property
    def schedules(self) -> Schedules:
        """Published workflows that are started on time."""

        def in_project(by: str, project: str) -> Service:
            other = self.as_user(by, project=project)
            # Nobody reads what would follow from what a schedule does.
            other.drives = True
            return other

        from mulligan.service.server.schedules import schedules

        kind = schedules.Schedules
        if self.home.is_remote:
            from mulligan.service.server.server_changes import RemoteSchedules

            kind = RemoteSchedules
        return kind(self.reader, self.by, self.project, self.now, in_project)

    @cached_property
    def notices(self) -> Notices:
        """Messages about runs: what was sent and what waits, sending it, and the rules of the project."""
        from mulligan.service.server.notices.notices import Notices

        return Notices(self.reader, self.by, self.project)

    @cached_property
    def webhooks(self) -> Webhooks:
        """Where programs outside send events and start published workflows."""
        from mulligan.service.server.webhooks import area

        kind = area.Webhooks
        if self.home.is_remote:
            from mulligan.service.server.server_changes import RemoteWebhooks

            kind = RemoteWebhooks
        return kind(self.reader, self.by, self.project, self.now, self.notices.config, self.for_token)

    @cached_property
    def buttons(self) -> Buttons:
        """Decisions by the buttons of notices."""
        from mulligan.service.server.notices.buttons import Buttons

        return Buttons(self.reader, self.now, self.notices.config, self.for_token)

    @cached_property
    def event_forks(self) -> EventForks:
        """Forks that continue a run from one of its events."""
        from mulligan.service.runs.changes import fork_at

        return fork_at.EventForks(self.changes, self.cache.past)

    def now(self) -> datetime:
        """The time by the clock of the store, if it has one; otherwise by that of this machine."""
        return (self.reader.store.now() if self.home.is_there else None) or datetime.now(UTC)

    # -- areas ---------------------------------------------------------------------------------------------------------

    @cached_property
    def runs(self) -> Runs:
        """What there is to know of runs."""
        from mulligan.service.runs.area import Runs

        return Runs(self.reader, lambda: self.cache, lambda: self.catalogue)

    @cached_property
    def logs(self) -> Logs:
        """What attempts wrote."""
        from mulligan.service.logs.area import Logs

        return Logs(self.reader, lambda: self.cache)

    @cached_property
    def workflows(self) -> Workflows:
        """Workflow files and texts."""
        from mulligan.service.authoring.area import Workflows

        return Workflows(self.reader, lambda: self.catalogue, lambda: self.by)

    @cached_property
    def starts(self) -> Starts:
        """What comes before a run."""
        from mulligan.service.runs.changes.starting import Starts

        return Starts(self.reader)

    @cached_property
    def driving(self) -> Driving:
        """Workers in this process, and waiting for those elsewhere."""
        from mulligan.service.driving.area import Driving

        return Driving(self.reader)

    @cached_property
    def decisions(self) -> Decisions:
        """What waits for a person, with what helps to decide."""
        from mulligan.service.decisions.inbox import Decisions

        return Decisions(self.reader)

    @cached_property
    def machine(self) -> Machine:
        """The store and this machine."""
        from mulligan.service.host.area import Machine

        return Machine(self.reader)

    @cached_property
    def past(self) -> TimeTravel:
        """Runs as they were at any of their events."""
        from mulligan.service.runs.views import time_travel

        return time_travel.TimeTravel(self.reader, self.cache)

    @cached_property
    def audit(self) -> AuditLog:
        """Who changed what through a server."""
        from mulligan.service.server import audit

        return audit.AuditLog(self.reader)

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
    def logins(self) -> Logins:
        """Links and sessions for browsers."""
        from mulligan.service.server import logins

        return logins.Logins(self.reader)

    @cached_property
    def recent_runs(self) -> RecentRuns:
        """What fails now, and how the runs of the last days ended."""
        from mulligan.service.runs.statistics import recent_runs

        return recent_runs.RecentRuns(self.reader, self.now)

    def count_in_background(self, call: Callable[[Callable[[Service], Any]], Future[Any]]) -> None:
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
    def telemetry(self) -> Telemetry:
        """Metrics and traces."""
        from mulligan.service.server.telemetry import telemetry

        return telemetry.Telemetry(self.reader)

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
    def workflow_sources(self) -> WorkflowSources:
        """Workflows that a caller names, sends or has in a file: read, and prepared for a run."""
        from mulligan.service.runs.changes import workflow_sources

        return workflow_sources.WorkflowSources(self.changes, lambda: self.catalogue, is_for_others=self.is_for_others)
