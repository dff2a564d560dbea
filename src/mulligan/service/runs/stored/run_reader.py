"""Runs as the store has them: records, states, events, logs, outputs. Nothing here changes a run."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache, cached_property
from itertools import takewhile
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from mulligan.core.effects.snapshot import read_items, restore, restore_brief
from mulligan.core.evolve.revision import is_removed
from mulligan.core.model import events as e
from mulligan.core.model.artifacts import KEY, fetch_references, parse_reference
from mulligan.core.model.event_types import HostCapacity
from mulligan.core.model.events import RunStarted
from mulligan.core.model.graph import Graph
from mulligan.core.model.place_keys import is_at_or_below, item_key, step_name
from mulligan.core.model.reports import RunRequested
from mulligan.core.model.text.formatting import NAMES_MAX, quote_names
from mulligan.core.model.workflow import END, Workflow, decode
from mulligan.core.state.state import State
from mulligan.engine.integrity import refuse_damaged
from mulligan.errors import CodecError, UnknownItem, UnknownRun, UnknownStep
from mulligan.history.called_steps import workflow_of_run
from mulligan.history.item_names import PlaceNames, index_names, names_of_items, place_key, place_name
from mulligan.language.garbage_collection import pause_garbage_collection
from mulligan.language.text.suggestions import did_you_mean
from mulligan.ports import LoadedRun, RunRecord, Store, WorkerRecord
from mulligan.service.driving.locks import Locks
from mulligan.service.home import Home, this_host
from mulligan.service.host.lost_runs import keep_lost_numbers
from mulligan.service.runs.stored.artifacts import with_artifact_paths
from mulligan.store import view_project
from mulligan.worker.supervisor.processes import is_running

if TYPE_CHECKING:
    from mulligan.service.logs.log_ranges import LogRanges
    from mulligan.service.runs.stored.run_counts import CountCache

# How many events are read from the store at once.
PAGE = 5_000
# How many called runs are searched for a step, the newest first: a map may call ten thousand.
CHILDREN_SEARCHED_MAX = 20
# Of how many maps of one run the names of the items are read for lists.
MAPS_READ_MAX = 100
# The name of the newest run.
LATEST = "latest"
# How long the supervisor of a process that was killed may take to end what it ran, and how often that is checked.
DYING_SECONDS, LOOK_SECONDS = 10.0, 0.01
# What a database can count.
RUN_IDS = range(1, 2**63)


# What this process knows of damaged runs, by home: when the run was written, and what is wrong. And of how many.
_DAMAGES: dict[tuple[str, str], dict[int, tuple[datetime, str]]] = {}
DAMAGES_MAX = 1_000

Value = TypeVar("Value")
# A row of the tables of a run: its number, the key, and the data.
Row = tuple[int, str, bytes]

# Makes a state of the tables of a run, and of items that are left out of it.
ReadTables = Callable[[Workflow, Any, Graph], tuple[State, dict[str, tuple[str, bytes]]]]


class AttemptLog(msgspec.Struct, frozen=True):
    """What one attempt of a place wrote."""

    place: str
    attempt: int
    stdout: bytes
    stderr: bytes
    # The host that it ran on, if nothing of its log is here or in the store, and other hosts share that.
    ran_on: str = ""


class StepOutput(msgspec.Struct, frozen=True):
    """The output of a step; `is_refused` if the step failed because `validate` rejected it."""

    value: Any
    is_refused: bool = False


class RunReader:
    """Reads runs from the store of one home. Faces ask `Service`, whose answers are made with this."""

    # The only project that it shows; None for all.
    project: str | None = None

    def __init__(self, home: Home) -> None:
        self.home = home
        self._version = 0
        self._has_kept_numbers = False
        # The one that a person has named last: an error may come from it being damaged.
        self.named_runs: list[int] = []
        self._last_definition: tuple[tuple[str, str], tuple[Workflow, Graph] | None] = ("", ""), None

    @cached_property
    def store(self) -> Store:
        """Opened on first use, so that a call that is refused before creates nothing."""
        return self.home.open()

    @cached_property
    def log_ranges(self) -> LogRanges:
        # Loaded here, since most commands read no logs.
        from mulligan.service.logs.log_ranges import LogRanges

        found: LogRanges = LogRanges(self.home, lambda: self.store)
        return found

    @cached_property
    def counts(self) -> CountCache:
        from mulligan.service.runs.stored.run_counts import CountCache

        found: CountCache = CountCache()
        return found

    def keep_lost_numbers(self) -> None:
        """See to it, once, that no new run gets a number that files in this home have."""
        if not self._has_kept_numbers:
            keep_lost_numbers(self.home, self.store)
        self._has_kept_numbers = True

    def store_version(self) -> int | str | None:
        """Something that is another one when others have written; None where that takes a look at the runs."""
        if not self.home.is_there:
            return None
        if self.store.is_shared:
            return self.store.version()
        self._version += self.store.has_changes()
        return self._version

    def in_project(self, project: str) -> RunReader:
        """The same runs as far as they belong to a project, over the same connection."""
        return _ProjectReader(self, project)

    def limited(self, limit: Callable[[Store], Store]) -> RunReader:
        """The same runs with a store that does less, over the same connection."""
        other = _ProjectReader(self, None)
        other.project = self.project
        other.store = limit(self.store)
        return other

    def close(self) -> None:
        if "store" in self.__dict__:
            self.store.close()

    def record(self, run_id: int) -> RunRecord:
        """The run's row in the list; raises `UnknownRun`, also if nothing was ever run."""
        if not self.home.is_there:
            raise UnknownRun(
                f"there is no run {run_id}: '{self.home.folder}' has none",
                hint="runs are stored where they were started; name another folder with --home DIR or MULLIGAN_HOME",
                run_id=run_id,
            )
        try:
            if run_id in RUN_IDS:
                return self.store.run(run_id)
        except UnknownRun:
            pass
        raise UnknownRun(f"there is no run {run_id}", hint="list them: mulligan list", run_id=run_id)

    def note_damage(self, run_id: int, damage: str) -> None:
        """Remember that a run cannot be read, as it is now: lists show it. They do not look for it themselves."""
        known = _DAMAGES.setdefault((str(self.home.folder), self.home.store_url), {})
        if len(known) >= DAMAGES_MAX:
            known.pop(next(iter(known)), None)
        known[run_id] = self.record(run_id).updated_at, damage

    def known_damage(self, run_id: int, updated_at: datetime) -> str:
        """Why a run cannot be read, if this process has found that out; "" otherwise."""
        found = _DAMAGES.get((str(self.home.folder), self.home.store_url), {}).get(run_id)
        return found[1] if found is not None and found[0] == updated_at else ""

    def find_run(self, named: str) -> int:
        """The run that a person names: by its number, or `latest`, the newest run that no other run called."""
        if named.isascii() and named.isdecimal():
            self.named_runs = [int(named)]
            return self.record(int(named)).run_id
        if named != LATEST:
            hint = f"give the number of a run or '{LATEST}'; list them: mulligan list"
            raise UnknownRun(f"'{named}' is not the number of a run", hint=hint)
        before = None
        while some := self.runs(before=before):
            if found := next((record for record in some if record.parent_run_id is None), None):
                self.named_runs = [found.run_id]
                return found.run_id
            before = some[-1].run_id
        raise UnknownRun(f"there is no run yet in '{self.home.folder}'", hint="start one: mulligan run FILE")

    def find_failed(self, named: str, workflow: str) -> int:
        """The run that a corrected file is for: `latest` is the newest of that workflow that failed or was cancelled.

        If there is none, the newest run: `retry` says why it cannot continue.
        """
        if named != LATEST:
            return self.find_run(named)
        before = None
        while some := self.runs(before=before, statuses=("failed", "cancelled")):
            fitting = (one for one in some if one.parent_run_id is None and one.workflow == workflow)
            if (found := next(fitting, None)) is not None:
                self.named_runs = [found.run_id]
                return found.run_id
            before = some[-1].run_id
        return self.find_run(LATEST)

    def runs(self, *, limit: int = 50, before: int | None = None, statuses: Collection[str] = ()) -> list[RunRecord]:
        """The newest runs first; none if nothing was ever run."""
        return self.store.runs(limit=limit, before=before, statuses=statuses) if self.home.is_there else []

    def labels(self, run_id: int) -> dict[str, str]:
        """The labels of a run; a called run has those of the run at the top of its tree."""
        root = self.record(run_id).root_run_id or run_id
        found = self.store.lists.attributes([root])
        return {name: value for _, (kind, name, value) in found if kind == "label"}

    def inputs(self, run_id: int) -> dict[str, Any] | None:
        """The inputs that a run was started with; None if they are not known any more."""
        found = self.start_of(run_id)
        return None if found is None else dict(found.inputs)

    def start_of(self, run_id: int) -> RunStarted | RunRequested | None:
        """What a run was started with, as its log or its request has it; None if that is not known any more."""
        found = self.logged_start(run_id)
        if found is None:
            waiting = (message.report for message in self.store.inbox([run_id]))
            request = next((report for report in waiting if isinstance(report, RunRequested)), None)
            # A worker may have taken the run between the two reads: then its request is in the log by now.
            return self.logged_start(run_id) if request is None else request
        return found

    def logged_start(self, run_id: int) -> RunStarted | None:
        """What a run was started with, as its log has it."""
        first = next((entry.fact for entry in self.store.log(run_id, limit=1)), None)
        return first if isinstance(first, RunStarted) else None

    def capacity(self, run_id: int) -> HostCapacity | None:
        """What the run at the top of its tree was started with in place of what its machine has."""
        found = self.start_of(self.record(run_id).root_run_id or run_id)
        return None if found is None else found.capacity

    def state(self, run_id: int) -> State:
        """The state of a run, from its tables."""
        return self._restored(run_id, lambda *tables: (restore(*tables), {}))[0]

    def brief_state(self, run_id: int) -> tuple[State, dict[str, tuple[str, bytes]]]:
        """The state without the items that have ended, and those by key: see `restore_brief`."""
        return self._restored(run_id, restore_brief)

    def _restored(self, run_id: int, read: ReadTables) -> tuple[State, dict[str, tuple[str, bytes]]]:
        self.record(run_id)
        with pause_garbage_collection():
            loaded = self.store.load(run_id)
            workflow, graph = self._definition(loaded)
            state, ended = read(workflow, loaded.rows, graph)
            refuse_damaged(loaded.record, state)
            return state, ended

    def lazy_state(self, run_id: int) -> State:
        """The state for those who look at a few steps: these are decoded when they are asked for.

        Without the items that have ended.
        """
        return self.brief_state(run_id)[0]

    def _definition(self, loaded: LoadedRun) -> tuple[Workflow, Graph]:
        """The workflow that the run was started with, and its graph. One command asks for the same again and again."""
        key, found = self._last_definition
        if found is None or key != (loaded.record.project, loaded.record.version):
            workflow = decode(loaded.workflow)
            found = workflow, Graph(workflow)
            self._last_definition = (loaded.record.project, loaded.record.version), found
        return found

    def events(self, run_id: int, after: int = 0) -> Iterator[e.Entry]:
        """The events of a run after number `after`, read page by page."""
        self.record(run_id)
        while page := self.store.log(run_id, after, PAGE):
            yield from page
            after = page[-1].seq

    def called(self, run_id: int) -> dict[tuple[str, int], int]:
        """The runs that a run called, by the place and the attempt that called them."""
        return {(child.parent_place, child.parent_attempt): child.run_id for child in self.store.children(run_id)}

    def calling_attempt(self, record: RunRecord) -> int:
        """The attempt of the parent that called the last round of a child run."""
        called = self.lazy_state(record.run_id).run.called_attempt if record.round > 1 else 0
        return called or record.parent_attempt

    def drawn(self, run_id: int) -> tuple[Workflow, dict[str, str]]:
        """What a picture of a run shows: its workflow, and the status of each step including `end`."""
        state = self.lazy_state(run_id)
        names = (*state.graph.nodes, END) if state.places else ()
        return workflow_of_run(state), {name: state.status_of(name) for name in names}

    def first_workflow(self, run_id: int) -> Workflow:
        """The workflow that the run was started with. Its log is read with that, and records later changes itself."""
        key, found = self._last_definition
        record = self.record(run_id)
        if found is None or key != (record.project, record.version):
            with pause_garbage_collection():
                found = self._definition(self.store.load(run_id))
        return found[0]

    def attempts(self, run_id: int, step: str, item: int | None = None) -> list[tuple[str, int]]:
        """Every attempt at a step, its items and its commands, in the order of scheduling: place and number.

        `step` may also be a part of a step: `build.undo@1`, `check[3]`. `item`: only the attempts at that item of it.
        """
        self.refuse_unknown(run_id, step)
        place = step if item is None else item_key(step, item)
        # What the stored JSON of such an event contains. Others may contain it too.
        beginning = f'":{msgspec.json.encode(place).decode()[:-1]}'
        facts = (entry.fact for entry in self.store.search_log(run_id, (beginning,)))
        scheduled = (fact for fact in facts if isinstance(fact, e.AttemptScheduled))
        return [(fact.place, fact.attempt) for fact in scheduled if is_at_or_below(fact.place, place)]

    def matrix_steps(self, run_id: int, name: str) -> tuple[str, ...]:
        """The steps of a matrix, in the order of their combinations; none if there is no such matrix."""
        return self.lazy_state(run_id).graph.matrices.get(name, ())

    def find_place(self, run_id: int, named: str) -> str:
        """The key of the place that a person names: `check[1].0`, or with the name of the item, `check[web]`.

        An index wins where a name could be meant. `UnknownItem`.
        """
        step, bracket, rest = named.partition("[")
        if not bracket or rest.partition("]")[0].isdecimal():
            return named
        place = self.lazy_state(run_id).places.get(step)
        if place is None or place.items is None:
            return named
        names = names_of_items(place.items)
        if (key := place_key(named, names)) is None:
            word = rest.rpartition("]")[0] or rest
            raise unknown_item(run_id, step, word, names)
        return key

    def name_places(self, run_id: int, keys: Iterable[str]) -> dict[str, str]:
        """The names that people know for places, by key: `load[west]` for `load[1].0`."""
        wanted = list(keys)
        if not any("[" in key for key in wanted):
            return {key: key for key in wanted}
        state, names = self.lazy_state(run_id), PlaceNames()
        return {key: names.name(state, key) for key in wanted}

    def refuse_unknown(self, run_id: int, place: str) -> None:
        """Raise `UnknownStep` if the place belongs to no step of the run; the hint names what was probably meant."""
        state, name = self.lazy_state(run_id), step_name(place)
        if members := state.graph.matrices.get(place):
            message = f"'{place}' is a matrix of {len(members):,} steps in run {run_id}: name one of them"
            hint = f"for example '{members[0]}'; list them: mulligan show {run_id} {place}"
            raise UnknownStep(message, hint=hint, step=place)
        # A run that no worker has taken yet has no places, but its workflow has steps.
        if name not in state.places and name not in state.graph.nodes and name not in state.dropped:
            hint = (
                self._in_a_child(run_id, place)
                or did_you_mean(place, [*state.graph.nodes, *state.graph.matrices])
                or f"list its steps: mulligan show {run_id}"
            )
            raise UnknownStep(f"'{place}' is not a step of run {run_id}", hint=hint, step=place)

    def refuse_removed(self, run_id: int, step: str) -> None:
        """Raise `UnknownStep` if a corrected file removed the step: only the log knows what it did."""
        state = self.lazy_state(run_id)
        if is_removed(state, step):
            why = "the program has not called it again" if step in state.dropped else "the corrected file removed it"
            message = f"'{step}' is not a step of run {run_id} any more: {why}"
            hint = f"what it did: mulligan explain {run_id} {step}; what it wrote: mulligan logs {run_id} {step}"
            raise UnknownStep(message, hint=hint, step=step)

    def _in_a_child(self, run_id: int, place: str) -> str:
        """A hint, if the step belongs to a run that this one called."""
        for child in self.store.children(run_id)[: -CHILDREN_SEARCHED_MAX - 1 : -1]:
            if step_name(place) in self.lazy_state(child.run_id).graph.nodes:
                number, caller = child.run_id, self.name_places(run_id, [child.parent_place])[child.parent_place]
                return f"it is a step of run {number}, which '{caller}' called: mulligan show {number} {place}"
        return ""

    def is_driven(self, run_id: int) -> bool:
        """Whether a live process has the run."""
        return self.driver_of(self.store.run(run_id)) is not None

    def driver_of(self, record: RunRecord) -> WorkerRecord | None:
        """The live worker that holds the run's turn."""
        if not record.holder:
            return None
        found = next((worker for worker in self.store.workers() if worker.name == record.holder), None)
        return found if found is not None and self.is_alive(found) else None

    def serving_worker(self) -> WorkerRecord | None:
        """A live worker that takes up runs that nothing drives, if there is one."""
        is_shared = self.store.is_shared
        return next((one for one in self.store.workers() if may_serve(one, is_shared) and self.is_alive(one)), None)

    def live_workers(self) -> Callable[[str], WorkerRecord | None]:
        """A function that finds a live worker by its name. It examines each worker once: for one answer only."""
        workers = {worker.name: worker for worker in self.store.workers()}

        @cache
        def alive(name: str) -> WorkerRecord | None:
            found = workers.get(name)
            return found if found is not None and self.is_alive(found) else None

        return alive

    def is_alive(self, worker: WorkerRecord) -> bool:
        """Whether the process of a worker still runs: by its lock, or by its heartbeat where hosts share the store."""
        locks = Locks(self.home, is_shared=self.store.is_shared)
        if locks.state(worker) == "held":
            return not _is_dying(worker, locks)
        return locks.seems_alive(worker)

    def output(self, run_id: int, place: str) -> StepOutput:
        """The whole output of a step, or of an item (`check[3]`); parts that are kept in artifacts are fetched.

        For a matrix, the outputs of its steps in order. For a step that failed because `validate` rejected its output,
        that output.
        """
        state = self.state(run_id)
        places = state.places
        # A run that no worker has taken yet has no places.
        if places and (members := state.graph.matrices.get(place)):
            return StepOutput([self._fetch(places[name].output) for name in members], False)
        self.refuse_unknown(run_id, place)
        key = self.find_place(run_id, place)
        if key not in places:
            raise UnknownStep(f"'{place}' of run {run_id} has no output", step=key)
        found = places[key]
        is_refused = found.output is None and found.status != "completed" and found.climb.rejected is not None
        given = found.climb.rejected if is_refused else found.output
        return StepOutput(self._fetch(given), is_refused)

    def _fetch(self, output: Any) -> Any:
        """An output with the content of artifacts; of a file that a step kept, its reference with its path."""
        return with_artifact_paths(self.store.artifacts, fetch_references(output, self.store.artifacts.fetch))

    def fetch_value(self, value: Any) -> Any:
        """A value of a run with what is kept in artifacts; a reference to a file stays."""
        return fetch_references(value, self.store.artifacts.fetch)

    def read_artifact(self, description: Mapping[str, Any]) -> bytes:
        """The content of an artifact, given the description in its reference. `ArtifactGone`, `ArtifactDamaged`."""
        return self.store.artifacts.fetch(parse_reference({KEY: dict(description)}))

    def artifact_path(self, description: Mapping[str, Any]) -> str:
        """The path of an artifact, given the description in its reference; "" if the store does not use files."""
        return self.store.artifacts.path(parse_reference({KEY: dict(description)}))

    def attempt_log(self, run_id: int, place: str, attempt: int) -> AttemptLog:
        """What an attempt wrote; empty if it wrote nothing, or its log is neither here nor in the store."""
        run_id = self.run_of_attempt(run_id, place, attempt)
        out, err = self.log_ranges.read_attempt(run_id, place, attempt)
        ran_on = "" if out or err or not self.store.is_shared else self.host_of(run_id, place, attempt)
        return AttemptLog(place, attempt, out, err, ran_on)

    def run_of_attempt(self, run_id: int, place: str, attempt: int) -> int:
        """The run in which an attempt ran: a fork that continues another run keeps the attempts of that one."""
        first = self.logged_start(run_id)
        if first is None or not first.forked_at or first.forked_from is None:
            return run_id
        kept = takewhile(lambda entry: entry.seq <= first.forked_at, self.events(run_id))
        started = (entry.fact for entry in kept if isinstance(entry.fact, e.AttemptStarted))
        is_kept = any((fact.place, fact.attempt) == (place, attempt) for fact in started)
        if is_kept and self._is_there(first.forked_from):
            return self.run_of_attempt(first.forked_from, place, attempt)
        return run_id

    def _is_there(self, run_id: int) -> bool:
        try:
            self.store.run(run_id)
        except UnknownRun:
            return False
        return True

    def host_of(self, run_id: int, place: str, attempt: int) -> str:
        """The host that an attempt ran on; "" if it has not started."""
        started = self.started_attempt(run_id, place, attempt)
        return started.host if started is not None else ""

    def started_attempt(self, run_id: int, place: str, attempt: int) -> e.AttemptStarted | None:
        """How an attempt has started: on which host, and by which worker."""
        facts = (entry.fact for entry in self.events(run_id))
        started = (fact for fact in facts if isinstance(fact, e.AttemptStarted))
        return next((fact for fact in started if (fact.place, fact.attempt) == (place, attempt)), None)


