"""The horizontal axis of a chart: its marks, the grid behind the tracks, and the position of a moment on it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from math import ceil
from typing import NamedTuple

from mulligan.core.model.text.formatting import format_duration
from mulligan.service.rendering.page.markup import Html, element, join_html

# Idle time is folded if it would fill most of the chart.
_FOLDED_MIN = timedelta(seconds=30)
_FOLDED_TIMES = 2
# The share of the axis that a fold takes.
_FOLD_SHARE, _FOLDS_MAX = 0.06, 5
_MARKS_MAX = 7
# The share of the axis that the label of a mark takes.
_MARK_SHARE = 0.12
_STEPS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30)
_LONG_STEPS = (60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400)

Stretch = tuple[datetime, datetime]
# From this share of the axis on, the label of a mark stands before it.
LATE = 0.92


class Mark(NamedTuple):
    """A position on the axis, from 0 to 1, and its label. A fold is a stretch that is left out."""

    share: float
    label: str
    is_fold: bool = False


def draw_axis(marks: Iterable[Mark]) -> Html:
    """The row of marks above a chart, hidden from screen readers: every track has a label."""
    shown = join_html(
        element("span", mark.label, class_=_place(mark), style=f"left:{mark.share * 100:.2f}%") for mark in marks
    )
    inside = (element("span"), element("div", shown, class_="axis"), element("span"))
    return element("div", *inside, class_="lane head", aria_hidden="true")


def _place(mark: Mark) -> str | None:
    """A label stands behind its mark, but before it near the end, where it would leave the chart."""
    if mark.is_fold:
        return "fold"
    return "late" if mark.share > LATE else None


def grid_style(marks: Iterable[Mark]) -> str:
    """The style that draws the marks as thin lines behind the tracks: one gradient for all."""
    stops = ",".join(_stop(f"{mark.share * 100:.2f}%") for mark in marks)
    return f"--lines:linear-gradient(90deg,{stops})" if stops else ""


def _stop(at: str) -> str:
    return f"transparent {at},var(--grid) {at},var(--grid) calc({at} + 1px),transparent calc({at} + 1px)"


class Timescale:
    """The time from `start` to `end`, mapped to positions from 0 to 1. Long idle stretches are folded, and marked."""

    def __init__(self, start: datetime, end: datetime, busy: Iterable[Stretch]) -> None:
        self.start, self.end = start, max(end, start + timedelta(milliseconds=1))
        self._folds = _folds(self.start, self.end, sorted(busy))
        folded = sum(((b - a).total_seconds() for a, b in self._folds), 0.0)
        self._shown = (self.end - self.start).total_seconds() - folded
        self._open = 1.0 - _FOLD_SHARE * len(self._folds)

    def share(self, at: datetime) -> float:
        """The position of a moment, from 0 to 1."""
        at = min(max(at, self.start), self.end)
        seconds, folds = (at - self.start).total_seconds(), 0.0
        for since, until in self._folds:
            if at <= since:
                break
            inside = (min(at, until) - since).total_seconds()
            seconds -= inside
            folds += inside / (until - since).total_seconds()
        return seconds / self._shown * self._open + folds * _FOLD_SHARE

    def marks(self) -> list[Mark]:
        """Round times up to the first fold, as far as there is room for their labels, and the folds."""
        folds = []
        for since, until in self._folds:
            idle = f"{format_duration((until - since).total_seconds())} idle"
            folds.append(Mark(self.share(since + (until - since) / 2), idle, True))
        every = _step(self._shown)
        until = self._folds[0][0] if self._folds else self.end
        count = int((until - self.start).total_seconds() / every)
        moments = (every * number for number in range(count + 1))
        marks = [Mark(self.share(self.start + timedelta(seconds=one)), _named(one)) for one in moments]
        return [*(mark for mark in marks if not folds or folds[0].share - mark.share > _MARK_SHARE), *folds]


def _step(seconds: float) -> float:
    """The distance between two marks."""
    found = (step for step in (*_STEPS, *_LONG_STEPS) if seconds / step <= _MARKS_MAX)
    return next(found, _LONG_STEPS[-1] * ceil(seconds / _LONG_STEPS[-1] / _MARKS_MAX))


def _named(seconds: float) -> str:
    if not seconds:
        return "0"
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 60:
        return f"{seconds:g}s"
    minutes, left = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}m{left:02}s" if left else f"{minutes}m"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if minutes else f"{hours}h"


def _folds(start: datetime, end: datetime, busy: Sequence[Stretch]) -> list[Stretch]:
    """The idle stretches that are several times longer than all busy stretches together."""
    merged: list[Stretch] = []
    for since, until in busy:
        if merged and since <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], until)
        else:
            merged.append((since, until))
    work = sum((until - since for since, until in merged), timedelta())
    idle = [(before[1], after[0]) for before, after in pairwise([(start, start), *merged, (end, end)])]
    long = [one for one in idle if one[1] - one[0] > max(_FOLDED_MIN, work * _FOLDED_TIMES)]
    return sorted(sorted(long, key=lambda one: one[0] - one[1])[:_FOLDS_MAX])
