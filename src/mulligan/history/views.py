"""What a run waits for, and how many of its steps are in each status: from the state alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from itertools import chain
from typing import Literal, get_args

import msgspec

from mulligan.core.deciding.flow import remaining_start_batches, waits_for_slot
from mulligan.core.effects.tasks import demand
from mulligan.core.evolve.evolve_programs import ENDING, WAITING
from mulligan.core.model import events as e
from mulligan.core.model.actions import traits_of
from mulligan.core.model.place_keys import item_key
from mulligan.core.model.text.formatting import format_time, single_line
from mulligan.core.model.workflow import END
from mulligan.core.state.held_steps import is_on_hold
from mulligan.core.state.mailbox import awaited_name
from mulligan.core.state.scope import approval_of
from mulligan.core.state.state import FailureRecord, Items, Place, State
from mulligan.core.state.transitions import ACTIVE, ENDED, STATUSES
from mulligan.core.state.workspace import awaits_worktree
from mulligan.history.item_names import PlaceNames
from mulligan.history.matrices import quote_steps
from mulligan.history.obstacles import Obstacle, WorkerPool
from mulligan.history.phrases import describe_failure

_Person = Literal["triage", "approval", "pause", "step_pause"]
_Event = Literal["event"]
_Time = Literal["retry", "timer", "loop", "breaker"]
_World = Literal["worker", "task", "child", "entry"]
_Run = Literal["needs", "edges", "items", "repair", "limit", "all"]
WaitKind = _Person | _Event | _Time | _World | _Run
# A step may wait for thousands of others, or of its own items: this many are named.
NAMES_MAX = 10


class Wait(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that is waited for: as text, and as data."""

    kind: WaitKind
    text: str
    # The place that waits: the step itself, or what runs for it (a script, a handler's command, an item's).
    place: str = ""
    attempt: int = 0
    # When the wait ends by itself, or the default applies.
    due: datetime | None = None
    worker: str = ""
    # The first steps that are waited for; and the number of all of them, or of items.
    steps: list[str] = []
    count: int = 0
    # Why no worker takes the task, if it waits for one; and whether no worker that is up could ever take it.
    obstacles: list[Obstacle] = []
    is_impossible: bool = False
    # The child run that an attempt continues. The number of a new one is known to the store alone.
    child_run_id: int = 0
    # The display name of the place, if it belongs to an item of a map: `load[west]`.
    name: str = ""
    # The name of the event, if it waits for one.
    event: str = ""

    @property
    def shown_place(self) -> str:
        return self.name or self.place

    @property
    def is_for_a_person(self) -> bool:
        return self.kind in get_args(_Person)

    @property
    def is_from_outside(self) -> bool:
        """A person answers, or somebody sends an event."""
        return self.is_for_a_person or self.event != ""

    @property
    def is_for_the_world(self) -> bool:
        """A worker, a child run or an engine has it, or may take it."""
        return self.kind in get_args(_World)


class ChildWait(Wait, frozen=True, omit_defaults=True, kw_only=True):
    """A wait for a child run whose number only the store knows. `--json` prints this number last."""

    child_run_id: int = 0


# -- what is waited for ----------------------------------------------------------------------------------------------


def list_waits(
    state: State, breaker_waits: Mapping[str, Obstacle] | None = None, pool: WorkerPool | None = None
) -> list[Wait]:
    """What the run as a whole waits for, in the order of the file: people, times, workers, child runs.

    `breaker_waits`: the places that wait for a circuit breaker, and for which. `pool`: the workers that may take its
    tasks. With it, a wait for a worker says why none takes the task.
    """
    return list(WaitFinder(state, breaker_waits, pool).of_run())


def list_step_waits(state: State, name: str) -> list[Wait]:
    """What one step waits for."""
    return WaitFinder(state).of_step(state.places[name])


