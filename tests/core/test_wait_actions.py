"""Actions of the engine: how long a wait takes, and refusals of invalid times."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from mulligan.core.model import events as e
from mulligan.core.model.workflow import Action, Template
from mulligan.testing.history import T0, History, expression, step, workflow


def waiting(name: str, value: Any) -> History:
    """A run of a wait whose `seconds` or `until` comes from an expression."""
    action = Action("wait", {name: {"${}": "v"}}, {"v": Template((expression("v"),))})
    return History(workflow(step("a", action=action)), {"v": value}).start()


@pytest.mark.parametrize(
    ("name", "value", "seconds"),
    [
        ("seconds", 90, 90),
        ("seconds", "1m30s", 90),
        ("until", "2026-01-01T00:02:00Z", 120),
        # A moment that has passed is waited for no longer than until the next look at the timers.
        ("until", "2025-12-31T23:00:00Z", -3600),
    ],
)
def test_a_wait_is_over_when_it_says(name: str, value: Any, seconds: int) -> None:
    run = waiting(name, value)

    (started,) = run.facts(e.AttemptStarted)

    assert started.due == T0 + timedelta(seconds=seconds)
    assert run.wait(max(0, seconds)).status == "completed"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("seconds", "soon", "wait: 'soon' is not a duration such as 30s"),
        ("until", "tomorrow", "wait: 'tomorrow' is not a time such as 2030-01-31T09:00:00Z"),
    ],
)
def test_a_wait_for_a_time_that_is_none_has_failed_and_says_why(name: str, value: Any, message: str) -> None:
    run = waiting(name, value)

    found = run["a"].failure
    assert found is not None
    assert (found.code, found.message) == ("INPUT_INVALID", message)
