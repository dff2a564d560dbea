"""What was measured, as data: points, the lines they make, how they grow, and as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Point:
    """One thing at one size."""

    group: str
    series: str
    store: str
    size: int
    seconds: float
    cpu: float
    megabytes: float
    # How many of something a second, where that is what counts.
    rate: float | None = None

    def __str__(self) -> str:
        rate = "" if self.rate is None else f", {self.rate:,.1f} a second"
        spent = f"{self.seconds:.3f} s, cpu {self.cpu:.3f} s, {self.megabytes:.0f} MB{rate}"
        return f"{self.group}: {self.series}, {self.store}, {self.size:,}: {spent}"


@dataclass(frozen=True, slots=True)
class Line:
    """One thing as it grows: sizes and values, from the smallest to the largest."""

    name: str
    points: tuple[tuple[float, float], ...]

    @property
    def growth(self) -> float:
        """How many times its first value the last one is."""
        return self.points[-1][1] / self.points[0][1]

    @property
    def slope(self) -> float:
        """The power of the size that it grows with, over the last stretch: 0 is flat, 1 in proportion, 2 square."""
        if len(self.points) < 2:
            return 0.0
        (x1, y1), (x2, y2) = self.points[-2:]
        return math.log(y2 / y1) / math.log(x2 / x1)


def line(points: Iterable[Point], group: str, series: str, store: str, value: str) -> Line:
    """The line of one series, by one of its values; points where it has none are left out."""
    found = [one for one in points if (one.group, one.series, one.store) == (group, series, store)]
    pairs = [(float(one.size), getattr(one, value)) for one in sorted(found, key=lambda one: one.size)]
    return Line(series, tuple((size, float(figure)) for size, figure in pairs if figure))


def stores_of(points: Sequence[Point], group: str) -> list[str]:
    """The stores that a group was measured on, in the order of measuring."""
    return list(dict.fromkeys(one.store for one in points if one.group == group))


def series_of(points: Sequence[Point], group: str, store: str) -> list[str]:
    """What was measured of a group on a store, in the order of measuring."""
    return list(dict.fromkeys(one.series for one in points if (one.group, one.store) == (group, store)))


def to_json(about: dict[str, Any], points: Iterable[Point]) -> str:
    """Everything that was measured, with what it depends on."""
    return json.dumps({**about, "points": [asdict(one) for one in points]}, indent=1) + "\n"


def from_json(text: str) -> tuple[dict[str, Any], list[Point]]:
    """What `to_json` wrote."""
    about = json.loads(text)
    return about, [Point(**one) for one in about.pop("points")]
