"""The few Protocols between the parts: what an engine asks of a store, of the hands that run tasks, and of a clock.

Small on purpose. Every store makes the same promises, and one suite of tests holds all of them to it. The promises
are in the docstrings; the data that passes through is plain.

A *worker* is a process that holds leases and turns under one name. Its death ends all of them: leases and turns have
no clocks of their own. On one host a free lock file says that it is dead; elsewhere its heartbeat does, by the
store's clock.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Literal, Protocol

import msgspec

from mulligan.core.deciding.breaker import Guard, GuardedOutcome, Status
from mulligan.core.effects.effects import SetTimer, StopTask
from mulligan.core.effects.run_lists import Attribute, LeasedTask, OpenTasks, OpenTimer, RunFilter
from mulligan.core.effects.snapshot import Row
from mulligan.core.effects.tasks import Task
from mulligan.core.model.artifacts import Artifact, Format
from mulligan.core.model.events import Entry
from mulligan.core.model.reports import AnyReport, Report, RunRequested
from mulligan.core.state.scope import Evaluator as Evaluator

# -- workers ---------------------------------------------------------------------------------------------------------


# What a worker's lock file proves of it: alive, dead, or nothing.
LockState = Literal["held", "free", "unknown"]


class WorkerRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A process that takes turns and runs tasks. Its name is never used again."""

    name: str
    host: str
    pid: int
    # Held by the worker and its supervisor for as long as anything of theirs runs. "" where it has none.
    lock: str = ""
    # What it can take: for `doctor`, and for saying that nobody can ever take a task.
    cpus: float = 0.0
    memory: int = 0
    gpus: int = 0
    labels: tuple[str, ...] = ()
    # Its heartbeat is too old by the store's clock: filled in when read.
    is_expired: bool = False
    # When it registered; None for one of an older version. And its last heartbeat: filled in when read.
    started_at: datetime | None = None
    beat_at: datetime | None = None


class Offer(msgspec.Struct, frozen=True):
    """What a worker can take now, and where it is."""

    cpus: float
    memory: int
    gpus: int
    labels: tuple[str, ...]
    host: str
    tasks_max: int


class Lease(msgspec.Struct, frozen=True):
    """A worker's fenced right to a task. `token` grows with every lease of the store."""

    task: Task
    worker: str
    token: int


# -- runs ------------------------------------------------------------------------------------------------------------


class NewRun(msgspec.Struct, frozen=True):
    """A run to be made: its pinned workflow (canonical JSON) and what starts it. The store fills in its id."""

    workflow: bytes
    version: str
    name: str
    request: RunRequested
    # The task of another run that waits for this one.
    parent_place: str = ""
    parent_attempt: int = 0
    # Under which whoever starts it may ask again where no answer came; "" for none.
    key: str = ""


class RunRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the store knows of a run without opening it."""

    run_id: int
    workflow: str
    version: str
    status: str
    round: int
    seq: int
    created_at: datetime
    updated_at: datetime
    degraded: bool = False
    reason: str = ""
    parent_run_id: int | None = None
    parent_place: str = ""
    parent_attempt: int = 0
    # The run at the top of the tree of child runs: itself, where it is nobody's child.
    root_run_id: int = 0
    # The worker that holds its turn.
    holder: str = ""


class Loaded(msgspec.Struct, frozen=True):
    """A run as it is kept: enough to go on with it."""

    record: RunRecord
    # Canonical JSON, as it was pinned.
    workflow: bytes
    rows: Sequence[Row]


class Message(msgspec.Struct, frozen=True):
    """A report in a run's inbox. `is_asking`: somebody waits for the answer."""

    id: int
    run_id: int
    report: AnyReport
    is_asking: bool = False


# Whoever asks looks for the answer many times a second. So many messages later, the process that asked has died.
ANSWERS_BEHIND_MAX = 100_000


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of a report: taken (`error` is empty), or refused with an error of ours."""

    error: str = ""
    message: str = ""
    hint: str = ""


class Turn(msgspec.Struct, frozen=True):
    """The right to write a run. `fence` grows with each holder: an older one is refused."""

    run_id: int
    holder: str
    fence: int


class ChildReport(msgspec.Struct, frozen=True):
    """A report to the child runs of a run that have not ended: to one attempt's, or (place "") to all of them."""

    report: Report
    place: str = ""
    attempt: int = 0


