"""What a store promises, split by user. `Store` is the sum, for the composition root and the stores themselves.

Every store makes the same promises, and one suite of tests checks all stores. Any method may raise `StoreUnavailable`:
then it is unknown whether the call took effect.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from mulligan.core.deciding.workers.breaker import Guard, Verdict
from mulligan.core.effects.run_lists import (
    Attribute,
    LeasedTask,
    OpenTasks,
    OpenTimer,
    OutcomeCount,
    QueuedShape,
    RunFilter,
)
from mulligan.core.model.artifacts import Artifact, Format
from mulligan.core.model.clusters.scheduler_job import JobEnd
from mulligan.core.model.events import Entry
from mulligan.core.model.reports import Report
from mulligan.core.model.workflow import Breaker
from mulligan.ports.records import (
    NONE_AHEAD,
    Answer,
    ArtifactRecord,
    BreakerRecord,
    Commit,
    CommitResult,
    IdleRuns,
    Lease,
    LoadedRun,
    Message,
    NewRun,
    Offer,
    Poll,
    RunRecord,
    StopRequest,
    Turn,
    WaitingPlace,
    WorkerRecord,
)
from mulligan.ports.server_records import AuditRecord, ServerRecords


class StoredArtifacts(Protocol):
    """Reads large outputs and files."""

    def fetch(self, artifact: Artifact) -> bytes:
        """The content. `ArtifactGone` if it is missing, `ArtifactDamaged` if it has changed."""

    def path(self, artifact: Artifact) -> str:
        """The artifact's file; "" if the store does not use files."""


class NewArtifacts(Protocol):
    """Takes large outputs and files."""

    def keep(self, name: str, data: bytes, format: Format) -> Artifact:
        """Store the data durably, all or nothing. `StoreRefused` if there is no space.

        Nothing is ever overwritten: if the name is taken, the artifact gets another one.
        """

    def keep_file(self, artifact: Artifact, path: str) -> Artifact:
        """Store a file's content under the name of `artifact` or a similar one. The file must be durable already.

        The file is removed, except when this raises `StoreUnavailable`: then the caller tries again.
        """

    def path(self, artifact: Artifact) -> str:
        """Where its file will be; "" for a row of a database, which has less room."""


class Artifacts(StoredArtifacts, NewArtifacts, Protocol):
    """Keeps large outputs beside the logs that refer to them."""

    def records(self) -> Iterator[ArtifactRecord]:
        """All stored artifacts, and remains of interrupted writes."""

    def remove(self, names: Iterable[str]) -> None:
        """Remove these artifacts, and folders that become empty."""


# -- for readers -----------------------------------------------------------------------------------------------------


class RunRecords(Protocol):
    """Reads runs and their logs."""

    def run(self, run_id: int) -> RunRecord:
        """`UnknownRun` if there is none."""

    def runs(self, *, limit: int = 50, before: int | None = None, statuses: Collection[str] = ()) -> list[RunRecord]:
        """The newest runs first, with ids below `before`."""

    def children(self, run_id: int) -> list[RunRecord]:
        """The runs that tasks of this run have started."""

    def load(self, run_id: int) -> LoadedRun: ...

    def load_all(self, run_ids: Collection[int]) -> list[LoadedRun]:
        """`load` for several runs. Those that are unknown or cannot be read are left out."""

    def log(self, run_id: int, after: int = 0, limit: int | None = None) -> list[Entry]:
        """The entries of the run's log behind `after`, in order."""

    def search_log(self, run_id: int, any_of: tuple[str, ...], after: int = 0, *, also: str = "{") -> list[Entry]:
        """The entries behind `after` whose stored JSON contains one of one or two texts, and `also` another one."""


class RowSearch(Protocol):
    """Finds rows of state tables over many runs."""

    def run_under(self, key: str) -> int | None:
        """The run that was created under this key."""

    def runs_under(self, ending: str) -> list[tuple[str, int]]:
        """The keys that end so, each with the run that was created under it. It looks at all keys."""

    def waiting_places(self) -> list[WaitingPlace]:
        """The places that wait for a person, in all unfinished runs."""

    def tallies(
        self, workflow: str | None = None, since: datetime | None = None, project: str | None = None
    ) -> list[tuple[int, str, str, str, bytes]]:
        """What was counted in all runs, or those of a workflow, since a time, of a project; the newest run first.

        Run id, workflow and version of the run, name and data of the tally. It takes time for each run.
        """

    def recent_rows(self, workflow: str, kind: str, key: str, limit: int) -> list[tuple[int, bytes]]:
        """One row of each of the newest runs of a workflow, unless it waits for a person: run id and data."""

    def tagged_rows(self, tag: str, limit: int, beside: int | None = None) -> list[tuple[int, str, str, bytes]]:
        """The rows with a tag, those of the newest runs first: run id, run status, key, data.

        With `beside` only those of runs in the project of that run.
        """


