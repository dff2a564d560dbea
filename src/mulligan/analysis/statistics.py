"""How sure a share is, from few observations, and when it is sure enough for many questions at once."""

from __future__ import annotations

import math

# How often a whole answer, with all its proposals, may contain one that chance alone has produced.
ERROR_RATE = 0.01


def deviations(questions: int) -> float:
    """How many standard deviations each of so many questions needs, so that together they stay within `ERROR_RATE`.

    The correction of Bonferroni: whoever looks at a hundred steps finds one that looks odd by chance.
    """
    wanted = ERROR_RATE / max(1, questions)
    low, high = 0.0, 40.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if chance_of(middle) > wanted else (low, middle)
    return high


# The quantile of the normal distribution for an interval that holds the true share in 95 of 100 cases.
Z_95 = 1.959964


def wilson_bounds(successes: float, total: float, z: float = Z_95) -> tuple[float, float]:
    """The interval of Wilson for a share: where the true share lies. (0, 1) if nothing was observed.

    It is also right for few cases and for shares near 0 and 1.
    """
    if total <= 0:
        return 0.0, 1.0
    share, square = successes / total, z * z
    middle = (share + square / (2 * total)) / (1 + square / total)
    inside = max(0.0, share * (1 - share) / total + square / (4 * total * total))
    half = z / (1 + square / total) * math.sqrt(inside)
    return max(0.0, middle - half), min(1.0, middle + half)


def at_least_by_chance(observed: int, expected: float) -> float:
    """The chance of seeing at least so many events where that many are expected (the distribution of Poisson)."""
    if observed <= 0:
        return 1.0
    if expected <= 0:
        return 0.0
    term = math.exp(-expected)
    below = term
    for number in range(1, observed):
        term *= expected / number
        below += term
    return max(0.0, 1.0 - below)


def median(values: list[float]) -> float:
    """The middle value; 0 of none."""
    return quantile(values, 0.5)


def quantile(values: list[float], share: float) -> float:
    """The smallest value that at least this share of the values does not exceed; 0 of none."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def chance_of(z: float) -> float:
    """The chance that something lies this many standard deviations above what is expected."""
    return math.erfc(z / math.sqrt(2)) / 2
