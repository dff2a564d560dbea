"""A run as it goes, for whoever shows it: what is new, what moves, how far it is. Each fact costs the same.

The state is the engine's own and is looked at between two rounds of its loop. A run may have 100,000 steps: what is
kept here is what moves now, and what is given out is bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from itertools import chain, islice
from typing import Any, Literal

import msgspec

from mulligan.core.effects.child_runs import calling_place
from mulligan.core.model import events as e
from mulligan.core.model.formatting import single_line
from mulligan.core.state.scope import fill_params
from mulligan.core.state.state import Place, State
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.history.story import TOLD_FACTS, Line, Teller
from mulligan.history.views import Progress, Wait, waiting, who_paused
from mulligan.ports import Store
from mulligan.service.breakers import find_breaker_waits
from mulligan.service.failure_summary import Account
from mulligan.service.home import Home
from mulligan.service.workers import find_worker_pool

# With more steps than this, only what is out of the ordinary is told; and never more lines than this.
STEPS_TOLD_MAX, LINES_MAX = 100, 1000
# With more steps than this nobody looks now and then why some of them are not taken.
STEPS_QUEUED_MAX = 5_000

Kind = Literal["running", "items", "child", "timer", "approval", "parked", "retry", "paused", "breaker", "queued"]
# What a person can do something about now: the kind of `Wait` that it is, too.
AskKind = Literal["triage", "approval", "pause", "step_pause", "breaker"]


class Ask(msgspec.Struct, frozen=True):
    """What a person is asked for: faces say how it is answered. `name`: the place, or the breaker."""

    kind: AskKind
    run_id: int
    name: str = ""


class Moving(msgspec.Struct, frozen=True):
    """Something that runs or waits now."""

    kind: Kind
    run_id: int
    place: str
    since: datetime
    text: str = ""
    due: datetime | None = None
    # Where it is, as it is said to people: `east/build` is a step of a called run.
    where: str = ""
    ask: Ask | None = None


class Told(msgspec.Struct, frozen=True):
    """A sentence about a run that matters to whoever looks on."""

    run_id: int
    line: Line
    # How long the visit took that has come to its end.
    seconds: float | None = None
    where: str = ""
    ask: Ask | None = None


class Sentences:
    """All that a worker's log says of its runs: their stories, and each attempt that starts."""

    def __init__(self) -> None:
        self._tellers: dict[int, Teller] = {}

    def of(self, state: State, entries: Sequence[e.Entry]) -> Iterator[Told]:
        """The sentences of a turn."""
        run_id = state.run.run_id
        teller = _teller(self._tellers, state)
        for entry in entries:
            if type(entry.fact) in _STARTS:
                yield Told(run_id, _STARTS[type(entry.fact)](entry))
            yield from (Told(run_id, line) for line in teller.tell(entry))
        if state.run.status in RUN_ENDED:
            del self._tellers[run_id]


def _teller(tellers: dict[int, Teller], state: State) -> Teller:
    """Who tells this run, without what only `explain` says."""
    run_id = state.run.run_id
    if run_id not in tellers:
        tellers[run_id] = Teller(state.workflow, has_details=False)
    return tellers[run_id]


_STARTS: dict[type[e.Fact], Callable[[Any], Line]] = {
    e.RunStarted: lambda entry: Line(entry.at, "", f"started: {entry.fact.workflow}"),
    e.AttemptStarted: lambda entry: Line(
        entry.at,
        entry.fact.place,
        f"attempt {entry.fact.attempt} starts" + (f" on {entry.fact.worker}" if entry.fact.worker else ""),
    ),
}


