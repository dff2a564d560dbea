"""How long a simulated timer may still wait: by the time of its run, or by the wall clock."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from mulligan.testing.clock import START, JumpingClock
from mulligan.testing.timekeeping import TIMER_SECONDS_MAX, Timekeeper

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
    keeper = Timekeeper(JumpingClock().monotonic, is_shared=False)

    keeper.waiting({(1, kind, "s", 1): due}, {1: BEHIND}, START)

    assert (keeper.complaints == []) == is_fine
