"""Fault points: nothing outside of a test, a crash where a test asks for one."""

from __future__ import annotations

import pytest

from mulligan.ports import FAULT_POINTS, fault_listeners, fault_point
from mulligan.testing.faults import Crash, faults


@pytest.mark.parametrize("name", FAULT_POINTS)
def test_outside_of_a_test_a_fault_point_does_nothing(name: str) -> None:
    assert fault_listeners == []

    fault_point(name)


@pytest.mark.parametrize("name", FAULT_POINTS)
def test_an_armed_point_dies_at_its_nth_pass_and_only_then(name: str) -> None:
    with faults() as points:
        points.arm(name, 3)
        fault_point(name)
        fault_point(name)

        with pytest.raises(Crash) as caught:
            fault_point(name)
        fault_point(name)

    assert str(caught.value) == f"died at '{name}'"
    assert points.passes[name] == 4


def test_passes_are_counted_from_when_the_point_was_armed() -> None:
    with faults() as points:
        fault_point("after_commit")
        points.arm("after_commit", 1)

        with pytest.raises(Crash):
            fault_point("after_commit")


def test_a_disarmed_point_lets_everybody_pass() -> None:
    with faults() as points:
        points.arm("after_commit")
        points.disarm()

        fault_point("after_commit")


def test_a_crash_is_caught_by_no_handler_of_exceptions() -> None:
    assert not issubclass(Crash, Exception)


def test_after_the_block_nobody_listens_even_if_it_died() -> None:
    with pytest.raises(Crash), faults() as points:
        points.arm("before_turn")
        fault_point("before_turn")

    assert fault_listeners == []


def test_a_point_that_does_not_exist_cannot_be_armed() -> None:
    with faults() as points, pytest.raises(KeyError) as caught:
        points.arm("after_lunch")

    assert caught.value.args == (
        "there is no fault point 'after_lunch'; there are after_commit, after_drain, after_lease, "
        "after_schedule_decision, after_schedule_start, before_commit, before_report, before_turn",
    )
