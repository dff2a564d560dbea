"""What there is to know of runs, as `Service.runs` gives it: lists, one run, its steps, items, values and story."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from mulligan.core.model.workflow import Workflow
    from mulligan.errors import RunDamaged, UnknownRun
    from mulligan.ports import RunRecord, WorkerRecord
    from mulligan.programs.rehearsing import RecordedRun
    from mulligan.service.driving.run_progress import RunProgress
    from mulligan.service.runs.statistics.stats import AgentStats, RungStats
    from mulligan.service.runs.statistics.usage import StepUsage
    from mulligan.service.runs.stored.attempts import AttemptRecord
    from mulligan.service.runs.stored.damaged_runs import RemovedRuns
    from mulligan.service.runs.stored.replay import ReplayResult
    from mulligan.service.runs.stored.run_cache import RunCache
    from mulligan.service.runs.stored.run_data import DataEntry
    from mulligan.service.runs.stored.run_reader import RunReader, StepOutput
    from mulligan.service.runs.stored.run_workflows import RunWorkflow
    from mulligan.service.runs.views.failure_summary import FailureLine
    from mulligan.service.runs.views.items import Item, SomeItems
    from mulligan.service.runs.views.output_tables import OutputTable
    from mulligan.service.runs.views.report import Report
    from mulligan.service.runs.views.run_list import RunLine, RunPage, RunQuery
    from mulligan.service.runs.views.run_pages import ItemPage, ItemQuery, RunChanges, StepPage, StepQuery
    from mulligan.service.runs.views.run_snapshot import RunSnapshot, RunStatus
    from mulligan.service.runs.views.run_story import LocatedLine, LocatedWait
    from mulligan.service.runs.views.run_view import MatrixView, RunView, StepView
    from mulligan.service.server.catalogue.catalogue import Catalogue
    from mulligan.worker.logs.progress_records import Progress


class Runs:
    """An area of `Service`, opened when it is first asked for."""

    def __init__(self, reader: RunReader, cache: Callable[[], RunCache], catalogue: Callable[[], Catalogue]) -> None:
        self._reader = reader
        self._cache = cache
        self._catalogue = catalogue

    def page(self, query: RunQuery) -> RunPage:
        """A page of the list of runs: how each stands, why it failed, what it waits for."""
        from mulligan.service.runs.views import run_list

        return run_list.list_runs(self._reader, query)

    def count(self, query: RunQuery, limit: int = 10_000) -> int:
        """How many runs match, over all pages; at most `limit`, since counting takes time for each of them."""
        from mulligan.service.runs.views import run_list

        return run_list.count_runs(self._reader, query, limit)

    def status_counts(self) -> dict[str, int]:
        """How many runs there are with each status, without those that other runs called."""
        from mulligan.service.runs.views import run_list

        return run_list.status_counts(self._reader)

    def summarize(self, run_ids: Iterable[int]) -> list[RunLine]:
        """These runs as the list shows them."""
        from mulligan.service.runs.views import run_list

        return run_list.summarize_runs(self._reader, run_ids)

    def find(self, name: str) -> int:
        """The number of the run that a person names: a number, or `latest`."""
        return self._reader.find_run(name)

    def find_receivers(self, *, key: str = "", labels: Mapping[str, str] | None = None) -> list[int]:
        """Whom an event is for: the run that was started under a key, or all open runs with labels."""
        from mulligan.service.runs.changes.event_receivers import find_receivers

        return find_receivers(self._reader, key=key, labels=labels)

    def find_failed(self, name: str, workflow: str) -> int:
        """The run that a corrected file is for: `latest` is the newest run of that workflow that failed."""
        return self._reader.find_failed(name, workflow)

    def record(self, run_id: int) -> RunRecord:
        """The row of a run: workflow, status, round, times, the runs above it."""
        return self._reader.record(run_id)

    def records(self, run_ids: Iterable[int]) -> list[RunRecord]:
        """The rows of these runs, the newest first, in one query: `seq` says which of them have changed."""
        return self._reader.store.lists.records([*run_ids]) if self._reader.home.is_there else []

    def driver_of(self, record: RunRecord) -> WorkerRecord | None:
        """The live worker that drives a run."""
        return self._reader.driver_of(record)

    def is_driven(self, run_id: int) -> bool:
        """Whether a live process drives the run."""
        return self._reader.is_driven(run_id)

    def show(self, run_id: int) -> dict[str, Any]:
        """A run with its steps, as plain data."""
        from mulligan.service.runs.views import overview

        return overview.show_run(self._reader, run_id)

    def overview(self, run_id: int, *, with_attempts: bool = False) -> RunView:
        """The same with its driver, costs, items, the runs that it called and, on request, every attempt."""
        from mulligan.service.runs.views import overview

        return overview.overview(self._reader, run_id, with_attempts=with_attempts)

    def needs_force(self, run_id: int) -> bool:
        """Whether another round of an ended run is refused without `force`, since an undo has failed."""
        from mulligan.core.deciding.rounds.rounds import needs_force

        return needs_force(self._reader.state(run_id))

    def step_overview(self, run_id: int, step: str) -> StepView | MatrixView:
        """One step with every attempt at it, or a matrix with all its steps."""
        from mulligan.service.runs.views import overview

        return overview.step_overview(self._reader, run_id, step)

    def attempts(self, run_id: int) -> dict[str, list[AttemptRecord]]:
        """Every attempt at the steps of a run, by step."""
        from mulligan.service.runs.views import overview

        return overview.attempts_of_run(self._reader, run_id)

    def attempt_progress(self, run_id: int, place: str, attempt: int) -> Progress | None:
        """What an attempt reported last with `mulligan.progress`; None if it reported nothing, or ran elsewhere."""
        from mulligan.service.runs.views import attempt_progress

        return attempt_progress.attempt_progress(self._reader.home.folders, run_id, place, attempt)

    def snapshot(self, run_id: int) -> RunSnapshot:
        """A run at this moment, as typed data: its steps, its failures, its outputs."""
        from mulligan.service.runs.views import run_snapshot

        return run_snapshot.take_snapshot(self._reader, run_id)

    def status(self, run_id: int) -> RunStatus:
        """The status of a run; `waiting` if only a person, or time, can move it."""
        from mulligan.service.runs.views import run_snapshot

        return run_snapshot.find_status(self._reader, run_id)

    def list_items(self, run_id: int, step: str, *, is_failed: bool = False) -> list[Item]:
        """The items of a map step, or the steps of a matrix."""
        return self.some_items(run_id, step, is_failed=is_failed).items

    def item_history(self, run_id: int, step: str, index: int) -> Item:
        """One item with every attempt at it."""
        return self.item_histories(run_id, step, [index])[0]

    def output(self, run_id: int, place: str) -> StepOutput:
        """The whole output of a step or of one item, also where it is kept in an artifact."""
        return self._reader.output(run_id, place)

    def output_tables(self, run_id: int, place: str) -> list[OutputTable]:
        """The tables in the output of a step, and what has changed in them since the last run."""
        from mulligan.service.runs.views import output_tables

        workflow, key = self._reader.record(run_id).workflow, self._reader.find_place(run_id, place)
        found = self._reader.lazy_state(run_id).places.get(key)
        return output_tables.output_tables(
            self._reader.store, run_id=run_id, workflow=workflow, place=key, output=found and found.output
        )

    def fetch_value(self, value: Any) -> Any:
        """A value of a run with what is kept in artifacts; a reference to a file stays."""
        return self._reader.fetch_value(value)

    def read_artifact(self, description: Mapping[str, Any]) -> bytes:
        """The content of an artifact, given the description in its reference. `ArtifactGone`, `ArtifactDamaged`."""
        return self._reader.read_artifact(description)

    def artifact_path(self, description: Mapping[str, Any]) -> str:
        """The path of an artifact, given the description in its reference; "" if the store does not use files."""
        return self._reader.artifact_path(description)

    def story(self, run_id: int, step: str = "", *, is_tree: bool = False) -> Iterator[LocatedLine]:
        """The story of a run or of one step; with `is_tree` also of the runs that it called."""
        from mulligan.service.runs.views import run_story

        return run_story.run_story(self._reader, run_id, step, is_tree=is_tree)

    def waits(self, run_id: int, step: str = "") -> list[LocatedWait]:
        """What a run, or one of its steps, waits for now."""
        from mulligan.service.runs.views import run_story

        return run_story.run_waits(self._reader, run_id, step)

    def foreign_events(self, run_id: int, system: str) -> Iterator[dict[str, Any]]:
        """The events of a run as another system would have written them: one of `systems_with_logs()`."""
        from mulligan import formats

        return formats.log_writer(system)(self._reader.events(run_id))

    def called(self, run_id: int) -> dict[tuple[str, int], int]:
        """The runs that a run called, by the place and the attempt that called them."""
        return self._reader.called(run_id)

    def program_history(self, run_id: int) -> RecordedRun:
        """What is recorded of a run of a program, to run a changed program over it. `Refused` for any other run."""
        from mulligan.service.runs.changes import program_corrections

        return program_corrections.recorded_run(self._reader, run_id)

    def report(self, run_id: int, now: datetime) -> Report:
        """Everything about one run, bounded: failures, timeline, logs."""
        from mulligan.service.runs.views import report

        return report.build_report(self._reader, run_id, now)

    def report_page(self, found: Report, *, folder: str | None, home_option: str) -> str:
        """A report as one HTML page. `folder`: where it will be stored, for its links."""
        from mulligan.service.rendering import page
        from mulligan.service.runs.views import report

        return page.render_page(found, report.draw_graph(self._reader, found), folder=folder, home_option=home_option)

    def step_page(self, run_id: int, query: StepQuery) -> StepPage:
        """A page of the steps of a run, with how many there are of each status."""
        from mulligan.service.runs.views import run_pages

        return run_pages.list_steps(self._cache(), run_id, query)

    def item_page(self, run_id: int, step: str, query: ItemQuery) -> ItemPage:
        """A page of the items of a map step, or of the steps of a matrix."""
        from mulligan.service.runs.views import run_pages

        return run_pages.list_item_page(self._reader, self._cache(), run_id, step, query)

    def changes_since(self, run_id: int, after: int) -> RunChanges:
        """What has changed in a run after the event `after`: the lines of these steps, or that all has to be read."""
        from mulligan.service.runs.views import run_pages

        return run_pages.changes_since(self._cache(), run_id, after)

    def drawn(self, run_id: int) -> tuple[Workflow, dict[str, str]]:
        """What a picture of a run shows: its workflow, and the status of each step."""
        return self._reader.drawn(run_id)

    def matrices(self, run_id: int) -> Mapping[str, Sequence[str]]:
        """The names of the steps of each matrix of a run."""
        return self._reader.lazy_state(run_id).graph.matrices

    def refuse_matrix(self, run_id: int, step: str) -> None:
        """Refuse a matrix where a map step is expected, and say what to do."""
        from mulligan.service.runs.views import items

        items.refuse_matrix(self._reader, run_id, step)

    def failure_outcomes(self, run_id: int) -> list[FailureLine]:
        """Every step and item of a run that ever failed, and how its failure was handled: open ones first."""
        from mulligan.service.driving import outcome

        return outcome.failure_outcomes(self._reader, run_id)

    def data(self, run_id: int) -> list[DataEntry]:
        """The values that the steps of a run have set, by name, with their versions."""
        from mulligan.service.runs.stored import run_data

        return run_data.data_entries(self._reader.state(run_id))

    def usage(self, run_id: int) -> list[StepUsage]:
        """What steps asked for, what they used, and what they should ask for."""
        from mulligan.service.runs.statistics import usage

        return usage.measure_usage(self._reader, run_id)

    def replay(self, run_id: int) -> ReplayResult:
        """Fold the log of a run again, and compare the result with the tables."""
        from mulligan.service.runs.stored import replay

        return replay.verify(self._reader, run_id)

    def stats(
        self, run_id: int | None = None, *, workflow: str | None = None, since: datetime | None = None
    ) -> list[RungStats]:
        """How often retries, handlers, triage and routes were tried, and how often they worked."""
        from mulligan.service.runs.statistics import stats

        return stats.collect_stats(self._reader, run_id, workflow=workflow, since=since).rungs

    def agent_stats(
        self, run_id: int | None = None, *, workflow: str | None = None, since: datetime | None = None
    ) -> list[AgentStats]:
        """How often agents decided about failures, and how often they were right."""
        from mulligan.service.runs.statistics import stats

        return stats.collect_stats(self._reader, run_id, workflow=workflow, since=since).agents

    def show_in_parts(self, run_id: int, progress: RunProgress) -> Iterator[tuple[str, Any]]:
        """The keys and values of `show`, one after the other; the steps are pairs of name and step.

        `progress`: of the display that has shown the run while it was driven.
        """
        from mulligan.service.runs.views import overview

        return overview.show_run_in_parts(self._reader, run_id, progress.root)

    def is_large(self, run_id: int) -> bool:
        """Whether a run is shown in brief, unless all of it is asked for."""
        from mulligan.service.runs.views import overview

        return overview.is_large(self._reader, run_id)

    def brief_overview(self, run_id: int) -> RunView:
        """A run with the steps that need attention alone; the others are counted."""
        from mulligan.service.runs.views import overview

        return overview.brief_overview(self._reader, run_id)

    def some_items(
        self, run_id: int, step: str, *, is_failed: bool = False, after: int = -1, limit: int | None = None
    ) -> SomeItems:
        """Those behind an index, and how many of all are in each status."""
        from mulligan.service.runs.views import items

        return items.list_some_items(self._reader, run_id, step, is_failed=is_failed, after=after, limit=limit)

    def find_items(self, run_id: int, step: str, words: Sequence[str]) -> list[int]:
        """The indexes of the items of a map that people name, by index or by name."""
        from mulligan.service.runs.views import items

        return items.find_item_indexes(self._reader, run_id, step, words)

    def find_place(self, run_id: int, named: str) -> str:
        """The key of the place that a person names: `check[1].0`, or with the name of the item, `check[web]`."""
        return self._reader.find_place(run_id, named)

    def name_places(self, run_id: int, keys: Iterable[str]) -> dict[str, str]:
        """The names that people know for places, by key: `load[west]` for `load[1].0`."""
        return self._reader.name_places(run_id, keys)

    def item_histories(self, run_id: int, step: str, indexes: Sequence[int]) -> list[Item]:
        """Items with every attempt at them; the log is read once."""
        from mulligan.service.runs.views import items

        return items.item_histories(self._reader, run_id, step, indexes)

    def explain_damage(self, run_ids: Iterable[int] | None, error: Exception) -> RunDamaged | UnknownRun | None:
        """The error to show in place of this one, if one of these runs is damaged or gone; None: those named before."""
        from mulligan.service.runs.stored import damaged_runs

        return damaged_runs.explain_damage(self._reader, run_ids, error)

    def remove(self, run_id: int, *, is_dry: bool = False) -> RemovedRuns:
        """Remove a run that has ended or is damaged, and those that it called. `RunNotFinished`, `Refused`."""
        from mulligan.service.runs.stored import damaged_runs

        return damaged_runs.remove_run(self._reader, run_id, is_dry=is_dry)

    def workflow(self, run_id: int) -> RunWorkflow:
        """The workflow of a run as somebody has written it."""
        from mulligan.service.runs.stored import run_workflows

        return run_workflows.read_run_workflow(self._reader, self._catalogue(), run_id)

    def store_version(self) -> int | str | None:
        """Something that is another one when others have written; None where that takes a look at the runs."""
        return self._reader.store_version()
