"""What happens at the instants of a schedule.

A decision is written before it is carried out: `ScheduleState.starting` and `cancelling` are what the schedule has
decided and perhaps not done yet. Whoever finds them does them, and every server does the same, since a start has the
instant as its key. So a server that dies between the two neither loses an instant nor decides differently.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from itertools import islice
from typing import Literal

import msgspec

from mulligan.core.model.schedule import Schedule

# An instant that was not started so long after it was missed. A server may be restarted within this time.
ON_TIME = timedelta(seconds=60)
# How many instants may wait for a run to end, and how many of those that were skipped are remembered.
WAITING_MAX, SKIPS_MAX = 1000, 20

# How a run of a schedule stands. A cancelled run says nothing about the workflow.
RunResult = Literal["active", "succeeded", "failed", "cancelled"]


class Firing(msgspec.Struct, frozen=True, omit_defaults=True):
    """An instant and the run that it started."""

    instant: datetime
    run_id: int


class Skip(msgspec.Struct, frozen=True, omit_defaults=True):
    """An instant, or several up to `until`, at which nothing was started, and why."""

    instant: datetime
    reason: str
    until: datetime | None = None


class Pause(msgspec.Struct, frozen=True, omit_defaults=True):
    """Nothing is started until somebody resumes the schedule."""

    at: datetime
    by: str
    reason: str = ""
    # It paused itself.
    is_automatic: bool = False


class ScheduleState(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a schedule has done so far."""

    # About every instant up to this one it was decided.
    decided_until: datetime | None = None
    # Decided and perhaps not done yet.
    starting: tuple[datetime, ...] = ()
    cancelling: tuple[int, ...] = ()
    # Started, and not known to have ended.
    active: tuple[Firing, ...] = ()
    # Instants that are started when those before them have ended, the oldest first.
    waiting: tuple[datetime, ...] = ()
    pause: Pause | None = None
    # Failed runs in a row.
    failures: int = 0
    last: Firing | None = None
    # The newest last.
    skips: tuple[Skip, ...] = ()

    @property
    def has_work(self) -> bool:
        """Whether a decision has to be carried out."""
        return bool(self.starting or self.cancelling)


def decide(
    schedule: Schedule,
    state: ScheduleState,
    now: datetime,
    due: Iterable[datetime],
    results: Mapping[int, RunResult],
    since: datetime,
) -> ScheduleState:
    """The state with what is to be done now. The same state if there is nothing.

    `due` are the instants up to now, the newest first; no more of them are read than are needed. `results` are those
    of the active runs. `since` is when the schedule came into force with these instants.
    """
    if state.has_work:
        return state
    state = _count_results(schedule, state, now, results)
    if state.pause is not None:
        return state
    after = max(state.decided_until, since) if state.decided_until else since
    admitted, skips = _admit(schedule, now, (one for one in _until(due, after)))
    newest = admitted[-1] if admitted else skips[-1].until or skips[-1].instant if skips else None
    if newest is not None:
        state = msgspec.structs.replace(state, decided_until=newest)
    state = _remember(state, skips)
    if len(admitted) > 1:
        state = _queue(state, admitted)
    elif admitted:
        state = _meet(schedule, state, admitted[0])
    return _drain(schedule, state)


def settle(state: ScheduleState, started: Iterable[Firing], skips: Iterable[Skip], failures: int = 0) -> ScheduleState:
    """The state after a decision was carried out: these runs exist, these instants could not be started."""
    done = tuple(started)
    state = msgspec.structs.replace(
        state,
        starting=(),
        cancelling=(),
        active=(*state.active, *done),
        last=done[-1] if done else state.last,
        failures=state.failures + failures,
    )
    return _remember(state, skips)


def paused(state: ScheduleState, pause: Pause) -> ScheduleState:
    """The state of a schedule that starts nothing more."""
    return msgspec.structs.replace(state, pause=pause)


def resumed(state: ScheduleState, now: datetime) -> ScheduleState:
    """The state of a schedule that goes on with the next instant. What passed during the pause is not made up for."""
    after = max(state.decided_until, now) if state.decided_until else now
    return msgspec.structs.replace(state, pause=None, failures=0, decided_until=after)


def with_backfill(state: ScheduleState, instants: Iterable[datetime]) -> ScheduleState:
    """The state in which these past instants wait to be started, too."""
    waiting = sorted({*state.waiting, *instants})
    return msgspec.structs.replace(state, waiting=tuple(waiting))


