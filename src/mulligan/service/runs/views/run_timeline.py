"""When each step of a run ran, what it waited for, and how all steps stand: in parts, however large the run is.

The log is read once and then moved on with it. One call reads a bounded part of it, so that nobody else waits long for
the first look at a large run; the answer says how far it has come.
"""

from __future__ import annotations

from array import array
from collections import Counter, OrderedDict
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, get_args

import msgspec

from mulligan.core.model import events as e
from mulligan.core.model.place_keys import step_name
from mulligan.core.state.state import State
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.core.state.verdict import is_handled
from mulligan.service.runs.stored.attempts import ENDS, UNPARKED_BY, Outcome, Part, part_of
from mulligan.service.runs.stored.remembered import ReadsRuns, forget_oldest
from mulligan.service.runs.stored.run_reader import RunReader
from mulligan.service.runs.views.run_view import status_of

# `calls`: a program waits for its calls, and no process runs.
SpanKind = Literal[Part, "queue", "delay", "parked", "calls"]

# How many runs are remembered, and how many spans all of them together have at most; the last one always stays.
RUNS_MAX, SPANS_MAX = 16, 2_000_000
# How many events one call reads.
EVENTS_MAX = 20_000
ROWS_MAX = 200
# More spans than this in one row are drawn as pieces of equal length.
ROW_SPANS_MAX = 120
# A shorter stay in the queue is not shown.
QUEUE_MIN = 100
# Idle time is folded if it would fill most of the chart.
FOLDED_MIN, FOLDED_TIMES, FOLDS_MAX = 30_000, 2, 5
# How many cells a mosaic has at most; with more steps a cell stands for several.
CELLS_MAX = 10_000

_KINDS: tuple[SpanKind, ...] = get_args(SpanKind)
_OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
_KIND = {name: number for number, name in enumerate(_KINDS)}
_OUTCOME = {name: number for number, name in enumerate(_OUTCOMES)}
_WAITING = frozenset(_KIND[name] for name in ("queue", "delay", "parked", "calls"))
# In a piece that stands for several spans, the first of these is shown.
_WORST = tuple(
    _OUTCOME[name] for name in ("failed", "running", "lost", "interrupted", "cancelled", "queued", "succeeded")
)
# A span: kind, begin, end or -1, outcome, attempt.
_FIELDS = 5
_HIDDEN = -1


class Span(msgspec.Struct, frozen=True, array_like=True):
    """Something that ran or waited. Times are milliseconds since the run started; `until` is None while it goes on."""

    kind: SpanKind
    since: int
    until: int | None
    outcome: Outcome
    attempt: int


class TimelineRow(msgspec.Struct, frozen=True):
    """A step that has started, with everything that ran for it."""

    name: str
    status: str
    is_handled: bool
    spans: list[Span]
    # How many spans it has; with many of them `spans` are pieces of equal length, each with its worst outcome.
    span_count: int


class Timeline(msgspec.Struct, frozen=True):
    """Some rows of the timeline of a run, in the order in which the steps started."""

    run_id: int
    # The last event that was read, and that of the run: while they differ, ask again.
    seq: int
    last_seq: int
    started_at: datetime
    # From the start to its end, or to now, in milliseconds; and the idle times that are folded.
    length: int
    folds: list[tuple[int, int]]
    has_ended: bool
    # How many rows there are, and the number of the first one here.
    total: int
    first: int
    rows: list[TimelineRow]


class Mosaic(msgspec.Struct, frozen=True):
    """How all steps stand, in the order of the file: one letter for each cell."""

    run_id: int
    seq: int
    status: str
    step_count: int
    # How many steps one cell stands for: it shows the one that needs most attention, or what most of them are.
    steps_per_cell: int
    cells: str
    # What each letter means: a status, or `handled` for a failure that was handled.
    letters: dict[str, str]
    counts: dict[str, int]


