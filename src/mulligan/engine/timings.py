"""How long turns and commits take, as histograms that cost next to nothing."""

from __future__ import annotations

from bisect import bisect_left

# Upper bounds of the buckets, in seconds; the last bucket has none.
BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class Histogram:
    """How many durations fell into each bucket, and their sum."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.seconds = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.seconds += seconds


class Timings:
    """Of one engine. A turn is the deciding of one run's reports; a commit may write the turns of many runs."""

    def __init__(self) -> None:
        self.turns = Histogram()
        self.commits = Histogram()