class RunLists(Protocol):
    """Lists of runs and of work, for people and programs. Each takes a few statements, however many runs there are."""

    def find(self, wanted: RunFilter, *, limit: int, before: int | None = None) -> list[RunRecord]:
        """The runs that match, the newest first, with ids below `before`."""

    def count(self, wanted: RunFilter, *, limit: int) -> int:
        """How many runs match; at most `limit`, since counting takes time for each of them."""

    def status_counts(self, project: str | None = None) -> dict[str, int]:
        """How many runs there are with each status, without child runs; of one project or of all."""

    def outcome_counts(self, since: datetime, until: datetime, project: str | None = None) -> list[OutcomeCount]:
        """How many runs were created in this time, by workflow and status, without child runs.

        It takes time for each of them. Of one project or of all.
        """

    def records(self, run_ids: Collection[int]) -> list[RunRecord]:
        """The existing runs among these, the newest first, by their primary key."""

    def attributes(self, run_ids: Collection[int]) -> list[tuple[int, Attribute]]:
        """The searchable inputs and labels of these runs, ordered by run, kind and name. Child runs have none."""

    def rows(self, run_ids: Collection[int], kind: str, limit: int) -> list[tuple[int, str, bytes]]:
        """At most `limit` rows of one kind for each of these runs, except the run's own row: run id, key, data."""

    def places(self, keys: Collection[tuple[int, str]]) -> list[tuple[int, str, bytes]]:
        """The existing rows among these places, each named by run id and key."""

    def open_tasks(self, root_run_ids: Collection[int]) -> list[OpenTasks]:
        """Tasks in the unfinished runs below these roots, grouped by worker and breaker."""

    def open_timers(self, root_run_ids: Collection[int]) -> list[OpenTimer]:
        """Timers that let something below these roots continue (retries, waits, loops; no time limits), by kind."""

    def leased_tasks(self) -> list[LeasedTask]:
        """All leased tasks, by worker, the oldest lease first."""

    def holders(self) -> list[tuple[str, int, int]]:
        """The workers that hold turns: name, number of runs, and the oldest of these runs."""


class Breakers(Protocol):
    """Circuit breakers, as operators see them."""

    def breakers(self) -> list[BreakerRecord]:
        """Every breaker that a task has asked, by name."""

    def count_outcome(self, name: str, rules: Breaker, verdict: Verdict) -> None:
        """Count an outcome for a breaker that guards something else than tasks: jobs of a scheduler."""

    def reset_breaker(self, name: str) -> bool:
        """Close a breaker and wake workers that wait for it. False if there is none of that name."""


# -- for verbs -------------------------------------------------------------------------------------------------------


class RunRequests(Protocol):
    """Creates runs and sends them reports."""

    def create(self, runs: Sequence[NewRun], holder: str = "", *, audit: Sequence[AuditRecord] = ()) -> list[Turn]:
        """Create runs with their requests in their inboxes, all or none. A holder gets their turns at once.

        Rows for the audit are written in the same transaction: they are there if the runs are, and only then.
        `KeyUsed` if a stored run was created under the key of one of them: then none is created.
        """

    def put(self, run_id: int, report: Report, *, is_asking: bool = False) -> int:
        """Add a report to the run's inbox, with one insert. It stays there until a commit drains it."""

    def answer(self, message_id: int) -> Answer | None:
        """The answer to a report that asked for one; None while it is undrained. Returned once."""


class Maintenance(Protocol):
    """What `gc` needs: which artifacts are referred to, and removing old runs."""

    def records_containing(self, text: str) -> Iterator[tuple[int, bytes]]:
        """All stored JSON in logs, inboxes and queues that contains this ASCII text: run id and JSON."""

    def remove(self, root_run_ids: Collection[int], *, is_forced: bool = False) -> list[int]:
        """Remove these runs with all their descendants, each tree completely or not at all. The removed ids.

        A tree stays if one of its runs is unfinished, has a holder, or has unprocessed messages. With `is_forced` it
        goes all the same, with its messages: turns and leases of it are void. That is for runs that cannot be read.
        """

    def check_schema(self) -> None:
        """`StoreOvertaken` if a newer Mulligan has migrated the store, so that this process must not use it. Cheap."""

    def skip_run_ids(self, last: int) -> int:
        """Give no run an id up to `last` from now on. The highest id that was given out before; 0 only asks for it."""