class StoredPlaceNames:
    """The display names of places of many runs, without their states: only the items of maps are read."""

    def __init__(self, store: Store) -> None:
        self._store = store
        # By run and step.
        self._items: dict[int, dict[str, list[str]]] = {}

    def name(self, run_id: int, key: str) -> str:
        """The display name of a place. The workflow is not known: the first command of an item has no number."""
        if "[" not in key:
            return key
        if run_id not in self._items:
            rows = self._store.lists.rows([run_id], "items", MAPS_READ_MAX)
            self._items[run_id] = {step: _index_names(data) for _, step, data in rows}
        return place_name(key, self._items[run_id].get(step_name(key), ()), 1 if "].0" in key else 2)


def readable(rows: Iterable[Row], read: Callable[[bytes], Value]) -> Iterator[tuple[int, str, Value]]:
    """Rows of many runs with what they say: run, key, value. Those that cannot be read are left out."""
    for run_id, key, data in rows:
        try:
            value = read(data)
        except CodecError:
            continue
        yield run_id, key, value


def _index_names(data: bytes) -> list[str]:
    try:
        return index_names(*read_items(data))
    except CodecError:
        return []  # `show` reports it; it must not hide other runs


def unknown_item(run_id: int, step: str, word: str, names: Sequence[str]) -> UnknownItem:
    """The error for a word that names no item. `names`: those that there are."""
    hint = f"its items are {quote_names(names)}" if names else "it has no items"
    return UnknownItem(
        f"step '{step}' of run {run_id} has no item '{word}'",
        hint=hint,
        step=step,
        item=word,
        item_names=list(names[:NAMES_MAX]),
    )


