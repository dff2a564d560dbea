"""A run as it was at any of its events: its state, what it waited for, and why the next decision was taken."""

from __future__ import annotations

from datetime import datetime
from itertools import islice, pairwise

import msgspec

from mulligan.core.evolve.evolve_run import evolve
from mulligan.core.model import events as e
from mulligan.core.model.place_keys import is_at_or_below
from mulligan.core.model.workflow import END
from mulligan.core.state.state import State
from mulligan.errors import InputInvalid, UnknownStep
from mulligan.history.item_names import PlaceNames
from mulligan.history.matrices import ATTENTION
from mulligan.history.moments import (
    ChangedStep,
    ChangedValue,
    DueTimer,
    NewFailure,
    compare_states,
    describe_report,
    due_timers,
    is_at_rest,
    step_status,
)
from mulligan.history.story import StoryWriter
from mulligan.history.story_memory import StoryMemory
from mulligan.language.garbage_collection import pause_garbage_collection
from mulligan.service.runs.stored.past_states import TURN_MAX, PastRun
from mulligan.service.runs.stored.run_cache import RunCache
from mulligan.service.runs.stored.run_reader import RunReader
from mulligan.service.runs.stored.step_events import place_of
from mulligan.service.runs.views.overview import past_head, past_run
from mulligan.service.runs.views.run_details import WHOLE_STEPS_MAX, FailureHandlers, describe_failure_handlers
from mulligan.service.runs.views.run_events import EventLine, event_line
from mulligan.service.runs.views.run_graph import HrefOf, RunGraph, draw_run_graph
from mulligan.service.runs.views.run_timeline import Timeline
from mulligan.service.runs.views.run_view import RunView, StepView

# How many points of a step; and of a run that is not shown whole how many steps.
POINTS_MAX, STEPS_MAX = 1_000, 200
# How many rows of the timeline are drawn.
ROWS_MAX = 16


class TurnEvents(msgspec.Struct, frozen=True):
    """One report and what followed from it, as a story: which report came, and each fact with its reasons."""

    first: int
    last: int
    at: datetime
    # What came from outside, in words.
    report: str
    # The first events of it, oldest first.
    events: list[EventLine]


class CalledThen(msgspec.Struct, frozen=True):
    """A run that had been called by then: by which place and attempt, and whether that still waited for it."""

    run_id: int
    place: str
    attempt: int
    is_open: bool
    # The display name of the place.
    name: str = ""


class RunMoment(msgspec.Struct, frozen=True):
    """A run after one of its events. `run`: as of then; not `is_whole`: with the steps that need attention alone."""

    run_id: int
    workflow: str
    seq: int
    last_seq: int
    at: datetime
    started_at: datetime
    # Whether the turn of this event ended with it. If not, some of its consequences come after it.
    is_at_rest: bool
    event: EventLine
    # The turn of this event, up to it; and the next one, or the rest of this one. None at the last event.
    turn: TurnEvents
    next: TurnEvents | None
    timers: list[DueTimer]
    called: list[CalledThen]
    run: RunView
    is_whole: bool = True


class StepPoint(msgspec.Struct, frozen=True):
    """An event at which something happened to a step, and how the step was after it."""

    event: EventLine
    status: str
    visit: int
    attempt: int


class StepPoints(msgspec.Struct, frozen=True):
    """The events at which something happened to a step, the last ones if there are many."""

    run_id: int
    step: str
    seq: int
    last_seq: int
    points: list[StepPoint]
    left_out: int
    # The step at the last of them, as `show --json` prints it.
    then: StepView | None


class RunDifference(msgspec.Struct, frozen=True):
    """What changed in a run from one of its events to a later one."""

    run_id: int
    workflow: str
    a: int
    b: int
    a_at: datetime
    b_at: datetime
    run: list[ChangedValue]
    steps: list[ChangedStep]
    failures: list[NewFailure]


class MomentPicture(msgspec.Struct, frozen=True):
    """A run after one of its events, drawn. `ladder`: what deals with failures of the step, and how far it had come."""

    moment: RunMoment
    step: str
    graph: RunGraph
    timeline: Timeline
    ladder: FailureHandlers | None