class Following:
    """What has become of a run, and of the runs that it started, since we look on."""

    def __init__(self) -> None:
        self.root: State | None = None
        self.account = Account()
        self.is_cut = False
        self._progress: Progress | None = None
        self._states: dict[int, State] = {}
        self._tellers: dict[int, Teller] = {}
        # By run, what was written before we look on: for the sentences about what follows.
        self._before: dict[int, list[e.Entry]] = {}
        # And how it is called, for the places of a child that moves before it does.
        self._uids: dict[int, str] = {}
        # Who moves, by status, oldest first, with the time since when.
        self._moving: dict[str, dict[tuple[int, str], datetime]] = {status: {} for status in _MOVING}
        # The last attempt that succeeded, and how long it took.
        self._took: tuple[str, float | None] = ("", None)
        self._news: list[Told] = []
        self._told = 0

    @property
    def run_id(self) -> int:
        return self.root.run.run_id if self.root is not None else 0

    def place_chars(self, chars_max: int) -> int:
        """How wide a column of places should be."""
        names = self.root.graph.nodes if self.root is not None else ()
        return min(chars_max, max(map(len, islice(names, STEPS_TOLD_MAX)), default=0))

    def recall(self, run_id: int, entries: list[e.Entry]) -> None:
        """Know what was written of a run before we look on. Nothing of it is told."""
        self._before[run_id] = entries
        started = next((entry.fact for entry in entries[:1] if isinstance(entry.fact, e.RunStarted)), None)
        self._uids[run_id] = started.uid if started is not None else ""

    def see(self, state: State, entries: Sequence[e.Entry]) -> None:
        """Take in facts that have become true."""
        # Where a run is taken up again, a child of it may be the first to move.
        is_root = state.run.parent_run_id is None
        if is_root:
            self.root = state
        self._states[state.run.run_id] = state
        if is_root:
            self.account.see(entries)
            self._see_progress(state, entries)
        teller = _teller(self._tellers, state)
        for entry in self._before.pop(state.run.run_id, ()):
            if entries and entry.seq < entries[0].seq:
                teller.memory.see(entry.fact)
        for entry in entries:
            self._look(state, entry)
            if isinstance(entry.fact, e.AttemptStarted) and (asked := _approval_line(state, entry)):
                self._tell(state, entry, [asked])
            if type(entry.fact) in TOLD_FACTS and _matters(state, entry.fact, is_root):
                self._tell(state, entry, teller.tell(entry))
            else:
                teller.memory.see(entry.fact)
        if not is_root and state.run.status in RUN_ENDED:
            # A map may call ten thousand runs.
            del self._states[state.run.run_id], self._tellers[state.run.run_id]

    def _see_progress(self, state: State, entries: Sequence[e.Entry]) -> None:
        if self._progress is None or self._progress.state is not state:
            self._progress = Progress(state)
        else:
            self._progress.see(entries)

    def _look(self, state: State, entry: e.Entry) -> None:
        """Where the place that a fact names stands now: among those that move, or no longer."""
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

    # -- what is new -------------------------------------------------------------------------------------------------

    def news(self) -> list[Told]:
        """The sentences since the last time, in order. After very many there are no more."""
        news, self._news = self._news, []
        return news

    def _tell(self, state: State, entry: e.Entry, lines: list[Line]) -> None:
        run_id = state.run.run_id
        for line in lines:
            if self._told >= LINES_MAX:
                self.is_cut = True
                return
            if line.is_whole and self._news and self._news[-1].run_id == run_id:
                self._news.pop()
                self._told -= 1
            self._told += 1
            where = f"{self._above(run_id)}{line.place}"
            self._news.append(Told(run_id, line, self._seconds(state, entry), where, _ask_of(state, entry.fact)))

    def _seconds(self, state: State, entry: e.Entry) -> float | None:
        """How long the attempt took that completed a step; of a map, which is many, all of it."""
        if not isinstance(entry.fact, e.StepCompleted):
            return None
        if self._took[0] == entry.fact.step:
            return self._took[1]
        return (entry.at - state.places[entry.fact.step].entered_at).total_seconds()

    # -- what is now -------------------------------------------------------------------------------------------------

    @property
    def counts(self) -> dict[str, int]:
        """How many steps are in each status."""
        return self._progress.counts if self._progress is not None else {}

    def moving(self, limit: int) -> list[Moving]:
        """What is most worth looking at: who waits for a person, for a retry, what runs longest."""
        groups = ("pending_failed", "backing_off", "running")
        keys = chain.from_iterable(((key, since) for key, since in self._moving[group].items()) for group in groups)
        return list(islice(chain(self._paused(), self._shown(keys)), limit))

    def _paused(self) -> Iterator[Moving]:
        """The steps that somebody holds and of which nothing runs."""
        for run_id, state in self._states.items():
            for name in state.run.paused_steps:
                place = state.places[name]
                if place.pause is not None and place.status == "ready":
                    where, ask = f"{self._above(run_id)}{name}", Ask("step_pause", run_id, name)
                    text = f"paused{who_paused(place)}"
                    yield Moving("paused", run_id, name, place.pause.at, text, where=where, ask=ask)

    def _shown(self, keys: Iterator[tuple[tuple[int, str], datetime]]) -> Iterator[Moving]:
        sweeps: set[str] = set()
        for (run_id, name), since in keys:
            state = self._states.get(run_id)
            place = state.places.get(name) if state is not None else None
            # What has a command below it is shown by that command.
            if state is None or place is None or (place.child and place.status == "running"):
                continue
            sweep = self._sweep_of(state, place)
            if not sweep:
                yield _moving(run_id, place, since, f"{self._above(run_id)}{name}")
            elif sweep not in sweeps:
                sweeps.add(sweep)
                yield Moving("items", run_id, sweep, since, self._sweep_text(sweep), where=sweep)

    def _sweep_of(self, state: State, place: Place) -> str:
        """The matrix that a step is shown with: where several of its steps run, one line stands for them."""
        if state is not self.root or place.role != "step" or place.status != "running":
            return ""
        sweep = state.graph.nodes[place.key].step.sweep if place.key in state.graph.nodes else ""
        counts = self._progress.sweeps.get(sweep) if sweep and self._progress is not None else None
        return sweep if counts is not None and counts["running"] > 1 else ""

    def _sweep_text(self, sweep: str) -> str:
        assert self._progress is not None
        counts = self._progress.sweeps[sweep]
        done = sum(counts[status] for status in _DONE)
        failed = f", {counts['failed']:,} failed" if counts["failed"] else ""
        return f"{done:,} of {counts.total():,} done, {counts['running']:,} running{failed}"

    def running_since(self) -> dict[str, datetime]:
        """When the attempts of the root's steps began that run now."""
        return {name: since for (run_id, name), since in self._moving["running"].items() if run_id == self.run_id}

    def _above(self, run_id: int) -> str:
        """What stands before the places of a called run: who called it, and so on up."""
        state = self._states.get(run_id)
        if state is None or state.run.parent_run_id is None:
            return ""
        run, parent = state.run, self._states.get(state.run.parent_run_id)
        uid = parent.run.uid if parent is not None else self._uids.get(state.run.parent_run_id, "")
        caller = calling_place(uid, run.uid)
        return f"{self._above(state.run.parent_run_id)}{caller}/" if caller else f"{run_id}:"


