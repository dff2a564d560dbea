"""A run while it is driven, for a live display: announcements, current activities, step counts.

The state belongs to the engine and is read between two rounds of its loop. A run may have 100,000 steps: each fact
costs the same, only current activities are kept, and what is returned is bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import chain, islice
from typing import Any, Literal

import msgspec

from mulligan.core.effects.child_runs import calling_place
from mulligan.core.model import events as e
from mulligan.core.model.actions import traits_of
from mulligan.core.model.place_keys import step_name
from mulligan.core.model.text.formatting import single_line
from mulligan.core.model.workflow import END
from mulligan.core.state.mailbox import awaited_name
from mulligan.core.state.scope import approval_of
from mulligan.core.state.state import Place, State
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.history.item_names import PlaceNames, index_names, place_name
from mulligan.history.story import STORY_FACTS, StoryLine, StoryWriter
from mulligan.history.views import StepCounter, Wait, describe_pause, list_waits
from mulligan.ports import Store
from mulligan.service.driving.workers import find_worker_pool
from mulligan.service.home import Home
from mulligan.service.host.breakers import find_breaker_waits
from mulligan.service.runs.views.failure_summary import FailureSummary
from mulligan.worker.logs.progress_records import Progress

# With more steps than the first, only unusual facts are announced; and never more lines than the second.
STEPS_ANNOUNCED_MAX, LINES_MAX = 100, 1000
# So many entries of a large run are taken in together at most.
ORDINARY_MAX = 2000
# With more steps than this, queued tasks are not examined.
STEPS_QUEUED_MAX = 5_000

Kind = Literal[
    "running", "items", "child", "timer", "approval", "event", "parked", "retry", "paused", "breaker", "queued"
]
# What a person can act on now; each is also a kind of `Wait`, or a breaker.
RequestKind = Literal["triage", "approval", "event", "pause", "step_pause", "breaker"]


class PersonRequest(msgspec.Struct, frozen=True):
    """Something that a person is asked to do. `name`: of the place, of the breaker, or of the event."""

    kind: RequestKind
    run_id: int
    name: str = ""


class Activity(msgspec.Struct, frozen=True):
    """Something that runs or waits now."""

    kind: Kind
    run_id: int
    place: str
    since: datetime
    text: str = ""
    due: datetime | None = None
    # The display name of the place: `east/build` is a step of a child run.
    where: str = ""
    request: PersonRequest | None = None
    # How far its attempt says that it is.
    progress: Progress | None = None


class Announcement(msgspec.Struct, frozen=True):
    """A story line to show while the run is driven."""

    run_id: int
    line: StoryLine
    # How long the completed step took.
    seconds: float | None = None
    where: str = ""
    request: PersonRequest | None = None


class AnnouncementWriter:
    """Writes the log of a worker: the stories of its runs, and each attempt that starts."""

    def __init__(self) -> None:
        self._writers: dict[int, StoryWriter] = {}

    def announce(self, state: State, entries: Sequence[e.Entry]) -> Iterator[Announcement]:
        """The announcements of a turn."""
        run_id = state.run.run_id
        writer = _writer_for(self._writers, state)
        for entry in entries:
            if type(entry.fact) in _STARTS:
                yield Announcement(run_id, _STARTS[type(entry.fact)](entry))
            yield from (Announcement(run_id, line) for line in writer.lines_for(entry))
        if state.run.status in RUN_ENDED:
            del self._writers[run_id]


def _writer_for(writers: dict[int, StoryWriter], state: State) -> StoryWriter:
    """The story writer of this run, without the details that only `explain` shows."""
    run_id = state.run.run_id
    if run_id not in writers:
        writers[run_id] = StoryWriter(state.workflow, has_details=False)
        if state.calls:
            writers[run_id].memory.know_calls(state)
    return writers[run_id]


_STARTS: dict[type[e.Fact], Callable[[Any], StoryLine]] = {
    e.RunStarted: lambda entry: StoryLine(entry.at, "", f"started: {entry.fact.workflow}"),
    e.AttemptStarted: lambda entry: StoryLine(
        entry.at,
        entry.fact.place,
        f"attempt {entry.fact.attempt} started" + (f" on {entry.fact.worker}" if entry.fact.worker else ""),
    ),
}


class RunProgress:
    """The progress of a run and of its child runs, since this process drives it.

    `read_progress` finds what an attempt has reported: it is called with run, place and attempt.
    """

    def __init__(self, read_progress: Callable[[int, str, int], Progress | None] | None = None) -> None:
        self._read_progress = read_progress
        self.root: State | None = None
        # The same if it is large: most of its turns have nothing to announce.
        self._large: State | None = None
        self._failures = FailureSummary()
        self._names = PlaceNames()
        # Entries of a large root run that are not announced: taken in together, before anything else is.
        self._ordinary: list[e.Entry] = []
        self.is_cut = False
        self._counter: StepCounter | None = None
        self._states: dict[int, State] = {}
        self._writers: dict[int, StoryWriter] = {}
        # By run, its earlier entries: later sentences refer to them.
        self._before: dict[int, list[e.Entry]] = {}
        # By run, its uid, for the places of a child run that moves before its parent does.
        self._uids: dict[int, str] = {}
        # The active places by status, oldest first, each with its start.
        self._moving: dict[str, dict[tuple[int, str], datetime]] = {status: {} for status in _MOVING}
        # The place of the last attempt that succeeded, and how long it took.
        self._took: tuple[str, float | None] = ("", None)
        self._announcements: list[Announcement] = []
        self._count = 0

    @property
    def run_id(self) -> int:
        return self.root.run.run_id if self.root is not None else 0

    @property
    def failures(self) -> FailureSummary:
        """The failures of the root run so far."""
        self._catch_up()
        return self._failures

    def place_column_width(self, chars_max: int) -> int:
        """The width of a column for places."""
        names = self.root.graph.nodes if self.root is not None else ()
        return min(chars_max, max(map(len, islice(names, STEPS_ANNOUNCED_MAX)), default=0))

    def add_earlier(self, run_id: int, entries: list[e.Entry]) -> None:
        """Remember the earlier entries of a run. They are not announced."""
        self._before[run_id] = entries
        started = next((entry.fact for entry in entries[:1] if isinstance(entry.fact, e.RunStarted)), None)
        self._uids[run_id] = started.uid if started is not None else ""

    def update(self, state: State, entries: Sequence[e.Entry], is_ordinary: bool = False) -> bool:
        """Take in new entries of a run. False if nothing is announced of them: they need not be taken in at once."""
        if state is self._large and (is_ordinary or _are_ordinary(entries)):
            self._ordinary += entries
            if len(self._ordinary) > ORDINARY_MAX:
                self._catch_up()
            return False
        self._catch_up()
        # When a run is resumed, a child run may be the first to move.
        is_root = state.run.parent_run_id is None
        if is_root:
            self.root = state
            self._large = state if len(state.graph.nodes) > STEPS_ANNOUNCED_MAX else None
        self._states[state.run.run_id] = state
        if is_root:
            self._failures.update(entries)
            self._update_counts(state, entries)
        writer = _writer_for(self._writers, state)
        for entry in self._before.pop(state.run.run_id, ()):
            if entries and entry.seq < entries[0].seq:
                writer.memory.update(entry.fact)
        for entry in entries:
            self._track(state, entry)
            if isinstance(entry.fact, e.AttemptStarted) and (line := _wait_line(state, entry)):
                self._announce(state, entry, [line])
            if type(entry.fact) in STORY_FACTS and _is_announced(state, entry.fact, is_root):
                self._announce(state, entry, writer.lines_for(entry))
            else:
                writer.memory.update(entry.fact)
        if not is_root and state.run.status in RUN_ENDED:
            # A map may have ten thousand child runs.
            del self._states[state.run.run_id], self._writers[state.run.run_id]
        return True

    def _catch_up(self) -> None:
        """Take in the ordinary entries that wait, each place once: its status now is what counts."""
        entries, self._ordinary = self._ordinary, []
        if not entries:
            return
        assert self.root is not None and self._counter is not None
        self._failures.skip(entries)
        _writer_for(self._writers, self.root).memory.update_all(entries)
        started: dict[str, datetime] = {}
        moved: dict[str, None] = {}
        for entry in entries:
            fact: Any = entry.fact
            kind = type(fact)
            if kind is e.AttemptStarted or kind is e.TurnStarted:
                started[fact.place] = entry.at
                moved[fact.place] = None
            elif kind in _MOVING_STEPS:
                moved[fact.step] = None
        self._counter.recount(moved)
        places, run_id = self.root.places, self.root.run.run_id
        for name in moved:
            # The call of a program may be gone by now.
            place, key = places.get(name), (run_id, name)
            status = "" if place is None else place.status
            for other, moving in self._moving.items():
                if moving and other != status:
                    moving.pop(key, None)
            if status == "running" and name in started:
                self._moving[status][key] = started[name]

    def _update_counts(self, state: State, entries: Sequence[e.Entry]) -> None:
        if self._counter is None or self._counter.state is not state:
            self._counter = StepCounter(state)
        else:
            self._counter.update(entries)

    def _track(self, state: State, entry: e.Entry) -> None:
        """Add the place of a fact to the active places, or remove it."""
        if isinstance(entry.fact, e.AttemptSucceeded):
            self._took = entry.fact.place, entry.fact.usage.get("wall_seconds")
        name = getattr(entry.fact, "place", "") or getattr(entry.fact, "step", "")
        if not name:
            return
        place, key = state.places.get(name), (state.run.run_id, name)
        for status, moving in self._moving.items():
            if place is None or place.status != status:
                moving.pop(key, None)
            elif key not in moving or isinstance(entry.fact, e.AttemptStarted):
                moving[key] = entry.at

    # -- announcements -----------------------------------------------------------------------------------------------

    def take_announcements(self) -> list[Announcement]:
        """The announcements since the last call, in order. After `LINES_MAX` there are no more."""
        announcements, self._announcements = self._announcements, []
        return announcements

    def _announce(self, state: State, entry: e.Entry, lines: list[StoryLine]) -> None:
        run_id = state.run.run_id
        for line in lines:
            if self._count >= LINES_MAX:
                self.is_cut = True
                return
            if line.is_whole and self._announcements and self._announcements[-1].run_id == run_id:
                self._announcements.pop()
                self._count -= 1
            self._count += 1
            self._announcements.append(
                Announcement(
                    run_id=run_id,
                    line=line,
                    seconds=self._seconds(state, entry),
                    where=f"{self._prefix(run_id)}{line.name or self._names.name(state, line.place)}",
                    request=_request_for(state, entry.fact, self._names),
                )
            )

    def _seconds(self, state: State, entry: e.Entry) -> float | None:
        """How long the attempt that completed a step took; of a map, the whole visit."""
        if not isinstance(entry.fact, e.StepCompleted):
            return None
        if self._took[0] == entry.fact.step:
            return self._took[1]
        return (entry.at - state.places[entry.fact.step].entered_at).total_seconds()

    # -- activities --------------------------------------------------------------------------------------------------

    @property
    def counts(self) -> dict[str, int]:
        """How many steps are in each status."""
        self._catch_up()
        return self._counter.counts if self._counter is not None else {}

    def activities(self, limit: int) -> list[Activity]:
        """The current activities, the most important first: waiting for a person, for a retry, running longest."""
        self._catch_up()
        groups = ("pending_failed", "backing_off", "running")
        keys = chain.from_iterable(((key, since) for key, since in self._moving[group].items()) for group in groups)
        return list(islice(chain(self._paused(), self._shown(keys)), limit))

    def _paused(self) -> Iterator[Activity]:
        """The paused steps of which nothing runs."""
        for run_id, state in self._states.items():
            for name in state.run.paused_steps:
                place = state.places[name]
                if place.pause is not None and place.status == "ready":
                    where, request = f"{self._prefix(run_id)}{name}", PersonRequest("step_pause", run_id, name)
                    text = f"paused{describe_pause(place)}"
                    yield Activity("paused", run_id, name, place.pause.at, text, where=where, request=request)

    def _shown(self, keys: Iterator[tuple[tuple[int, str], datetime]]) -> Iterator[Activity]:
        sweeps: set[str] = set()
        for (run_id, name), since in keys:
            state = self._states.get(run_id)
            place = state.places.get(name) if state is not None else None
            # A place with a running command is shown by that command.
            if state is None or place is None or (place.child and place.status in _SHOWN_BY_CHILD):
                continue
            sweep = self._sweep_of(state, place)
            if not sweep:
                reported = self._read_progress(run_id, name, place.attempt) if self._read_progress else None
                shown = self._names.name(state, name)
                yield _make_activity(run_id, place, since, self._prefix(run_id), shown, reported)
            elif sweep not in sweeps:
                sweeps.add(sweep)
                yield Activity("items", run_id, sweep, since, self._describe_matrix(sweep), where=sweep)

    def _sweep_of(self, state: State, place: Place) -> str:
        """The matrix of a step, if several of its steps run: one line stands for them."""
        if state is not self.root or place.role != "step" or place.status != "running":
            return ""
        sweep = state.graph.nodes[place.key].step.sweep if place.key in state.graph.nodes else ""
        counts = self._counter.sweeps.get(sweep) if sweep and self._counter is not None else None
        return sweep if counts is not None and counts["running"] > 1 else ""

    def _describe_matrix(self, sweep: str) -> str:
        assert self._counter is not None
        counts = self._counter.sweeps[sweep]
        done = sum(counts[status] for status in _DONE)
        failed = f", {counts['failed']:,} failed" if counts["failed"] else ""
        return f"{done:,} of {counts.total():,} done, {counts['running']:,} running{failed}"

    def running_since(self) -> dict[str, datetime]:
        """The start of each running attempt of the root run."""
        self._catch_up()
        return {name: since for (run_id, name), since in self._moving["running"].items() if run_id == self.run_id}

    def _prefix(self, run_id: int) -> str:
        """The prefix of the places of a child run: its calling place, and those above it."""
        state = self._states.get(run_id)
        if state is None or state.run.parent_run_id is None:
            return ""
        above = state.run.parent_run_id
        parent = self._states.get(above)
        uid = parent.run.uid if parent is not None else self._uids.get(above, "")
        caller = calling_place(uid, state.run.uid)
        caller = self._names.name(parent, caller) if parent is not None else self._name_before(above, caller)
        return f"{self._prefix(above)}{caller}/" if caller else f"{run_id}:"

    def _name_before(self, run_id: int, caller: str) -> str:
        """The display name of a calling place, if the run that calls has not moved yet."""
        facts = (one.fact for one in reversed(self._before.get(run_id, ())))
        expanded = (fact for fact in facts if isinstance(fact, e.MapExpanded) and fact.place == step_name(caller))
        found = next((fact for fact in expanded if fact.items), None)
        return caller if found is None else place_name(caller, index_names(found.items or (), found.names))


_MOVING = ("running", "backing_off", "pending_failed")
_MOVING_STEPS = frozenset((e.StepEntered, e.StepCompleted, e.StepRan))
_DONE = ("completed", "failed", "skipped", "cancelled")
_ORDINARY = (e.StepCompleted, e.StepSkipped, e.MapExpanded)
_RUN_ENDED = (e.RunCompleted, e.RunFailed, e.RunCancelled)


def _are_ordinary(entries: Iterable[e.Entry]) -> bool:
    """Whether all are about steps that a worker runs once, with success: a large run announces nothing of them."""
    for entry in entries:
        fact: Any = entry.fact
        kind = type(fact)
        if kind is e.AttemptStarted:
            # Without a worker it is an approval, a child run or a wait.
            is_ordinary = fact.worker != "" and not fact.instead_of
        elif kind is e.AttemptSucceeded:
            is_ordinary = bool(fact.usage) and not fact.warnings and not fact.reused_run_id
        elif kind is e.StepCompleted:
            is_ordinary = fact.visit == 1 and not fact.recovered_by and fact.step != END
        elif kind is e.StepEntered:
            is_ordinary = fact.visit == 1
        else:
            is_ordinary = kind is e.AttemptScheduled and fact.cause == "entered"
        if not is_ordinary:
            return False
    return True


def _is_announced(state: State, fact: e.Fact, is_root: bool) -> bool:
    """Not the end of the root run, which the summary shows; and not each success of a very large run."""
    if isinstance(fact, _RUN_ENDED):
        return not is_root
    if isinstance(fact, e.StepEntered):
        # An earlier line says why a step runs again.
        return False
    is_ordinary = isinstance(fact, _ORDINARY) and not getattr(fact, "recovered_by", "")
    return not is_ordinary or len(state.graph.nodes) <= STEPS_ANNOUNCED_MAX


def _wait_line(state: State, entry: e.Entry) -> StoryLine | None:
    """The line for an attempt that waits for an approval or an event."""
    place = state.places.get(entry.fact.place) if isinstance(entry.fact, e.AttemptStarted) else None
    if place is None or place.status != "running" or traits_of(place.spec.action).activity not in _REQUESTS.values():
        return None
    return StoryLine(entry.at, place.key, f"waits for {_activity_of(place)[1]}", "wait")


def _request_for(state: State, fact: e.Fact, names: PlaceNames) -> PersonRequest | None:
    """What a person is asked to do about a fact."""
    run_id = state.run.run_id
    # An agent that is asked first may decide: then nobody is asked.
    if isinstance(fact, e.TriageSuggested) or (isinstance(fact, e.StepParked) and not fact.agent):
        return PersonRequest("triage", run_id, fact.step)
    if isinstance(fact, e.AttemptStarted):
        place = state.places.get(fact.place)
        kind = "task" if place is None else traits_of(place.spec.action).activity
        if place is not None and kind == "event":
            return PersonRequest("event", run_id, awaited_name(place))
        return PersonRequest("approval", run_id, names.name(state, fact.place)) if kind == "approval" else None
    if isinstance(fact, e.StepPaused):
        return PersonRequest("step_pause", run_id, fact.step)
    return PersonRequest("pause", run_id) if isinstance(fact, e.RunPaused) else None


# A step that runs a command, or whose triager is asked.
_SHOWN_BY_CHILD = ("running", "pending_failed")
_REQUESTS: dict[Kind, RequestKind] = {"parked": "triage", "approval": "approval", "event": "event"}


def _make_activity(
    run_id: int, place: Place, since: datetime, above: str, name: str, reported: Progress | None
) -> Activity:
    kind, text, due = _activity_of(place)
    asked = awaited_name(place) if kind == "event" else name
    request = PersonRequest(_REQUESTS[kind], run_id, asked) if kind in _REQUESTS else None
    progress = reported if kind == "running" else None
    return Activity(kind, run_id, place.key, since, text, due, f"{above}{name}", request, progress)


def queued_activities(store: Store, home: Home, state: State) -> list[Activity]:
    """Tasks that no worker takes soon: behind a breaker, impossible to run, or blocked by other runs.

    Tasks that wait for steps of the same run are left out. A reason that many tasks share is listed once.
    """
    if len(state.graph.nodes) > STEPS_QUEUED_MAX or state.run.status != "running":
        return []
    found = list_waits(state, find_breaker_waits(store, state), find_worker_pool(home, store, state))
    by_text = {wait.text: wait for wait in reversed(found) if wait.kind in ("worker", "breaker") and wait.obstacles}
    return [_queued(state, wait) for wait in reversed(by_text.values()) if _is_blocked(state, wait)]


def _is_blocked(state: State, wait: Wait) -> bool:
    if wait.kind == "breaker" or wait.is_impossible:
        return True
    busy = ("cpus", "memory", "gpus", "nodes")
    return all(
        one.kind not in busy or any(task.run_id != state.run.run_id for task in one.used_by) for one in wait.obstacles
    )


def _queued(state: State, wait: Wait) -> Activity:
    run_id, since = state.run.run_id, state.places[wait.place].entered_at
    text = "; ".join(one.text for one in wait.obstacles)
    if wait.kind != "breaker":
        return Activity(
            "queued", run_id, wait.place, since, f"no worker takes this task: {text}", where=wait.shown_place
        )
    request = PersonRequest("breaker", run_id, wait.obstacles[0].breaker)
    return Activity("breaker", run_id, wait.place, since, text, where=wait.shown_place, request=request)


def _activity_of(place: Place) -> tuple[Kind, str, datetime | None]:
    """What a place does or waits for, as kind and text, and until when."""
    kind: Kind = "running" if (found := traits_of(place.spec.action).activity) == "task" else found
    if place.status == "pending_failed":
        return "parked", "waiting for a decision", place.climb.parked_due
    if place.status == "backing_off":
        return "retry", f"attempt {place.attempt + 1}", place.climb.due
    if place.items is not None:
        return "items", _describe_items(place), None
    if kind == "approval":
        message = approval_of(place).get("message") or ""
        return kind, single_line(f"an approval: {message}" if message else "an approval"), place.due
    if kind == "event":
        return kind, f"the event '{awaited_name(place)}'", place.due
    return kind, f"attempt {place.attempt}" if place.attempt > 1 else "", place.due if kind == "timer" else None


def _describe_items(place: Place) -> str:
    items = place.items
    assert items is not None
    total = len(items.values)
    done = total - len(items.todo) + items.next - items.running
    return f"{done:,} of {total:,} items" + (f", {items.failed:,} failed" if items.failed else "")