class TimeTravel:
    """Reads runs at their events."""

    def __init__(self, reader: RunReader, cache: RunCache) -> None:
        self._reader = reader
        self._past = cache.past
        self._timelines = cache.timelines

    def last_before(self, run_id: int, at: datetime) -> int:
        """The last event of a run at or before a time."""
        return self._past.last_before(run_id, at)

    def is_small(self, run_id: int) -> bool:
        """Whether all steps of the run can be shown at once."""
        return len(self._past.start(run_id).state.graph.nodes) <= WHOLE_STEPS_MAX

    def moment(self, run_id: int, seq: int, *, is_whole: bool = True) -> RunMoment:
        """The run after this event. Not `is_whole`: of its steps only those that need attention."""
        last = self._past.check(run_id, seq)
        with pause_garbage_collection():
            found, following = self._past.at(run_id, seq), self._next_turn(run_id, seq)
            state, turn, called, names = found.state, found.turn, self._called(found), PlaceNames()
            shown = _describe_turn(found.turn_memory.copy(), turn, None)
            return RunMoment(
                run_id=run_id,
                workflow=state.workflow.name,
                seq=seq,
                last_seq=last,
                at=state.run.at,
                started_at=self._reader.store.log(run_id, limit=1)[0].at,
                is_at_rest=is_at_rest(turn[-1], following[0] if following else None),
                event=shown.events[-1],
                turn=shown,
                next=_describe_turn(found.memory.copy(), following, turn[-1]) if following else None,
                timers=due_timers(state),
                called=[
                    CalledThen(child, *key, is_open=_waits_for(found, *key), name=names.name(state, key[0]))
                    for key, child in called.items()
                ],
                run=past_run(self._reader, state, called) if is_whole else self._head(state, called),
                is_whole=is_whole,
            )

    def points(self, run_id: int, step: str, seq: int | None = None) -> StepPoints:
        """The events at which something happened to a step, up to `seq`."""
        last, step = self._past.check(run_id, seq or 1), self._reader.find_place(run_id, step)
        until = seq or last
        run, found, count = self._past.start(run_id), list[StepPoint](), 0
        state, writer = run.state, StoryWriter(memory=run.memory)
        is_known, before = False, ("", 0, 0)
        for entry in self._reader.events(run_id):
            if entry.seq > until:
                break
            evolve(state, entry)
            said, now = writer.lines_for(entry), step_status(state, step)
            is_known = is_known or bool(now[0])
            if is_at_or_below(place_of(entry), step) or now != before:
                count += 1
                own = [one for one in said if not one.is_detail and is_at_or_below(one.place, step)]
                found.append(StepPoint(event_line(entry, own, writer.memory), *now))
                if len(found) > 2 * POINTS_MAX:
                    del found[:POINTS_MAX]
            before = now
        if not is_known:
            self._reader.refuse_unknown(run_id, step)
            raise UnknownStep(f"'{step}' was not a step of run {run_id} at event {until}", step=step)
        found = found[-POINTS_MAX:]
        view = past_run(self._reader, run.state, self._called(run))
        then = view.end if step == END else view.steps.get(step)
        return StepPoints(run_id, step, until, last, points=found, left_out=count - len(found), then=then)

    def compare(self, run_id: int, a: int, b: int) -> RunDifference:
        """What changed from one event to another; the earlier one counts as the first."""
        a, b = sorted((a, b))
        if a == b:
            raise InputInvalid(f"--diff compares two different events, not {a} with itself")
        self._past.check(run_id, a)
        self._past.check(run_id, b)
        # A state of the cache may be read until the next call.
        before = self._past.at(run_id, a).copy().state
        after = self._past.at(run_id, b).state
        run, steps, failures = compare_states(before, after)
        return RunDifference(
            run_id=run_id,
            workflow=after.workflow.name,
            a=a,
            b=b,
            a_at=before.run.at,
            b_at=after.run.at,
            run=run,
            steps=steps,
            failures=failures,
        )

    # -- pictures ----------------------------------------------------------------------------------------------------

    def picture(self, run_id: int, seq: int, href: HrefOf, *, step: str = "") -> MomentPicture:
        """The run after this event, as a page shows it: with its graph, its timeline and the ladder of one step.

        By default of the step that the event is about.
        """
        moment = self.moment(run_id, seq, is_whole=self.is_small(run_id))
        state = self._past.at(run_id, seq).state
        chosen = step if step in state.graph.nodes else moment.event.step
        chosen = chosen if chosen in state.graph.nodes else ""
        graph = draw_run_graph(state, "", href)
        if graph.kind == "around" and chosen:
            # A graph that is too large is drawn around the step, and not around the one that needs most attention.
            graph = draw_run_graph(state, chosen, href)
        return MomentPicture(
            moment=moment,
            step=chosen,
            graph=graph,
            timeline=self._timelines.until(run_id, state, chosen, ROWS_MAX),
            ladder=describe_failure_handlers(state, chosen) if chosen else None,
        )

    # -- turns -------------------------------------------------------------------------------------------------------

    def _next_turn(self, run_id: int, seq: int) -> list[e.Entry]:
        """The events behind this one up to the end of a turn, the first ones if there are many."""
        entries = self._reader.store.log(run_id, seq, TURN_MAX)
        number = next(
            (n for n, (one, two) in enumerate(pairwise(entries), 1) if is_at_rest(one, two)),
            len(entries),
        )
        return entries[:number]

    # -- the run -----------------------------------------------------------------------------------------------------

    def _called(self, run: PastRun) -> dict[tuple[str, int], int]:
        """The runs that it had called by then."""
        children = self._reader.store.children(run.state.run.run_id)
        return {
            (one.parent_place, one.parent_attempt): one.run_id for one in children if one.created_at <= run.state.run.at
        }

    def _head(self, state: State, called: dict[tuple[str, int], int]) -> RunView:
        """The run with the steps that need attention only."""
        chosen = (one.key for one in state.steps() if one.status in _NOTABLE) if state.places else ()
        return past_head(self._reader, state, called, islice(chosen, STEPS_MAX))


# The statuses of steps that need attention, or that something happens to.
_NOTABLE = frozenset(ATTENTION) - {"completed", "skipped", "waiting"}


def _describe_turn(memory: StoryMemory, entries: list[e.Entry], before: e.Entry | None) -> TurnEvents:
    """The events of a turn with their sentences. `memory`, of what was before them, is used up.

    `before`: the event before them; None if a turn begins with them.
    """
    first = entries[0]
    if before is None or is_at_rest(before, first):
        report = describe_report(memory, first.fact)
    else:
        report = f"it follows from event {first.caused_by}" if first.caused_by else f"it came with event {before.seq}"
    writer = StoryWriter(memory=memory)
    events = [event_line(entry, writer.lines_for(entry), memory) for entry in entries]
    return TurnEvents(first.seq, entries[-1].seq, first.at, report, events)


def _waits_for(run: PastRun, place: str, attempt: int) -> bool:
    found = run.state.places.get(place)
    return found is not None and found.attempt == attempt and found.status == "running"
