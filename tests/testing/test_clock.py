"""The clock that jumps."""

from __future__ import annotations

from datetime import timedelta

import pytest

from mulligan.testing.clock import START, JumpingClock


def test_it_stands_still_until_told_otherwise() -> None:
    clock = JumpingClock()

    assert clock.now() == clock.now() == START


def test_it_jumps_by_seconds_and_to_a_moment() -> None:
    clock = JumpingClock()

    clock.advance(1.5)
    clock.advance_to(START + timedelta(seconds=9))

    assert clock.now() == START + timedelta(seconds=9)


def test_a_moment_that_has_passed_does_not_take_it_back() -> None:
    clock = JumpingClock()
    clock.advance(10)

    clock.advance_to(START)

    assert clock.now() == START + timedelta(seconds=10)


def test_it_refuses_to_go_back() -> None:
    with pytest.raises(ValueError, match=r"^a clock cannot go back by -1s$"):
        JumpingClock().advance(-1)


def test_a_reporter_may_be_behind_while_the_clock_is_not() -> None:
    clock = JumpingClock()

    assert clock.seen_from(-50) == START - timedelta(seconds=50)
    assert clock.now() == START


def test_its_seconds_go_on_as_the_time_does() -> None:
    clock = JumpingClock()
    before = clock.monotonic()

    clock.advance(1.5)

    assert clock.monotonic() - before == 1.5
