"""Invariants of what servers do beside the runs: schedules start each instant once, notices arrive.

A violated invariant is added to `violations` and raised by the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime, timedelta

from mulligan.core.model.events import RunStarted
from mulligan.core.model.schedule import Schedule
from mulligan.core.model.text.durations import parse_time
from mulligan.core.schedules.deciding import ScheduleState
from mulligan.core.state.transitions import RUN_ENDED
from proof.invariants.store_contents import StoreContents
from proof.simulator.invariant_checker import CheckedRun

# How many skipped instants a schedule remembers: what was skipped before looks like what was lost.
SKIPS_KEPT = 20


class ScheduleChecks:
    """Follow one schedule: its instants, the runs that it started, and what it says about the others."""

    def __init__(self) -> None:
        # The run of each instant, by the labels of the runs; and every instant that the schedule says it has started.
        self.runs: dict[datetime, int] = {}
        self.firings: dict[datetime, int] = {}
        # While a person has paused it: what may still start. And the times of earlier pauses.
        self.started_at_pause: frozenset[datetime] | None = None
        self._paused_after: datetime | None = None
        self._pauses: list[tuple[datetime, datetime]] = []

    def check(self, schedule: Schedule, since: datetime, state: ScheduleState, runs: Mapping[int, CheckedRun]) -> None:
        for one in (*state.active, *filter(None, (state.last,))):
            if self.firings.setdefault(one.instant, one.run_id) != one.run_id:
                raise _broken(f"{one.instant} is said to be run {one.run_id}, and was {self.firings[one.instant]}")
        for run_id, instant in _instants_of(runs):
            self._promise_13_an_instant_starts_one_run(run_id, instant)
            self._promise_13_a_paused_schedule_starts_nothing(instant)
            self._promise_13_the_inputs_are_of_the_instant(schedule, instant, _inputs_of(runs[run_id]))
        if self.started_at_pause is not None and state.pause is None:
            raise _broken("a person has paused it, and it is not paused")
        self._promise_13_no_instant_is_lost(schedule, since, state)
        if schedule.overlap in ("skip", "queue"):
            self._promise_13_runs_do_not_overlap(runs)

    def note_pause(self, state: ScheduleState) -> None:
        """Record that a person has paused it, in this state."""
        started = (one.instant for one in (*state.active, *filter(None, (state.last,))))
        self.started_at_pause = frozenset((*self.runs, *self.firings, *started, *state.starting))
        self._paused_after = state.decided_until

    def note_resume(self, since: datetime, now: datetime) -> None:
        self._pauses.append((self._paused_after or since, now))
        self.started_at_pause = None

    def _promise_13_an_instant_starts_one_run(self, run_id: int, instant: datetime) -> None:
        if self.runs.setdefault(instant, run_id) != run_id:
            raise _broken(f"{instant} has started run {self.runs[instant]} and run {run_id}")

    def _promise_13_a_paused_schedule_starts_nothing(self, instant: datetime) -> None:
        if self.started_at_pause is not None and instant not in self.started_at_pause:
            raise _broken(f"{instant} was started, and the schedule is paused")

    def _promise_13_the_inputs_are_of_the_instant(
        self, schedule: Schedule, instant: datetime, inputs: Mapping[str, str]
    ) -> None:
        """Whoever starts the run, and however late: it works on the interval that ends with its instant."""
        assert schedule.every is not None
        wanted = {"until": instant, "after": instant - timedelta(seconds=schedule.every)}
        if {name: parse_time(text) for name, text in inputs.items()} != wanted:
            raise _broken(f"the run of {instant} has the inputs {dict(inputs)}")

    def _promise_13_no_instant_is_lost(self, schedule: Schedule, since: datetime, state: ScheduleState) -> None:
        """Each instant about which it has decided was started, waits, or was skipped with a reason."""
        if state.decided_until is None or len(state.skips) >= SKIPS_KEPT:
            return
        known = {*self.runs, *self.firings, *state.starting, *state.waiting}
        for instant in _instants(schedule, since, state.decided_until):
            is_skipped = any(one.instant <= instant <= (one.until or one.instant) and one.reason for one in state.skips)
            is_skipped = is_skipped or any(after < instant <= until for after, until in self._pauses)
            if instant not in known and not is_skipped and (state.pause is None or instant < state.pause.at):
                raise _broken(f"{instant} was neither started nor skipped, and does not wait")

    def _promise_13_runs_do_not_overlap(self, runs: Mapping[int, CheckedRun]) -> None:
        """Except for runs that somebody has retried."""
        open_runs = [
            run_id
            for run_id, _ in _instants_of(runs)
            if runs[run_id].state.run.status not in RUN_ENDED and runs[run_id].state.run.round == 1
        ]
        if len(open_runs) > 1:
            raise _broken(f"runs {open_runs} go on at once, and may not overlap")

    def check_finished(self, schedule: Schedule, since: datetime, state: ScheduleState, now: datetime) -> None:
        """Check that servers which could do everything have done it: nothing is due, nothing is half done."""
        if state.has_work:
            raise _broken(f"{state.starting} and {state.cancelling} were decided, and nobody carries it out")
        due = [one for one in _instants(schedule, since, now) if one > (state.decided_until or since)]
        if due and state.pause is None:
            raise _broken(f"{due[0]} is due, and nothing was decided about it")


def _instants(schedule: Schedule, since: datetime, until: datetime) -> Iterable[datetime]:
    """The instants after `since`, counted here: what the product counts is what is checked."""
    assert schedule.every is not None and schedule.anchor is not None
    period = timedelta(seconds=schedule.every)
    instant = schedule.anchor
    while instant <= until:
        if instant > since:
            yield instant
        instant += period


def _instants_of(runs: Mapping[int, CheckedRun]) -> Iterable[tuple[int, datetime]]:
    """The runs that say which instant they are of, apart from their forks."""
    for run_id, run in runs.items():
        started = run.log[0].fact if run.log else None
        if isinstance(started, RunStarted) and started.forked_from is None and "schedule_instant" in started.labels:
            yield run_id, parse_time(started.labels["schedule_instant"])


def _inputs_of(run: CheckedRun) -> Mapping[str, str]:
    started = run.log[0].fact
    assert isinstance(started, RunStarted)
    return started.inputs


class DeliveryChecks:
    """The receivers of notices. `contents` is what the store has at this moment."""

    def __init__(self, contents: Callable[[], StoreContents]) -> None:
        self.violations: list[str] = []
        # How often each notice has arrived.
        self.arrived: dict[str, int] = {}
        self._contents = contents
        # Who has claimed each notice last.
        self._claimed_by: dict[str, str] = {}

    def note_claim(self, server: str, keys: Iterable[str]) -> None:
        self._claimed_by.update(dict.fromkeys(keys, server))

    def on_send(self, server: str, keys: Collection[str], *, is_accepted: bool) -> None:
        """Called when a server sends notices to a target, which accepts them or not."""
        known = {notice.key: notice for notice in self._contents().notices}
        for key in keys:
            if key not in known:
                self._add(f"'{key}' is sent, and no commit has announced it")
            elif known[key].status == "sent":
                self._add(f"'{key}' is sent again, and was written down as sent")
            if self._claimed_by.get(key) != server:
                self._add(f"'{key}' is sent by {server}, and {self._claimed_by.get(key)} has claimed it")
            self.arrived[key] = self.arrived.get(key, 0) + is_accepted

    def check(self, contents: StoreContents) -> None:
        for notice in contents.notices:
            if notice.status == "sent" and not self.arrived.get(notice.key):
                self._add(f"the notice of event {notice.seq} of run {notice.run_id} counts as sent, and never arrived")

    def check_finished(self, contents: StoreContents) -> None:
        """Check the end, when every target accepts everything: all have arrived, or were given up."""
        self.check(contents)
        for notice in contents.notices:
            if notice.status == "waiting":
                self._add(f"the notice of event {notice.seq} of run {notice.run_id} waits, and nobody sends it")

    def _add(self, sentence: str) -> None:
        self.violations.append(f"promise 11: {sentence}")


def _broken(sentence: str) -> AssertionError:
    return AssertionError(f"promise 13: {sentence}")
