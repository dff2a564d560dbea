"""Counts over all runs: exact for a small store, and not taken again for everybody who asks of a large one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from mulligan.core.effects.run_lists import OutcomeCount
from mulligan.service.recent_runs import DayCache, RecentRuns
from mulligan.service.run_counts import COUNTED_MAX, StatusCounts, kept_for


class Counted:
    """A store, and how often its runs were counted."""

    def __init__(self, runs: int) -> None:
        self.runs = runs
        self.asked = 0
        self.lists = self
        self.store, self.project, self.home = self, None, SimpleNamespace(is_there=True)

    def status_counts(self) -> dict[str, int]:
        self.asked += 1
        return {"completed": self.runs - 1, "failed": 1}

    def outcome_counts(self, begin: datetime, end: datetime) -> list[OutcomeCount]:
        self.asked += 1
        return [OutcomeCount("nightly", "completed", False, self.runs)]


@pytest.mark.parametrize(("runs", "seconds"), [(0, 0), (COUNTED_MAX, 0), (50_000, 0.5), (300_000, 3), (10**8, 10)])
def test_how_long_counts_are_kept(runs: int, seconds: float) -> None:
    assert kept_for(runs).total_seconds() == seconds


def test_a_small_store_is_counted_whenever_somebody_asks() -> None:
    counts, store = StatusCounts(lambda: 1.0), Counted(COUNTED_MAX)
    for runs in (5, 6, COUNTED_MAX):
        store.runs = runs
        assert sum(counts.read(_any(store), None).values()) == runs


def test_the_counts_of_a_large_store_are_kept_for_a_moment_and_by_project() -> None:
    moment = [100.0]
    counts, store, other = StatusCounts(lambda: moment[0]), Counted(200_000), Counted(30_000)
    assert sum(counts.read(_any(store), None).values()) == 200_000
    store.runs, moment[0] = 250_000, 101.9
    assert (sum(counts.read(_any(store), None).values()), store.asked) == (200_000, 1)
    assert sum(counts.read(_any(other), "blue").values()) == 30_000
    moment[0] = 102.0
    assert (sum(counts.read(_any(store), None).values()), store.asked) == (250_000, 2)


@pytest.mark.parametrize(("runs", "times"), [(COUNTED_MAX, 3), (COUNTED_MAX + 1, 2)])
def test_today_is_counted_again_if_it_has_few_runs_or_some_time_has_passed(runs: int, times: int) -> None:
    now = [datetime(2026, 3, 1, 12, tzinfo=UTC)]
    cache: DayCache = {}
    store = Counted(runs)
    recent = RecentRuns(_any(store), cache, lambda: now[0])
    days = len(recent.history(UTC)[0].days)
    asked = store.asked
    assert asked == days
    recent.history(UTC)
    now[0] += timedelta(seconds=1)
    recent.history(UTC)
    # All others were kept.
    assert store.asked - asked == times - 1


def _any(store: Counted) -> Any:
    return store
