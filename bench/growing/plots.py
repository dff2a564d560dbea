"""A chart of lines that grow, as SVG: both axes logarithmic, marks in words, each line named at its end.

Pure: the same lines give the same text. It wears the colours of the drawings, light or dark as the reader's page is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from mulligan.service.rendering.drawing.palette import ACTIONS, DARK, FONT, LIGHT, Palette
from mulligan.service.rendering.page.markup import Html, element, join_html

from .figures import Line

WIDTH, HEIGHT = 760, 400
LEFT, RIGHT, TOP, BOTTOM = 74, 196, 58, 52
# Two names at the ends of lines are at least so far apart.
LABEL_APART = 15.0
# In the order of the lines; further lines begin again, dashed.
TONES = ("blue", "orange", "green", "purple", "red", "teal", "slate")
# Those that the palette does not have are light enough for dark pages, and dark enough for light ones.
_OTHER_TONES = {"purple": ACTIONS["agent"], "teal": ACTIONS["http"], "slate": ACTIONS["shell"]}

Words = Callable[[float], str]


class Axis(NamedTuple):
    """What an axis measures, and how its marks are labelled."""

    name: str
    words: Words


class Span(NamedTuple):
    """From the lowest to the highest figure that an axis shows."""

    low: float
    high: float

    def share(self, figure: float) -> float:
        """How far along the axis a figure is, from 0 to 1."""
        return math.log(figure / self.low) / math.log(self.high / self.low)


# -- marks -----------------------------------------------------------------------------------------------------------


def span(figures: Sequence[float]) -> Span:
    """Room for all of them, between two marks of 1, 2, 5, 10 …; a decade at least, so that flat looks flat."""
    low, high = _mark_below(min(figures)), _mark_above(max(figures))
    while high / low < 10:
        low, high = _mark_below(low * 0.99), _mark_above(high * 1.01)
    return Span(low, high)


def marks(shown: Span) -> list[float]:
    """The decades of a long axis; 1, 2, 5 of a short one."""
    steps = (1,) if shown.high / shown.low >= 1000 else (1, 2, 5)
    first, last = math.floor(math.log10(shown.low)), math.ceil(math.log10(shown.high))
    found = [float(f"{step}e{power}") for power in range(first, last + 1) for step in steps]
    return [one for one in found if shown.low * 0.999 <= one <= shown.high * 1.001]


def size_marks(sizes: Sequence[float]) -> list[float]:
    """Return the sizes that are marked: all of a few that are close together, otherwise powers of ten."""
    if sizes[-1] / sizes[0] < 100:
        return list(sizes)
    return [size for size in sizes if math.log10(size).is_integer()]


def _mark_below(figure: float) -> float:
    power = math.floor(math.log10(figure))
    return max(one for step in (1, 2, 5) for n in (power - 1, power) if (one := float(f"{step}e{n}")) <= figure)


def _mark_above(figure: float) -> float:
    power = math.floor(math.log10(figure))
    return min(one for step in (1, 2, 5) for n in (power, power + 1) if (one := float(f"{step}e{n}")) >= figure)


# -- words -----------------------------------------------------------------------------------------------------------


def seconds_said(figure: float) -> str:
    """`5 ms`, `0.2 s`, `30 s`."""
    return f"{figure * 1000:g} ms" if figure < 0.1 else f"{figure:g} s"


def count_said(figure: float) -> str:
    """`1,000`, `1 million`."""
    return f"{figure / 1e6:g} million" if figure >= 1e6 else f"{figure:,.0f}" if figure >= 1 else f"{figure:g}"


def megabytes_said(figure: float) -> str:
    return f"{figure / 1000:g} GB" if figure >= 1000 else f"{figure:g} MB"


def rate_said(figure: float) -> str:
    return f"{count_said(figure)}/s"


# -- the chart -------------------------------------------------------------------------------------------------------


def chart(title: str, note: str, lines: Sequence[Line], x: Axis, y: Axis) -> str:
    """The whole picture, as the text of an SVG file."""
    sizes = sorted({size for line in lines for size, _ in line.points})
    across = Span(sizes[0], sizes[-1]) if len(sizes) > 1 else Span(sizes[0], sizes[0] * 10)
    up = span([figure for line in lines for _, figure in line.points])
    body = join_html(
        [
            _style(),
            element("rect", class_="page", width=WIDTH, height=HEIGHT, rx=8),
            _text(title, 20, 28, "title"),
            _text(note, 20, 46, "note"),
            *_grid(across, up, sizes, x, y),
            *_drawn(lines, across, up),
        ],
        "\n",
    )
    said = f"{title}: {'; '.join(_told(line, y) for line in lines)}"
    size = {"width": WIDTH, "height": HEIGHT, "viewBox": f"0 0 {WIDTH} {HEIGHT}"}
    space = "http://www.w3.org/2000/svg"
    return element("svg", element("title", said), body, xmlns=space, role="img", aria_label=said, **size) + "\n"


def _told(line: Line, y: Axis) -> str:
    """Describe the line in words, as alternative text."""
    return f"{line.name} from {y.words(_short(line.points[0][1]))} to {y.words(_short(line.points[-1][1]))}"


def _short(figure: float) -> float:
    return float(f"{figure:.2g}")


def _at(across: Span, up: Span, size: float, figure: float) -> tuple[float, float]:
    wide, high = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    return LEFT + across.share(size) * wide, HEIGHT - BOTTOM - up.share(figure) * high


def _grid(across: Span, up: Span, sizes: Sequence[float], x: Axis, y: Axis) -> Iterator[Html]:
    for mark in marks(up):
        _, height = _at(across, up, across.low, mark)
        yield element("line", class_="grid", x1=LEFT, x2=WIDTH - RIGHT, y1=_figure(height), y2=_figure(height))
        yield _text(y.words(mark), LEFT - 8, height + 4, "mark end")
    for size in size_marks(sizes):
        place, _ = _at(across, up, size, up.low)
        yield _text(x.words(size), place, HEIGHT - BOTTOM + 18, "mark middle")
    yield _text(x.name, (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, "mark middle")


def _drawn(lines: Sequence[Line], across: Span, up: Span) -> Iterator[Html]:
    ways = [[_at(across, up, *point) for point in line.points] for line in lines]
    for number, way in enumerate(ways):
        yield from _way(way, TONES[number % len(TONES)], "5 4" if number >= len(TONES) else None)
    whole = [number for number, way in enumerate(ways) if way[-1][0] > WIDTH - RIGHT - 1]
    heights = apart([ways[number][-1][1] for number in whole], LABEL_APART, TOP, HEIGHT - BOTTOM)
    named = dict(zip(whole, heights, strict=True))
    for number, line in enumerate(lines):
        yield from _name(line.name, ways[number][-1], named.get(number), TONES[number % len(TONES)])


def _way(way: Sequence[tuple[float, float]], tone: str, dashes: str | None) -> Iterator[Html]:
    points = " ".join(f"{_figure(x)},{_figure(y)}" for x, y in way)
    yield element("polyline", class_=f"line {tone}", points=points, stroke_dasharray=dashes)
    yield from (element("circle", class_=tone, cx=_figure(x), cy=_figure(y), r=2.5) for x, y in way)


def _name(said: str, end: tuple[float, float], height: float | None, tone: str) -> Iterator[Html]:
    """At the right, led to from the line's end; of a line that ends before, above that end."""
    x, y = end
    if height is None:
        yield _text(said, x, y - 9, f"name end {tone}")
        return
    lead = {"x1": _figure(x + 4), "y1": _figure(y), "x2": _figure(x + 14), "y2": _figure(height)}
    yield element("line", class_="lead", **lead)
    yield _text(said, x + 18, height + 4, f"name {tone}")