class Commit(msgspec.Struct):
    """What one turn writes, together or not at all."""

    turn: Turn
    # The log's last seq before this.
    after: int
    entries: Sequence[Entry]
    # What of the state's tables has changed: the snapshot and the read model.
    rows: Sequence[Row]
    # The run's line in the list, after the turn.
    status: str
    round: int
    at: datetime
    degraded: bool = False
    reason: str = ""
    # Tasks for whoever comes; and those that this worker takes at once (new, or queued before and still free).
    queued: Sequence[Task] = ()
    taken: Sequence[Task] = ()
    # Tokens of this worker's leases whose end is in `entries`. One that is void makes the commit a Conflict.
    ended: Sequence[int] = ()
    stopped: Sequence[StopTask] = ()
    timers: Sequence[SetTimer] = ()
    # Messages that this turn has answered, each with the answer if it was asked for.
    drained: Sequence[tuple[int, Answer | None]] = ()
    children: Sequence[NewRun] = ()
    told: Sequence[tuple[int, Report]] = ()
    told_children: Sequence[ChildReport] = ()
    # The round is over: its timers and tasks go, and the turn is given back. What was stopped and has a worker, who was
    # given it while the turn was decided, stays until that has ended it.
    is_last: bool = False
    # Of the ended leases those of guarded tasks, for their breakers.
    counted: Sequence[GuardedOutcome] = ()


class Committed(msgspec.Struct, frozen=True):
    """What a commit gave: the leases on `taken`, in order, and the turns of the child runs."""

    leases: Sequence[Lease] = ()
    children: Sequence[Turn] = ()


class Stopped(msgspec.Struct, frozen=True):
    """A task under this worker's lease that was asked to end: SIGTERM, grace, SIGKILL; None lets it finish."""

    token: int
    grace_seconds: float | None


class Waiting(msgspec.Struct, frozen=True):
    """A place that waits for a person, in any run: `kind` is the row's tag (parked, approval)."""

    run_id: int
    place: str
    kind: str
    # The run at the top of its tree.
    root_run_id: int = 0


class BreakerRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A breaker that some task has asked, and how many tasks wait for it, or for a worker behind it."""

    name: str
    status: Status
    failures: int = 0
    retry_at: datetime | None = None
    waiting: int = 0


class ArtifactRecord(msgspec.Struct, frozen=True):
    """What there is under a name: an artifact, or what is left of one that was never whole."""

    name: str
    size: int
    kept_at: datetime
    is_whole: bool = True


class Artifacts(Protocol):
    """Keeps large outputs, beside the logs that refer to them. Any method may raise `StoreUnavailable`."""

    def keep(self, name: str, data: bytes, format: Format) -> Artifact:
        """Keep it, whole or not at all: it is on the disk when this returns. `StoreRefused`: there is no room for it.

        Nothing that was kept before is ever written over: where the name is taken the artifact gets another one.
        """

    def keep_file(self, artifact: Artifact, path: str) -> Artifact:
        """Keep what is in a file under the name of `artifact`, or one like it; it is that, and on the disk already.

        The file is gone when this returns, except where it raises `StoreUnavailable`: then it is to be tried again.
        """

    def fetch(self, artifact: Artifact) -> bytes:
        """What was kept; `ArtifactGone` where it is not there, `ArtifactDamaged` where it is something else now."""

    def path(self, artifact: Artifact) -> str:
        """The file that it is in; "" where it is in none."""

    def records(self) -> Iterator[ArtifactRecord]:
        """Everything that is there."""

    def remove(self, names: Iterable[str]) -> None:
        """Remove what is under these names, and folders in which nothing is left."""


class RunLists(Protocol):
    """Lists of runs and of work, for people and programs that look: a few statements, however many runs there are."""

    def find(self, wanted: RunFilter, *, limit: int, before: int | None = None) -> list[RunRecord]:
        """The runs that match, the newest first, below `before`."""

    def attributes(self, run_ids: Collection[int]) -> list[tuple[int, Attribute]]:
        """What these runs can be found by, in the order of runs, kinds and names. Called runs have none."""

    def rows(self, run_ids: Collection[int], kind: str, limit: int) -> list[tuple[int, str, bytes]]:
        """At most `limit` rows of one kind of each of these runs, but the run's own: run id, key, data."""

    def places(self, keys: Collection[tuple[int, str]]) -> list[tuple[int, str, bytes]]:
        """The rows of these places, each by its run and its key, where they are there."""

    def open_tasks(self, root_run_ids: Collection[int]) -> list[OpenTasks]:
        """Tasks below these roots, in runs that have not ended, by worker and breaker."""

    def open_timers(self, root_run_ids: Collection[int]) -> list[OpenTimer]:
        """Timers that let something below these roots go on, by kind: retries, waits, loops. No limits."""

    def leased(self) -> list[LeasedTask]:
        """Every task that a worker has, by worker, the oldest lease first."""

    def holders(self) -> list[tuple[str, int, int]]:
        """Who has the turns of how many runs, by name, with the oldest of these runs."""


