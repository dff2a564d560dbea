"""The clock of a process: it starts with the wall clock, and goes on evenly whatever is done to that."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

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


def asked(common: JumpingClock, *seconds: float, ahead: float = 86400.0) -> Callable[[], datetime]:
    """A store whose clock is ahead, and which takes so long to answer, half of it for the way back."""
    left = list(seconds)

    def ask() -> datetime:
        took = left.pop(0)
        common.advance(took / 2)
        said = common.now() + timedelta(seconds=ahead)
        common.advance(took / 2)
        return said

    return ask


@pytest.mark.parametrize(("took", "error"), [((0.4,), 0.2), ((9.0, 0.4), 0.2), ((9.0, 4.0, 6.0), 2.0)])
def test_it_goes_by_the_clock_of_a_store_and_asks_again_where_the_answer_is_slow(
    common: JumpingClock, wall: WallClock, took: tuple[float, ...], error: float
) -> None:
    clock = wall.of_process()

    clock.set_by(asked(common, *took))

    assert abs(clock.now() - common.now() - timedelta(days=1)) < timedelta(milliseconds=1)
    assert clock.error_seconds == pytest.approx(error)


def test_slow_answers_do_not_make_it_worse(common: JumpingClock, wall: WallClock) -> None:
    clock = wall.of_process()
    clock.set_by(asked(common, 0.4))

    clock.set_by(asked(common, 9.0, 9.0, 9.0, ahead=0.0))

    assert clock.now() == common.now() + timedelta(days=1)


def test_where_a_store_has_no_clock_of_its_own_nothing_changes(common: JumpingClock, wall: WallClock) -> None:
    clock = wall.of_process()

    clock.set_by(lambda: None)

    assert (clock.now(), clock.error_seconds) == (START, None)


def test_the_clock_of_this_process_says_what_the_wall_clock_says() -> None:
    assert ProcessClock().stepped() == timedelta(0)
