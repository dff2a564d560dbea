"""Counts over many runs: exact for a small store; of a large one nobody waits until they are taken again."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from mulligan.core.effects.run_lists import OutcomeCount
from mulligan.service.runs.statistics.recent_runs import RecentRuns
from mulligan.service.runs.stored.run_counts import COUNTED_MAX, CountCache, kept_for, usable_for


class Counted:
    """A store, a reader of it, and how often its runs were counted."""

    def __init__(self, runs: int, counts: CountCache | None = None) -> None:
        self.runs = runs
        self.asked = 0
        self.projects: list[str | None] = []
        self.lists = self
        self.store, self.project, self.home = self, None, SimpleNamespace(is_there=True)
        self.counts = counts

    def status_counts(self, project: str | None = None) -> dict[str, int]:
        self.asked += 1
        self.projects.append(project)
        return {"completed": self.runs - 1, "failed": 1}

    def outcome_counts(self, begin: datetime, end: datetime, project: str | None = None) -> list[OutcomeCount]:
        self.asked += 1
        return [OutcomeCount("nightly", "completed", False, self.runs)]


class Elsewhere:
    """Another thread with a store of its own, which counts when it is told to."""

    def __init__(self, store: Counted) -> None:
        self.store: Any = store
        self._waiting: list[tuple[Callable[[Any], Any], Future[Any]]] = []

    def __call__(self, count: Callable[[Any], Any]) -> Future[Any]:
        done: Future[Any] = Future()
        self._waiting.append((count, done))
        return done

    @property
    def asked(self) -> int:
        return len(self._waiting)

    def count(self) -> None:
        for count, done in self._take():
            done.set_result(count(self.store))

    def fail(self) -> None:
        for _, done in self._take():
            done.set_exception(OSError("the store is gone"))

    def end(self) -> None:
        for _, done in self._take():
            done.cancel()

    def _take(self) -> list[tuple[Callable[[Any], Any], Future[Any]]]:
        waiting, self._waiting = self._waiting, []
        return waiting


@pytest.mark.parametrize(
    ("runs", "kept", "usable"),
    [
        (0, 0, 0),
        (COUNTED_MAX, 0, 0),
        (COUNTED_MAX + 1, 0.10005, 2),
        (20_000, 1, 2),
        (50_000, 2.5, 5),
        (300_000, 10, 30),
        (10**8, 10, 60),
    ],
)
def test_how_long_counts_are_good_and_usable(runs: int, kept: float, usable: float) -> None:
    assert (kept_for(runs).total_seconds(), usable_for(runs).total_seconds()) == (kept, usable)


def test_a_small_store_is_counted_whenever_somebody_asks() -> None:
    counts, store = CountCache(lambda: 1.0), Counted(COUNTED_MAX)
    counts.count_in_background = Elsewhere(Counted(1))
    for runs in (5, 6, COUNTED_MAX):
        store.runs = runs
        assert _total(counts, store) == runs


def test_the_counts_of_a_large_store_are_good_for_a_moment_and_by_project() -> None:
    moment = [100.0]
    counts, store, other = CountCache(lambda: moment[0]), Counted(100_000), Counted(30_000)
    assert _total(counts, store) == 100_000
    store.runs, moment[0] = 120_000, 104.9
    assert (_total(counts, store), store.asked) == (100_000, 1)
    assert _total(counts, other, "blue") == 30_000
    moment[0] = 105.0
    assert (_total(counts, store), store.asked) == (120_000, 2)


def test_what_is_no_longer_good_is_answered_while_another_thread_counts_it_once() -> None:
    moment = [100.0]
    counts, store, second = CountCache(lambda: moment[0]), Counted(100_000), Counted(100_001)
    counts.count_in_background = elsewhere = Elsewhere(second)
    _total(counts, store, "blue")

    moment[0] = 105.0
    assert [_total(counts, store, "blue") for _ in range(3)] == [100_000] * 3
    assert (store.asked, elsewhere.asked) == (1, 1)
    moment[0] = 106.0
    elsewhere.count()

    assert second.projects == ["blue"]
    assert _total(counts, store, "blue") == 100_001
    # They are as old as the moment when it was asked to count.
    moment[0] = 109.99
    assert (_total(counts, store, "blue"), elsewhere.asked) == (100_001, 0)
    moment[0] = 110.01
    assert (_total(counts, store, "blue"), elsewhere.asked) == (100_001, 1)


def test_what_is_too_old_is_counted_before_it_is_answered() -> None:
    moment = [100.0]
    counts, store = CountCache(lambda: moment[0]), Counted(100_000)
    counts.count_in_background = elsewhere = Elsewhere(store)
    _total(counts, store)
    store.runs, moment[0] = 100_007, 110.0
    assert (_total(counts, store), elsewhere.asked) == (100_007, 0)


def test_what_took_long_to_count_is_good_for_longer() -> None:
    """On a slow machine, or of runs with many rows: otherwise it is never good by the time that it is counted."""
    moment = [100.0]

    class Slow(Counted):
        def status_counts(self, project: str | None = None) -> dict[str, int]:
            moment[0] += 6.0
            return super().status_counts(project)

    counts, store = CountCache(lambda: moment[0]), Slow(50_000)
    counts.count_in_background = elsewhere = Elsewhere(store)

    assert [_total(counts, store), _total(counts, store)] == [50_000] * 2
    assert (store.asked, elsewhere.asked) == (1, 0)
    moment[0] = 111.0
    assert (_total(counts, store), store.asked, elsewhere.asked) == (50_000, 1, 1)


@pytest.mark.parametrize("how", [Elsewhere.fail, Elsewhere.end])
def test_counting_that_fails_elsewhere_is_begun_again_and_keeps_nothing(how: Callable[[Elsewhere], None]) -> None:
    moment = [100.0]
    counts, store = CountCache(lambda: moment[0]), Counted(100_000)
    counts.count_in_background = elsewhere = Elsewhere(store)
    _total(counts, store)
    moment[0] = 105.0
    _total(counts, store)
    how(elsewhere)
    assert (_total(counts, store), elsewhere.asked) == (100_000, 1)


def test_what_was_not_counted_for_an_hour_is_forgotten() -> None:
    moment = [100.0]
    counts, store = CountCache(lambda: moment[0]), Counted(100_000)
    for number in range(50):
        _total(counts, store, f"project {number}")
        moment[0] += 600
    assert len(counts._kept) == 7


@pytest.mark.parametrize(("runs", "times"), [(COUNTED_MAX, 3), (COUNTED_MAX + 1, 2)])
def test_today_is_counted_again_if_it_has_few_runs_or_some_time_has_passed(runs: int, times: int) -> None:
    now, moment = datetime(2026, 3, 1, 12, tzinfo=UTC), [0.0]
    store = Counted(runs, CountCache(lambda: moment[0]))
    recent = RecentRuns(_any(store), lambda: now)
    days = len(recent.history(UTC)[0].days)
    asked = store.asked
    assert asked == days
    recent.history(UTC)
    moment[0] += 1
    recent.history(UTC)
    # All others were kept.
    assert store.asked - asked == times - 1


def test_past_days_are_good_for_a_minute_and_counted_elsewhere_after_it() -> None:
    now, moment = datetime(2026, 3, 1, 12, tzinfo=UTC), [0.0]
    store = Counted(3, CountCache(lambda: moment[0]))
    assert store.counts is not None
    store.counts.count_in_background = elsewhere = Elsewhere(Counted(4))
    recent = RecentRuns(_any(store), lambda: now)
    days = len(recent.history(UTC)[0].days)
    moment[0] = timedelta(seconds=60).total_seconds()
    assert [day.total for day in recent.history(UTC)[0].days] == [3] * days
    elsewhere.count()
    assert [day.total for day in recent.history(UTC)[0].days] == [4] * (days - 1) + [3]


def _total(counts: CountCache, store: Counted, project: str | None = None) -> int:
    return sum(counts.status_counts(_any(store), project).values())


def _any(store: Counted) -> Any:
    return store