# The one that needs most attention first.
LETTERS = {
    "failed": "f",
    "pending_failed": "p",
    "backing_off": "b",
    "handling": "n",
    "running": "r",
    "ready": "y",
    "handled": "h",
    "cancelled": "x",
    "waiting": "w",
    "skipped": "s",
    "completed": "c",
}
_RANK = {letter: number for number, letter in enumerate(LETTERS.values())}


def mosaic_of(run_id: int, state: State) -> Mosaic:
    """All steps of a run in one short answer."""
    statuses = {name: status_of(state, name) for name in state.graph.nodes}
    return make_mosaic(run_id, state.run.seq, state.run.status, statuses, _handled_steps(state))


def _handled_steps(state: State) -> frozenset[str]:
    return frozenset(record.step for record in state.failures if is_handled(state, record) is True)


def make_mosaic(run_id: int, seq: int, status: str, statuses: Mapping[str, str], handled: Collection[str]) -> Mosaic:
    """The mosaic of these steps. `handled`: those whose failure was handled."""
    waiting = LETTERS["waiting"]
    letters = [LETTERS.get(one, waiting) for one in statuses.values()]
    if handled:
        for number, name in enumerate(statuses):
            if name in handled and statuses[name] == "failed":
                letters[number] = LETTERS["handled"]
    size = max(1, -(-len(letters) // CELLS_MAX))
    if size > 1:
        letters = [_stands_for(letters[at : at + size]) for at in range(0, len(letters), size)]
    return Mosaic(
        run_id=run_id,
        seq=seq,
        status="running" if status == "new" else status,
        step_count=len(statuses),
        steps_per_cell=size,
        cells="".join(letters),
        letters={letter: status for status, letter in LETTERS.items()},
        counts=dict(Counter(statuses.values())),
    )


def _stands_for(letters: list[str]) -> str:
    """The step that needs most attention; if none does, what most of them are."""
    worst = min(letters, key=_RANK.__getitem__)
    return worst if _RANK[worst] <= _RANK["r"] else Counter(letters).most_common(1)[0][0]


class Timelines(ReadsRuns):
    """The timelines of the runs that are looked at again and again."""

    def __init__(self, reader: RunReader) -> None:
        super().__init__(reader)
        self._runs: OrderedDict[int, _RunTimes] = OrderedDict()

    def read(
        self,
        run_id: int,
        state: State,
        *,
        first: int = 0,
        limit: int = 50,
        hide_completed: bool = False,
        now: datetime | None = None,
    ) -> Timeline:
        """The rows from `first` on. `hide_completed`: only those of steps that did not complete."""
        last_seq, run = self._reader.record(run_id).seq, self._moved_on(run_id)
        names: Sequence[str] = run.order
        if hide_completed:
            names = [name for name in names if status_of(state, name) != "completed"]
        end = run.last
        if state.run.status not in RUN_ENDED:
            end = max(end, _milliseconds(now or datetime.now(UTC)))
        shown = {name: run.spans[name] for name in names[max(0, first) :][: max(1, min(limit, ROWS_MAX))]}
        return run.timeline(state, run_id, last_seq, shown, end=end, total=len(names), first=first)

    def until(self, run_id: int, state: State, step: str, limit: int) -> Timeline:
        """The timeline as it was at an earlier state: some rows around that of a step, or the last ones to start.

        What had not begun by then is left out, and what had not ended goes on.
        """
        last_seq, run, cut = self._reader.record(run_id).seq, self._moved_on(run_id), _milliseconds(state.run.at)
        # A span may begin earlier than its event says; a row exists once something of it had begun.
        names = [name for name in run.order if run.spans[name][1] <= cut]
        middle = names.index(step) if step in names else len(names)
        first = max(0, min(middle - limit // 2, len(names) - limit))
        shown = {name: _cut(run.spans[name], cut) for name in names[first : first + limit]}
        return run.timeline(state, run_id, last_seq, shown, end=cut, total=len(names), first=first)

    def _moved_on(self, run_id: int) -> _RunTimes:
        run = self._runs.setdefault(run_id, _RunTimes())
        self._runs.move_to_end(run_id)
        for entry in self._reader.store.log(run_id, run.seq, EVENTS_MAX):
            run.add(entry)
        forget_oldest(self._runs, RUNS_MAX, SPANS_MAX, lambda one: one.count)
        return run


def _row(state: State, name: str, found: array[int], begin: int, end: int, *, is_handled: bool) -> TimelineRow:
    spans = [one for one in _spans(found) if one[0] != _HIDDEN]
    shown = spans if len(spans) <= ROW_SPANS_MAX else _pieces(spans, end)
    return TimelineRow(
        name=name,
        status=status_of(state, name),
        is_handled=is_handled,
        spans=[
            Span(_KINDS[kind], max(0, since - begin), None if until < 0 else until - begin, _OUTCOMES[outcome], attempt)
            for kind, since, until, outcome, attempt in shown
        ],
        span_count=len(spans),
    )


def _cut(found: array[int], cut: int) -> array[int]:
    """The spans as they were at a time."""
    shown = array("q")
    for kind, since, until, outcome, attempt in _spans(found):
        if since <= cut:
            is_open = until < 0 or until > cut
            running = _OUTCOME["queued" if kind in _WAITING else "running"]
            shown.extend((kind, since, -1 if is_open else until, running if is_open else outcome, attempt))
    return shown


def _spans(found: array[int]) -> Iterator[tuple[int, ...]]:
    for at in range(0, len(found), _FIELDS):
        yield tuple(found[at : at + _FIELDS])


def _pieces(spans: list[tuple[int, ...]], end: int) -> list[tuple[int, ...]]:
    """Many spans as pieces of equal length, each with the worst outcome of what ran in it."""
    ran = [one for one in spans if one[0] == _KIND["own"]] or spans
    first, last = min(one[1] for one in ran), max(end if one[2] < 0 else one[2] for one in ran)
    width = max(1, (last - first) // ROW_SPANS_MAX + 1)
    worst: dict[int, int] = {}
    for _, since, until, outcome, _ in ran:
        for piece in range((since - first) // width, ((end if until < 0 else until) - first) // width + 1):
            rank = _WORST.index(outcome)
            worst[piece] = min(worst.get(piece, rank), rank)
    found: list[tuple[int, ...]] = []
    for piece, rank in sorted(worst.items()):
        since, outcome = first + piece * width, _WORST[rank]
        if found and found[-1][2] == since and found[-1][3] == outcome:
            found[-1] = (*found[-1][:2], since + width, *found[-1][3:])
        else:
            found.append((_KIND["own"], since, since + width, outcome, 0))
    return found


def _milliseconds(at: datetime) -> int:
    return int(at.timestamp() * 1000)


class _RunTimes:
    """The spans of one run, as its log tells them."""

    def __init__(self) -> None:
        self.seq = 0
        self.started = self.last = 0
        # By step, in the order in which they started.
        self.spans: dict[str, array[int]] = {}
        self.order: list[str] = []
        self.count = 0
        # Where the span of an attempt that has not ended is; when it was scheduled; whether it runs.
        self._open: dict[tuple[str, int], tuple[array[int], int, int, bool]] = {}
        self._parked: dict[str, tuple[array[int], int]] = {}
        # How many attempts run now, since when none does; long times without any; how long something ran in all.
        self._running = 0
        self._idle_since = 0
        self._idle: list[tuple[int, int]] = []
        self._busy = 0

    def add(self, entry: e.Entry) -> None:
        self.seq = entry.seq
        at = _milliseconds(entry.at)
        if not self.started:
            self.started = self._idle_since = at
        self.last = max(self.last, at)
        rule = _RULES.get(type(entry.fact))
        if rule is not None:
            rule(self, entry.fact, at)

    def timeline(
        self,
        state: State,
        run_id: int,
        last_seq: int,
        shown: Mapping[str, array[int]],
        *,
        end: int,
        total: int,
        first: int,
    ) -> Timeline:
        """A timeline with the rows of these steps. `total`: how many rows there are; `first`: which is the first."""
        handled, begin = _handled_steps(state), self.started
        return Timeline(
            run_id=run_id,
            seq=self.seq,
            last_seq=last_seq,
            started_at=datetime.fromtimestamp(begin / 1000, UTC),
            length=max(1, end - begin),
            folds=[(since - begin, min(until, end) - begin) for since, until in self.folds(end) if since < end],
            has_ended=state.run.status in RUN_ENDED,
            total=total,
            first=first,
            rows=[_row(state, name, row, begin, end, is_handled=name in handled) for name, row in shown.items()],
        )

    def folds(self, end: int) -> list[tuple[int, int]]:
        """The idle times that are several times longer than all work together."""
        idle = self._idle
        if not self._running and end - self._idle_since > FOLDED_MIN:
            idle = [*idle, (self._idle_since, end)]
        busy = self._busy + (end - self._idle_since if self._running else 0)
        long = [one for one in idle if one[1] - one[0] > max(FOLDED_MIN, busy * FOLDED_TIMES)]
        return sorted(sorted(long, key=lambda one: one[0] - one[1])[:FOLDS_MAX])

    def _add(self, place: str, kind: SpanKind, since: int, until: int, outcome: Outcome, attempt: int) -> array[int]:
        step = step_name(place)
        row = self.spans.get(step)
        if row is None:
            row = self.spans[step] = array("q")
            self.order.append(step)
        row.extend((_KIND[kind], since, until, _OUTCOME[outcome], attempt))
        self.count += 1
        return row

    def scheduled(self, fact: e.AttemptScheduled, at: int) -> None:
        row = self._add(fact.place, "queue", at, -1, "queued", fact.attempt)
        self._open[fact.place, fact.attempt] = (row, len(row) - _FIELDS, at, False)

    def attempt_started(self, fact: e.AttemptStarted, at: int) -> None:
        key = (fact.place, fact.attempt)
        if key not in self._open:
            self.scheduled(e.AttemptScheduled(fact.place, fact.attempt), at)
        row, place, since, _ = self._open[key]
        kind: SpanKind = part_of(fact.place)
        if at - since < QUEUE_MIN:
            row[place : place + _FIELDS] = array("q", (_KIND[kind], at, -1, _OUTCOME["running"], fact.attempt))
        else:
            row[place + 2] = at
            row = self._add(fact.place, kind, at, -1, "running", fact.attempt)
            place = len(row) - _FIELDS
        self._open[key] = (row, place, since, True)
        if not self._running:
            self._rest(at)
        self._running += 1

    def _rest(self, at: int) -> None:
        """Nothing ran until now."""
        if at - self._idle_since > FOLDED_MIN:
            self._idle.append((self._idle_since, at))
            if len(self._idle) > 400:
                self._idle = sorted(sorted(self._idle, key=lambda one: one[0] - one[1])[:200])
        self._idle_since = at

    def ended(self, fact: Any, at: int) -> None:
        found = self._open.pop((fact.place, fact.attempt), None)
        if found is None:
            # One whose expressions failed was never scheduled.
            self._add(fact.place, part_of(fact.place), at, at, ENDS[type(fact)], fact.attempt)
            return
        row, place, scheduled, is_running = found
        row[place + 2], row[place + 3] = at, _OUTCOME[ENDS[type(fact)]]
        if row[place] == _KIND["queue"]:
            row[place] = _KIND["own"]
        wall = getattr(fact, "usage", {}).get("wall_seconds") if row[place] != _KIND["calls"] else None
        if isinstance(wall, int | float) and 0 <= wall < 1e9:
            # A task that was leased may not have run yet.
            row[place + 1] = max(scheduled, row[place + 1], at - int(wall * 1000))
        if is_running:
            self._running -= 1
            if not self._running:
                self._busy += at - self._idle_since
                self._idle_since = at

    def ran(self, fact: e.StepRan, at: int) -> None:
        self._add(fact.step, "own", at - int(fact.seconds * 1000), at, "succeeded", fact.attempt)

    def waits(self, fact: e.ProgramWaiting, at: int) -> None:
        """The turn of a program is over; a wait that is over at once is taken out again by the next turn."""
        found = self._open.get((fact.place, fact.attempt))
        if fact.goes_on or found is None or not found[3]:
            return
        row, index, scheduled, _ = found
        row[index + 2], row[index + 3] = at, _OUTCOME["succeeded"]
        self._add(fact.place, "calls", at, -1, "queued", fact.attempt)
        self._open[fact.place, fact.attempt] = (row, len(row) - _FIELDS, scheduled, False)
        self._running -= 1
        if not self._running:
            self._busy += at - self._idle_since
            self._idle_since = at

    def goes_on(self, fact: e.TurnStarted, at: int) -> None:
        found = self._open.get((fact.place, fact.attempt))
        if found is None or found[3]:
            return
        row, index, scheduled, _ = found
        is_short = row[index] == _KIND["calls"] and at - row[index + 1] < QUEUE_MIN and index + _FIELDS == len(row)
        if is_short:
            del row[index:]
            self.count -= 1
            index -= _FIELDS
            row[index + 2], row[index + 3] = -1, _OUTCOME["running"]
        else:
            row[index + 2] = at
            self._add(fact.place, "own", at, -1, "running", fact.attempt)
            index = len(row) - _FIELDS
        self._open[fact.place, fact.attempt] = (row, index, scheduled, True)
        if not self._running:
            self._rest(at)
        self._running += 1

    def mapped(self, fact: e.MapExpanded, at: int) -> None:
        # A map runs nothing itself: its items do.
        for (place, _), (row, index, _, _) in list(self._open.items()):
            if place == fact.place:
                row[index] = _HIDDEN

    def rejected(self, fact: e.ResultRejected, at: int) -> None:
        row = self.spans.get(step_name(fact.place))
        for index in range(len(row or ()) - _FIELDS, -1, -_FIELDS):
            if row is not None and row[index] == _KIND["own"] and row[index + 4] == fact.attempt:
                row[index + 3] = _OUTCOME["failed"]
                return

    def delayed(self, fact: e.RetryScheduled | e.LoopTaken, at: int) -> None:
        until = _milliseconds(fact.due)
        if until > at:
            self._add(fact.step if isinstance(fact, e.LoopTaken) else fact.place, "delay", at, until, "queued", 0)

    def parks(self, fact: e.StepParked, at: int) -> None:
        row = self._add(fact.step, "parked", at, -1, "queued", 0)
        self._parked[fact.step] = (row, len(row) - _FIELDS)

    def unparks(self, fact: Any, at: int) -> None:
        found = self._parked.pop(fact.step, None)
        if found is not None:
            found[0][found[1] + 2] = at


_RULES: dict[type[e.Fact], Any] = {
    e.AttemptScheduled: _RunTimes.scheduled,
    e.AttemptStarted: _RunTimes.attempt_started,
    **dict.fromkeys(ENDS, _RunTimes.ended),
    e.StepRan: _RunTimes.ran,
    e.ProgramWaiting: _RunTimes.waits,
    e.TurnStarted: _RunTimes.goes_on,
    e.MapExpanded: _RunTimes.mapped,
    e.ResultRejected: _RunTimes.rejected,
    e.RetryScheduled: _RunTimes.delayed,
    e.LoopTaken: _RunTimes.delayed,
    e.StepParked: _RunTimes.parks,
    **dict.fromkeys(UNPARKED_BY, _RunTimes.unparks),
}