def _is_dying(worker: WorkerRecord, locks: Locks) -> bool:
    """Whether the process is gone and only its tasks are still being ended. Waits for a moment until they are."""
    if worker.host != this_host() or is_running(worker.pid):
        return False
    deadline = time.monotonic() + DYING_SECONDS
    while locks.state(worker) == "held" and time.monotonic() < deadline:
        time.sleep(LOOK_SECONDS)
    return locks.state(worker) != "held"


class _ProjectReader(RunReader):
    """Reads the runs of one project, or of all, with the store of another reader, which closes it."""

    def __init__(self, whole: RunReader, project: str | None) -> None:
        super().__init__(whole.home)
        self._whole, self.project = whole, project

    @cached_property
    def store(self) -> Store:
        return self._whole.store if self.project is None else view_project(self._whole.store, self.project)

    @cached_property
    def counts(self) -> CountCache:
        return self._whole.counts

    def keep_lost_numbers(self) -> None:
        self._whole.keep_lost_numbers()

    def store_version(self) -> int | str | None:
        return self._whole.store_version()

    def close(self) -> None:
        """The store belongs to the other reader."""


def may_serve(worker: WorkerRecord, is_shared: bool) -> bool:
    """Whether a worker takes up runs that nothing drives. One of an older version may, in a store that hosts share."""
    return bool(worker.cpus and is_shared) if worker.serves is None else worker.serves
