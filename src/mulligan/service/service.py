"""Everything that a face can ask for, in one class.

A face (the command line, an API, a page, an MCP tool) opens a `Service`, calls one method, and shows the answer: a
typed struct, which `to_json` turns into plain data. The work is done by the modules that are named here; each is
imported when the first of its functions is called, since a command should not wait for what it does not use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Literal, Unpack

from mulligan.core.model.scopes import allows
from mulligan.lazy_modules import LazyModule
from mulligan.ports.server_records import TokenLimits
from mulligan.service.analysis_verbs import AnalysisVerbs
from mulligan.service.cluster_verbs import ClusterVerbs
from mulligan.service.home import Home, find_home, find_worker_home
from mulligan.service.large_run_verbs import LargeRunVerbs
from mulligan.service.log_verbs import LogVerbs
from mulligan.service.remote_verbs import RemoteVerbs
from mulligan.service.runs.stored.run_reader import RunReader, StepOutput
from mulligan.service.server.notices.new_run_rules import rules_for_new_runs
from mulligan.service.server_areas import ServerAreas
from mulligan.service.workflow_verbs import WorkflowVerbs

if TYPE_CHECKING:
    from mulligan import formats
    from mulligan.core.model.event_types import HostCapacity, Kept
    from mulligan.core.model.failure import Failure
    from mulligan.core.model.workflow import Budget, NoticeRule, Workflow
    from mulligan.engine.observers import Observer
    from mulligan.errors import KeyUsed
    from mulligan.ports import RunRecord, TokenRecord, WorkerRecord
    from mulligan.service.authoring import handler_trial
    from mulligan.service.authoring.handler_trial import HandlerResult, HandlerTrial
    from mulligan.service.decisions import agent_permissions, decisions, pending
    from mulligan.service.decisions.decisions import (
        Decision,
        DecisionPreview,
        DecisionResult,
    )
    from mulligan.service.decisions.pending import PendingEntry, PendingPage
    from mulligan.service.driving import (
        driver,
        outcome,
        shown_runs,
        store_changes,
        waiting,
        worker_loop,
        workers,
    )
    from mulligan.service.driving.driver import Capacity, Driver, Ending
    from mulligan.service.driving.outcome import Outcome
    from mulligan.service.driving.run_progress import RunProgress
    from mulligan.service.driving.shown_runs import RunDisplay, ShownRun
    from mulligan.service.driving.waiting import Until, WaitEvent
    from mulligan.service.driving.workers import WorkerLine
    from mulligan.service.host import breakers, doctor, gc
    from mulligan.service.host.breakers import Breaker
    from mulligan.service.host.doctor import Diagnosis
    from mulligan.service.host.gc import GarbageReport, RunRetention
    from mulligan.service.rendering import page
    from mulligan.service.runs.changes import (
        capacity_checks,
        change_verbs,
        corrections,
        fork_at,
        preview,
        run_control,
        starting,
    )
    from mulligan.service.runs.changes.change_verbs import ChangeVerbs
    from mulligan.service.runs.changes.fork_at import EventForks
    from mulligan.service.runs.changes.preview import Preview
    from mulligan.service.runs.changes.round_plans import ForkPlan, RoundOptions, RoundPlan
    from mulligan.service.runs.changes.run_control import Prepared, RunControl
    from mulligan.service.runs.changes.starting import DetachedRun, ExistingRun
    from mulligan.service.runs.statistics import forecast
    from mulligan.service.runs.statistics.forecast import Forecast
    from mulligan.service.runs.stored import run_cache, run_data
    from mulligan.service.runs.stored.attempts import AttemptRecord
    from mulligan.service.runs.stored.run_cache import RunCache
    from mulligan.service.runs.stored.run_data import DataEntry
    from mulligan.service.runs.views import (
        attempt_progress,
        items,
        overview,
        report,
        run_details,
        run_list,
        run_pages,
        run_snapshot,
        run_story,
    )
    from mulligan.service.runs.views.failure_summary import FailureOutcome
    from mulligan.service.runs.views.items import Item
    from mulligan.service.runs.views.report import Report
    from mulligan.service.runs.views.run_details import RunDetails
    from mulligan.service.runs.views.run_list import RunLine, RunPage, RunQuery
    from mulligan.service.runs.views.run_pages import ItemPage, ItemQuery, RunChanges, StepPage, StepQuery
    from mulligan.service.runs.views.run_snapshot import RunSnapshot, RunStatus
    from mulligan.service.runs.views.run_story import LocatedLine, LocatedWait
    from mulligan.service.runs.views.run_view import MatrixView, RunView, StepView
    from mulligan.service.server import server_changes, store_calls
    from mulligan.service.server.audit import AuditWithRun
    from mulligan.service.server.catalogue import catalogue
    from mulligan.service.server.catalogue.catalogue import Catalogue
    from mulligan.service.server.notices import notices as notice_verbs
    from mulligan.service.server.notices.notices import Notices
    from mulligan.service.server.schedules import schedules
    from mulligan.service.server.schedules.schedules import Schedules
    from mulligan.service.server.store_calls import StoreCalls
    from mulligan.service.server.tokens import limits
    from mulligan.service.server.tokens.decision_ledger import DecisionLedger
    from mulligan.worker.logs.progress_records import Progress
else:
    formats = LazyModule("mulligan.formats")
    notice_verbs = LazyModule("mulligan.service.server.notices.notices")
    catalogue = LazyModule("mulligan.service.server.catalogue.catalogue")
    schedules = LazyModule("mulligan.service.server.schedules.schedules")
    limits = LazyModule("mulligan.service.server.tokens.limits")
    for _name in (
        "decisions.agent_permissions runs.views.attempt_progress host.breakers "
        "runs.changes.capacity_checks runs.changes.change_verbs runs.changes.corrections decisions.decisions "
        "host.doctor driving.driver runs.statistics.forecast runs.changes.fork_at host.gc "
        "authoring.handler_trial runs.views.items driving.outcome runs.views.overview rendering.page "
        "decisions.pending runs.changes.preview runs.views.report runs.stored.run_cache "
        "runs.changes.run_control runs.stored.run_data runs.views.run_details runs.views.run_list "
        "runs.views.run_pages runs.views.run_snapshot runs.views.run_story driving.shown_runs "
        "runs.changes.starting server.server_changes server.store_calls driving.store_changes driving.waiting "
        "driving.worker_loop driving.workers "
    ).split():
        globals()[_name.rpartition(".")[2]] = LazyModule(f"mulligan.service.{_name}")


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
    temporary_folder = import_module("tempfile").TemporaryDirectory(prefix="mulligan-")
    with temporary_folder as folder, Service(Home(Path(folder) / "home")) as service:
        yield service


class Service(ServerAreas, WorkflowVerbs, AnalysisVerbs, LogVerbs, LargeRunVerbs, RemoteVerbs, ClusterVerbs):
    """Every verb, over the runs of one home. As a context manager it closes itself."""

    def __init__(self, home: Home, by: str = "") -> None:
        self.home = home
        self.reader = RunReader(home)
        self._by = by
        # Where it starts runs and keeps workflows and schedules: a name space of the store, see `ports.server_records`.
        self.project = ""
        # Whether it was opened by a server, for the call of a client.
        self.is_for_others = False
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
    def control(self) -> RunControl:
        return run_control.RunControl(
            self.reader,
            self._by,
            lambda: rules_for_new_runs(self),
            self.limits,
            self.ledger,
            may_decide=self.may_decide,
        )

    @property
    def by(self) -> str:
        """The name under which changes are recorded."""
        return self.control.by

    def in_the_name_of(self, by: str, *, project: str | None = None) -> Service:
        """The same service for one call in the name of another user. It shares the connection, so it is not closed.

        With a project it knows nothing of the others; without one it knows what this service knows.
        """
        other = Service(self.home, by)
        other.reader, other.cache = self.reader, self.cache
        other.project = self.project
        if project is not None:
            other.project, other.reader = project, self.reader.in_project(project)
            other.cache = self.cache.seen_by(other.reader)
        other.is_for_others = True
        return other

    def for_token(
        self, token: TokenRecord, audit: AuditWithRun | None = None, ledger: DecisionLedger | None = None
    ) -> Service:
        """The service of one call with a token: in the name of its user, for its project, within its limits.

        Rows for the audit are written with the run that it creates; those of decisions by the ledger.
        """
        other = self.in_the_name_of(token.user, project=token.project).within(token, ledger)
        if audit is not None:
            other.reader = other.reader.limited(audit.store)
        return other

    def within(self, token: TokenRecord, ledger: DecisionLedger | None = None) -> Service:
        """The same service in the name of a token's user, and within its limits. What it sees stays the same."""
        other = self.in_the_name_of(token.user)
        other.limits, other.ledger, other.is_for_others = token.limits, ledger, self.is_for_others
        other.may_decide = allows(token.scopes, "decide")
        if token.limits != TokenLimits() or ledger is not None:
            other.reader = other.reader.limited(lambda store: limits.limited(store, token, ledger))
        return other

    @cached_property
    def store_calls(self) -> StoreCalls:
        """The calls of a store over HTTP."""
        return store_calls.StoreCalls(self.control)

    @cached_property
    def cache(self) -> RunCache:
        """The states of the runs that are looked at again and again."""
        return run_cache.RunCache(self.reader)

    @cached_property
    def details(self) -> RunDetails:
        """Runs in bounded pieces: a head without the steps, pages of events and story, files, failure handlers."""
        return run_details.RunDetails(self.reader, self.cache)

    @cached_property
    def changes(self) -> ChangeVerbs:
        """Changes of runs with `dry_run`, each with an answer that says what follows."""
        return change_verbs.ChangeVerbs(self.control)

    @cached_property
    def catalogue(self) -> Catalogue:
        """Published workflows and drafts."""
        kind = server_changes.RemoteCatalogue if self.home.is_remote else catalogue.Catalogue
        return kind(self.reader, self.by, self.project, self.now, lambda: self.schedules)

    @cached_property
    def schedules(self) -> Schedules:
        """Published workflows that are started on time."""

        def in_project(by: str, project: str) -> Service:
            return self.in_the_name_of(by, project=project)

        kind = server_changes.RemoteSchedules if self.home.is_remote else schedules.Schedules
        return kind(self.reader, self.by, self.project, self.now, in_project)

    @cached_property
    def notices(self) -> Notices:
        """Messages about runs: what was sent and what waits, sending it, and the rules of the project."""
        return notice_verbs.Notices(self.reader, self.by, self.project)

    # -- starting runs -----------------------------------------------------------------------------------------------

    @staticmethod
    def prepare(
        workflow: Workflow,
        inputs: dict[str, Any],
        cwd: Path,
        *,
        file: str = "",
        labels: Mapping[str, str] = MappingProxyType({}),
        changed_only: bool = False,
        forced: Sequence[str] = (),
        capacity: HostCapacity | None = None,
        has_files: bool = True,
        notify: Sequence[NoticeRule] = (),
    ) -> Prepared:
        """Check everything that can be checked before a run exists: inputs, labels, files that must be there.

        `capacity` is recorded, for the processes that drive the run later; `notify`, who else is notified about it.
        `has_files`: the steps find the files of this host, as they do unless a server runs them.
        """
        return run_control.prepare(
            workflow,
            inputs,
            cwd,
            file,
            labels,
            changed_only=changed_only,
            forced=forced,
            capacity=capacity,
            has_files=has_files,
            notify=notify,
        )

    def capacity_of(self, run_id: int, given: HostCapacity | None = None) -> Capacity:
        """The capacity of this machine for a run: as given, otherwise as the run was started with."""
        return driver.capacity_for(given, self.reader.capacity(run_id))

    def capacity_notes(self, workflow: Workflow, capacity: Capacity) -> list[str]:
        """The steps that ask for more than that, if they may be skipped or handled: the others refuse the start.

        None in a shared store, where a suitable worker may still be started.
        """
        return [] if self.home.store_url or capacity.on else capacity_checks.notes(workflow, capacity)

    def permission_note(self, workflow: Workflow) -> str:
        """What the first run of a workflow says about agents that never ask for permission; "" for every other run."""
        return agent_permissions.first_run_note(self.reader, workflow)

    def start(
        self,
        prepared: Prepared,
        driver: Driver | None = None,
        *,
        times: int = 1,
        kept: Sequence[Kept] = (),
        key: str = "",
    ) -> list[int]:
        """New runs (usually one), all or none. `KeyUsed` where a run of this workflow was started with the key."""
        return self.control.start(prepared, driver, times=times, kept=kept, key=key)

    def start_once(self, prepared: Prepared, key: str) -> int:
        """The run with this key: a new one, unless there is one already. For callers that ask again.

        `KeyMismatch` if that one is of another workflow, or has other inputs.
        """
        return self.control.start_once(prepared, key)

    def start_detached(self, prepared: Prepared, *, key: str = "", wait: str = "") -> DetachedRun:
        """Start a run that a process in the background drives."""
        return starting.start_detached(self.control, prepared, key=key, wait=wait)

    def detach(self, run_id: int, *, asked: HostCapacity | None = None, wait: str = "") -> DetachedRun:
        """See that a process drives the run: a worker that is up, or a new process in the background.

        That has the capacity that the run was started with, unless another is asked for.
        """
        return starting.detach(self.reader, run_id, asked=asked, wait=wait)

    def find_existing_run(self, prepared: Prepared, key: str, used: KeyUsed) -> ExistingRun:
        """The run that was started with the key. `KeyMismatch` where its inputs differ."""
        return starting.find_existing_run(self.reader, prepared, key, used)

    def plan_fork(
        self,
        run_id: int,
        from_step: str,
        inputs: dict[str, Any],
        workflow: Workflow | None = None,
        *,
        keep_completed: bool = False,
    ) -> ForkPlan:
        """What `fork` would run and keep. Changes nothing."""
        return self.control.plan_fork(run_id, from_step, inputs, workflow, keep_completed=keep_completed)

    def fork(
        self,
        run_id: int,
        from_step: str,
        inputs: dict[str, Any],
        workflow: Workflow | None = None,
        driver: Driver | None = None,
        *,
        file: str = "",
        keep_completed: bool = False,
    ) -> int:
        """Start a new run that keeps the results of another up to a step, with other inputs or another workflow."""
        return self.control.fork(run_id, from_step, inputs, workflow, driver, file=file, keep_completed=keep_completed)

    @cached_property
    def event_forks(self) -> EventForks:
        """Forks that continue a run from one of its events."""
        return fork_at.EventForks(self.control, self.cache.past)

    # -- the data of a run -------------------------------------------------------------------------------------------

    def run_data(self, run_id: int) -> list[DataEntry]:
        """The values that the steps of a run have set, by name, with their versions."""
        return run_data.run_data(self.reader, run_id)

    @staticmethod
    def is_in_step(environ: Mapping[str, str]) -> bool:
        """Whether this process belongs to a step."""
        return run_data.is_in_step(environ)

    @staticmethod
    def step_data(environ: Mapping[str, str]) -> dict[str, Any]:
        """The data of the run as the attempt of this process knows it."""
        return run_data.step_data(environ)

    @staticmethod
    def set_step_data(environ: Mapping[str, str], name: str, value: Any) -> None:
        """Set a value in the name of the attempt of this process."""
        run_data.set_step_data(environ, name, value)

    @staticmethod
    def choose_data(values: Mapping[str, Any], name: str) -> Any:
        """The value of a name; `DataMissing` if there is none."""
        return run_data.choose(values, name)

    # -- driving runs ------------------------------------------------------------------------------------------------

    def driver(
        self,
        capacity: Capacity | None = None,
        observer: Observer | None = None,
        lease_seconds: float | None = None,
    ) -> Driver:
        """A worker in this process, alive while its context lasts; by default with all that this machine has."""
        return self.control.driver(capacity or driver.machine(), observer, lease_seconds)

    def open_worker(self, capacity: Capacity, observer: Observer) -> AbstractContextManager[Driver | None]:
        """The same, for a worker that waits for its store; None where it was stopped before the store answered."""
        return worker_loop.open_worker(self.home, capacity, observer)

    def drive_shown(
        self, begin: Callable[[Driver | None], int], display: RunDisplay, *, capacity: Capacity, wait_seconds: float
    ) -> ShownRun:
        """Drive the run that `begin` starts or finds, until it ends or waits, and close the display.

        On a server its workers drive it: here it is only shown.
        """
        if self.home.is_remote:
            return self.follow_shown(begin, display, wait_seconds=wait_seconds)
        return shown_runs.drive_shown(self.control, begin, display, capacity=capacity, wait_seconds=wait_seconds)

    def outcome(
        self,
        driver: Driver,
        run_id: int,
        ending: Ending,
        progress: RunProgress,
        seconds: float,
        *,
        is_taken_up: bool = False,
    ) -> Outcome:
        """What came of driving a run: to be asked before the driver is closed."""
        return outcome.build_outcome(
            self.reader, driver.states, run_id, ending, progress, seconds, is_taken_up=is_taken_up
        )

    def failure_outcomes(self, run_id: int) -> list[FailureOutcome]:
        """Every step and item of a run that ever failed, and how its failure was handled: open ones first."""
        return outcome.failure_outcomes(self.reader, run_id)

    def forecast(self, slots: float) -> Forecast:
        """How the run that is driven will go on, for a display that asks often."""
        return forecast.Forecast(self.reader, slots)

    # -- looking at runs ---------------------------------------------------------------------------------------------

    def list_runs(self, query: RunQuery) -> RunPage:
        """A page of the list of runs: how each stands, why it failed, what it waits for."""
        return run_list.list_runs(self.reader, query)

    def count_runs(self, query: RunQuery, limit: int = 10_000) -> int:
        """How many runs match, over all pages; at most `limit`, since counting takes time for each of them."""
        return run_list.count_runs(self.reader, query, limit)

    def status_counts(self) -> dict[str, int]:
        """How many runs there are with each status, without those that other runs called."""
        return run_list.status_counts(self.reader)

    def summarize_runs(self, run_ids: Iterable[int]) -> list[RunLine]:
        """These runs as the list shows them."""
        return run_list.summarize_runs(self.reader, run_ids)

    def find_run(self, name: str) -> int:
        """The number of the run that a person names: a number, or `latest`."""
        return self.reader.find_run(name)

    def find_failed_run(self, name: str, workflow: str) -> int:
        """The run that a corrected file is for: `latest` is the newest run of that workflow that failed."""
        return self.reader.find_failed(name, workflow)

    def record(self, run_id: int) -> RunRecord:
        """The row of a run: workflow, status, round, times, the runs above it."""
        return self.reader.record(run_id)

    def driver_of(self, record: RunRecord) -> WorkerRecord | None:
        """The live worker that drives a run."""
        return self.reader.driver_of(record)

    def is_driven(self, run_id: int) -> bool:
        """Whether a live process drives the run."""
        return self.reader.is_driven(run_id)

    def who_continues(self, run_id: int | None = None) -> WorkerRecord | None:
        """The live process that continues a run: its driver, or a worker that takes up runs that nothing drives.

        Without a run: such a worker. None also where a server continues it, and has not said with which worker.
        """
        driver = None if run_id is None else self.driver_of(self.record(run_id))
        return driver or (None if self.home.is_remote else self.reader.serving_worker())

    def show(self, run_id: int) -> dict[str, Any]:
        """A run with its steps, as plain data."""
        return overview.show_run(self.reader, run_id)

    def overview(self, run_id: int, *, with_attempts: bool = False) -> RunView:
        """The same with its driver, costs, items, the runs that it called and, on request, every attempt."""
        return overview.overview(self.reader, run_id, with_attempts=with_attempts)

    def needs_force(self, run_id: int) -> bool:
        """Whether another round of an ended run is refused without `force`, since an undo has failed."""
        return overview.is_force_needed(self.reader, run_id)

    def step_overview(self, run_id: int, step: str) -> StepView | MatrixView:
        """One step with every attempt at it, or a matrix with all its steps."""
        return overview.step_overview(self.reader, run_id, step)

    def attempts(self, run_id: int) -> dict[str, list[AttemptRecord]]:
        """Every attempt at the steps of a run, by step."""
        return overview.attempts_of_run(self.reader, run_id)

    def attempt_progress(self, run_id: int, place: str, attempt: int) -> Progress | None:
        """What an attempt reported last with `mulligan.progress`; None if it reported nothing, or ran elsewhere."""
        return attempt_progress.attempt_progress(self.reader.home.folders, run_id, place, attempt)

    def snapshot(self, run_id: int) -> RunSnapshot:
        """A run at this moment, as typed data: its steps, its failures, its outputs."""
        return run_snapshot.take_snapshot(self.reader, run_id)

    def status(self, run_id: int) -> RunStatus:
        """The status of a run; `waiting` if only a person, or time, can move it."""
        return run_snapshot.find_status(self.reader, run_id)

    def list_items(self, run_id: int, step: str, *, is_failed: bool = False) -> list[Item]:
        """The items of a map step, or the steps of a matrix."""
        return items.list_items(self.reader, run_id, step, is_failed=is_failed)

    def item_history(self, run_id: int, step: str, index: int) -> Item:
        """One item with every attempt at it."""
        return items.item_histories(self.reader, run_id, step, [index])[0]

    def output(self, run_id: int, place: str) -> StepOutput:
        """The whole output of a step or of one item, also where it is kept in an artifact."""
        return self.reader.output(run_id, place)

    def fetch_value(self, value: Any) -> Any:
        """A value of a run with what is kept in artifacts; a reference to a file stays."""
        return self.reader.fetch_value(value)

    def read_artifact(self, description: Mapping[str, Any]) -> bytes:
        """The content of an artifact, given the description in its reference. `ArtifactGone`, `ArtifactDamaged`."""
        return self.reader.read_artifact(description)

    def artifact_path(self, description: Mapping[str, Any]) -> str:
        """The path of an artifact, given the description in its reference; "" if the store does not use files."""
        return self.reader.artifact_path(description)

    def story(self, run_id: int, step: str = "", *, is_tree: bool = False) -> Iterator[LocatedLine]:
        """The story of a run or of one step; with `is_tree` also of the runs that it called."""
        return run_story.run_story(self.reader, run_id, step, is_tree=is_tree)

    def waits(self, run_id: int, step: str = "") -> list[LocatedWait]:
        """What a run, or one of its steps, waits for now."""
        return run_story.run_waits(self.reader, run_id, step)

    def foreign_events(self, run_id: int, system: str) -> Iterator[dict[str, Any]]:
        """The events of a run as another system would have written them: one of `systems_with_logs()`."""
        return formats.log_writer(system)(self.reader.events(run_id))

    def called_runs(self, run_id: int) -> dict[tuple[str, int], int]:
        """The runs that a run called, by the place and the attempt that called them."""
        return self.reader.called(run_id)

    def report(self, run_id: int, now: datetime) -> Report:
        """Everything about one run, bounded: failures, timeline, logs."""
        return report.build_report(self.reader, run_id, now)

    def report_page(self, found: Report, *, folder: str | None, home_option: str) -> str:
        """A report as one HTML page. `folder`: where it will be stored, for its links."""
        return page.render_page(found, report.draw_graph(self.reader, found), folder=folder, home_option=home_option)

    def wait_for_runs(
        self,
        run_ids: Sequence[int],
        *,
        until: Until = "ended",
        timeout_seconds: float | None = None,
        is_forever: bool = False,
    ) -> Iterator[WaitEvent]:
        """What happens to runs that other processes drive, until all have ended or the time is up.

        A run that nothing drives is given up after a moment, unless `is_forever`.
        """
        return waiting.wait_for_runs(
            self.reader, run_ids, until=until, timeout_seconds=timeout_seconds, is_forever=is_forever
        )

    def wait_for_driver(self, run_id: int) -> RunRecord:
        """The row of a run, once it has ended or no live process drives it. Waits while one does."""
        return waiting.wait_for_driver(self.reader, run_id)

    def wait_for_changes(self, seconds: float) -> bool:
        """Whether another process writes to the store within so many seconds."""
        return self.home.is_there and store_changes.StoreChanges(self.reader.store).wait(seconds)

    # -- a run in parts, for faces that stay up ----------------------------------------------------------------------

    def records(self, run_ids: Iterable[int]) -> list[RunRecord]:
        """The rows of these runs, the newest first, in one query: `seq` says which of them have changed."""
        return self.reader.store.lists.records([*run_ids]) if self.home.is_there else []

    def store_version(self) -> int | str | None:
        """Something that is another one when others have written; None where that takes a look at the runs."""
        return self.reader.store_version()

    def step_page(self, run_id: int, query: StepQuery) -> StepPage:
        """A page of the steps of a run, with how many there are of each status."""
        return run_pages.list_steps(self.cache, run_id, query)

    def item_page(self, run_id: int, step: str, query: ItemQuery) -> ItemPage:
        """A page of the items of a map step, or of the steps of a matrix."""
        return run_pages.list_item_page(self.reader, self.cache, run_id, step, query)

    def changes_since(self, run_id: int, after: int) -> RunChanges:
        """What has changed in a run after the event `after`: the lines of these steps, or that all has to be read."""
        return run_pages.changes_since(self.cache, run_id, after)

    def pending_page(self, *, after: tuple[int, str] | None = None, limit: int = 100) -> PendingPage:
        """A page of what waits for a person, oldest run first: what comes behind run and step `after`."""
        return pending.pending_page(self.reader, after=after, limit=limit)

    # -- changing runs -----------------------------------------------------------------------------------------------

    def cancel(self, run_id: int, *, now: bool = False, reason: str = "") -> None:
        """Stop a run: cleanup, undo and `end` still run; with `now` only `end`."""
        self.control.cancel(run_id, now=now, reason=reason)

    def pause(self, run_id: int, reason: str = "") -> int:
        """Start nothing more until `resume`. How many commands still run."""
        return self.control.pause(run_id, reason)

    def resume(self, run_id: int, reason: str = "", *, steps: int = 0) -> None:
        """Let a paused run continue; with `steps`, let so many steps of a run continue, and pause it after them."""
        self.control.lift_pause(run_id, reason, steps)

    def pause_step(self, run_id: int, step: str, reason: str = "") -> list[str]:
        """Hold a step, or all steps of a matrix. Which of them still run."""
        return self.control.pause_step(run_id, step, reason)

    def resume_step(self, run_id: int, step: str, reason: str = "") -> None:
        """Let a paused step continue."""
        self.control.resume_step(run_id, step, reason)

    def resumable_run(self, run_id: int | None = None) -> int:
        """The run that `mulligan resume` would drive: this one, or the newest that no process drives."""
        return self.control.resumable(run_id)

    def changed_file(self, run_id: int) -> str:
        """The workflow file of a run, if it has changed since the run was started; otherwise ""."""
        return corrections.changed_file(self.reader, run_id)

    def plan_retry(self, run_id: int, **chosen: Unpack[RoundOptions]) -> RoundPlan:
        """What `retry` would run again. Changes nothing."""
        return self.control.plan_retry(run_id, **chosen)

    def retry(self, run_id: int, *, reason: str = "", **chosen: Unpack[RoundOptions]) -> RoundPlan:
        """Open another round: what did not complete runs again, and what depends on it."""
        return self.control.retry(run_id, reason=reason, **chosen)

    def refuse_matrix(self, run_id: int, step: str) -> None:
        """Refuse a matrix where a map step is expected, and say what to do."""
        items.refuse_matrix(self.reader, run_id, step)

    def matrices(self, run_id: int) -> Mapping[str, Sequence[str]]:
        """The names of the steps of each matrix of a run."""
        return self.reader.lazy_state(run_id).graph.matrices

    # -- decisions ---------------------------------------------------------------------------------------------------

    def list_pending(self) -> list[PendingEntry]:
        """What waits for a person, over all runs: parked steps, approvals, pauses."""
        return pending.list_pending(self.reader)

    def classify(
        self,
        run_id: int,
        step: str,
        verdict: Literal["retry", "fail"],
        reason: str,
        *,
        memory: int | None = None,
        timeout: float | None = None,
        budgets: Mapping[str, Budget] | None = None,
        attempt: int | None = None,
    ) -> None:
        """Decide about a parked step: retry it, or let it fail. Refused if another attempt than `attempt` is parked."""
        more: Any = {"memory": memory, "timeout": timeout, "budgets": budgets, "attempt": attempt}
        self.control.classify(run_id, step, verdict, reason, **more)

    def preview_decision(self, one: Decision) -> DecisionPreview:
        """What would follow from a decision about a parked step. Changes nothing."""
        return decisions.preview_decision(self.control, one)

    def preview_decisions(self, decided: Sequence[Decision]) -> list[DecisionPreview]:
        """What would follow from decisions about parked steps. Changes nothing."""
        return decisions.preview_decisions(self.control, decided)

    def record_decisions(self, decided: Sequence[Decision]) -> Iterator[DecisionResult]:
        """Record decisions one by one. One that comes too late is refused; the others count."""
        return decisions.record_decisions(self.control, decided)

    def find_approval(self, run_id: int, step: str) -> str:
        """The place of a step that waits for an approval: the step, or one command below it."""
        return pending.find_approval(self.reader, run_id, step)

    def approve(self, run_id: int, place: str, is_approved: bool, reason: str) -> None:
        """Answer an approval that a run waits for."""
        self.control.approve(run_id, place, is_approved, reason)

    # -- workflows: what needs no store is in `WorkflowVerbs` ----------------------------------------------------------

    def reading_of(self, run_id: int) -> dict[str, Any]:
        """How `load_workflow` reads a corrected file of a run: with the inputs and the options of the run."""
        state = self.reader.lazy_state(run_id)
        return {"given": state.run.inputs, "options": formats.options_of(state.workflow)}

    def preview(
        self, workflow: Workflow, inputs: dict[str, Any], cwd: Path, capacity: Capacity | None = None
    ) -> Preview:
        """What a run of the workflow would do, and what is missing for it. Starts nothing."""
        return preview.preview(self.reader, workflow, inputs, cwd, capacity)

    def drawn_run(self, run_id: int) -> tuple[Workflow, dict[str, str]]:
        """What a picture of a run shows: its workflow, and the status of each step."""
        return self.reader.drawn(run_id)

    def run_handler(
        self,
        trial: HandlerTrial,
        prepared: Prepared,
        failure: Failure,
        kept: Sequence[Kept] = (),
    ) -> HandlerResult:
        """Run an isolated handler as if its step had just failed."""
        return handler_trial.run_handler(self.control, trial, prepared, failure, kept)

    # -- the store and this machine ----------------------------------------------------------------------------------

    def list_workers(self) -> list[WorkerLine]:
        """The workers of the store: what each can take, what is in use, what it runs now."""
        return workers.list_workers(self.reader)

    def now(self) -> datetime:
        """The time by the clock of the store, if it has one; otherwise by that of this machine."""
        return (self.reader.store.now() if self.home.is_there else None) or datetime.now(UTC)

    def list_breakers(self) -> list[Breaker]:
        """The circuit breakers that tasks of the store have asked."""
        return breakers.list_breakers(self.reader)

    def reset_breaker(self, name: str, *, is_dry: bool = False) -> Breaker:
        """Close a circuit breaker; how it was before. With `is_dry` nothing is changed."""
        return breakers.reset_breaker(self.reader, name, is_dry=is_dry)

    def collect_garbage(
        self, retention: RunRetention, *, unused_seconds: float | None = None, is_dry: bool = False
    ) -> GarbageReport:
        """Remove what no run refers to, and old runs as `retention` says; with `is_dry` only list it.

        Environments of python steps are removed if they were not used for `unused_seconds`, by default 30 days.
        """
        after = gc.UNUSED_SECONDS if unused_seconds is None else unused_seconds
        return gc.collect_garbage(self.reader, retention, unused_seconds=after, is_dry=is_dry)

    def examine_machine(self) -> Diagnosis:
        """Check this machine and the store."""
        return doctor.examine_machine(self.home)