def waits_for_outside(state: State, breaker_waits: Mapping[str, Obstacle] | None = None) -> bool:
    """Whether the run waits for a person or an event, and only these or time can move it: no worker and no child run.

    The caller looks at the times: one may be a second or a year away. `breaker_waits`: as for `list_waits`.
    """
    is_from_outside = False
    for wait in WaitFinder(state, breaker_waits).of_run():
        if wait.is_for_the_world:
            return False
        is_from_outside = is_from_outside or wait.is_from_outside
    return is_from_outside


class WaitFinder:
    """Finds what a state waits for. A group that many steps wait for is examined once."""

    def __init__(
        self, state: State, breaker_waits: Mapping[str, Obstacle] | None = None, pool: WorkerPool | None = None
    ) -> None:
        self.state = state
        self._breaker_waits = breaker_waits or {}
        self._pool = pool
        self._names = PlaceNames()
        self._groups: dict[str, list[str]] = {}
        self._texts: dict[str, str] = {}

    def of_run(self, queued_max: int | None = None) -> Iterator[Wait]:
        """What the run as a whole waits for: nothing, once it has ended.

        `queued_max`: how many of the steps that only wait for a worker are described.
        """
        state, run = self.state, self.state.run
        if run.status == "paused":
            yield Wait("pause", f"a person to resume the run{f': {run.reason}' if run.reason else ''}")
        if run.status not in ("running", "paused") or not state.places:
            return
        queued = 0
        for name in (*state.graph.nodes, END):
            if state.status_of(name) in ACTIVE:
                place = state.places[name]
                if queued_max is not None and place.status == "ready" and place.pause is None:
                    queued += 1
                    if queued > queued_max:
                        continue
                # The pause is listed once, for the run.
                yield from (wait for wait in self._of_active(place) if wait.kind != "pause")
        # In the middle of a turn its place may not be there yet.
        if run.undoing in state.places:
            yield from (self._of_leaf(leaf) for leaf in _leaves(state, state.places[run.undoing]))
        if remaining_start_batches(state):
            yield Wait("entry", "its remaining first steps to start")
        for loop in run.loops.values():
            yield Wait("loop", f"the loop back to '{loop.to}', due at {format_time(loop.due)}", loop.step, due=loop.due)

    def of_step(self, place: Place) -> list[Wait]:
        """What a step waits for."""
        # Most steps of a large run have completed: nothing has to be looked for.
        is_done = place.status == "completed" and place.settled != ""
        return [] if is_done else list(self._of_step(place))

    def _of_step(self, place: Place) -> Iterator[Wait]:
        if place.is_active:
            yield from self._of_active(place)
        elif place.status == "waiting" and place.key == END:
            yield Wait("all", "all other steps to end", END)
        elif place.status == "waiting":
            # Without needs or edges it is one of the first steps of a large run.
            yield from list(self._of_waiting(place)) or [_of_entry(self.state, place)]
        elif place.failure_index is not None and not place.settled:
            yield from _of_failed(place, self.state.failures[place.failure_index])

    def _of_active(self, place: Place) -> Iterator[Wait]:
        waits = [self._of_leaf(leaf) for leaf in _leaves(self.state, place)]
        if place.items is not None and place.status == "running" and not place.child:
            yield _of_items(place, place.items)
            waits = _select_waits(waits)
        yield from waits
        if place.status == "backing_off" and place.child:
            yield _of_retry(place)

    def _of_leaf(self, place: Place) -> Wait:
        """What a place waits for that runs, or would run if a breaker allowed it."""
        wait = _of_place(self.state, place)
        if wait.kind == "worker":
            wait = self._of_queued(place, wait)
        role = _ROLES.get(place.role)
        if role is not None:
            wait = msgspec.structs.replace(wait, text=f"{role}: {wait.text}")
        name = self._names.name(self.state, place.key)
        return wait if name == place.key else msgspec.structs.replace(wait, name=name)

    def _of_queued(self, place: Place, wait: Wait) -> Wait:
        """What keeps a task in the queue: a breaker, or a resource that no worker has free."""
        if obstacle := self._breaker_waits.get(place.key):
            text = f"its breaker: {obstacle.text}"
            if obstacle.kind == "parallel":
                return msgspec.structs.replace(wait, text=text, obstacles=[obstacle])
            return Wait("breaker", text, place.key, place.attempt, obstacle.until, obstacles=[obstacle])
        found = self._pool.obstacles(demand(self.state, place)) if self._pool is not None else ()
        if not found:
            return wait
        is_impossible = any(one.is_impossible for one in found)
        never = " (no worker that is up can run it)" if is_impossible else ""
        text = f"{wait.text}{never}: {'; '.join(one.text for one in found)}"
        return msgspec.structs.replace(wait, text=text, obstacles=[*found], is_impossible=is_impossible)

    def _of_waiting(self, place: Place) -> Iterator[Wait]:
        state, node = self.state, self.state.graph.nodes[place.key]
        for on, verb in _ENDS.items():
            single = [name for name, wanted in node.needs if wanted == on and not state.places[name].settled]
            keys = [barrier.key for barrier in node.waits if barrier.on == on]
            # A large group is not copied for each of the many steps that wait for it.
            is_one = len(keys) == 1 and not single
            names = (
                self._unsettled(keys[0]) if is_one else list(dict.fromkeys(chain(single, *map(self._unsettled, keys))))
            )
            if names:
                text = self._group_text(keys[0]) if is_one else quote_steps(state, names, NAMES_MAX)
                yield _of_steps("needs", place, names, f"{text} {verb}")
        sources = [arc.source for arc in node.arrivals if state.arcs.get(arc.key) not in ("taken", "dead")]
        if sources:
            names = list(dict.fromkeys(sources))
            yield _of_steps("edges", place, names, f"an edge from {quote_steps(state, names, NAMES_MAX)}")

    def _unsettled(self, key: str) -> list[str]:
        if key not in self._groups:
            state, members = self.state, self.state.graph.barriers[key].members
            # What has not ended is not settled: nothing else of it has to be read.
            self._groups[key] = [
                name for name in members if state.status_of(name) not in ENDED or not state.places[name].settled
            ]
        return self._groups[key]

    def _group_text(self, key: str) -> str:
        if key not in self._texts:
            self._texts[key] = quote_steps(self.state, self._unsettled(key), NAMES_MAX)
        return self._texts[key]