# -- for engines -----------------------------------------------------------------------------------------------------


class WorkerRegistry(Protocol):
    """The registered workers and their heartbeats."""

    # Whether several hosts may share the store: then heartbeats count, and any worker may take any task.
    is_shared: bool

    def register(self, worker: WorkerRecord) -> None:
        """Add a worker, alive from now on."""

    def record_heartbeat(self, name: str) -> datetime | None:
        """Record a heartbeat: when, by the store's clock. None if the worker has expired: all that it had is void."""

    def set_trouble(self, name: str, trouble: str) -> None:
        """Write into the record of a worker what is wrong with its machine; nothing if the worker has expired."""

    def retire(self, name: str) -> None:
        """Remove a worker that ends by itself: its turns are released, its remaining leases are reported as lost."""

    def workers(self) -> list[WorkerRecord]:
        """The registered workers, with `is_expired` by the store's clock."""

    def expire(self, name: str, *, is_dead: bool = False, job: JobEnd | None = None) -> bool:
        """Remove a worker whose heartbeat is too old, or that is known to be dead; void its leases and turns.

        Each leased task is reported to its run as LeaseExpired, once, however many callers there are, with the `job` in
        which the worker ran. False if the worker is alive or already removed.
        """


class Inboxes(Protocol):
    """The messages that runs have not processed."""

    def inbox(self, run_ids: Collection[int]) -> list[Message]:
        """The messages in these runs' inboxes, oldest first."""

    def runs_with_messages(self, holder: str, root_run_id: int | None = None) -> list[int]:
        """The runs with messages whose turn is free or the holder's own (below one root, if given)."""


class Turns(Protocol):
    """The right to write runs, and writing them. `commit` is the only writer of a run's state."""

    def take_turns(self, run_ids: Collection[int], holder: str) -> list[Turn]:
        """Take the turns of these runs that are free; those that the holder has already are returned too."""

    def idle_runs(self, holder: str, after: tuple[int, int], limit: int) -> IdleRuns:
        """Those of the next `limit` unfinished runs whose turn is free or the holder's own, behind a root and an id.

        A shared store has none: there any worker gets tasks and timers of any run, without its turn.
        """

    def runs_with_work(self, run_ids: Collection[int]) -> list[int]:
        """Those of these runs that have to be loaded now. The others wait for a message, whatever it comes from.

        One has to be loaded if it has a message or a queued task, if its time is ahead of the clock, or if nothing in
        the store says what it waits for. A paused run waits for a message.
        """

    def release(self, turns: Iterable[Turn]) -> None:
        """Give turns back. A void one is ignored."""

    def commit(self, commits: Sequence[Commit]) -> list[CommitResult]:
        """Write log, rows, tasks, timers and messages of all commits in one transaction: all or nothing.

        Raises `Conflict` if a turn or an ended lease is void, or a log has grown behind `after`; commit one at a time
        to find out which one. `StoreUnavailable` does not say whether it was written: read the run to know.
        """


class TaskQueue(Protocol):
    """Queued and leased tasks."""

    def queued_tasks(self, run_id: int) -> list[tuple[str, int]]:
        """Place and attempt of the run's tasks without a worker, oldest first."""

    def leases_of(self, worker: str) -> list[Lease]:
        """The leases of a worker."""

    def has_leases(self, run_id: int) -> bool:
        """Whether any worker has a task of the run."""

    def lease(
        self, worker: str, offer: Offer, *, root_run_id: int | None = None, is_guarded: bool = False
    ) -> list[Lease]:
        """Lease the oldest free tasks that fit. Two workers never hold the same task; paused runs are left out.

        For each lease `TaskStarted` is put into the run's inbox in the same transaction. A guarded task asks its
        breaker there: while the breaker is open the task stays in the queue, or leaves it as CIRCUIT_OPEN; for a
        half-open breaker one lease is the probe. `is_guarded` leases only guarded tasks of runs whose turn the worker
        holds: in a store that is not shared, a run's tasks go to the holder of its turn.

        A shared store also gives tasks `ahead` of a free slot, as `core.effects.lease_rules` allows it.
        """

    def report(self, token: int, report: Report, *, guard: Guard | None = None) -> None:
        """Put the last report of a lease into the run's inbox, once, and end the lease. `StaleLease` if it is void.

        With the task's guard the outcome counts for its breaker, in the same transaction.
        """

    def report_all(self, ended: Sequence[tuple[int, Report, Guard | None]]) -> bool:
        """`report` for several leases in one transaction: token, report, guard. Those that are void are left out.

        Return whether the turn of one of their runs may be free: who reports continues it then.
        """

    def report_and_lease(
        self,
        worker: str,
        ended: Sequence[tuple[int, Report, Guard | None]],
        offer: Offer,
        *,
        root_run_id: int | None = None,
    ) -> tuple[bool, list[Lease]]:
        """`report_all`, and then `lease`, in one transaction if possible, which costs half as much as two."""

    def stop_requests(self, worker: str) -> list[StopRequest]:
        """The requests to stop tasks of this worker. Each is repeated until its task has ended."""


