"""The clock of a process: it starts with the wall clock, and goes on evenly whatever is done to that."""

from __future__ import annotations

from datetime import timedelta

import pytest

from mulligan.store.clock import ProcessClock
from mulligan.testing.clock import START, JumpingClock, WallClock


@pytest.fixture
def common() -> JumpingClock:
    return JumpingClock()


@pytest.fixture
def wall(common: JumpingClock) -> WallClock:
    return WallClock(common)


@pytest.mark.parametrize("step", [-7200.0, -30.0, 3600.0])
def test_a_step_of_the_wall_clock_changes_nothing_but_is_known(
    common: JumpingClock, wall: WallClock, step: float
) -> None:
    clock = wall.of_process()
    common.advance(10)

    wall.set_wrong(step)
    common.advance(5)

    assert clock.now() == START + timedelta(seconds=15)
    assert clock.stepped() == timedelta(seconds=step)


def test_a_wall_clock_that_was_not_stepped_is_not_ahead(common: JumpingClock, wall: WallClock) -> None:
    clock = wall.of_process()

    wall.set_wrong(0.4)
    common.advance(100)

    assert clock.stepped() == timedelta(0)


def test_a_process_starts_with_what_the_wall_clock_says(common: JumpingClock, wall: WallClock) -> None:
    wall.set_wrong(-50)

    assert wall.of_process().now() == START - timedelta(seconds=50)


def test_it_may_follow_the_wall_clock_again(common: JumpingClock, wall: WallClock) -> None:
    clock = wall.of_process()
    wall.set_wrong(3600)

    clock.follow_wall()

    assert (clock.now(), clock.stepped()) == (START + timedelta(hours=1), timedelta(0))


def test_it_may_be_set_by_the_clock_of_a_store(common: JumpingClock, wall: WallClock) -> None:
    clock = wall.of_process()

    clock.set(START + timedelta(days=1))
    common.advance(2)

    assert clock.now() == START + timedelta(days=1, seconds=2)


def test_the_clock_of_this_process_says_what_the_wall_clock_says() -> None:
    assert ProcessClock().stepped() == timedelta(0)
