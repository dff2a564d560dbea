"""A store that shows one project: the runs of other projects are unknown, and new runs belong to this one.

All that reads or changes runs by way of it is limited to the project without knowing of projects. Two things belong to
the whole store, and are shown to every project: the workers, without what they do for other projects; and the breakers,
since each stands for a system that all projects use. An artifact belongs to the project of the run whose folder it is
in. One of a run that was removed is there as long as a fork of that run refers to it: who knows its digest reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar, cast

from msgspec.structs import replace

from mulligan.core.deciding.workers.breaker import Guard
from mulligan.core.effects.run_lists import (
    Attribute,
    LeasedTask,
    OpenTasks,
    OpenTimer,
    OutcomeCount,
    QueuedShape,
    RunFilter,
)
from mulligan.core.model.artifacts import Artifact, Format, referenced_names, run_id_of
from mulligan.core.model.events import Entry
from mulligan.core.model.reports import Report, TaskEnded
from mulligan.errors import KeyUsed
from mulligan.ports import (
    NONE_AHEAD,
    ArtifactRecord,
    Artifacts,
    AuditRecord,
    Commit,
    CommitResult,
    IdleRuns,
    Lease,
    LoadedRun,
    Message,
    NewRun,
    Offer,
    Poll,
    RunLists,
    RunRecord,
    ServerRecords,
    Store,
    Turn,
    WaitingPlace,
)
from mulligan.store import refusals
from mulligan.store.project_records import ProjectRecords

Found = TypeVar("Found")

# The runs whose turn a worker may hold.
_UNFINISHED = ("new", "running", "paused")
_HELD_RUNS_MAX = 10_000
# What every project may ask and change of the whole store. Whatever is not in this list has a method of its own below.
OF_THE_WHOLE_STORE = frozenset(
    (
        *("close", "is_in_place", "check_schema", "skip_run_ids"),
        *("breakers", "count_outcome", "reset_breaker"),
        # Of messages, leases and turns: who names one knows it.
        *("answer", "release", "stop_requests"),
        *("register", "record_heartbeat", "set_trouble", "retire", "workers", "expire"),
        *("fire_timers", "next_due"),
        *("now", "queue_mark", "has_changes", "version", "fileno", "watch_run_ends"),
    )
)


class VisibleRuns:
    """Which runs belong to the project. A run never changes its project, so each is asked for once."""

    def __init__(self, store: Store, project: str) -> None:
        self._store, self._project = store, project
        self._known: dict[int, bool] = {}

    def among(self, run_ids: Iterable[int]) -> set[int]:
        wanted = set(run_ids)
        missing = wanted - self._known.keys()
        if missing:
            records = {record.run_id: record.project for record in self._store.lists.records(missing)}
            # One that does not exist may be created later.
            self._known.update((run_id, project == self._project) for run_id, project in records.items())
        return {run_id for run_id in wanted if self._known.get(run_id)}

    def has(self, run_id: int) -> bool:
        return run_id in self.among([run_id])

    def is_foreign(self, run_id: int) -> bool:
        """Whether the run exists and belongs to another project."""
        return not self.has(run_id) and run_id in self._known

    def rows(self, rows: Iterable[Found], run_id: Callable[[Found], int]) -> list[Found]:
        """The rows about runs of the project."""
        found = list(rows)
        visible = self.among({run_id(row) for row in found})
        return [row for row in found if run_id(row) in visible]

    def newest(self, fetch: Callable[[int], list[Any]], limit: int) -> list[Any]:
        """At most `limit` rows about runs of the project, where `fetch` gives the first rows of all projects."""
        asked = limit
        while True:
            rows = fetch(asked)
            found = self.rows(rows, lambda row: row[0])
            if len(found) >= limit or len(rows) < asked:
                return found[:limit]
            asked *= 4


class ProjectView:
    """The store `of`, as far as it belongs to the project."""

    def __init__(self, of: Store, project: str) -> None:
        self._of, self.project = of, project
        # Of keys. A slash in the name of a project is none between two names.
        self._prefix = f"@{project.replace('%', '%25').replace('/', '%2F')}/"
        self._visible = VisibleRuns(of, project)
        self.is_shared = of.is_shared
        self.artifacts: Artifacts = ProjectArtifacts(of, self._visible)
        self.lists: RunLists = ProjectLists(of, project, self._visible)

    def __getattr__(self, name: str) -> Any:
        if name not in OF_THE_WHOLE_STORE:
            raise AttributeError(name)
        return getattr(self._of, name)

    @property
    def server_records(self) -> ServerRecords:
        return cast(ServerRecords, ProjectRecords(self._of.server_records, self.project, self._visible.has))

    # -- runs

    def run(self, run_id: int) -> RunRecord:
        return self._shown(self._of.run(run_id))

    def _shown(self, record: RunRecord) -> RunRecord:
        if record.project != self.project:
            raise refusals.unknown_run(record.run_id)
        return record

    def runs(self, *, limit: int = 50, before: int | None = None, statuses: Collection[str] = ()) -> list[RunRecord]:
        return self.lists.find(RunFilter(statuses=tuple(statuses), with_children=True), limit=limit, before=before)

    def children(self, run_id: int) -> list[RunRecord]:
        return [record for record in self._of.children(run_id) if record.project == self.project]

    def load(self, run_id: int) -> LoadedRun:
        self._expect(run_id)
        return self._of.load(run_id)

    def load_all(self, run_ids: Collection[int]) -> list[LoadedRun]:
        return self._of.load_all([run_id for run_id in run_ids if self._visible.has(run_id)])

    def _expect(self, run_id: int) -> None:
        if not self._visible.has(run_id):
            raise refusals.unknown_run(run_id)

    def log(self, run_id: int, after: int = 0, limit: int | None = None) -> list[Entry]:
        return self._of.log(run_id, after, limit) if self._visible.has(run_id) else []

    def search_log(self, run_id: int, any_of: tuple[str, ...], after: int = 0, *, also: str = "{") -> list[Entry]:
        return self._of.search_log(run_id, any_of, after, also=also) if self._visible.has(run_id) else []

    # -- rows over many runs

    def run_under(self, key: str) -> int | None:
        return self._of.run_under(self._scoped(key))

    def runs_under(self, ending: str) -> list[tuple[str, int]]:
        found = self._visible.rows(self._of.runs_under(ending), lambda one: one[1])
        return [(key.removeprefix(self._prefix) if key.startswith("@") else key, run_id) for key, run_id in found]

    def waiting_places(self) -> list[WaitingPlace]:
        return self._visible.rows(self._of.waiting_places(), lambda one: one.run_id)

    def tallies(
        self, workflow: str | None = None, since: datetime | None = None, project: str | None = None
    ) -> list[tuple[int, str, str, str, bytes]]:
        return self._of.tallies(workflow, since, self.project) if project in (None, self.project) else []

    def recent_rows(self, workflow: str, kind: str, key: str, limit: int) -> list[tuple[int, bytes]]:
        return self._visible.newest(lambda asked: self._of.recent_rows(workflow, kind, key, asked), limit)

    def tagged_rows(self, tag: str, limit: int, beside: int | None = None) -> list[tuple[int, str, str, bytes]]:
        return self._visible.newest(lambda asked: self._of.tagged_rows(tag, asked, beside), limit)

    # -- changing runs

    def create(self, runs: Sequence[NewRun], holder: str = "", *, audit: Sequence[AuditRecord] = ()) -> list[Turn]:
        self._refuse_foreign(run.request for run in runs)
        ours = [replace(run, project=self.project, key=self._scoped(run.key)) for run in runs]
        rows = [replace(record, project=self.project) for record in audit]
        try:
            return self._of.create(ours, holder, audit=rows)
        except KeyUsed as used:
            # Names the key as the caller knows it.
            raise KeyUsed(used.message.replace(f"'{self._prefix}", "'", 1), run_id=used.run_id) from None

    def _scoped(self, key: str) -> str:
        """The key as the store knows it. Those of the first project stay as they are, unless they look scoped."""
        if not key or (not self.project and not key.startswith("@")):
            return key
        return f"{self._prefix}{key}"

    def _refuse_foreign(self, reports: Iterable[Report]) -> None:
        """Refuse reports that name a run or an artifact of another project: what a run knows, its workers fetch."""
        for report in reports:
            if isinstance(report, TaskEnded) and self._visible.is_foreign(report.reused_run_id):
                raise refusals.unknown_run(report.reused_run_id)
            for name in referenced_names(report):
                if self._visible.is_foreign(run_id_of(name)):
                    raise refusals.unknown_artifact(name)

    def put(self, run_id: int, report: Report, *, is_asking: bool = False) -> int:
        self._expect(run_id)
        self._refuse_foreign([report])
        return self._of.put(run_id, report, is_asking=is_asking)

    def records_containing(self, text: str) -> Iterator[tuple[int, bytes]]:
        return ((run_id, data) for run_id, data in self._of.records_containing(text) if self._visible.has(run_id))

    def remove(self, root_run_ids: Collection[int], *, is_forced: bool = False) -> list[int]:
        return self._of.remove(self._visible.among(root_run_ids), is_forced=is_forced)

    # -- engines: a worker of the project, or a verb that drives a run for a moment

    def inbox(self, run_ids: Collection[int]) -> list[Message]:
        return self._of.inbox(self._visible.among(run_ids))

    def runs_with_messages(self, holder: str, root_run_id: int | None = None) -> list[int]:
        return self._visible.rows(self._of.runs_with_messages(holder, root_run_id), lambda run_id: run_id)

    def take_turns(self, run_ids: Collection[int], holder: str) -> list[Turn]:
        return self._of.take_turns(self._visible.among(run_ids), holder)

    def idle_runs(self, holder: str, after: tuple[int, int], limit: int) -> IdleRuns:
        found = self._of.idle_runs(holder, after, limit)
        return IdleRuns(sorted(self._visible.among(found.run_ids)), found.after)

    def runs_with_work(self, run_ids: Collection[int]) -> list[int]:
        return self._of.runs_with_work(self._visible.among(run_ids))

    def commit(self, commits: Sequence[Commit]) -> list[CommitResult]:
        for commit in commits:
            if not self._visible.has(commit.turn.run_id):
                raise refusals.void_turn(commit)
        return self._of.commit(commits)

    def queued_tasks(self, run_id: int) -> list[tuple[str, int]]:
        return self._of.queued_tasks(run_id) if self._visible.has(run_id) else []

    def queued_shapes(self, project: str | None = None) -> list[QueuedShape]:
        return self._of.queued_shapes(self.project)

    def refuse_queued(self, shape: QueuedShape, message: str, project: str | None = None) -> int:
        return self._of.refuse_queued(shape, message, self.project)

    def leases_of(self, worker: str) -> list[Lease]:
        return self._visible.rows(self._of.leases_of(worker), lambda lease: lease.task.run_id)

    def has_leases(self, run_id: int) -> bool:
        return self._visible.has(run_id) and self._of.has_leases(run_id)

    def lease(
        self, worker: str, offer: Offer, *, root_run_id: int | None = None, is_guarded: bool = False
    ) -> list[Lease]:
        """Only tasks of the project: the queue of the store has those of all projects."""
        ours = replace(offer, project=self.project)
        return self._of.lease(worker, ours, root_run_id=root_run_id, is_guarded=is_guarded)

    def report(self, token: int, report: Report, *, guard: Guard | None = None) -> None:
        """`StaleLease` for the lease of a task of another project."""
        if not any(lease.token == token for worker in self.workers() for lease in self.leases_of(worker.name)):
            raise refusals.stale_lease(token)
        self._refuse_foreign([report])
        self._of.report(token, report, guard=guard)

    def report_all(self, ended: Sequence[tuple[int, Report, Guard | None]]) -> bool:
        self._refuse_foreign(report for _, report, _ in ended)
        return self._of.report_all(ended)

    def report_and_lease(
        self,
        worker: str,
        ended: Sequence[tuple[int, Report, Guard | None]],
        offer: Offer,
        *,
        root_run_id: int | None = None,
    ) -> tuple[bool, list[Lease]]:
        self._refuse_foreign(report for _, report, _ in ended)
        offer = replace(offer, project=self.project)
        return self._of.report_and_lease(worker, ended, offer, root_run_id=root_run_id)

    def poll(
        self,
        worker: str,
        root_run_id: int | None = None,
        *,
        holder: str = "",
        ahead: Mapping[int, timedelta] = NONE_AHEAD,
    ) -> Poll:
        seen = self._of.poll(worker, root_run_id, holder=holder, ahead=ahead)
        called = self._visible.rows(seen.run_ids, lambda run_id: run_id)
        messages = self._visible.rows(seen.messages, lambda message: message.run_id)
        return Poll(called, messages, seen.stops, seen.due)


class ProjectArtifacts:
    """The artifacts of the runs of the project. Those of another project are unknown."""

    def __init__(self, of: Store, visible: VisibleRuns) -> None:
        self._of, self._visible = of.artifacts, visible

    def keep(self, name: str, data: bytes, format: Format) -> Artifact:
        self._expect(name)
        return self._of.keep(name, data, format)

    def keep_file(self, artifact: Artifact, path: str) -> Artifact:
        self._expect(artifact.name)
        return self._of.keep_file(artifact, path)

    def _expect(self, name: str) -> None:
        if not self._visible.has(run_id_of(name)):
            raise refusals.unknown_artifact(name)

    def fetch(self, artifact: Artifact) -> bytes:
        if self._visible.is_foreign(run_id_of(artifact.name)):
            raise refusals.unknown_artifact(artifact.name)
        return self._of.fetch(artifact)

    def path(self, artifact: Artifact) -> str:
        return "" if self._visible.is_foreign(run_id_of(artifact.name)) else self._of.path(artifact)

    def records(self) -> Iterator[ArtifactRecord]:
        return (one for one in self._of.records() if self._visible.has(run_id_of(one.name)))

    def remove(self, names: Iterable[str]) -> None:
        self._of.remove([name for name in names if self._visible.has(run_id_of(name))])


class ProjectLists:
    """The lists, as far as they are about runs of the project."""

    def __init__(self, of: Store, project: str, visible: VisibleRuns) -> None:
        self._of, self._project, self._visible = of.lists, project, visible

    def find(self, wanted: RunFilter, *, limit: int, before: int | None = None) -> list[RunRecord]:
        if wanted.project not in (None, self._project):
            return []
        return self._of.find(replace(wanted, project=self._project), limit=limit, before=before)

    def count(self, wanted: RunFilter, *, limit: int) -> int:
        if wanted.project not in (None, self._project):
            return 0
        return self._of.count(replace(wanted, project=self._project), limit=limit)

    def status_counts(self, project: str | None = None) -> dict[str, int]:
        return self._of.status_counts(self._project) if project in (None, self._project) else {}

    def outcome_counts(self, since: datetime, until: datetime, project: str | None = None) -> list[OutcomeCount]:
        return self._of.outcome_counts(since, until, self._project) if project in (None, self._project) else []

    def records(self, run_ids: Collection[int]) -> list[RunRecord]:
        return [record for record in self._of.records(run_ids) if record.project == self._project]

    def attributes(self, run_ids: Collection[int]) -> list[tuple[int, Attribute]]:
        return self._of.attributes(self._ours(run_ids))

    def rows(self, run_ids: Collection[int], kind: str, limit: int) -> list[tuple[int, str, bytes]]:
        return self._of.rows(self._ours(run_ids), kind, limit)

    def places(self, keys: Collection[tuple[int, str]]) -> list[tuple[int, str, bytes]]:
        return self._of.places(self._visible.rows(keys, lambda key: key[0]))

    def open_tasks(self, root_run_ids: Collection[int]) -> list[OpenTasks]:
        return self._of.open_tasks(self._ours(root_run_ids))

    def open_timers(self, root_run_ids: Collection[int]) -> list[OpenTimer]:
        return self._of.open_timers(self._ours(root_run_ids))

    def _ours(self, run_ids: Collection[int]) -> list[int]:
        """In the order in which they were named."""
        visible = self._visible.among(run_ids)
        return [run_id for run_id in run_ids if run_id in visible]

    def leased_tasks(self) -> list[LeasedTask]:
        return self._visible.rows(self._of.leased_tasks(), lambda task: task.run_id)

    def holders(self) -> list[tuple[str, int, int]]:
        """Without child runs."""
        held: dict[str, list[int]] = {}
        for record in self.find(RunFilter(statuses=_UNFINISHED), limit=_HELD_RUNS_MAX):
            if record.holder:
                held.setdefault(record.holder, []).append(record.run_id)
        return [(name, len(run_ids), min(run_ids)) for name, run_ids in sorted(held.items())]