class QueueDemand(Protocol):
    """What the queue asks for, for whoever provides workers: an allocator of jobs in a cluster."""

    def queued_shapes(self, project: str | None = None) -> list[QueuedShape]:
        """What the tasks ask for that a new worker may take, and how many ask for the same, by their oldest task.

        Tasks of paused runs, those that wait for a breaker and those of a host that has a worker are not among them.
        """

    def refuse_queued(self, shape: QueuedShape, message: str, project: str | None = None) -> int:
        """End the queued tasks that ask for exactly this, as NO_CAPACITY with this message; how many.

        In one transaction each leaves the queue and its end is put into the inbox of its run. A task that a worker has
        taken meanwhile is left alone.
        """


class Timers(Protocol):
    """Timers, and the store's clock if it has one."""

    def fire_timers(
        self, root_run_id: int | None = None, *, holder: str = "", ahead: Mapping[int, timedelta] = NONE_AHEAD
    ) -> int:
        """Move every due timer into its run's inbox as a report; return how many. None is lost or early.

        If each process uses its own clock, two of them may differ. Then `holder` restricts this to the timers of runs
        whose turn it holds, and `ahead` says how far the time of some of these runs is ahead of the clock. A store
        with its own clock ignores both. A timer of the kind "until" uses the wall clock.
        """

    def next_due(
        self, root_run_id: int | None = None, *, holder: str = "", ahead: Mapping[int, timedelta] = NONE_AHEAD
    ) -> datetime | None:
        """When, by `Clock.now`, the next timer is due, or a breaker that tasks wait for may be probed."""

    def now(self) -> datetime | None:
        """The store's time, if it has its own clock that all processes use; otherwise None."""


class Polling(Protocol):
    """What an engine polls, in one question."""

    def poll(
        self,
        worker: str,
        root_run_id: int | None = None,
        *,
        holder: str = "",
        ahead: Mapping[int, timedelta] = NONE_AHEAD,
    ) -> Poll:
        """`runs_with_messages`, `stop_requests` and `next_due`, and the inboxes of the runs that the worker holds."""


class ChangeFeed(Protocol):
    """Tells whether other processes have written something."""

    def queue_mark(self) -> Hashable:
        """Differs from before if tasks were queued, or asked to stop. A hint: it may differ for other reasons."""

    def has_changes(self) -> bool:
        """Whether another process may have written something for us since the last call. Cheap; misses nothing."""

    def version(self) -> str | None:
        """A text that is another one after every commit of any process; None if only `has_changes` knows."""

    def fileno(self) -> int | None:
        """A descriptor that becomes readable when there may be changes; None if `has_news` has to be polled."""

    def watch_run_ends(self) -> None:
        """From now on the end of a run counts as a change, for processes that wait for it. Workers need not know."""


class EngineStore(WorkerRegistry, RunRecords, Inboxes, Turns, TaskQueue, Timers, Polling, ChangeFeed, Protocol):
    """What an engine needs."""


class Store(EngineStore, QueueDemand, RowSearch, Breakers, RunRequests, Maintenance, Protocol):
    """Everything."""

    # The large outputs of its runs.
    artifacts: Artifacts
    lists: RunLists

    @property
    def server_records(self) -> ServerRecords:
        """What a server keeps beside the runs."""

    def close(self) -> None: ...

    @property
    def is_in_place(self) -> bool:
        """Whether its file is still where it was opened. False if it was moved, replaced or removed."""
