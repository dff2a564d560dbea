"""The Gantt chart of a run: a lane per step, and below a map one per item; many lanes are folded into groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from math import ceil

import msgspec

from mulligan.core.model.place_keys import step_name
from mulligan.core.model.text.formatting import format_size, pluralize
from mulligan.service.rendering.page import ui
from mulligan.service.rendering.page.axis import Timescale, draw_axis, grid_style
from mulligan.service.rendering.page.groups import matrix_of
from mulligan.service.rendering.page.markup import Html, element, join_html
from mulligan.service.rendering.page.styles import OUTCOMES, format_elapsed
from mulligan.service.rendering.page.tracks import Bar, WaitLine, draw_density, draw_track
from mulligan.service.runs.stored.attempts import Gap
from mulligan.service.runs.views.report import Report
from mulligan.service.runs.views.report.build import Attempt

# More lanes than the first are folded into groups: the least size of a group, and the most groups.
LINES_MAX, GROUP_LINES_MIN, GROUPS_MAX = 80, 50, 50
# This many bars are drawn one by one; further bars only appear in the density of their group.
BARS_MAX = 15_000


class Lane(msgspec.Struct):
    """One lane: what ran for a step or an item, and when it waited."""

    name: str
    bars: list[Bar] = []
    waits: list[WaitLine] = []
    below: list[Lane] = []
    # What the lanes below it are: items of a map, steps of a matrix; "" for a plain group.
    noun: str = ""
    # The label, if it is not the name: an item is labelled by its value.
    label: str = ""

    def all_bars(self) -> Iterator[Bar]:
        yield from self.bars
        for lane in self.below:
            yield from lane.all_bars()

    def all_waits(self) -> Iterator[WaitLine]:
        yield from self.waits
        for lane in self.below:
            yield from lane.all_waits()

    @property
    def since(self) -> datetime | None:
        return min((bar.since for bar in self.all_bars()), default=None)


def render_timeline(report: Report) -> Html:
    """The whole chart; nothing if nothing has run."""
    lanes = _lanes(report)
    if not lanes:
        return Html("")
    busy = [(bar.since, bar.until) for lane in lanes for bar in lane.all_bars()]
    end = max([report.ended_at or report.as_of, *(until for _, until in busy)])
    scale = Timescale(report.started_at, end, busy)
    writer = _LaneWriter(scale)
    marks = scale.marks()
    chart = element("div", draw_axis(marks), join_html(writer.lanes(lanes)), class_="timeline", style=grid_style(marks))
    return join_html([_legend(lanes), chart])


def _legend(lanes: Sequence[Lane]) -> Html:
    """The meaning of the colours and lines that occur."""
    bars = [bar for lane in lanes for bar in lane.all_bars()]
    kinds = {bar.tone for bar in bars} | {wait.kind for lane in lanes for wait in lane.all_waits()}
    rows = [element("li", element("i", class_=kind), words) for kind, words in _LEGEND.items() if kind in kinds]
    rows += [element("li", "small: handlers, scripts and checks")] if any(bar.is_small for bar in bars) else []
    return element("ul", *rows, class_="legend")


_LEGEND = {
    "good": "succeeded",
    "bad": "failed",
    "now": "running",
    "odd": "lost, interrupted or cancelled",
    "queue": "queued",
    "delay": "waiting for a delay",
    "calls": "waiting for its calls",
    "parked": "parked for a decision",
}


class _LaneWriter:
    """Draws lanes with single bars until the limit is used up."""

    def __init__(self, scale: Timescale) -> None:
        self._scale = scale
        self._bars_left = BARS_MAX

    def lanes(self, lanes: Sequence[Lane]) -> Iterator[Html]:
        """One lane each; many lanes are folded into groups."""
        if len(lanes) <= LINES_MAX:
            yield from (self._lane(lane) for lane in lanes)
            return
        group = max(GROUP_LINES_MIN, ceil(len(lanes) / GROUPS_MAX))
        for first in range(0, len(lanes), group):
            some = list(lanes[first : first + group])
            noun = "items" if "[" in some[0].name else "steps"
            head = Lane(f"{noun} {first + 1:,} to {first + len(some):,}", below=some)
            yield self._folded(head, (self._lane(lane) for lane in some))

    def _lane(self, lane: Lane) -> Html:
        if lane.below:
            return self._folded(lane, self._parts(lane))
        self._bars_left -= len(lane.bars)
        return _line(lane, draw_track(lane.bars, lane.waits, self._scale, _summary(lane)))

    def _parts(self, lane: Lane) -> Iterator[Html]:
        """The lane of the map step itself, and those of its items."""
        if lane.bars or lane.waits:
            yield self._lane(Lane("the step itself", lane.bars, lane.waits))
        yield from self.lanes(lane.below)

    def _folded(self, lane: Lane, inside: Iterator[Html]) -> Html:
        """A lane that unfolds into the lanes below it."""
        bars = list(lane.all_bars())
        head = _line(lane, draw_density(bars, self._scale, _summary(lane)), name="summary")
        if len(bars) > self._bars_left:
            return element("details", head, ui.note("too many to list one by one"))
        return element("details", head, element("div", join_html(inside), class_="below"))


def _line(lane: Lane, picture: Html, name: str = "div") -> Html:
    below = element("small", _how_many(lane)) if lane.below else ""
    label = element("span", lane.label or lane.name, below, class_="name", title=_names(lane))
    return element(name, label, picture, element("span", _took(lane), class_="took"), class_="lane")


def _names(lane: Lane) -> str:
    """The full name; of a group, its first and last name."""
    is_group = lane.below and not lane.bars and lane.noun != "item"
    return f"{lane.below[0].name} … {lane.below[-1].name}" if is_group else lane.name


def _how_many(lane: Lane) -> str:
    """How many lanes are below, and how many attempts failed."""
    failed = sum(1 for bar in lane.all_bars() if bar.tone == "bad" and not bar.is_small)
    words = [pluralize(len(lane.below), lane.noun)] if lane.noun else []
    words += [pluralize(failed, "failure")] if failed else []
    return f" {', '.join(words)}" if words else ""


def _took(lane: Lane) -> str:
    bars = list(lane.all_bars())
    if not bars:
        return ""
    return format_elapsed((max(bar.until for bar in bars) - min(bar.since for bar in bars)).total_seconds())


def _summary(lane: Lane) -> str:
    bars = [bar for bar in lane.all_bars() if not bar.is_small]
    failed = sum(1 for bar in bars if bar.tone == "bad")
    words = [pluralize(len(bars), "attempt"), *([f"{failed} failed"] if failed else []), _took(lane)]
    return f"{lane.label or lane.name}: {', '.join(words)}"


# -- from the report -------------------------------------------------------------------------------------------------


def _lanes(report: Report) -> list[Lane]:
    """A lane per step in the order in which they started, with their items below; each undo has its own lane."""
    units: dict[str, Lane] = {}
    undos: dict[str, Lane] = {}
    for attempt in report.attempts:
        if attempt.part == "undo":
            _add(undos.setdefault(attempt.unit, Lane(f"undo of {attempt.unit}")), attempt, report)
        elif not attempt.is_map:
            lane = units.setdefault(attempt.unit, Lane(attempt.unit, label=report.item_names.get(attempt.unit, "")))
            _add(lane, attempt, report)
    for gap in report.gaps:
        if gap.unit in units:
            units[gap.unit].waits.append(_wait_line(gap, report))
    return _of_matrices([*_nested(units), *(lane for lane in undos.values() if lane.bars)], matrix_of(report))


def _of_matrices(lanes: Sequence[Lane], whole: Mapping[str, str]) -> list[Lane]:
    """The lanes of steps, with those of a matrix below one common lane."""
    found: dict[str, Lane] = {}
    for lane in lanes:
        matrix = whole.get(lane.name)
        if matrix is None:
            found[lane.name] = lane
        else:
            found.setdefault(matrix, Lane(matrix, noun="step")).below.append(lane)
    return list(found.values())


def _nested(units: dict[str, Lane]) -> list[Lane]:
    steps: dict[str, Lane] = {}
    for unit, lane in units.items():
        step = step_name(unit)
        if step == unit:
            below = steps[step].below if step in steps else []
            steps[step] = msgspec.structs.replace(lane, below=below, noun="item" if below else "")
        else:
            above = steps.setdefault(step, Lane(step))
            above.noun = "item"
            above.below.append(lane)
    return [lane for lane in steps.values() if lane.since is not None]


def _add(lane: Lane, attempt: Attempt, report: Report) -> None:
    since = attempt.started_at
    if since is None:
        until = attempt.ended_at or report.ended_at or report.as_of
        lane.waits.append(
            WaitLine(attempt.scheduled_at, until, "queue", f"{_title(attempt, report)}: waiting for a worker")
        )
        return
    until = max(since, attempt.ended_at or report.ended_at or report.as_of)
    if (since - attempt.scheduled_at).total_seconds() > 0:
        waited = format_elapsed((since - attempt.scheduled_at).total_seconds())
        lane.waits.append(
            WaitLine(attempt.scheduled_at, since, "queue", f"{_title(attempt, report)}: queued for {waited}")
        )
    tone, hover, is_small = OUTCOMES[attempt.outcome], _hover(attempt, since, until, report), _is_small(attempt)
    for begin, end in attempt.waits:
        # A program waits without a process: its bar has a gap there.
        end = until if end is None else end
        waited = format_elapsed((end - begin).total_seconds())
        lane.bars.append(Bar(since, begin, tone, hover, is_small))
        lane.waits.append(WaitLine(begin, end, "calls", f"{_title(attempt, report)}: waited for its calls, {waited}"))
        since = end
    if not attempt.waits or since < until:
        lane.bars.append(Bar(since, until, tone, hover, is_small))


def _is_small(attempt: Attempt) -> bool:
    """Whether it ran on behalf of a step. An undo has its own lane."""
    return attempt.part not in ("own", "undo")


def _title(attempt: Attempt, report: Report) -> str:
    visit = f", visit {attempt.visit}" if attempt.visit > 1 else ""
    return f"{report.name_of(attempt.place)}{visit}, attempt {attempt.attempt}"


def _hover(attempt: Attempt, since: datetime, until: datetime, report: Report) -> str:
    """The tooltip of an attempt."""
    lines = [f"{_title(attempt, report)}: {attempt.outcome}", attempt.what]
    into = format_elapsed((since - report.started_at).total_seconds())
    lines.append(f"{format_elapsed((until - since).total_seconds())}, started after {into} ({since:%H:%M:%S} UTC)")
    if attempt.peak_memory:
        lines.append(
            f"memory {format_size(attempt.peak_memory)}"
            + (f" of {format_size(attempt.memory)}" if attempt.memory else "")
        )
    if attempt.cpu_seconds is not None:
        lines.append(f"CPU time {format_elapsed(attempt.cpu_seconds)}")
    if attempt.tokens:
        lines.append(pluralize(attempt.tokens, "token"))
    return "\n".join(line for line in (*lines, f"on {attempt.host}" if attempt.host else "") if line)


_PAUSES = {"delay": "delay before a retry", "loop": "delay of a loop", "parked": "parked for a decision"}


def _wait_line(gap: Gap, report: Report) -> WaitLine:
    until = gap.until or report.as_of
    kind = "parked" if gap.kind == "parked" else "delay"
    elapsed = format_elapsed((until - gap.since).total_seconds())
    return WaitLine(gap.since, until, kind, f"{report.name_of(gap.unit)}: {_PAUSES[gap.kind]}, {elapsed}")