# Rows of tables by their tag, as `Store.tagged` finds them.
FindResults = Callable[[str, int], Sequence[tuple[int, str, str, bytes]]]

NOBODY_AHEAD: Mapping[int, timedelta] = MappingProxyType({})


class Clock(Protocol):
    def now(self) -> datetime:
        """The time, in UTC. It goes on evenly while a process lives, whatever is done to the wall clock."""

    def stepped(self) -> timedelta:
        """How far the wall clock is ahead of `now`: below nothing where it is behind, nothing if it was not stepped."""

    def monotonic(self) -> float:
        """Seconds since some moment: for how long things take. It never jumps, whatever the time of day does."""

    def elapsed(self) -> float:
        """Seconds since some moment, with those for which the host was suspended. Nobody sets it."""


class Store(Protocol):
    """Keeps runs, their logs, inboxes, tasks and timers. `commit` is the only writer of a run's state.

    Any method may raise `StoreUnavailable`: nothing is known then about whether it was done.
    """

    # Whether several hosts may share it: then heartbeats count, and any worker may take any task.
    is_shared: bool
    # Where large outputs of its runs are.
    artifacts: Artifacts
    lists: RunLists

    def close(self) -> None: ...

    @property
    def is_in_place(self) -> bool:
        """Whether its file is still where it was opened. False if somebody has moved, replaced or removed it."""

    # -- workers

    def register(self, worker: WorkerRecord) -> None:
        """Make the worker known, alive from now on."""

    def beat(self, name: str) -> bool:
        """The worker is alive. False if it was buried meanwhile: all its leases and turns are void."""

    def retire(self, name: str) -> None:
        """The worker ends by itself: its turns are given back; leases it still has are reported as lost."""

    def workers(self) -> list[WorkerRecord]:
        """Those that are not buried, with `is_expired` by the store's clock."""

    def bury(self, name: str, *, is_dead: bool = False) -> bool:
        """Void every lease and turn of a worker that is dead (its lock is free) or, else, whose heartbeat is too old.

        Each leased task is reported to its run as LeaseExpired. Once, however many bury it; False if it is alive.
        """

    # -- runs

    def create(self, runs: Sequence[NewRun], holder: str = "") -> list[Turn]:
        """New runs with their requests in their inboxes, all or none. With a holder it has their turns at once.

        `KeyUsed` where a run was made under the key of one of them before, and is still kept: then none is made.
        """

    def run(self, run_id: int) -> RunRecord:
        """`UnknownRun` if there is none."""

    def runs(self, *, limit: int = 50, before: int | None = None, statuses: Collection[str] = ()) -> list[RunRecord]:
        """The newest first, below `before`."""

    def children(self, run_id: int) -> list[RunRecord]:
        """The runs that were started by tasks of this one."""

    def load(self, run_id: int) -> Loaded: ...

    def log(self, run_id: int, after: int = 0, limit: int | None = None) -> list[Entry]:
        """The entries of the run's log behind `after`, in order."""

    def waiting(self) -> list[Waiting]:
        """What waits for a person, over all runs that have not ended."""

    def kept(self, kind: str) -> list[tuple[int, str, bytes]]:
        """The rows of one kind over all runs: run id, key, data; in the order of runs and keys."""

    def lately(self, workflow: str, kind: str, key: str, limit: int) -> list[tuple[int, bytes]]:
        """One row of the newest runs of a workflow, where it waits for nobody: run id and data, the newest first."""

    def tagged(self, tag: str, limit: int) -> list[tuple[int, str, str, bytes]]:
        """The rows with a tag, of the newest runs first: run id, status of the run, key and data."""

    def mentioning(self, text: str) -> Iterator[tuple[int, bytes]]:
        """Everything in logs, inboxes and queues that has this ASCII text in it: run id, and the JSON as it is kept."""

    def remove(self, root_run_ids: Collection[int]) -> list[int]:
        """Remove these runs with all the runs that they called: each tree whole, or not at all. The ids that are gone.

        A tree stays in which a run has not ended, is held, or was told something that it has not answered.
        """

    # -- inboxes

    def put(self, run_id: int, report: Report, *, is_asking: bool = False) -> int:
        """Add a report to the run's inbox, with one insert. It stays there until a commit has drained it."""

    def answer(self, message_id: int) -> Answer | None:
        """What became of a report that asked; None while nobody has drained it. Given once."""

    def inbox(self, run_ids: Collection[int]) -> list[Message]:
        """What waits in these runs' inboxes, oldest first."""

    def called(self, holder: str, root_run_id: int | None = None) -> list[int]:
        """The runs with a message waiting whose turn is free or the holder's own (below one root, if given)."""

    # -- turns

    def take_turns(self, run_ids: Collection[int], holder: str) -> list[Turn]:
        """The right to write these runs, for those whose turn is free or the holder's already."""

    def release(self, turns: Iterable[Turn]) -> None:
        """Give turns back; a void one is nothing."""

    def commit(self, commits: Sequence[Commit]) -> list[Committed]:
        """Write log, rows, tasks, timers, messages of all of them in one transaction: all or nothing.

        Raises `Conflict` if a turn or an ended lease is void, or a log has grown behind `after`; which one it was is
        found by committing one at a time. `StoreUnavailable` says nothing about whether it was written: read the
        run to know.
        """

    # -- tasks

    def queued(self, run_id: int) -> list[tuple[str, int]]:
        """Place and attempt of the run's tasks that nobody has taken, oldest first."""

    def held(self, worker: str) -> list[Lease]:
        """The leases of a worker."""

    def has_leases(self, run_id: int) -> bool:
        """Whether somebody has a task of the run."""

    def lease(
        self, worker: str, offer: Offer, *, root_run_id: int | None = None, is_guarded: bool = False
    ) -> list[Lease]:
        """Hand out the oldest free tasks that fit. No two workers ever hold one; a paused run hands out none.

        For each, `TaskStarted` is put into its run's inbox in the same transaction. A guarded task asks its breaker
        there: it stays in the queue while that is open, or leaves it as CIRCUIT_OPEN; of one that is half open, one
        lease is the probe. With `is_guarded` no others are handed out, and these of runs whose turn the worker has:
        in a store of one's own a run's tasks go where its turn is.
        """

    def report(self, token: int, report: Report, *, guard: Guard | None = None) -> None:
        """Accept the last report of a lease into the run's inbox, once, and end the lease; `StaleLease` if void.

        With the task's guard it counts for its breaker, in the same transaction.
        """

    def stops(self, worker: str) -> list[Stopped]:
        """The worker's tasks that were asked to end and have not. Told again until they have."""

    # -- breakers

    def breakers(self) -> list[BreakerRecord]:
        """Every breaker that a task has asked, by name."""

    def reset_breaker(self, name: str) -> bool:
        """Close a breaker, whatever it was, and wake who waits for it; False if there is none of that name."""

    # -- time

    def fire_timers(
        self, root_run_id: int | None = None, *, holder: str = "", ahead: Mapping[int, timedelta] = NOBODY_AHEAD
    ) -> int:
        """Move every timer that is due into its run's inbox as a report, and say how many. None is lost or early.

        Where the clock is the process's own, two processes may differ. There `holder` asks for the timers of the runs
        whose turn it has; `ahead` says how far the time of some of these runs is ahead of the clock. Where the store
        has one clock for all, neither counts. A timer of the kind "until" goes by the wall clock.
        """

    def next_due(
        self, root_run_id: int | None = None, *, holder: str = "", ahead: Mapping[int, timedelta] = NOBODY_AHEAD
    ) -> datetime | None:
        """When, by `Clock.now`, the next timer is due, or a breaker that tasks wait for may be probed."""

    def now(self) -> datetime | None:
        """The time, where the store has a clock of its own that all processes go by; else None."""

    def has_news(self) -> bool:
        """Whether another process may have written something for us since the last call. Cheap; never misses."""

    def fileno(self) -> int | None:
        """Readable when there may be news; None if one has to ask `has_news` now and then."""

    def hear_ends(self) -> None:
        """From now on it is news, too, that a run has ended: for whoever waits for that. Workers need not know."""