def apart(heights: Sequence[float], least: float, top: float, bottom: float) -> list[float]:
    """The heights, moved as little as it takes that no two are nearer than `least` and the lowest is not below."""
    order = sorted(range(len(heights)), key=lambda number: (heights[number], number))
    placed = [0.0] * len(heights)
    before = top - least
    for number in order:
        before = placed[number] = max(heights[number], before + least)
    behind = bottom + least
    for number in reversed(order):
        behind = placed[number] = min(placed[number], behind - least)
    return placed


def _text(said: str, x: float, y: float, kind: str) -> Html:
    return element("text", said, class_=kind, x=_figure(x), y=_figure(y))


def _figure(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")


# -- colours ---------------------------------------------------------------------------------------------------------


def _style() -> Html:
    return Html(
        f"<style>text{{font-family:{FONT};font-size:12px}}.title{{font-size:16px;font-weight:600}}"
        ".end{text-anchor:end}.middle{text-anchor:middle}.line{fill:none;stroke-width:2;stroke-linejoin:round}"
        f"{_colours(LIGHT)}@media(prefers-color-scheme:dark){{{_colours(DARK)}}}</style>"
    )


def _colours(palette: Palette) -> str:
    hues = {tone: _OTHER_TONES[tone] if tone in _OTHER_TONES else palette.tones[tone][1] for tone in TONES}
    tones = "".join(f".{tone}{{fill:{hue}}}.line.{tone}{{fill:none;stroke:{hue}}}" for tone, hue in hues.items())
    return (
        f".page{{fill:{palette.page}}}.title{{fill:{palette.text}}}.note,.mark{{fill:{palette.muted}}}"
        f".grid{{stroke:{palette.faint}}}.lead{{stroke:{palette.border}}}{tones}"
    )
