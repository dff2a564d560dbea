"""Recovery: which circuit breakers are open, and which rungs of the ladder help, week by week."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import Annotated

import msgspec

from mulligan.api.http.routing import Answer, Call, Query
from mulligan.dashboard.components.parts import action_button, chips
from mulligan.dashboard.components.shell import empty, heading, may, page, page_route, panel
from mulligan.service.host.breakers import Breaker
from mulligan.service.rendering.formatting import pluralize
from mulligan.service.rendering.page import ui
from mulligan.service.rendering.page.markup import Html, element, join_html
from mulligan.service.rendering.page.styles import format_elapsed
from mulligan.service.runs.statistics.stats import RungStats, describe_rung
from mulligan.service.runs.statistics.trends import CodeStats, RecoveryTrend, monday

_RUNGS = ("retry", "script", "handle", "triage", "route")
_TITLES = {
    "retry": "Retries",
    "script": "Recovery scripts",
    "handle": "Handlers",
    "triage": "Triage",
    "route": "Failure edges",
}
_PERIODS = ((4, "4 weeks"), (12, "12 weeks"), (26, "half a year"), (52, "a year"))
# A bar of the chart, in units of its drawing.
_BAR, _GAP, _HEIGHT = 10, 4, 44
# From so many tries on it is said that something rarely works.
_TRIES_MIN, _RARELY = 3, 0.25
_ROWS_MAX = 200


class RecoveryQuery(Query, frozen=True):
    """Of the runs of how many weeks, and of which workflow."""

    weeks: Annotated[int, msgspec.Meta(ge=1, le=104)] = 12
    workflow: str = ""


def show_recovery(call: Call) -> Answer:
    asked: RecoveryQuery = call.query
    now = datetime.now(UTC)
    trend = call.service.trends.recovery(now, weeks=asked.weeks, workflow=asked.workflow)
    found = call.service.machine.list_breakers()
    breakers = _breakers(call, found)
    parts = (_codes(trend.codes, asked), _table(trend, asked), _agents(trend))
    chart = _chart(trend, now, asked.weeks)
    works = panel("Which recovery works", _choose(asked, trend), chart, *parts, name="works")
    suggested = ui.link_with("/recovery/suggestions", workflow=asked.workflow)
    return page(
        call,
        "Recovery",
        heading("Recovery", ui.button_link("Suggested rules", suggested)),
        # Breakers that hold something back come first, and otherwise last.
        *((breakers, works) if any(one.status != "closed" for one in found) else (works, breakers)),
        section="recovery",
        live="runs",
    )


# -- circuit breakers ------------------------------------------------------------------------------------------------


def _breakers(call: Call, found: list[Breaker]) -> Html:
    ordered = sorted(found, key=lambda one: (one.status == "closed", one.name))
    if not found:
        words = "A breaker stops tasks from calling a service that keeps failing. It appears when a task first asks it."
        return panel("Circuit breakers", element("p", words, class_="muted"), name="breakers")
    rows = [
        ui.row(
            element("strong", one.name),
            ui.status(one.status, tone={"open": "bad", "half_open": "try"}.get(one.status, "good")),
            join_html(_why(one)),
            pluralize(one.running, "task") if one.running else "-",
            pluralize(one.waiting, "task") if one.waiting else "-",
            _reset(call, one),
            id=f"breaker-{one.name}",
        )
        for one in ordered
    ]
    head = ("Breaker", "State", "Why, and who lifts it", ui.figure("Running"), ui.figure("Waiting"), ui.figure(""))
    tone = "bad" if any(one.status == "open" for one in found) else ""
    return panel("Circuit breakers", ui.table(head, rows, label="Circuit breakers"), name="breakers", tone=tone)


def _why(one: Breaker) -> list[object]:
    failed = f"{pluralize(one.failures, 'failure')} in a row" if one.failures else ""
    if one.status == "closed":
        limit = f"; at most {pluralize(one.max_running, 'task')} at once" if one.max_running is not None else ""
        return [(failed or "no failure since the last success") + limit]
    if one.status == "half_open":
        return [f"{failed}; one task tries now whether the service works again. If it succeeds, the breaker closes."]
    if one.retry_at is None:
        return [failed, "; it stays open until somebody resets it"]
    return [
        failed,
        "; by itself one task tries again ",
        ui.moment(one.retry_at),
        ", or reset it when the service is back",
    ]


def _reset(call: Call, one: Breaker) -> Html | str:
    if one.status == "closed" or not may(call, "run"):
        return ""
    waiting = f"{pluralize(one.waiting, 'task')} will go on at once." if one.waiting else "No task waits for it."
    path, title = f"breakers/{ui.path_to(one.name)[1:]}:reset", f"Close the breaker {one.name}"
    text = f"Do this when the service works again. {waiting}"
    how = {"text": text, "reason": "optional", "done": f"{one.name} is closed"}
    return action_button("Reset", path, title, confirm="Close the breaker", **how)


# -- statistics ------------------------------------------------------------------------------------------------------


def _choose(asked: RecoveryQuery, trend: RecoveryTrend) -> Html:
    periods = [
        (text, ui.link_with("/recovery", weeks=weeks, workflow=asked.workflow), weeks == asked.weeks)
        for weeks, text in _PERIODS
    ]
    if asked.workflow:
        names = [(asked.workflow, ui.link_with("/recovery", weeks=asked.weeks, workflow=asked.workflow), True)]
        names.append(("all workflows", ui.link_with("/recovery", weeks=asked.weeks), False))
    else:
        used = dict.fromkeys(line.workflow for line in trend.stats)
        names = [(name, ui.link_with("/recovery", weeks=asked.weeks, workflow=name), False) for name in [*used][:12]]
    return element("div", chips("Time", periods), chips("Workflow", names) if names else "", class_="choices")


def _chart(trend: RecoveryTrend, now: datetime, weeks: int) -> Html:
    """A row of bars for each kind of rung: a bar a week, what worked and what did not."""
    counts: dict[str, dict[datetime, tuple[int, int]]] = defaultdict(dict)
    for one in trend.weeks:
        counts[one.rung][one.week] = one.tried, one.worked
    if not counts:
        words = f"Nothing failed that something was tried for, in {pluralize(trend.runs, 'run')} of this time."
        return empty(words)
    mondays = [monday(now) - timedelta(weeks=weeks - 1 - number) for number in range(weeks)]
    lanes = [_lane(rung, counts[rung], mondays) for rung in _RUNGS if rung in counts]
    ends = element(
        "div",
        element("span", class_="name"),
        element("span", ui.moment(mondays[0], "day"), element("span", "this week"), class_="ends"),
        element("span", class_="took"),
        class_="lane head",
    )
    colours = ui.legend((("good", "worked"), ("bad", "tried in vain")))
    cut = ui.note(f"Of the newest {trend.runs:,} runs; older ones are not counted.") if trend.is_cut else ""
    return element("div", colours, *lanes, ends, cut, class_="weeks plot")


def _lane(rung: str, counts: dict[datetime, tuple[int, int]], mondays: list[datetime]) -> Html:
    most = max(tried for tried, _ in counts.values())
    tried, worked = (sum(one[index] for one in counts.values()) for index in (0, 1))
    bars = [_bar(number, counts[week], week, most) for number, week in enumerate(mondays) if week in counts]
    width = len(mondays) * (_BAR + _GAP)
    drawing = element(
        "svg",
        element("line", x1=0, y1=_HEIGHT - 0.5, x2=width, y2=_HEIGHT - 0.5),
        *bars,
        class_="track",
        viewBox=f"0 0 {width} {_HEIGHT}",
        height=_HEIGHT,
        preserveAspectRatio="none",
        role="img",
        aria_label=f"{_TITLES[rung]} week by week: worked {worked:,} of {tried:,}",
    )
    share = f"{worked / tried:.0%}"
    took = element("span", element("b", share), element("small", f" {worked:,} of {tried:,} worked"), class_="took")
    return element("div", element("span", _TITLES[rung], class_="name"), drawing, took, class_="lane")


def _bar(number: int, count: tuple[int, int], week: datetime, most: int) -> Html:
    tried, worked = count
    x = number * (_BAR + _GAP) + _GAP / 2
    full = max(2.0, round((_HEIGHT - 2) * tried / most, 1))
    good = round(full * worked / tried, 1)
    parts = [element("title", f"week of {week:%-d %b %Y}: {worked:,} of {tried:,} worked")]
    if full > good:
        parts.append(element("rect", x=x, y=_HEIGHT - 1 - full, width=_BAR, height=full - good, class_="bad"))
    if good:
        parts.append(element("rect", x=x, y=_HEIGHT - 1 - good, width=_BAR, height=good, class_="good"))
    return element("g", *parts)


def _codes(codes: list[CodeStats], asked: RecoveryQuery) -> Html | str:
    """What becomes of a failure that no retry helped, by its code."""
    if not codes:
        return ""
    rows = [
        ui.row(
            element("code", one.code),
            _runs_with(one, asked),
            *(f"{count:,}" for count in (one.failed, one.recovered, one.handled)),
            element("b", f"{one.unhandled:,}", class_="bad") if one.unhandled else "0",
            _share((one.recovered + one.handled) / one.failed),
            id=f"code-{one.code}",
        )
        for one in codes[:_ROWS_MAX]
    ]
    titles = ("Runs", "Failed after retries", "Recovered by a handler", "Handled otherwise", "Unhandled")
    head = ("Failure code", *map(ui.figure, titles), "")
    return join_html([element("h3", "By failure code"), ui.table(head, rows, label="Failures by code", keyed=True)])


def _runs_with(one: CodeStats, asked: RecoveryQuery) -> Html:
    """A link to the runs that failed with it, if there are some."""
    if not one.unhandled:
        return element("span", f"{one.runs:,}")
    return element("a", f"{one.runs:,}", href=ui.link_with("/runs", failure=one.code, workflow=asked.workflow))


def _table(trend: RecoveryTrend, asked: RecoveryQuery) -> Html | str:
    if not trend.stats:
        return ""
    rows = [_line(one, asked) for one in trend.stats[:_ROWS_MAX]]
    figures = (ui.figure("Runs"), ui.figure("Tried"), ui.figure("Worked"), "", ui.figure("Takes"))
    head = ("Workflow", "Step", "What was tried", *figures)
    more = ui.left_out(len(trend.stats) - _ROWS_MAX, "more; choose a workflow")
    return join_html(
        [element("h3", "By step"), ui.table(head, rows, label="What was tried, by step", keyed=True), more]
    )


def _agents(trend: RecoveryTrend) -> Html | str:
    """How often agents that decide about failures were right."""
    if not trend.agents:
        return ""
    figures = ("Decided", "Right", "Failed again", "Overruled", "Suggested", "Followed", "No answer")
    rows = [
        ui.row(
            ui.link(one.workflow, "workflows", one.workflow),
            one.agent,
            *(f"{count:,}" for count in (one.decisions, one.right, one.failed_again, one.overruled)),
            *(f"{count:,}" for count in (one.suggestions, one.followed, one.unanswered)),
            "-" if one.share is None else _share(one.share),
        )
        for one in trend.agents[:_ROWS_MAX]
    ]
    head = ("Workflow", "Agent", *map(ui.figure, figures), "")
    return join_html([element("h3", "Agents"), ui.table(head, rows, label="How often agents were right", keyed=True)])


def _line(one: RungStats, asked: RecoveryQuery) -> ui.Row:
    rarely = ui.status("failed", "rarely works") if one.tried >= _TRIES_MIN and one.share < _RARELY else ""
    return ui.row(
        ui.link(one.workflow, "workflows", one.workflow),
        one.step,
        join_html([describe_rung(one), " ", rarely]),
        element("a", f"{one.runs:,}", href=ui.link_with("/runs", workflow=one.workflow)),
        f"{one.tried:,}",
        f"{one.worked:,}",
        _share(one.share),
        "-" if one.average_seconds is None else format_elapsed(one.average_seconds),
    )


def _share(share: float) -> Html:
    """How much of it worked, as a bar with its figure."""
    return element("span", ui.gauge(share, "good"), f" {share:.0%}", class_="nowrap")


ROUTES = (
    page_route(
        "/recovery", show_recovery, "Circuit breakers, and which recovery works.", query=RecoveryQuery, is_sum=True
    ),
)
