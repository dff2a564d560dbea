"""Estimate how long a run will still take, from how long its steps took in earlier runs.

The remaining steps are scheduled on the available slots, in the order of the file, each for its typical duration. If a
step waits for a person, or has never run before, there is no estimate.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

import msgspec

from mulligan.core.evolve.evolve_places import is_engine_action
from mulligan.core.model import events as e
from mulligan.core.model.actions import default_cpus, traits_of
from mulligan.core.model.place_keys import step_name
from mulligan.core.model.workflow import END
from mulligan.core.state.state import Place, State

# An estimate visits all remaining steps, so a larger run gets none.
STEPS_ESTIMATED_MAX = 2_000


class StepDuration(msgspec.Struct, frozen=True):
    """How long a step took in one run, or takes typically. `items`: the number of items of a map."""

    seconds: float
    items: int = 0


# -- earlier runs ------------------------------------------------------------------------------------------------------


def measure_steps(entries: Iterable[e.Entry]) -> dict[str, StepDuration] | None:
    """How long each step of a run took, from its first attempt to its end; 0 for a step that was skipped.

    A step that reused an earlier result, or was faked, is left out: that takes no time, and running it may take hours.
    None if a step was visited several times, or a later round ran some again: such a run does not predict the next.
    """
    began: dict[str, datetime] = {}
    items: dict[str, int] = {}
    found: dict[str, StepDuration] = {}
    not_run: set[str] = set()
    for entry in entries:
        fact = entry.fact
        if isinstance(fact, e.AttemptStarted):
            began.setdefault(fact.place, entry.at)
            if fact.is_faked:
                not_run.add(step_name(fact.place))
        elif isinstance(fact, e.AttemptSucceeded) and fact.reused_run_id:
            not_run.add(step_name(fact.place))
        elif isinstance(fact, e.MapExpanded):
            items[fact.place] = len(fact.items or ())
        elif isinstance(fact, e.StepSkipped):
            found[fact.step] = StepDuration(0.0)
        elif isinstance(fact, e.StepCompleted | e.StepFailed):
            if fact.step in found:
                return None
            since = began.get(fact.step, entry.at)
            found[fact.step] = StepDuration((entry.at - since).total_seconds(), items.get(fact.step, 0))
        elif isinstance(fact, e.RunReopened):
            return None
    return {name: one for name, one in found.items() if name not in not_run}


def median_durations(runs: Iterable[Mapping[str, StepDuration]]) -> dict[str, StepDuration]:
    """The median duration of each step over the runs that have it."""
    seen: dict[str, list[StepDuration]] = {}
    for run in runs:
        for name, one in run.items():
            seen.setdefault(name, []).append(one)
    return {
        name: StepDuration(_median([one.seconds for one in ones]), round(_median([one.items for one in ones])))
        for name, ones in seen.items()
    }


def _median(numbers: Sequence[float]) -> float:
    ordered, half = sorted(numbers), len(numbers) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


# -- estimate ----------------------------------------------------------------------------------------------------------


def remaining_seconds(
    state: State, known: Mapping[str, StepDuration], now: datetime, slots: float, since: Mapping[str, datetime]
) -> float | None:
    """How long the run will still take; None if that is unknown. `since`: when the running steps started."""
    if not known or state.run.status != "running" or state.run.loops or len(state.graph.nodes) > STEPS_ESTIMATED_MAX:
        return None
    rest: dict[str, float] = {}
    for place in state.steps():
        if place.has_ended and place.settled:
            continue
        seconds = _remaining(place, known.get(place.key), now, since.get(place.key))
        if seconds is None:
            return None
        rest[place.key] = seconds
    total = _schedule(state, rest, slots)
    return total if total > 0 else None


def _remaining(place: Place, usual: StepDuration | None, now: datetime, since: datetime | None) -> float | None:
    """How long a step that has not ended will still take."""
    action = traits_of(place.spec.action)
    is_for_a_person = place.status == "pending_failed" or action.asks_person
    if is_for_a_person or place.pause is not None or place.has_ended:
        # A person decides or paused it; or it has failed, and another step is repairing it.
        return None
    if place.due is not None and place.status == "running" and action.is_timer:
        return max(0.0, (place.due - now).total_seconds())
    if usual is None:
        return None
    if place.items is not None:
        total = len(place.items.values)
        done = total - len(place.items.todo) + place.items.next - place.items.running
        whole = usual.seconds * total / usual.items if usual.items else usual.seconds
        return whole * (1 - done / total) if total else 0.0
    if place.status == "running" and since is not None:
        return max(0.0, usual.seconds - (now - since).total_seconds())
    return usual.seconds


def _schedule(state: State, rest: Mapping[str, float], slots: float) -> float:
    """When the last of these steps ends, if each starts as soon as it may and a slot is free."""
    open_needs = dict.fromkeys(rest, 0)
    waits = {key: sum(name in rest for name in barrier.members) for key, barrier in state.graph.barriers.items()}
    for name in rest:
        for after in _successors(state, name):
            if after in open_needs:
                open_needs[after] += 1
    for key, barrier in state.graph.barriers.items():
        if waits[key]:
            for target in barrier.targets:
                if target in open_needs:
                    open_needs[target] += 1
    order = {name: index for index, name in enumerate(rest)}
    ready = [order[name] for name, count in open_needs.items() if not count]
    heapq.heapify(ready)
    names, running, free, at = list(rest), list[tuple[float, int, float]](), max(slots, 1.0), 0.0
    while ready or running:
        while ready and (free > 0 or not running):
            index = heapq.heappop(ready)
            wanted = _slots(state.places[names[index]], max(slots, 1.0))
            free -= wanted
            heapq.heappush(running, (at + rest[names[index]], index, wanted))
        at, index, given = heapq.heappop(running)
        free += given
        for name in _unblocked_by(state, names[index], open_needs, waits):
            heapq.heappush(ready, order[name])
    return at


def _successors(state: State, name: str) -> Iterator[str]:
    """The direct successors of a step, without loops and barriers."""
    node = state.graph.nodes[name]
    yield from (target for target, _ in node.dependents)
    yield from (arc.to for arc in node.arcs if arc.to != END and not arc.is_loop)


def _unblocked_by(state: State, name: str, open_needs: dict[str, int], waits: dict[str, int]) -> Iterator[str]:
    """The steps that may start when this one has ended."""
    targets = list(_successors(state, name))
    for barrier in state.graph.nodes[name].barriers:
        waits[barrier.key] -= 1
        if not waits[barrier.key]:
            targets += barrier.targets
    for target in targets:
        if target in open_needs:
            open_needs[target] -= 1
            if not open_needs[target]:
                yield target


def _slots(place: Place, most: float) -> float:
    """The slots that a step uses while it runs. Actions of the engine itself use none."""
    if is_engine_action(place.spec):
        return 0.0
    asked = place.spec.resources.cpus if place.spec.resources else None
    action = place.spec.action
    usual = 1.0 if action is None else default_cpus(action.kind, action.params)
    return min(usual if asked is None else asked, most)


def format_estimate(seconds: float) -> str:
    """A rough duration: `a few s`, `about 40 s`, `about 4 min`, `about 1 h 10 min`."""
    if seconds < 10:
        return "a few s"
    if seconds < 55:
        step = 5 if seconds < 30 else 10
        return f"about {round(seconds / step) * step} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"about {max(1, minutes)} min"
    hours, left = divmod(round(minutes / 5) * 5, 60)
    return f"about {hours} h {left} min" if left else f"about {hours} h"