def _of_entry(state: State, place: Place) -> Wait:
    """The wait of a step that may start and was not entered: max_parallel is reached, or the run is large."""
    if not waits_for_slot(state, place):
        return Wait("entry", "its turn to start", place.key)
    active = [one.key for one in state.steps() if one.is_active]
    running = f"{quote_steps(state, active, NAMES_MAX)} {'is' if len(active) == 1 else 'are'} running"
    text = f"a free slot: max_parallel is {state.workflow.max_parallel}, and {running}"
    return _of_steps("limit", place, active, text)


# What each item of a map waits for by itself.
_LISTED = ("triage", "approval", "event")


def _select_waits(waits: list[Wait]) -> list[Wait]:
    """The waits of a map's items to list: all from outside; of thousands of others, those that run first."""
    for_people = [wait for wait in waits if wait.kind in _LISTED]
    rest = [wait for wait in waits if wait.kind not in _LISTED]
    # One entry stands for all commands of a paused step.
    paused = [wait for wait in rest if wait.kind == "step_pause"]
    rest = [wait for wait in rest if wait.kind != "step_pause"] + paused[:1]
    return for_people + sorted(rest, key=lambda wait: not wait.is_for_the_world)[:NAMES_MAX]


_ENDS = {"success": "to complete", "success_or_skipped": "to complete or be skipped", "always": "to end"}


def _of_steps(kind: WaitKind, place: Place, names: list[str], text: str) -> Wait:
    return Wait(kind, text, place.key, steps=names[:NAMES_MAX], count=len(names))


