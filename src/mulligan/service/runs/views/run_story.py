"""The story of a run for every face: its lines, those of its child runs, and what all of them wait for."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from itertools import groupby

import msgspec

from mulligan.core.effects.fingerprints import differences
from mulligan.core.model.events import AttemptSucceeded, Entry, RunReopened
from mulligan.core.model.place_keys import is_at_or_below, step_name
from mulligan.core.model.program_calls import name_of
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.errors import UnknownRun
from mulligan.history.story import StoryLine, story
from mulligan.history.views import Wait
from mulligan.service.runs.stored.run_reader import RunReader
from mulligan.service.runs.views.overview import find_waits, name_called

__all__ = ["LocatedLine", "LocatedWait", "StoryLine", "run_story", "run_waits"]


# So many calls of a program that completed one after the other, with nothing else to say, are one line of the story.
CALLS_OF_A_LINE_MIN = 20
# So many lines of the program are named with such calls.
_LINES_NAMED_MAX = 3
# So many parts are named that are not as they were; of so many runs before, as far as they are of the same workflow.
_DIFFERENCES_NAMED_MAX = 3
_RUNS_SEARCHED_MAX, _RUNS_COMPARED_MAX = 50, 3


class LocatedLine(msgspec.Struct, frozen=True):
    """A line of a story with its run and its display place: `east/build` is a step of a child run."""

    run_id: int
    where: str
    line: StoryLine


class LocatedWait(msgspec.Struct, frozen=True):
    """Something that is waited for now, with its display place as in a `LocatedLine`."""

    run_id: int
    where: str
    wait: Wait


def run_story(service: RunReader, run_id: int, step: str = "", *, is_tree: bool = False) -> Iterator[LocatedLine]:
    """The story of a run, of one of its steps or of a matrix; as a tree, with those of its child runs."""
    yield from _located_lines(service, run_id, _place_filter(service, run_id, step), is_tree, "")
    # Only if somebody is notified about the run, the outbox is asked.
    if not step and (service.first_workflow(run_id).notify or getattr(service.logged_start(run_id), "notify", ())):
        yield from _notices_given_up(service, run_id)


def _notices_given_up(service: RunReader, run_id: int) -> Iterator[LocatedLine]:
    """The notices about the run that could not be sent. They are no events, and come last."""
    for notice in reversed(service.store.server_records.notices(status="given_up", run_id=run_id)):
        text = f"a notice to '{notice.target}' was {notice.reason}"
        yield LocatedLine(run_id, "", StoryLine(notice.due_at or notice.created_at, "", text, "bad"))


def _place_filter(service: RunReader, run_id: int, step: str) -> Callable[[str], bool]:
    """A filter for places: those of a step or a part of one, of a matrix, or with "" of the whole run."""
    if not step:
        return lambda place: True
    if members := frozenset(service.matrix_steps(run_id, step)):
        return lambda place: step_name(place) in members
    service.refuse_unknown(run_id, step)
    key = service.find_place(run_id, step)
    return lambda place: is_at_or_below(place, key)


def _located_lines(
    service: RunReader, run_id: int, is_selected: Callable[[str], bool], is_tree: bool, prefix: str, round: int = 0
) -> Iterator[LocatedLine]:
    """The lines of a run; of one round, if it is named: a child run tells each where its caller asked for it."""
    opened: list[int] = []
    noted: list[Entry] = []
    entries = _noting(service.events(run_id), opened, noted)
    comparison = _Comparison(service, run_id)

    def explain(entry: Entry) -> Iterator[LocatedLine]:
        line = comparison.line(entry)
        if line is not None and is_selected(line.place) and round in (0, 1 + bisect_right(opened, line.seq)):
            yield LocatedLine(run_id, f"{prefix}{line.shown_place}", line)

    lines = story(entries, service.first_workflow(run_id), service.called(run_id))
    for line in summarize_calls(line for line in lines if is_selected(line.place)):
        if round and round != 1 + bisect_right(opened, line.seq):
            continue
        while noted and noted[0].seq <= line.seq:
            yield from explain(noted.pop(0))
        where = line.shown_place
        yield LocatedLine(run_id, f"{prefix}{where}".rstrip("/") if prefix else where, line)
        if is_tree and line.child_run_id:
            above = f"{prefix}{where}/"
            yield from _located_lines(service, line.child_run_id, lambda _: True, True, above, line.child_round)

    for entry in noted:
        yield from explain(entry)


# What the result of each place is known by, or the run whose result it took over.
_Results = dict[str, dict[str, str] | int]


class _Comparison:
    """Says which part of what a result is known by is not what it was, when its step last ran before this run."""

    def __init__(self, service: RunReader, run_id: int) -> None:
        self._service, self._run_id = service, run_id
        self._read: dict[int, _Results] = {}

    def line(self, entry: Entry) -> StoryLine | None:
        """The line for an attempt that has succeeded; None if nothing differs, or no earlier run is found."""
        fact = entry.fact
        assert isinstance(fact, AttemptSucceeded)
        for run_id, earlier in self._earlier:
            before = earlier.get(fact.place)
            if isinstance(before, int):
                # That run took over the result of this one, which did the work.
                run_id, before = before, self._results_of(before).get(fact.place)
            if isinstance(before, dict):
                if not (found := differences(fact.made_of, before)):
                    return None
                more = len(found) - _DIFFERENCES_NAMED_MAX
                named = [*found[:_DIFFERENCES_NAMED_MAX], *([f"{more} more"] if more > 0 else [])]
                text = f"not up to date: changed since run {run_id}: {', '.join(named)}"
                return StoryLine(entry.at, fact.place, text, seq=entry.seq, is_detail=True)
        return None

    @cached_property
    def _earlier(self) -> list[tuple[int, _Results]]:
        """What results of earlier runs of the workflow are known by, the newest run first."""
        own = self._service.record(self._run_id)
        some = self._service.runs(limit=_RUNS_SEARCHED_MAX, before=self._run_id)
        runs = [one.run_id for one in some if (one.workflow, one.project) == (own.workflow, own.project)]
        return [(run_id, self._results_of(run_id)) for run_id in runs[:_RUNS_COMPARED_MAX]]

    def _results_of(self, run_id: int) -> _Results:
        if run_id not in self._read:
            try:
                facts = [entry.fact for entry in self._service.events(run_id)]
            except UnknownRun:  # it was removed meanwhile
                facts = []
            done = (fact for fact in facts if isinstance(fact, AttemptSucceeded))
            self._read[run_id] = {
                fact.place: fact.made_of or fact.reused_run_id for fact in done if fact.made_of or fact.reused_run_id
            }
        return self._read[run_id]


def summarize_calls(lines: Iterable[StoryLine]) -> Iterator[StoryLine]:
    """The lines, with one line for many calls of a program that completed one after the other."""
    for is_call, some in groupby(lines, key=lambda line: bool(line.called_at)):
        if not is_call:
            yield from some
            continue
        calls = list(some)
        if len(calls) < CALLS_OF_A_LINE_MIN:
            yield from calls
        else:
            yield _summary(calls)


def _summary(calls: list[StoryLine]) -> StoryLine:
    """`small … small#1000   1,000 calls completed inline: of 'small' (many.py:18)`."""
    first, last = calls[0], calls[-1]
    kinds = Counter((name_of(line.place), line.called_at) for line in calls)
    found = [
        f"{f'{count:,} ' if len(kinds) > 1 else ''}of '{name}' ({at})" for (name, at), count in kinds.most_common()
    ]
    more = [f"{len(found) - _LINES_NAMED_MAX:,} other lines"] if len(found) > _LINES_NAMED_MAX else []
    how = "completed inline" if all(" inline" in line.text for line in calls) else "completed"
    text = f"{len(calls):,} calls {how}: {', '.join([*found[:_LINES_NAMED_MAX], *more])}"
    return msgspec.structs.replace(first, text=text, name=f"{first.shown_place} … {last.shown_place}", called_at="")


def _noting(entries: Iterable[Entry], opened: list[int], noted: list[Entry]) -> Iterator[Entry]:
    """The entries. `opened` gets the number of each that opens a further round, `noted` each with a findable result."""
    for entry in entries:
        if isinstance(entry.fact, AttemptSucceeded) and entry.fact.made_of:
            noted.append(entry)
        if isinstance(entry.fact, RunReopened):
            opened.append(entry.seq)
        yield entry


def run_waits(service: RunReader, run_id: int, step: str = "") -> list[LocatedWait]:
    """What the run, or one of its steps, waits for; for a child run, also what that waits for."""
    if not step and service.record(run_id).status in RUN_ENDED:
        return []
    state = service.brief_state(run_id)[0]
    waits = find_waits(service, state)
    waiting = list(waits.of_run())
    if step:
        is_selected = _place_filter(service, run_id, step)
        own = [wait for wait in waiting if is_selected(wait.place)]
        is_a_step = step in state.graph.nodes and step in state.places
        waiting = own or (waits.of_step(state.places[step]) if is_a_step else [])
    return list(_located_waits(service, run_id, waiting, ""))


def _located_waits(service: RunReader, run_id: int, waiting: list[Wait], prefix: str) -> Iterator[LocatedWait]:
    if any(wait.kind == "child" for wait in waiting):
        waiting = name_called(waiting, service.called(run_id))
    for wait in waiting:
        where = f"{prefix}{wait.shown_place}".rstrip("/")
        yield LocatedWait(run_id, where, wait)
        if child := wait.child_run_id:
            below = list(find_waits(service, service.brief_state(child)[0]).of_run())
            yield from _located_waits(service, child, below, f"{where}/")
