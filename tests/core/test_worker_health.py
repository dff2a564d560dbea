"""When a worker whose machine fails its tasks pauses, says so, and tries again."""

from __future__ import annotations

from mulligan.core.deciding.workers.worker_health import FIRST_SECONDS, HEALTHY, SECONDS_MAX, WorkerHealth

FULL = "the disk is full"


def failed(times: int, now: float = 100.0) -> WorkerHealth:
    """After so many tries, each as soon as it may be."""
    health = HEALTHY
    for _ in range(times):
        health = health.after_attempt(FULL, max(now, health.until))
    return health


def test_a_healthy_worker_takes_what_it_likes() -> None:
    assert (HEALTHY.trouble, HEALTHY.tasks_max(5.0, 3)) == ("", None)
    assert HEALTHY.after_attempt("", 5.0) == HEALTHY


def test_after_one_failure_of_the_machine_it_pauses_and_then_tries_one_task() -> None:
    health = failed(1)

    assert health.trouble == ""
    assert health.tasks_max(100.0, 0) == 0
    assert health.tasks_max(100.0 + FIRST_SECONDS, 1) == 0
    assert health.tasks_max(100.0 + FIRST_SECONDS, 0) == 1


def test_the_second_failure_in_a_row_is_trouble_and_a_success_ends_it() -> None:
    health = failed(2)

    assert health.trouble == FULL
    assert health.after_attempt("", 200.0) == HEALTHY


def test_each_failed_try_doubles_the_pause_up_to_a_limit() -> None:
    pauses = []
    health = HEALTHY
    now = 0.0
    for _ in range(12):
        health = health.after_attempt(FULL, now)
        pauses.append(health.until - now)
        now = health.until

    assert pauses[:4] == [1.0, 2.0, 4.0, 8.0]
    assert pauses[-1] == SECONDS_MAX


def test_tasks_that_fail_beside_each_other_are_one_reason_to_pause() -> None:
    health = HEALTHY
    for _ in range(8):
        health = health.after_attempt(FULL, 100.0)

    assert (health.trouble, health.until) == (FULL, 100.0 + FIRST_SECONDS)


def test_a_look_at_the_machine_lengthens_the_pause_without_a_task() -> None:
    health = failed(2).after_check(FULL, 200.0)

    assert (health.failed, health.pauses, health.until) == (2, 3, 204.0)
