"""What attempts used compared with their limits: a row per step, a dot per attempt, a mark at the limit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import ceil, log2

import msgspec

from mulligan.core.model.place_keys import step_name
from mulligan.core.model.text.formatting import format_size
from mulligan.service.rendering.page import ui
from mulligan.service.rendering.page.axis import Mark, draw_axis, grid_style
from mulligan.service.rendering.page.groups import matrix_of
from mulligan.service.rendering.page.markup import Html, element, join_html
from mulligan.service.runs.views.report import Report
from mulligan.service.runs.views.report.build import Attempt

HEIGHT = 22
# At most this many steps: those over their limit first, then those that used most.
STEPS_MAX = 20
# The CPU time of a shorter attempt means nothing.
WALL_SECONDS_MIN = 0.05
_MIB = 1024 * 1024


class Usage(msgspec.Struct):
    """What the attempts of a step used of one resource, each with whether that was over its limit."""

    step: str
    used: list[tuple[float, bool]] = []
    # Their limits: a retry may get more than the first attempt.
    limits: set[float] = set()

    @property
    def most(self) -> float:
        return max(used for used, _ in self.used)

    @property
    def limit(self) -> float:
        return max(self.limits, default=0.0)

    @property
    def is_over(self) -> bool:
        return any(is_over for _, is_over in self.used)

    def add(self, used: float, limit: float | None) -> None:
        self.used.append((used, limit is not None and used > limit))
        if limit is not None:
            self.limits.add(limit)


class Scale(msgspec.Struct, frozen=True):
    """Maps a figure to a position on the axis, with the marks of the axis."""

    share: Callable[[float], float]
    marks: list[Mark]


def memory_plot(report: Report) -> Html:
    """Peak memory, on a scale in which each mark is four times the one before."""
    return _plot(_by_step(report, _peak), _memory_scale, format_size)


def cpu_plot(report: Report) -> Html:
    """How many CPUs were in use: CPU time divided by elapsed time."""
    return _plot(_by_step(report, _cores), _cpu_scale, _format_cores)


def _peak(one: Attempt) -> tuple[float | None, float | None]:
    return (float(one.peak_memory) if one.peak_memory else None, float(one.memory) if one.memory else None)


def _cores(one: Attempt) -> tuple[float | None, float | None]:
    if one.cpu_seconds is None or one.wall_seconds is None or one.wall_seconds < WALL_SECONDS_MIN:
        return None, None
    return one.cpu_seconds / one.wall_seconds, one.cpus


def _by_step(report: Report, figures: Callable[[Attempt], tuple[float | None, float | None]]) -> list[Usage]:
    """A row for each step, and one for all steps of a matrix."""
    found: dict[str, Usage] = {}
    whole = matrix_of(report)
    for one in report.attempts:
        used, limit = figures(one)
        if used is not None and one.part == "own":
            name = whole.get(step_name(one.place), step_name(one.place))
            found.setdefault(name, Usage(name)).add(used, limit)
    return list(found.values())


def _plot(
    usages: list[Usage], scaled: Callable[[Sequence[Usage]], Scale], format_figure: Callable[[float], str]
) -> Html:
    if not usages:
        return Html("")
    chosen = _select_steps(usages)
    scale = scaled(chosen)
    more = ui.left_out(len(usages) - len(chosen), "more steps, which used less")
    rows = (_row(usage, scale, format_figure) for usage in chosen)
    return element("div", draw_axis(scale.marks), *rows, more, class_="timeline plot", style=grid_style(scale.marks))


def _select_steps(usages: list[Usage]) -> list[Usage]:
    """The steps to show, in their own order: those over their limit and those that used most."""
    ranked = sorted(usages, key=lambda usage: (not usage.is_over, -usage.most))[:STEPS_MAX]
    kept = {usage.step for usage in ranked}
    return [usage for usage in usages if usage.step in kept]


def _row(usage: Usage, scale: Scale, format_figure: Callable[[float], str]) -> Html:
    words = f"{format_figure(usage.most)}{f' of {format_figure(usage.limit)}' if usage.limit else ''}"
    picture = draw_dots(usage, scale, f"{usage.step}: at most {words}")
    took = element("span", words, class_="took over bad" if usage.is_over else "took")
    return element("div", element("span", usage.step, class_="name"), picture, took, class_="lane")


def draw_dots(usage: Usage, scale: Scale, description: str) -> Html:
    """One row: a dot per attempt (equal ones share a dot), and a mark at each limit."""
    inside = join_html([*_limits(usage, scale), *_dots(usage, scale)])
    return element(
        "svg", element("title", description), inside, class_="track", height=HEIGHT, role="img", aria_label=description
    )


def _limits(usage: Usage, scale: Scale) -> Iterator[Html]:
    if usage.limits:
        yield element("rect", class_="room", x="0", y=4, width=_percent(scale.share(usage.limit)), height=14, rx=2)
    for limit in sorted(usage.limits):
        at = _percent(scale.share(limit))
        yield element("line", class_="asked", x1=at, x2=at, y1=2, y2=20)


def _percent(share: float) -> str:
    return f"{share * 100:.2f}%"


def _dots(usage: Usage, scale: Scale) -> Iterator[Html]:
    """Attempts within half a percent share a dot, so that ten thousand items are a few dots."""
    dots = dict.fromkeys((round(scale.share(used) * 200) / 200, is_over) for used, is_over in usage.used)
    for share, is_over in dots:
        yield element("circle", class_="bad" if is_over else "now", cx=_percent(share), cy=11, r=4)


# -- scales ----------------------------------------------------------------------------------------------------------


def _memory_scale(usages: Sequence[Usage]) -> Scale:
    figures = [figure for usage in usages for figure in (*(used for used, _ in usage.used), *usage.limits)]
    low = 2 ** int(log2(max(min(figures), _MIB) / _MIB)) * _MIB / 2
    high = max(max(figures) * 1.1, low * 16)
    reach = log2(high / low)
    marks, mark = [], low * 2
    while mark <= high:
        marks.append(Mark(log2(mark / low) / reach, format_size(mark)))
        mark *= 4
    return Scale(lambda figure: min(max(log2(max(figure, low) / low) / reach, 0.0), 1.0), marks)


def _cpu_scale(usages: Sequence[Usage]) -> Scale:
    high = max(1.0, *(max(usage.most, usage.limit) for usage in usages)) * 1.05
    step = max(1, ceil(high / 6)) if high > 2 else 0.5 if high > 1.1 else 0.25
    marks = [Mark(step * number / high, f"{step * number:g}") for number in range(int(high / step) + 1)]
    return Scale(lambda figure: min(figure / high, 1.0), marks)


def _format_cores(figure: float) -> str:
    return f"{figure:.2f}" if figure < 10 else f"{figure:.0f}"
