"""A worker with an end: how many tasks it may still take, and for which of them it has time."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mulligan.core.effects.tasks import Task
from mulligan.ports import Offer
from mulligan.worker.task_limits import TaskLimits

OFFER = Offer(4.0, 1 << 30, 0, labels=(), host="here", tasks_max=4)


def task(timeout: float | None = None) -> Task:
    return Task(1, "a", 1, "shell", {}, workflow="w", version="v", step="a", visit=1, timeout=timeout)


def test_without_limits_everything_is_admitted_and_the_offer_is_the_same_object():
    limits = TaskLimits()

    assert limits.admits(task(1e9)) and limits.narrow(OFFER) is OFFER
    assert not (limits.is_set or limits.is_used_up or limits.is_over)


def test_each_task_that_is_taken_counts_and_one_that_was_not_leased_does_not():
    limits = TaskLimits(tasks_max=2)

    limits.take()
    limits.take()
    limits.give_back()

    assert limits.narrow(OFFER).tasks_max == 1 and limits.admits(task())
    limits.take()
    assert limits.narrow(OFFER).tasks_max == 0 and not limits.admits(task())
    assert limits.is_used_up


@pytest.mark.parametrize(("timeout", "is_admitted"), [(30.0, True), (30.5, False), (None, True)])
def test_a_task_is_admitted_if_its_timeout_is_no_longer_than_the_time_left(timeout: float | None, is_admitted: bool):
    limits = TaskLimits(until=130.0, monotonic=lambda: 100.0)

    assert limits.admits(task(timeout)) is is_admitted
    assert limits.narrow(OFFER) == replace(OFFER, seconds_left=30.0)


def test_when_the_time_is_over_nothing_is_admitted_or_offered():
    limits = TaskLimits(until=130.0, monotonic=lambda: 131.0)

    assert limits.is_over and not limits.admits(task())
    assert limits.narrow(OFFER).tasks_max == 0
