"""A worker with an end: how many tasks it may still take, and for which of them it has time."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mulligan.core.effects.tasks import Task
from mulligan.ports import Offer
from mulligan.worker.slots.task_limits import TaskLimits

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


def test_a_worker_without_an_end_of_its_own_goes_on_and_takes_what_fits_into_the_time_of_its_job():
    now = [100.0]
    limits = TaskLimits(job_until=200.0, monotonic=lambda: now[0])

    assert (limits.life_seconds, limits.is_set, limits.is_over, limits.ends_life) == (100.0, True, False, False)
    assert limits.admits(task(100.0)) and not limits.admits(task(100.5))
    now[0] = 190.0
    assert limits.ends_life
    now[0] = 250.0
    # The scheduler ends it: until then it runs what has no timeout.
    assert not limits.is_over and limits.admits(task()) and limits.narrow(OFFER).tasks_max == OFFER.tasks_max


def test_the_end_of_a_worker_counts_and_not_that_of_its_job():
    limits = TaskLimits(until=130.0, job_until=200.0, monotonic=lambda: 129.0)

    assert (limits.seconds_left, limits.ends_life) == (1.0, False)


def test_when_the_time_is_over_nothing_is_admitted_or_offered():
    limits = TaskLimits(until=130.0, monotonic=lambda: 131.0)

    assert limits.is_over and not limits.admits(task())
    assert limits.narrow(OFFER).tasks_max == 0


def test_a_worker_that_is_asked_to_finish_takes_no_more_and_is_done_with_its_tasks():
    limits = TaskLimits()
    limits.take()

    limits.is_finishing = True

    assert not limits.admits(task()) and limits.narrow(OFFER).tasks_max == 0
    assert limits.is_used_up
    limits.give_back()
    assert not limits.admits(task())
