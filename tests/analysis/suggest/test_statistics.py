"""The figures that decide whether there is enough evidence."""

from __future__ import annotations

import pytest

from mulligan.analysis.statistics import at_least_by_chance, deviations, median, quantile, wilson_bounds


def test_the_interval_of_wilson_is_that_of_the_textbook():
    low, high = wilson_bounds(8, 10, 1.96)

    assert (round(low, 3), round(high, 3)) == (0.490, 0.943)


def test_nothing_observed_says_nothing():
    assert wilson_bounds(0, 0, 1.96) == (0.0, 1.0)


@pytest.mark.parametrize("total", [1, 7, 400])
def test_the_interval_contains_the_share_and_shrinks_with_more_evidence(total: int):
    low, high = wilson_bounds(0.75 * total, total, 2.5)
    wider = wilson_bounds(0.75 * total, total, 3.5)

    assert 0 <= wider[0] < low < 0.75 < high < wider[1] <= 1


def test_more_questions_need_more_evidence():
    assert round(deviations(1), 2) == 2.33
    assert deviations(1) < deviations(10) < deviations(1000)


def test_the_chance_of_rare_events_is_that_of_poisson():
    assert at_least_by_chance(0, 3.0) == 1.0
    assert round(at_least_by_chance(1, 1.0), 4) == 0.6321
    assert round(at_least_by_chance(5, 1.0), 5) == 0.00366
    assert at_least_by_chance(2, 0.0) == 0.0


def test_a_quantile_is_a_value_that_was_seen():
    assert (median([]), median([3.0, 1.0, 2.0]), median([4.0, 1.0])) == (0.0, 2.0, 1.0)
    assert quantile([1.0] * 9 + [5.0], 0.9) == 1.0
