"""What a schedule decides: catching up, overlap, pausing itself. A model of a year in which servers come and go."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mulligan.core.model.schedule import EPOCH, Schedule, catch_up_text, parse_catch_up
from mulligan.core.schedules.deciding import (
    ON_TIME,
    Firing,
    Pause,
    RunResult,
    ScheduleState,
    decide,
    paused,
    resumed,
    settle,
    with_backfill,
)
from mulligan.core.schedules.intervals import interval_instants

T0 = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


def hourly(**keys: Any) -> Schedule:
    return Schedule("etl", every=3600.0, **keys)


def due(now: datetime) -> Iterator[datetime]:
    return interval_instants(3600.0, EPOCH, now, backwards=True)


def at(hours: float) -> datetime:
    return T0 + hours * HOUR


class World:
    """One schedule, its runs, and servers that carry out what it decides."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.state = ScheduleState()
        self.runs: dict[datetime, int] = {}
        self.results: dict[int, RunResult] = {}
        self.cancelled: list[int] = []

    def turn(self, now: datetime) -> list[datetime]:
        """What a server does at this time; the instants that it starts."""
        started = []
        while True:
            if self.state.has_work:
                firings = []
                for run_id in self.state.cancelling:
                    self.cancelled.append(run_id)
                    self.results[run_id] = "cancelled"
                for instant in self.state.starting:
                    if instant not in self.runs:
                        self.runs[instant] = len(self.runs) + 1
                        self.results[self.runs[instant]] = "active"
                        started.append(instant)
                    firings.append(Firing(instant, self.runs[instant]))
                self.state = settle(self.state, firings, ())
            changed = decide(self.schedule, self.state, now, due(now), self.results, T0)
            if changed == self.state:
                return started
            self.state = changed

    def end(self, result: RunResult = "succeeded") -> None:
        self.results = {run_id: result if now == "active" else now for run_id, now in self.results.items()}


def test_an_instant_is_started_once_however_often_servers_look() -> None:
    world = World(hourly())

    assert world.turn(at(0.5)) == []
    assert world.turn(at(1)) == [at(1)]
    assert world.turn(at(1)) == []
    assert world.turn(at(1.5)) == []


@pytest.mark.parametrize(
    ("catch_up", "started"),
    [({"catch_up": "none"}, []), ({"catch_up": "last"}, [5]), ({"catch_up": "all", "catch_up_max": 3}, [3, 4, 5])],
)
def test_what_is_made_up_for_after_hours_without_a_server(catch_up: dict[str, Any], started: list[int]) -> None:
    world = World(hourly(overlap="allow", **catch_up))

    assert world.turn(at(5.5)) == [at(hour) for hour in started]
    assert world.turn(at(5.5)) == []
    assert len(world.state.skips) == 1
    assert "no server was there in time" in world.state.skips[0].reason


def test_a_server_that_comes_back_within_a_minute_missed_nothing() -> None:
    world = World(hourly(catch_up="none"))

    assert world.turn(at(1) + ON_TIME) == [at(1)]
    assert world.turn(at(2) + ON_TIME + timedelta(seconds=1)) == []


def test_overlap_skip_says_which_run_was_in_the_way() -> None:
    world = World(hourly(overlap="skip"))
    world.turn(at(1))

    assert world.turn(at(2)) == []
    assert world.state.skips[-1].reason == "run 1 has not ended, and overlap is skip"
    world.end()
    assert world.turn(at(3)) == [at(3)]


def test_overlap_queue_starts_each_when_the_one_before_has_ended() -> None:
    world = World(hourly(overlap="queue"))

    assert world.turn(at(1)) == [at(1)]
    assert world.turn(at(2)) == []
    assert world.turn(at(3)) == []
    world.end()
    assert world.turn(at(3.1)) == [at(2)]
    world.end("failed")
    assert world.turn(at(3.2)) == [at(3)]


def test_overlap_cancel_stops_the_earlier_run_and_starts_the_next_at_once() -> None:
    world = World(hourly(overlap="cancel"))
    world.turn(at(1))

    assert world.turn(at(2)) == [at(2)]
    assert world.cancelled == [1]


def test_a_decision_that_was_not_carried_out_stays_the_same_however_late_it_is() -> None:
    schedule = hourly(catch_up="last")
    decided = decide(schedule, ScheduleState(), at(1), due(at(1)), {}, T0)

    later = decide(schedule, decided, at(9), due(at(9)), {}, T0)

    assert decided.starting == (at(1),)
    assert later == decided


