"""What a worker may lease before it has a slot: little, short, and only where much waits."""

from __future__ import annotations

from typing import Any

import pytest

from mulligan.core.deciding.workers.breaker import Guard
from mulligan.core.effects.lease_rules import ahead_share, held_max, may_be_held
from mulligan.core.effects.tasks import Task
from mulligan.core.model.workflow import Breaker


def task(**fields: Any) -> Task:
    return Task(7, "build", 1, "python", {}, "nightly", "v1", "build", 1, **fields)


def test_a_plain_task_may_be_held() -> None:
    assert may_be_held(task())


@pytest.mark.parametrize(
    "fields",
    [
        {"is_careful": True},
        {"guard": Guard("llm", Breaker(failures=1))},
        {"cpus": 0.5},
        {"cpus": 2.0},
        {"memory": 1},
        {"gpus": 1},
        {"nodes": 2},
        {"labels": ("big",)},
    ],
)
def test_a_task_that_needs_more_than_a_slot_or_whose_loss_costs_something_is_not_held(fields: dict[str, Any]) -> None:
    assert not may_be_held(task(**fields))


@pytest.mark.parametrize(
    ("average_seconds", "count"),
    [(None, 0), (0.001, 24), (0.01, 8), (0.049, 8), (0.05, 4), (0.199, 4), (0.2, 0), (60.0, 0)],
)
def test_the_longer_tasks_take_the_fewer_are_held(average_seconds: float | None, count: int) -> None:
    assert held_max(4, average_seconds) == count


@pytest.mark.parametrize(("queued", "count"), [(-3, 0), (0, 0), (3, 0), (4, 1), (11, 2), (400, 24)])
def test_three_of_four_tasks_that_wait_are_left_to_others(queued: int, count: int) -> None:
    assert ahead_share(queued, 24) == count
