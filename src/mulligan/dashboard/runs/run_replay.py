"""The tab Replay of a run: a slider over its events that moves its graph, its timeline, its steps and a ladder.

Each point is rendered by the server, under an address that can be shared. `assets/replay.js` asks for another one while
the slider moves, and replaces what differs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mulligan.dashboard.components.parts import action_button, hidden_fields
from mulligan.dashboard.components.shell import may, panel
from mulligan.dashboard.runs.run_tab import RunOnPage, Tab
from mulligan.service.rendering.drawing.picture import Node
from mulligan.service.rendering.formatting import pluralize
from mulligan.service.rendering.page import ui
from mulligan.service.rendering.page.markup import Html, element, join_html
from mulligan.service.rendering.page.styles import OUTCOMES, format_elapsed, status_tone, time_element
from mulligan.service.runs.views.run_details import FailureHandlers
from mulligan.service.runs.views.run_events import EventLine
from mulligan.service.runs.views.run_timeline import Timeline
from mulligan.service.runs.views.time_travel import MomentPicture, RunMoment, TurnEvents

# How many lines a list has, and how many steps are listed.
LINES_MAX, STEPS_MAX = 12, 60
# The picture of the timeline, in pixels.
_LABELS, _WIDTH, _ROW = 150, 640, 22
_WAITS = ("queue", "delay", "parked", "calls")
# The rung that a step with this status is at.
_AT_RUNG = {"backing_off": "retry", "handling": "handle", "pending_failed": "triage", "failed": "route"}


def render_replay(run: RunOnPage) -> Tab:
    """The run after the event in the address."""
    past = run.call.service.past
    last = run.call.service.runs.record(run.run_id).seq
    if not last:
        return Tab(ui.note("The run has not started yet, so there is nothing to replay."), live=f"run:{run.run_id}")
    seq = run.query.at or last

    def href(node: Node) -> str:
        if node.members:
            return run.path(tab="grid", text=node.name.rstrip("…"))
        return ui.path_to("runs", run.run_id, "steps", node.title)

    found = past.picture(run.run_id, seq, href, step=run.query.step)
    moment = found.moment
    content = [
        _controls(run, moment),
        _sentence(moment),
        element(
            "div",
            element("div", _graph(found), _timeline(found), class_="replay-charts"),
            element("div", _steps(run, moment), _ladder(found), class_="replay-side"),
            class_="replay-parts",
        ),
        element("div", _waits(moment), _next(moment.next), class_="replay-below"),
    ]
    about = {"data_run": run.run_id, "data_seq": moment.seq, "data_last": moment.last_seq}
    whole = element("section", *content, id="replay", **about)
    return Tab(whole, modules=("replay.js",), styles=("replay.css",))


def _link(run_id: int, seq: int, **more: str) -> str:
    return ui.link_with(ui.path_to("runs", run_id), tab="replay", at=seq, **more)


# -- where we are ----------------------------------------------------------------------------------------------------


def _controls(run: RunOnPage, moment: RunMoment) -> Html:
    """The slider, with links that work without JavaScript."""
    about = {"min": 1, "max": moment.last_seq, "value": moment.seq, "aria_describedby": "replay-sentence"}
    slider = element("input", type="range", name="at", id="replay-at", aria_label="Event", **about)
    form = element(
        "form",
        hidden_fields(tab="replay"),
        _step_link(moment, moment.seq - 1, "←", "The event before"),
        slider,
        _step_link(moment, moment.seq + 1, "→", "The next event"),
        element("button", "Show", class_="small", id="replay-show"),
        element("button", "Play", type="button", class_="small", id="replay-play", hidden=True),
        method="get",
        class_="replay-controls",
    )
    return element("div", form, _fork_button(run, moment), class_="replay-top")


def _step_link(moment: RunMoment, seq: int, sign: str, words: str) -> Html:
    if not 1 <= seq <= moment.last_seq:
        return element("span", sign, class_="replay-step", aria_disabled="true")
    about = {"class_": "replay-step", "aria_label": words, "title": words, "data_at": seq}
    return element("a", sign, href=_link(moment.run_id, seq), **about)


def _fork_button(run: RunOnPage, moment: RunMoment) -> Html:
    """Start a new run from this point. Of a called run only the whole tree is changed."""
    is_open = moment.run.status in ("running", "paused")
    if not may(run.call, "run") or run.head.parent_run_id or not is_open or moment.seq < 2:
        return Html("")
    path, title = f"runs/{moment.run_id}/at/{moment.seq}:fork", f"Fork run {moment.run_id} after event {moment.seq}"
    how: dict[str, Any] = {
        "done": "the fork is started",
        "preview": True,
        "reason": "optional",
        "body": {},
        "next": "/runs/{fork_run_id}",
    }
    return action_button("Fork here", path, title, kind="small", name="replay-fork", **how)


def _sentence(moment: RunMoment) -> Html:
    event, passed = moment.event, (moment.at - moment.started_at).total_seconds()
    place = element("b", event.shown_place, " ") if event.place else ""
    return element(
        "p",
        element("span", f"Event {moment.seq:,} of {moment.last_seq:,}", class_="replay-number"),
        ui.status(moment.run.status),
        element("span", place, event.text, class_=f"replay-text {event.tone}"),
        ui.muted(time_element(moment.at), f", {format_elapsed(passed)} after the start"),
        element("a", "link", href=_link(moment.run_id, moment.seq), title="An address of this point to share"),
        id="replay-sentence",
        class_="replay-sentence",
        aria_live="polite",
    )


# -- pictures --------------------------------------------------------------------------------------------------------


def _graph(found: MomentPicture) -> Html:
    beside = ""
    if found.graph.kind == "around":
        beside = element("span", f"around '{found.graph.step}', of {found.graph.step_count:,} steps", class_="note")
    about = {"class_": "flow-figure", "tabindex": "0", "role": "region", "aria_label": "Graph then"}
    return panel("Graph", element("figure", Html(found.graph.svg), **about), name="replay-graph", beside=beside)


def _timeline(found: MomentPicture) -> Html:
    line = found.timeline
    if not line.rows:
        return panel("Timeline", ui.note("Nothing had run yet."), name="replay-timeline")
    height = len(line.rows) * _ROW + 4
    rows = join_html(_row(line, number) for number in range(len(line.rows)))
    mark = element("line", x1=_WIDTH - 1, x2=_WIDTH - 1, y1=0, y2=height, class_="replay-now")
    about = {"class_": "replay-gantt", "role": "img", "aria_label": "When the steps ran, up to this event"}
    svg = element("svg", rows, mark, viewBox=f"0 0 {_WIDTH} {height}", **about)
    shown = f"{line.first + 1:,} to {line.first + len(line.rows):,} of " if line.total > len(line.rows) else ""
    notes = [f"{shown}{pluralize(line.total, 'step')} that had started"]
    if line.seq < line.last_seq:
        notes.append("; the log is still being read")
    # The page asks again for what the server has not read yet.
    again = line.seq < line.last_seq or None
    chart = element("div", svg, class_="replay-scroll", data_again=again)
    return panel("Timeline", chart, name="replay-timeline", beside=element("span", *notes, class_="note"))


def _row(line: Timeline, number: int) -> Html:
    row, top = line.rows[number], number * _ROW + 2
    scale = (_WIDTH - _LABELS - 4) / line.length
    bars = []
    for span in row.spans:
        left = _LABELS + span.since * scale
        right = _LABELS + (line.length if span.until is None else min(span.until, line.length)) * scale
        is_wait = span.kind in _WAITS
        tone = span.kind if is_wait else OUTCOMES.get(span.outcome, "odd")
        thin = span.kind != "own"
        title = f"{row.name}: {span.kind if thin else f'attempt {span.attempt}'}, {span.outcome}"
        bars.append(
            element(
                "rect",
                element("title", title),
                x=f"{left:.1f}",
                y=top + (6 if thin else 3),
                width=f"{max(2.0, right - left):.1f}",
                height=_ROW - (14 if thin else 8),
                rx=2,
                class_=f"{tone}{' open' if span.until is None and not is_wait else ''}",
            )
        )
    name = row.name if len(row.name) <= 20 else f"{row.name[:19]}…"
    return element("g", element("text", name, x=0, y=top + 14, class_=f"label {status_tone(row.status)}"), *bars)


# -- steps and ladder ------------------------------------------------------------------------------------------------


def _steps(run: RunOnPage, moment: RunMoment) -> Html:
    steps = moment.run.steps
    rows = [
        element(
            "li",
            ui.status(step.status),
            element("a", name, href=_link(run.run_id, moment.seq, step=name)),
            element("small", f"attempt {step.attempts}") if step.attempts > 1 else "",
            class_="now" if name == moment.event.step else None,
        )
        for name, step in list(steps.items())[:STEPS_MAX]
    ]
    total = len(steps) if moment.is_whole else moment.run.step_count
    what = "those that ran or had failed" if not moment.is_whole else "the first ones"
    cut = ui.note(f"Of {total:,} steps {len(rows):,} are listed: {what}.") if total > len(rows) else ""
    return panel("Steps", element("ul", *rows, class_="replay-steps"), cut, name="replay-steps")


def _ladder(found: MomentPicture) -> Html:
    ladder = found.ladder
    if ladder is None:
        return panel("Ladder", ui.note("This event is about the run, not about a step."), name="replay-ladder")
    at = _AT_RUNG.get(ladder.status, "")
    rungs = [
        element(
            "li",
            element("b", name),
            " ",
            element("span", words),
            class_="current" if name == at else "muted" if words == "none" else None,
        )
        for name, words in _rungs(ladder)
    ]
    attempt = f" attempt {ladder.attempts}" if ladder.attempts else ""
    beside = element("span", ui.status(ladder.status), attempt, class_="note")
    listed = element("ol", *rungs, class_="replay-ladder")
    return panel(f"Ladder of '{ladder.step}'", listed, name="replay-ladder", beside=beside)


def _rungs(ladder: FailureHandlers) -> Iterator[tuple[str, str]]:
    rules = (f"{one.granted} of {one.max_retries} used ({one.looks_for})" for one in ladder.rules)
    yield "retry", "; ".join(rules) or "none"
    handler = ladder.on_failure
    yield "handle", f"{handler.strategy}: {pluralize(len(handler.commands), 'command')}" if handler else "none"
    asks = f", {ladder.triage_agent} is asked first" if ladder.triage_agent else ""
    yield "triage", f"a person decides if {ladder.triage}{asks}" if ladder.triage else "none"
    edges = "; ".join(f"to {one.to}{f' ({one.looks_for})' if one.looks_for else ''}" for one in ladder.edges)
    allowed = "the run goes on without it" if ladder.continue_on_error else ""
    yield "route", "; ".join(filter(None, (edges, allowed))) or "none"


# -- waits and decisions ---------------------------------------------------------------------------------------------


def _waits(moment: RunMoment) -> Html:
    waits = [(wait.shown_place, wait.text) for wait in moment.run.waiting_for]
    lines = [*waits, *((one.name, f"timer: {one.text}") for one in moment.timers)]
    rows = [element("li", element("b", place, " ") if place else "", text) for place, text in lines[:LINES_MAX]]
    if len(lines) > LINES_MAX:
        rows.append(element("li", f"and {len(lines) - LINES_MAX:,} more", class_="muted"))
    inside = element("ul", *rows, class_="replay-list") if rows else ui.note("Nothing.")
    return panel("What the run waited for", inside, name="replay-waits")


def _next(turn: TurnEvents | None) -> Html:
    title = "What came next, and why"
    if turn is None:
        return panel(title, ui.note("This is the last event so far."), name="replay-next")
    rows = [_event(one) for one in turn.events[:LINES_MAX]]
    if len(turn.events) > LINES_MAX:
        rows.append(element("li", f"and {len(turn.events) - LINES_MAX:,} more events", class_="muted"))
    report = element("p", f"{turn.report[:1].upper()}{turn.report[1:]}.", class_="what")
    return panel(title, report, element("ol", *rows, class_="replay-list"), name="replay-next")


def _event(event: EventLine) -> Html:
    place = element("b", event.shown_place, " ") if event.place else ""
    return element("li", element("small", f"{event.seq} ", class_="muted"), place, event.text, class_=event.tone)
