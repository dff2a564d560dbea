"""What `make test` leaves to `make nightly`: tests that are marked, and most of the examples of others.

    @pytest.mark.nightly                         # this test runs at night
    @settings(max_examples=examples(20, 500))    # 20 examples by day, 500 at night
    for value in sample(VALUES, 5):              # 5 of them by day, all at night

    @pytest.fixture(params=["memory", "sqlite", POSTGRES])

A test that takes this fixture runs on PostgreSQL at night, and by day if its function or module is marked with
`pytest.mark.postgres`: for what is about concurrency, SQL or errors of the server. To run a test of the night by day,
name it: `pytest tests/….py::test_…`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

import pytest

Value = TypeVar("Value")

IS_NIGHTLY = bool(os.environ.get("MULLIGAN_NIGHTLY"))
# A parameter of a fixture that opens a store.
POSTGRES = pytest.param("postgres", marks=pytest.mark.on_postgres)


def examples(by_day: int, at_night: int) -> int:
    """How many examples, histories or rounds a test has."""
    return at_night if IS_NIGHTLY else by_day


def sample(values: Sequence[Value], by_day: int) -> Sequence[Value]:
    """The first, the last and those at even distances between them, so many in all; at night all values."""
    if IS_NIGHTLY or len(values) <= by_day:
        return values
    return [values[number * (len(values) - 1) // (by_day - 1)] for number in range(by_day)]


def leave_to_the_night(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests of the night, unless tests were named."""
    if IS_NIGHTLY or any("::" in argument for argument in config.args):
        return
    at_night = [item for item in items if _is_of_the_night(item)]
    if at_night:
        config.hook.pytest_deselected(items=at_night)
        left = {id(item) for item in at_night}
        items[:] = [item for item in items if id(item) not in left]


def _is_of_the_night(item: pytest.Item) -> bool:
    if item.get_closest_marker("nightly"):
        return True
    return bool(item.get_closest_marker("on_postgres")) and not item.get_closest_marker("postgres")