class Executor(Protocol):
    """What runs tasks for an engine, in the same process: takes leases, says what became of them."""

    name: str
    host: str

    def fits(self, task: Task) -> bool:
        """Whether there is room for one more like this, counting what was taken since."""

    def can_ever(self, task: Task) -> bool:
        """Whether it could be taken if nothing else ran."""

    def lacking(self, task: Task) -> str:
        """In words, what it asks for and is not there, whatever runs."""

    def offer(self) -> Offer:
        """The room there is."""

    def reserve(self, task: Task) -> None:
        """Keep room for a task that is about to be leased."""

    def unreserve(self, task: Task) -> None:
        """The lease came to nothing."""

    def start(self, leases: Iterable[Lease]) -> None:
        """Run them; what cannot be started is reported as ended. They have been reserved."""

    def stop(self, token: int, grace_seconds: float | None) -> None:
        """SIGTERM, grace, SIGKILL; None lets it finish. One that is not running is nothing."""

    def stop_all(self, grace_seconds: float) -> None:
        """End everything that runs; what ends so is reported as `TaskInterrupted`."""

    def drop_all(self) -> None:
        """Kill everything at once, and forget it: its leases are void."""

    def watch(self, fd: int | None) -> None:
        """Let `collect` return also when this descriptor is readable, in place of the one before; None: of no other."""

    def collect(self, timeout: float | None) -> list[tuple[Lease, Report]]:
        """What has ended, waiting up to `timeout` for the first. May return early with nothing."""

    def renewed(self, at: float) -> None:
        """The heartbeat that was sent `at` that time of `Clock.monotonic` has been accepted: what runs may go on."""

    @property
    def must_renew(self) -> bool:
        """Whether the last heartbeat is so old that nothing may be started before the next one."""

    @property
    def running(self) -> Collection[Lease]: ...

    def close(self) -> None: ...


# -- fault points ----------------------------------------------------------------------------------------------------

# Where a test may let the program die. Each is named once in the code, by `fault`.
FAULT_POINTS = {
    "before_turn": "the inbox was read, nothing has been decided",
    "before_commit": "the turn is decided, nothing is written",
    "after_commit": "the turn is written, its holder does not know yet",
    "after_drain": "the turn is written, its tasks are not handed out yet",
    "after_lease": "a worker holds a task, its process does not exist yet",
    "before_report": "a task has ended, nobody was told",
}

fault_listeners: list[Callable[[str], None]] = []


def fault_point(name: str) -> None:
    """A point at which a test may let the program die. Free otherwise: nobody listens."""
    for listener in fault_listeners:
        listener(name)
