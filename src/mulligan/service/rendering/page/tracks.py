"""Tracks of a timeline as SVG: a bar per attempt and thin lines for waits; many attempts are drawn as a density.

Positions are in percent, so that a track uses the width of the page and nothing in it is distorted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import groupby
from typing import NamedTuple

from mulligan.service.rendering.page.axis import Timescale
from mulligan.service.rendering.page.markup import Html, element, join_html

HEIGHT, DENSE_HEIGHT = 22, 30
# In percent of the track: anything narrower cannot be seen or hovered over.
_WIDTH_MIN = 0.4
# More bars than this in one track are drawn as a density, in this many pieces.
BARS_MAX, _PIECES = 250, 200
_TONES = ("good", "bad", "now", "odd", "idle")


class Bar(NamedTuple):
    """Something that ran. The tone is the colour; small bars ran on behalf of something else."""

    since: datetime
    until: datetime
    tone: str
    label: str
    is_small: bool = False


class WaitLine(NamedTuple):
    """Something that waited: in the `queue`, for a `delay` to pass, or `parked` for a decision."""

    since: datetime
    until: datetime
    kind: str
    label: str


def draw_track(bars: Sequence[Bar], waits: Iterable[WaitLine], scale: Timescale, description: str) -> Html:
    """One track: every bar with its label. `description` is for screen readers."""
    if len(bars) > BARS_MAX:
        return draw_density(bars, scale, description)
    inside = [*(_draw_wait(wait, scale) for wait in waits), *(_bar(bar, scale) for bar in bars)]
    return element("svg", join_html(inside), class_="track", height=HEIGHT, role="img", aria_label=description)


def draw_density(bars: Iterable[Bar], scale: Timescale, description: str) -> Html:
    """How many ran at the same time, coloured by outcome. Small bars are left out."""
    counts = _counts([bar for bar in bars if not bar.is_small], scale)
    most = max((sum(one) for one in counts), default=0) or 1
    inside = join_html(_pieces(counts, most))
    return element("svg", inside, class_="track dense", height=DENSE_HEIGHT, role="img", aria_label=description)


def _percent(share: float) -> str:
    return f"{share:.2f}%"


def _stretch(since: datetime, until: datetime, scale: Timescale) -> tuple[float, float]:
    """Left edge and width in percent, wide enough to be seen."""
    left, right = scale.share(since) * 100, scale.share(until) * 100
    width = max(right - left, _WIDTH_MIN)
    return min(left, 100 - width), width


def _bar(bar: Bar, scale: Timescale) -> Html:
    left, width = _stretch(bar.since, bar.until, scale)
    y, height = (8, 6) if bar.is_small else (4, 14)
    place = {"x": _percent(left), "y": y, "width": _percent(width), "height": height, "rx": 2}
    return element("rect", element("title", bar.label), class_=bar.tone, **place)


def _draw_wait(wait: WaitLine, scale: Timescale) -> Html:
    left, width = _stretch(wait.since, wait.until, scale)
    place = {"x1": _percent(left), "x2": _percent(left + width), "y1": 11, "y2": 11}
    return element("line", element("title", wait.label), class_=wait.kind, **place)


def _counts(bars: Sequence[Bar], scale: Timescale) -> list[tuple[int, ...]]:
    """How many bars of each tone are in each piece of the track."""
    changes = [[0] * (_PIECES + 1) for _ in _TONES]
    for bar in bars:
        first = min(int(scale.share(bar.since) * _PIECES), _PIECES - 1)
        last = min(int(scale.share(bar.until) * _PIECES), _PIECES - 1)
        row = changes[_TONES.index(bar.tone)]
        row[first] += 1
        row[last + 1] -= 1
    for row in changes:
        for piece in range(1, _PIECES):
            row[piece] += row[piece - 1]
    return list(zip(*(row[:_PIECES] for row in changes), strict=True))


def _pieces(counts: list[tuple[int, ...]], most: int) -> Iterator[Html]:
    """Equal neighbours are drawn as one; failures are at the bottom."""
    left = 0
    for count, same in groupby(counts):
        wide = sum(1 for _ in same)
        yield from _pile(count, left, wide, most)
        left += wide


def _pile(count: tuple[int, ...], left: int, wide: int, most: int) -> Iterator[Html]:
    room, y = DENSE_HEIGHT - 4, float(DENSE_HEIGHT - 2)
    found = dict(zip(_TONES, count, strict=True))
    for tone in ("bad", *(tone for tone in _TONES if tone != "bad")):
        height = found[tone] / most * room
        if height:
            y -= height
            place = {"x": _percent(left / _PIECES * 100), "width": _percent(wide / _PIECES * 100)}
            yield element("rect", class_=tone, y=f"{y:.1f}", height=f"{height:.1f}", **place)