def _of_failed(place: Place, record: FailureRecord) -> Iterator[Wait]:
    """The wait of a failed step that another step may repair or replace."""
    if place.status == "failed" and record.then:
        end = "complete, before it runs again" if record.then == "rerun" else "replace it"
        text = f"'{record.target}' to {end}"
        yield Wait("repair", text, place.key, steps=[record.target], count=1)


def _leaves(state: State, place: Place) -> Iterator[Place]:
    """The places that run for a place now: itself, or those below it. In the middle of a turn one may be gone."""
    if place.child:
        yield from _leaves(state, state.places[place.child]) if place.child in state.places else (place,)
    elif place.items is not None and place.status == "running":
        for index in place.items.todo[: place.items.next]:
            # A state that was restored in brief lacks the items that have ended.
            item = state.places.get(item_key(place.key, index))
            if item is not None and item.status == "running" and item.child in state.places:
                yield from _leaves(state, state.places[item.child])
    else:
        yield place


def _of_items(place: Place, items: Items) -> Wait:
    left = len(items.todo) - items.next
    failed = f", {items.failed} failed" if items.failed else ""
    text = f"items: {items.running} running, {left} not started{failed}, {len(items.values)} in total"
    return Wait("items", text, place.key, place.attempt, count=items.running + left)


# What runs for a step, as a workflow calls it.
_ROLES = {
    "script": "its recovery script",
    "handler": "its handler",
    "success": "its on_success",
    "validator": "its validation",
    "lister": "its list of items",
    "undo": "its undo",
    "triager": "its triager",
    "tool_list": "the list of its tools",
    "model": "its model",
    "tool": "its tool",
}


def _of_place(state: State, place: Place) -> Wait:
    if place.status == "pending_failed":
        failure = describe_failure(place.failure) if place.failure else "a failure"
        return Wait("triage", f"a person to classify {failure}", place.key, place.attempt, place.climb.parked_due)
    if place.status == "backing_off":
        return _of_retry(place)
    if place.status == "running" and place.phase in (WAITING, ENDING):
        return _of_program(state, place)
    return _of_ready(state, place) if place.status == "ready" else _of_running(place)


def _of_program(state: State, place: Place) -> Wait:
    """The wait of a program for its calls, with the line at which it waits."""
    calls = (label for label, call in state.calls.items() if call.kind != "value" and call.program == place.key)
    names = [label for label in calls if state.status_of(label) not in ENDED]
    at = f" ({place.program.at})" if place.program is not None and place.program.at else ""
    if not names:
        # In the middle of a turn: the last of them has just ended.
        return Wait("entry", f"its next turn{at}" if place.phase == WAITING else "its end", place.key, place.attempt)
    return _of_steps("needs", place, names, f"{quote_steps(state, names, NAMES_MAX)} to end{at}")


def _of_ready(state: State, place: Place) -> Wait:
    step = state.step_of(place)
    if awaits_worktree(state) and state.workflow.workspace is not None and is_on_hold(state, place):
        opens = state.workflow.workspace.opens
        text = f"step '{opens}' to open the worktree of the run"
        return Wait("needs", text, place.key, place.attempt, steps=[opens], count=1)
    if step.pause is None and is_on_hold(state, place):
        return Wait("pause", "a person to resume the run for more steps", place.key, place.attempt)
    if step.pause is not None and is_on_hold(state, place):
        name = "it" if place is step else f"step '{step.key}'"
        text = f"a person to resume {name} (paused{describe_pause(step)})"
        return Wait("step_pause", text, place.key, place.attempt, steps=[step.key], count=1)
    if state.run.status == "paused":
        return Wait("pause", "a person to resume the run", place.key, place.attempt)
    # In the middle of a turn it may be ready before its first attempt is scheduled.
    attempt = place.attempt or 1
    return Wait("worker", f"a worker for attempt {attempt}", place.key, attempt)


def describe_pause(step: Place) -> str:
    """` by ann: the mirror is down`; "" if neither was given."""
    pause = step.pause
    if pause is None:
        return ""
    return (f" by {pause.by}" if pause.by else "") + (f": {single_line(pause.reason)}" if pause.reason else "")