_MOVING = ("running", "backing_off", "pending_failed")
_DONE = ("completed", "failed", "skipped", "cancelled")
_ORDINARY = (e.StepCompleted, e.StepSkipped, e.MapExpanded)
_RUN_ENDED = (e.RunCompleted, e.RunFailed, e.RunCancelled)


def _matters(state: State, fact: e.Fact, is_root: bool) -> bool:
    """How the run itself ended is said when all is over; and of very many steps, those that went well are not."""
    if isinstance(fact, _RUN_ENDED):
        return not is_root
    if isinstance(fact, e.StepEntered):
        # Why a step goes again has been told.
        return False
    is_ordinary = isinstance(fact, _ORDINARY) and not getattr(fact, "recovered_by", "")
    return not is_ordinary or len(state.graph.nodes) <= STEPS_TOLD_MAX


def _approval_line(state: State, entry: e.Entry) -> Line | None:
    """That an approval is waited for, where an attempt at one has started."""
    place = state.places.get(entry.fact.place) if isinstance(entry.fact, e.AttemptStarted) else None
    if place is None or place.status != "running" or not _is_approval(place):
        return None
    return Line(entry.at, place.key, f"waits for {_doing(place)[1]}", "wait")


def _ask_of(state: State, fact: e.Fact) -> Ask | None:
    """What a person may do about a fact that has just been told."""
    run_id = state.run.run_id
    if isinstance(fact, e.StepParked):
        return Ask("triage", run_id, fact.step)
    if isinstance(fact, e.AttemptStarted):
        place = state.places.get(fact.place)
        return Ask("approval", run_id, fact.place) if place is not None and _is_approval(place) else None
    if isinstance(fact, e.StepPaused):
        return Ask("step_pause", run_id, fact.step)
    return Ask("pause", run_id) if isinstance(fact, e.RunPaused) else None