def test_it_pauses_itself_after_failures_in_a_row_and_goes_on_after_a_resume() -> None:
    world = World(hourly(pause_after=2))
    for hour, result in enumerate(("failed", "succeeded", "failed", "cancelled", "failed"), 1):
        world.turn(at(hour))
        world.end(result)  # type: ignore[arg-type]

    assert world.turn(at(6)) == []
    assert world.state.pause is not None
    assert (world.state.pause.reason, world.state.pause.is_automatic) == (
        "2 runs in a row failed; the last was run 5",
        True,
    )
    world.state = resumed(world.state, at(8.5))
    assert world.turn(at(8.6)) == []
    assert world.turn(at(9)) == [at(9)]


def test_a_paused_schedule_starts_nothing_and_makes_up_for_nothing() -> None:
    world = World(hourly(catch_up="all"))
    world.state = paused(world.state, Pause(at(0.5), "ada", "maintenance"))

    assert world.turn(at(4)) == []
    world.state = resumed(world.state, at(4.5))
    assert world.turn(at(5)) == [at(5)]


def test_a_backfill_goes_one_by_one_and_starts_no_instant_again() -> None:
    world = World(hourly(overlap="skip"))
    world.turn(at(1))
    world.end()
    world.state = with_backfill(world.state, [at(-2), at(-1), at(1)])

    assert world.turn(at(1.1)) == [at(-2)]
    world.end()
    assert world.turn(at(1.2)) == [at(-1)]
    world.end()
    assert world.turn(at(1.3)) == []


def test_a_second_of_a_year_without_a_server_reads_few_instants() -> None:
    read: list[datetime] = []

    def watched(now: datetime) -> Iterator[datetime]:
        for one in interval_instants(1.0, EPOCH, now, backwards=True):
            read.append(one)
            yield one

    schedule = Schedule("etl", every=1.0)
    decided = decide(schedule, ScheduleState(), at(8760), watched(at(8760)), {}, T0)

    assert decided.starting == (at(8760),)
    assert len(read) < 2000


@given(
    catch_up=st.sampled_from(["none", "last", "all"]),
    catch_up_max=st.integers(1, 5),
    overlap=st.sampled_from(["skip", "queue", "cancel", "allow"]),
    moments=st.lists(
        st.tuples(st.integers(1, 200), st.sampled_from(["", "", "succeeded", "failed"])), min_size=1, max_size=25
    ),
)
def test_every_instant_is_started_or_skipped_and_overlap_is_kept(
    catch_up: Any, catch_up_max: int, overlap: Any, moments: list[tuple[int, str]]
) -> None:
    """Servers look at irregular times, runs end at irregular times."""
    schedule = hourly(catch_up=catch_up, catch_up_max=catch_up_max, overlap=overlap)
    world = World(schedule)
    now = T0
    for minutes, result in moments:
        now += timedelta(minutes=minutes)
        before = set(world.runs)
        if result:
            world.end(result)  # type: ignore[arg-type]
        world.turn(now)

        new = set(world.runs) - before
        assert all(T0 < one <= now for one in new)
        newest = next(due(now))
        if newest > T0 and catch_up == "none":
            assert all(now - one <= ON_TIME for one in new) or overlap == "queue"
        active = [one for one, run_id in world.runs.items() if world.results[run_id] == "active"]
        assert len(active) <= 1 or overlap == "allow"
        if newest > T0:
            assert world.state.decided_until == newest
        # The bytes that are stored are the whole of it.
        assert msgspec.json.decode(msgspec.json.encode(world.state), type=ScheduleState) == world.state
    if overlap == "allow" and catch_up == "all":
        # Nothing is in the way of any of them, unless too many passed at once.
        missing = {*islice(interval_instants(3600.0, EPOCH, T0), int((now - T0) / HOUR))} - set(world.runs)
        assert not missing or world.state.skips


@pytest.mark.parametrize("text", ["none", "last", "all(20)", "all(1)"])
def test_catching_up_is_written_as_it_is_read(text: str) -> None:
    kind, number = parse_catch_up(text)

    assert catch_up_text(hourly(catch_up=kind, catch_up_max=number)) == text


@pytest.mark.parametrize("text", ["", "some", "all()", "all(0)", "all(1001)", "last(3)", "all(3", "all(x)", "all(٣)"])
def test_other_words_for_catching_up_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not"):
        parse_catch_up(text)


def test_the_instants_of_an_interval_do_not_drift() -> None:
    forwards = list(islice(interval_instants(0.1 * 11, T0, T0), 1000))

    assert forwards[-1] == T0 + timedelta(seconds=1100)
    assert [*islice(interval_instants(1.1, T0, forwards[-1], backwards=True), 1000)] == forwards[::-1]
