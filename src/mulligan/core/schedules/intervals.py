"""The instants of an interval: multiples of it, counted from an anchor."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta


def interval_instants(every: float, anchor: datetime, at: datetime, *, backwards: bool = False) -> Iterator[datetime]:
    """The instants after `at`, or backwards from it, the newest first: then `at` itself counts. Without end."""
    # Whole microseconds: a sum of fractions of a second would drift.
    period = timedelta(microseconds=round(every * 1_000_000))
    number = (at - anchor) // period + (0 if backwards else 1)
    while True:
        try:
            yield anchor + number * period
        except OverflowError:
            return
        number += -1 if backwards else 1
