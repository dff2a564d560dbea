"""Outcomes that do not change a breaker."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from mulligan.core.deciding.workers.breaker import (
    Circuit,
    Guard,
    GuardedOutcome,
    admission,
    breaker_verdict,
    count_outcome,
)
from mulligan.core.model.failure import failure
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.reports import TaskEnded
from mulligan.core.model.workflow import Breaker

T0 = datetime(2026, 1, 1, tzinfo=UTC)
GUARD = Guard("llm", Breaker(failures=3, reset=60.0, ignore=("HTTP_4XX",)))


@pytest.mark.parametrize("failures", [0, 1, 2])
def test_what_tells_nothing_neither_adds_to_the_row_of_failures_nor_ends_it(failures: int) -> None:
    before = Circuit(failures=failures)

    assert count_outcome(before, GuardedOutcome(1, GUARD, "neither"), T0) == before


def test_one_failure_less_than_too_many_leaves_it_closed() -> None:
    assert count_outcome(Circuit(failures=1), GuardedOutcome(1, GUARD, "failure"), T0) == Circuit(
        failures=2, max_running=1
    )
    assert count_outcome(Circuit(failures=2), GuardedOutcome(1, GUARD, "failure"), T0) == Circuit(
        "open", 3, T0 + timedelta(seconds=60)
    )


@pytest.mark.parametrize("code", ["CANCELLED", "INTERRUPTED", "WORKER_LOST", "CIRCUIT_OPEN", "NO_CAPACITY", "HTTP_4XX"])
def test_a_failure_that_was_made_up_counts_as_little_as_one_that_happened(code: str) -> None:
    """Somebody tries what follows from it: the failure is believed, whatever its code."""
    report = TaskEnded(T0, "a", 1, Outcome(said=failure(code, "made up")))

    assert breaker_verdict(report, GUARD) == "neither"


def test_one_that_is_open_for_nobody_knows_how_long_may_be_probed() -> None:
    assert admission(Circuit("open", 3), GUARD, T0, is_probe_alive=False, running=0) == "probe"
