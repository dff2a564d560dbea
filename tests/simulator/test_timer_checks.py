"""How long a simulated timer may still wait: by the time of its run, or by the wall clock."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from mulligan.core.effects.effects import SetTimer
from mulligan.ports import Commit, Turn
from mulligan.testing.clock import START, JumpingClock
from proof.invariants.timer_checks import CLOCKS_APART_SECONDS_MAX, TIMER_SECONDS_MAX, CountedClock, TimerChecks

BEHIND = START - timedelta(hours=2)
SOON = timedelta(seconds=60)
TOO_LATE = timedelta(seconds=TIMER_SECONDS_MAX + 1)


@pytest.mark.parametrize(
    ("kind", "due", "is_fine"),
    [
        ("attempt", BEHIND + SOON, True),
        ("attempt", BEHIND + TOO_LATE, False),
        ("until", START + SOON, True),
        ("until", START + TOO_LATE, False),
    ],
)
def test_a_wait_until_a_time_of_day_goes_by_the_wall_clock_and_others_by_their_run(
    kind: str, due: datetime, is_fine: bool
) -> None:
    keeper = TimerChecks(JumpingClock().monotonic, is_shared=False)

    keeper.check_waiting({(1, kind, "s", 1): due}, {1: BEHIND}, START)

    assert (keeper.violations == []) == is_fine


class Driving:
    """A process that drives every run, by the common time."""

    def __init__(self, common: JumpingClock) -> None:
        self.clock = CountedClock(common.now, common.monotonic)

    def time_of(self, run_id: int) -> datetime | None:
        return self.clock.now()


@pytest.mark.parametrize(("stretched", "is_fine"), [(0, True), (2 * CLOCKS_APART_SECONDS_MAX, False)])
def test_a_timer_that_was_set_for_long_may_wait_for_so_long(stretched: float, is_fine: bool) -> None:
    common = JumpingClock()
    keeper = TimerChecks(common.monotonic, is_shared=False)
    due = START + 2 * TOO_LATE
    timer = SetTimer("loop", due, "s", 2)
    commit = Commit(
        turn=Turn(1, "w", 1), after=0, entries=[], rows=[], status="running", round=1, at=START, timers=[timer]
    )
    keeper.note_commits([commit], Driving(common))

    keeper.check_waiting({(1, "loop", "s", 2): due + timedelta(seconds=stretched)}, {1: START}, START)

    assert (keeper.violations == []) == is_fine
