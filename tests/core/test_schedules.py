"""What a schedule decides: catching up, overlap, pausing itself. A model of a year in which servers come and go."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.nightly import examples

from mulligan.core.model import schedule as model
from mulligan.core.model.schedule import EPOCH, Schedule, catch_up_text, parse_catch_up
from mulligan.core.schedules import instant_names as instants
from mulligan.core.schedules.deciding import (
    ON_TIME,
    Firing,
    Pause,
    RunResult,
    ScheduleState,
    Skip,
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
    ("catch_up", "started", "missed"),
    [
        ({"catch_up": "none"}, [], (1, 5, "is none")),
        ({"catch_up": "last"}, [5], (1, 4, "is last")),
        ({"catch_up": "all", "catch_up_max": 3}, [3, 4, 5], (1, 2, "makes up for 3 at most")),
    ],
)
def test_what_is_made_up_for_after_hours_without_a_server(
    catch_up: dict[str, Any], started: list[int], missed: tuple[int, int, str]
) -> None:
    world = World(hourly(overlap="allow", **catch_up))

    assert world.turn(at(5.5)) == [at(hour) for hour in started]
    assert world.turn(at(5.5)) == []
    (skip,) = world.state.skips
    first, last, why = missed
    assert (skip.instant, skip.until) == (at(first), at(last))
    assert skip.reason == f"no server was there in time, and catch_up {why}"
    assert world.state.decided_until == at(5)


def test_a_server_that_comes_back_within_a_minute_missed_nothing() -> None:
    world = World(hourly(catch_up="none"))

    assert world.turn(at(1) + timedelta(seconds=60)) == [at(1)]
    assert world.turn(at(2) + timedelta(seconds=60.5)) == []
    assert world.state.skips[-1].until is None


def test_the_fields_that_inputs_may_name_are_those_that_an_instant_has() -> None:
    found = instants.instant_names("nightly", UTC, "UTC", previous=None, instant=T0, following=at(1))

    assert tuple(found) == instants.FIELDS
    assert instants.ROOT == "schedule"
    assert (found["previous"], found["date"], found["next"]) == (None, "2026-01-01", "2026-01-01T01:00:00Z")


def test_what_a_schedule_does_not_say_is_what_most_people_want() -> None:
    assert parse_catch_up("all") == ("all", 100)
    # `every: 6h` is at 0, 6, 12 and 18 o'clock UTC.
    assert model.EPOCH.timestamp() == 0
    assert Pause(T0, "ann") == Pause(T0, "ann", "", is_automatic=False)


def test_a_stored_schedule_with_a_key_of_a_later_version_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="unknown field `jitter`"):
        msgspec.convert({"workflow": "etl", "jitter": 6}, Schedule)


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


def test_failures_from_before_a_resume_do_not_count() -> None:
    world = World(hourly(pause_after=2))
    world.state = resumed(msgspec.structs.replace(world.state, failures=1), at(0.5))
    world.turn(at(1))
    world.end("failed")

    assert world.turn(at(2)) == [at(2)]


def test_one_failure_may_be_enough_and_a_pause_of_a_person_stays() -> None:
    world = World(hourly(pause_after=1))
    world.turn(at(1))
    world.end("failed")
    by_person = paused(world.state, Pause(at(1), "ada", "maintenance"))

    world.turn(at(2))

    assert world.state.pause == Pause(at(2), "pause_after", "1 run failed; the last was run 1", is_automatic=True)
    assert decide(world.schedule, by_person, at(2), due(at(2)), world.results, T0).pause == by_person.pause


def test_failures_in_a_row_are_counted_by_instant_and_a_run_of_which_nothing_is_known_is_active() -> None:
    state = ScheduleState(active=(Firing(at(3), 3), Firing(at(2), 2), Firing(at(1), 1)))

    decided = decide(hourly(), state, at(0), (), {1: "succeeded", 2: "failed"}, T0)

    assert (decided.failures, decided.active) == (1, (Firing(at(3), 3),))


def test_what_waits_is_in_the_way_of_the_next_instant_unless_runs_may_be_cancelled() -> None:
    waiting = ScheduleState(waiting=(at(-1),))

    skipped = decide(hourly(overlap="skip"), waiting, at(1), due(at(1)), {}, T0)
    queued = decide(hourly(overlap="queue"), waiting, at(1), due(at(1)), {}, T0)
    cancelled = decide(hourly(overlap="cancel"), waiting, at(1), due(at(1)), {}, T0)

    assert skipped.skips[-1].reason == "earlier instants still wait, and overlap is skip"
    assert (skipped.starting, queued.starting, queued.waiting) == ((at(-1),), (at(-1),), (at(1),))
    assert (cancelled.starting, cancelled.waiting) == ((at(1),), (at(-1),))


def test_no_more_than_a_thousand_instants_wait_and_the_others_are_skipped_in_words() -> None:
    full = ScheduleState(waiting=tuple(at(number) for number in range(-1000, 0)), active=(Firing(at(-1001), 1),))
    fuller = msgspec.structs.replace(full, waiting=(at(-1002), *full.waiting))

    for state in (full, fuller):
        decided = decide(hourly(overlap="queue"), state, at(1), due(at(1)), {}, T0)

        assert decided.waiting == state.waiting
        assert decided.skips == (Skip(at(1), "1,000 scheduled times are waiting"),)
    caught_up = decide(hourly(overlap="queue", catch_up="all"), full, at(3), due(at(3)), {}, at(0))
    assert [one.instant for one in caught_up.skips] == [at(1), at(2), at(3)]


def test_what_waits_is_kept_in_order_and_an_instant_that_waits_already_takes_no_room() -> None:
    busy = ScheduleState(active=(Firing(at(-9), 1),))
    state = with_backfill(busy, [at(2), at(-3), at(-2), at(-3)])

    decided = decide(hourly(overlap="queue", catch_up="all"), state, at(3), due(at(3)), {}, T0)

    assert state.waiting == (at(-3), at(-2), at(2))
    assert decided.waiting == (at(-3), at(-2), at(1), at(2), at(3))
    nearly = with_backfill(busy, [at(-number) for number in range(1, 998)] + [at(1), at(2)])
    decided = decide(hourly(overlap="queue", catch_up="all"), nearly, at(3), due(at(3)), {}, T0)
    assert (len(decided.waiting), decided.skips) == (1000, ())
    assert nearly.waiting == tuple(sorted(nearly.waiting))


def test_the_newest_twenty_skips_are_remembered() -> None:
    state = settle(ScheduleState(), (), [Skip(at(number), "busy") for number in range(25)])

    assert [one.instant for one in state.skips] == [at(number) for number in range(5, 25)]


def test_a_run_that_is_only_to_be_cancelled_is_work_too() -> None:
    assert ScheduleState(cancelling=(1,)).has_work
    assert not ScheduleState(active=(Firing(at(1), 1),)).has_work


def test_a_state_is_stored_in_few_words() -> None:
    """Stores of this version are read by later ones, and the other way round."""
    state = ScheduleState(pause=Pause(T0, "ada"), skips=(Skip(T0, "busy"),), last=Firing(T0, 1))
    time = '"2026-01-01T00:00:00Z"'

    assert msgspec.json.encode(state).decode() == (
        f'{{"pause":{{"at":{time},"by":"ada"}},"last":{{"instant":{time},"run_id":1}},'
        f'"skips":[{{"instant":{time},"reason":"busy"}}]}}'
    )


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


@settings(max_examples=examples(40, 100))
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


@pytest.mark.parametrize("text", ["none", "last", "all(20)", "all(1)", "all(1000)"])
def test_catching_up_is_written_as_it_is_read(text: str) -> None:
    kind, number = parse_catch_up(text)

    assert catch_up_text(hourly(catch_up=kind, catch_up_max=number)) == text


@pytest.mark.parametrize("text", ["", "some", "all()", "all(0)", "all(1001)", "last(3)", "all(3", "all(x)", "all(٣)"])
def test_other_words_for_catching_up_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not"):
        parse_catch_up(text)


def test_a_refusal_quotes_the_beginning_of_what_was_said() -> None:
    with pytest.raises(ValueError) as some:
        parse_catch_up("x" * 60)
    with pytest.raises(ValueError) as many:
        parse_catch_up("all(1001)")

    assert str(some.value) == f"'{'x' * 50}' is not one of none, last, all, all(20)"
    assert str(many.value) == "all(1001) is not between all(1) and all(1000)"


def test_a_zone_matters_to_the_instants_of_cron_and_not_to_those_of_an_interval() -> None:
    cron, berlin = Schedule("etl", cron="@daily"), Schedule("etl", cron="@daily", timezone="Europe/Berlin")

    assert cron.timing != berlin.timing
    assert hourly().timing == hourly(timezone="Europe/Berlin").timing
    assert len({cron.timing, hourly().timing, hourly(anchor=T0).timing, Schedule("etl", every=60.0).timing}) == 4


def test_the_instants_of_an_interval_end_with_the_calendar() -> None:
    last = datetime.max.replace(tzinfo=UTC)

    assert [*interval_instants(3600.0, EPOCH, last - timedelta(hours=1.5))] == [
        last.replace(minute=0, second=0, microsecond=0)
    ]


def test_the_instants_of_an_interval_do_not_drift() -> None:
    forwards = list(islice(interval_instants(0.1 * 11, T0, T0), 1000))

    assert forwards[-1] == T0 + timedelta(seconds=1100)
    assert [*islice(interval_instants(1.1, T0, forwards[-1], backwards=True), 1000)] == forwards[::-1]