def _of_retry(place: Place) -> Wait:
    due, attempt = place.climb.due, place.attempt + 1
    when = f", due at {format_time(due)}" if due else ""
    return Wait("retry", f"attempt {attempt}{when}", place.key, attempt, due)


def _of_running(place: Place) -> Wait:
    found = traits_of(place.spec.action)
    stopping = " (asked to stop)" if place.phase else ""
    if found.asks_person:
        message = approval_of(place).get("message")
        return Wait("approval", f"an approval{f': {message}' if message else ''}", place.key, place.attempt, place.due)
    if found.awaits_event:
        name = awaited_name(place)
        when = f", until {format_time(place.due)}" if place.due else ""
        return Wait("event", f"the event '{name}'{when}", place.key, place.attempt, place.due, event=name)
    if found.is_timer:
        when = f", due at {format_time(place.due)}" if place.due else ""
        return Wait("timer", f"its timer{when}", place.key, place.attempt, place.due)
    if found.calls_run:
        last = place.last_child
        run_id = last.run_id if last is not None and last.attempt == place.attempt else 0
        called = f"run {run_id}" if run_id else "its child run"
        return Wait("child", f"{called}{stopping}", place.key, place.attempt, place.due, child_run_id=run_id)
    where = f" on {place.worker}" if place.worker else ""
    return Wait("task", f"attempt {place.attempt}{where}{stopping}", place.key, place.attempt, worker=place.worker)


# -- step counts -----------------------------------------------------------------------------------------------------


def count_steps(state: State) -> dict[str, int]:
    """How many steps are in each status. It visits every step; a live display uses `StepCounter`."""
    counts = Counter(map(state.status_of, state.graph.nodes)) if state.places else Counter()
    return {status: counts[status] for status in STATUSES}


class StepCounter:
    """The counts of `count_steps`, updated with each new entry of the log, so that reading them costs nothing.

    Call `update` between turns: it reads the state as it is when the entries are written.
    """

    def __init__(self, state: State) -> None:
        self.state = state
        self._count()

    def _count(self) -> None:
        places = self.state.steps() if self.state.places else ()
        self._statuses: dict[str, str] = {place.key: place.status for place in places}
        self.counts = count_steps(self.state)
        # The same for each matrix, by name.
        self.sweeps: dict[str, Counter[str]] = {}
        self._sweep_of: dict[str, str] = {step.name: step.sweep for step in self.state.workflow.steps if step.sweep}
        for name, sweep in self._sweep_of.items():
            self.sweeps.setdefault(sweep, Counter())[self._statuses.get(name, "waiting")] += 1

    def update(self, entries: Iterable[e.Entry]) -> None:
        """Count new entries. After a fact that moves many steps, all steps are counted again."""
        names: dict[str, None] = {}
        for entry in entries:
            fact = entry.fact
            if type(fact) in _WIDE:
                self._count()
                return
            names[getattr(fact, "step", "") or getattr(fact, "place", "")] = None
        self.recount(names)

    def recount(self, names: Iterable[str]) -> None:
        """Count these steps again: their status may have changed."""
        statuses, counts, places = self._statuses, self.counts, self.state.places
        for name in names:
            before, place = statuses.get(name), places.get(name)
            if before is None and name in self.state.graph.nodes:
                # A program has called it since.
                counts[statuses.setdefault(name, places[name].status)] += 1
            elif before is not None and place is None:
                # It was a call of a program that was undone, and is made again.
                counts[statuses.pop(name)] -= 1
            elif before is not None and place is not None:
                after = statuses[name] = place.status
                counts[before] -= 1
                counts[after] += 1
                if sweep := self._sweep_of.get(name):
                    self.sweeps[sweep][before] -= 1
                    self.sweeps[sweep][after] += 1


_WIDE = frozenset({e.RunStarted, e.RunStopping, e.RunRevised, e.RunReopened, e.LoopFired})