def pause_if_failing(schedule: Schedule, state: ScheduleState, now: datetime) -> ScheduleState:
    """The state of a schedule that pauses itself, if so many runs failed in a row as it says."""
    limit = schedule.pause_after
    if limit is None or state.failures < limit or state.pause is not None:
        return state
    runs = "run" if state.failures == 1 else "runs in a row"
    last = f"; the last was run {state.last.run_id}" if state.last else ""
    reason = f"{state.failures} {runs} failed{last}"
    return paused(state, Pause(now, "pause_after", reason, is_automatic=True))


# -- the parts of a decision -----------------------------------------------------------------------------------------


def _count_results(
    schedule: Schedule, state: ScheduleState, now: datetime, results: Mapping[int, RunResult]
) -> ScheduleState:
    """Forget the runs that have ended, and count the failures in a row."""
    failures = state.failures
    for one in sorted(state.active, key=lambda firing: firing.instant):
        result = results.get(one.run_id, "active")
        failures = failures + 1 if result == "failed" else 0 if result == "succeeded" else failures
    active = tuple(one for one in state.active if results.get(one.run_id, "active") == "active")
    if active == state.active:
        return state
    return pause_if_failing(schedule, msgspec.structs.replace(state, active=active, failures=failures), now)


def _until(due: Iterable[datetime], after: datetime) -> Iterator[datetime]:
    for one in due:
        if one <= after:
            return
        yield one


def _admit(schedule: Schedule, now: datetime, due: Iterator[datetime]) -> tuple[list[datetime], list[Skip]]:
    """The instants that are to be started, the oldest first, and those that were missed."""
    newest = next(due, None)
    if newest is None:
        return [], []
    if schedule.catch_up == "none" and now - newest > ON_TIME:
        return [], _missed(newest, due, "no server was there in time, and catch_up is none")
    if schedule.catch_up == "all":
        found = [newest, *islice(due, schedule.catch_up_max - 1)]
        words = f"no server was there in time, and catch_up makes up for {schedule.catch_up_max:,} at most"
        return found[::-1], _missed(next(due, None), due, words)
    words = f"no server was there in time, and catch_up is {schedule.catch_up}"
    return [newest], _missed(next(due, None), due, words)


def _missed(newest: datetime | None, older: Iterator[datetime], reason: str) -> list[Skip]:
    """One record for all of them. Where they began is looked for only so far, since there may be millions."""
    if newest is None:
        return []
    first = newest
    for one in islice(older, WAITING_MAX):
        first = one
    return [Skip(first, reason, None if first == newest else newest)]


def _meet(schedule: Schedule, state: ScheduleState, instant: datetime) -> ScheduleState:
    """What one instant does while earlier runs may be active."""
    is_busy = bool(state.active or state.waiting)
    if schedule.overlap == "queue" and is_busy:
        return _queue(state, [instant])
    if schedule.overlap == "skip" and is_busy:
        before = state.active[-1] if state.active else None
        words = f"run {before.run_id} has not ended" if before else "earlier instants still wait"
        return _remember(state, [Skip(instant, f"{words}, and overlap is skip")])
    cancelling = tuple(one.run_id for one in state.active) if schedule.overlap == "cancel" else ()
    return msgspec.structs.replace(state, starting=(*state.starting, instant), cancelling=cancelling)


def _queue(state: ScheduleState, instants: Iterable[datetime]) -> ScheduleState:
    wanted = [one for one in instants if one not in state.waiting]
    room = max(0, WAITING_MAX - len(state.waiting))
    state = msgspec.structs.replace(state, waiting=tuple(sorted({*state.waiting, *wanted[:room]})))
    return _remember(state, [Skip(one, f"{WAITING_MAX:,} scheduled times are waiting") for one in wanted[room:]])


def _drain(schedule: Schedule, state: ScheduleState) -> ScheduleState:
    """Start what waits: all of it if runs may overlap, otherwise the oldest once nothing is active."""
    if not state.waiting:
        return state
    if schedule.overlap == "allow":
        starting = tuple(sorted({*state.starting, *state.waiting}))
        return msgspec.structs.replace(state, starting=starting, waiting=())
    if state.active or state.starting:
        return state
    return msgspec.structs.replace(state, starting=state.waiting[:1], waiting=state.waiting[1:])


def _remember(state: ScheduleState, skips: Iterable[Skip]) -> ScheduleState:
    added = tuple(skips)
    return msgspec.structs.replace(state, skips=(*state.skips, *added)[-SKIPS_MAX:]) if added else state