def _is_approval(place: Place) -> bool:
    return place.spec.action is not None and place.spec.action.kind == "approve"


_ASKS: dict[Kind, AskKind] = {"parked": "triage", "approval": "approval"}


def _moving(run_id: int, place: Place, since: datetime, where: str) -> Moving:
    kind, text, due = _doing(place)
    ask = Ask(_ASKS[kind], run_id, place.key) if kind in _ASKS else None
    return Moving(kind, run_id, place.key, since, text, due, where, ask)


def in_queue(store: Store, home: Home, state: State) -> list[Moving]:
    """Tasks that no worker of ours will take by itself soon: behind a breaker, impossible, or kept out by other runs.

    Those that wait for a step of the same run are not worth a line. What many wait for is told once.
    """
    if len(state.graph.nodes) > STEPS_QUEUED_MAX or state.run.status != "running":
        return []
    found = waiting(state, find_breaker_waits(store, state), find_worker_pool(home, store, state))
    told = {wait.text: wait for wait in reversed(found) if wait.kind in ("worker", "breaker") and wait.obstacles}
    return [_queued(state, wait) for wait in reversed(told.values()) if _is_kept_out(state, wait)]


def _is_kept_out(state: State, wait: Wait) -> bool:
    if wait.kind == "breaker" or wait.is_impossible:
        return True
    busy = ("cpus", "memory", "gpus")
    return all(
        one.kind not in busy or any(task.run_id != state.run.run_id for task in one.used_by) for one in wait.obstacles
    )


def _queued(state: State, wait: Wait) -> Moving:
    run_id, since = state.run.run_id, state.places[wait.place].entered_at
    text = "; ".join(one.text for one in wait.obstacles)
    if wait.kind != "breaker":
        return Moving("queued", run_id, wait.place, since, f"no worker takes it: {text}", where=wait.place)
    ask = Ask("breaker", run_id, wait.obstacles[0].breaker)
    return Moving("breaker", run_id, wait.place, since, text, where=wait.place, ask=ask)


def _doing(place: Place) -> tuple[Kind, str, datetime | None]:
    """What a place does or waits for, in a word, and until when."""
    action = place.spec.action
    kind = _KINDS.get(action.kind, "running") if action else "running"
    if place.status == "pending_failed":
        return "parked", "a person has to decide", place.climb.parked_due
    if place.status == "backing_off":
        return "retry", f"attempt {place.attempt + 1}", place.climb.due
    if place.items is not None:
        return "items", _items(place), None
    if action is not None and kind == "approval":
        message = fill_params(action, place.bindings).get("message") or ""
        return kind, single_line(f"an approval: {message}" if message else "an approval"), place.due
    return kind, f"attempt {place.attempt}" if place.attempt > 1 else "", place.due if kind == "timer" else None


_KINDS: dict[str, Kind] = {"approve": "approval", "wait": "timer", "workflow": "child"}


def _items(place: Place) -> str:
    items = place.items
    assert items is not None
    total = len(items.values)
    done = total - len(items.todo) + items.next - items.running
    return f"{done:,} of {total:,} items" + (f", {items.failed:,} failed" if items.failed else "")
