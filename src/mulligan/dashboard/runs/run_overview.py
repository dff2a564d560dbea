"""The tab Overview of a run: why it is as it is, what failed, how all steps stand, and when they ran."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from mulligan.dashboard.components.parts import action_button
from mulligan.dashboard.components.shell import may, panel, path_to_entry, shortened
from mulligan.dashboard.runs.run_tab import RunOnPage, Tab
from mulligan.history.route_outcomes import FailureOutcome
from mulligan.service.rendering.formatting import pluralize
from mulligan.service.rendering.page import ui
from mulligan.service.rendering.page.failures import codes_list, render_visit
from mulligan.service.rendering.page.markup import Html, element, join_html
from mulligan.service.rendering.page.styles import status_label, status_tone
from mulligan.service.runs.views.run_reasons import FailureOverview, RunReason, explain_line, explain_run

# The order of the statuses in the bar.
BAR = (
    *("completed", "failed", "pending_failed", "running", "handling", "backing_off", "ready"),
    *("skipped", "cancelled", "waiting"),
)
# How many failures are open at first, and how many are listed without asking.
OPEN_MAX, LISTED_MAX = 2, 6


def render_overview(run: RunOnPage) -> Tab:
    """Everything but the islands is text of the server; `run.js` draws these, and follows the run."""
    view = run.view
    if view is None:
        # What the list knows of it says why at once; what was tried is read with all the rest.
        reading = element("p", "Reading what was tried …", class_="note", role="status", id="run-loading")
        parts = [_render_reason(run, explain_line(run.line)), reading, _status_bar({})]
    else:
        failures = run.call.service.details.failures(run.run_id)
        parts = [
            _render_reason(run, explain_run(view, failures, run.line)),
            _status_bar(view.step_counts),
            _failures(run, failures),
        ]
    text = join_html(parts)
    islands = join_html([_mosaic(run), _timeline(run)])
    # What the text was made of: `run.js` may find that the run has gone on since.
    made_of = None if view is None else json.dumps({"status": view.status, "counts": view.step_counts})
    root = (
        element("div", text, id="run-text"),
        element("div", islands, id="run-charts", data_keep=True, data_run=run.run_id, data_shown=made_of),
    )
    return Tab(join_html(root), modules=("run.js",), styles=("run.css",))


# -- why -------------------------------------------------------------------------------------------------------------


def _render_reason(run: RunOnPage, reason: RunReason) -> Html:
    """What is wrong, why, what was tried, what can be done; in this order."""
    step = ui.step_link(reason.run_id or run.run_id, reason.step, "Open the step", class_="button")
    buttons = [*_buttons(run, reason), step if reason.step else ""]
    parts = [element("h2", reason.title, id="why")]
    parts += [element("p", shortened(reason.why), class_="what")] if reason.why else []
    parts += [ui.note(element("b", "Tried "), reason.tried)] if reason.tried else []
    parts += [ui.note(reason.more)] if reason.more else []
    return element(
        "section",
        element("div", *parts),
        element("div", join_html(buttons, " "), class_="actions") if any(buttons) else "",
        class_=f"reason {reason.tone}",
        id="run-reason",
        aria_labelledby="why",
    )


def _buttons(run: RunOnPage, reason: RunReason) -> Iterator[Html]:
    """The next sensible action, if whoever looks at the page may do it."""
    run_id, is_called = run.run_id, bool(run.head.parent_run_id)
    entry = path_to_entry(reason.run_id or run_id, reason.step)
    if reason.action in ("decide", "approve") and may(run.call, "decide"):
        yield ui.button_link("Decide" if reason.action == "decide" else "Answer", entry, "primary")
    elif reason.action == "workers":
        yield ui.button_link("Workers", "/workers", "primary")
    elif reason.action == "resume" and may(run.call, "run") and not is_called:
        yield _button("Resume", f"runs/{run_id}:resume", f"Resume run {run_id}", "the run goes on")
    elif reason.action == "resume_step" and may(run.call, "run"):
        title, done = f"Resume '{reason.step}'", "the step goes on"
        yield _button("Resume", f"runs/{reason.run_id or run_id}:resume", title, done, step=reason.step)
    elif reason.action == "retry" and may(run.call, "run"):
        yield _button("Retry", f"runs/{run_id}:retry", f"Retry run {run_id}", "a new round begins")
        if reason.has_run_out:
            text = "Retry with more"
            yield _button(text, f"runs/{run_id}:retry", f"{text} memory and time", "a new round begins", adjust=True)


def _button(label: str, path: str, title: str, done: str, **body: Any) -> Html:
    how: dict[str, Any] = {"preview": True, "reason": "optional", "body": body}
    return action_button(label, path, title, done=done, kind="" if "adjust" in body else "primary", **how)


# -- counts ----------------------------------------------------------------------------------------------------------


def _status_bar(counts: dict[str, int]) -> Html:
    """The share of each status, and how many steps have it. `run.js` keeps both up to date."""
    total = sum(counts.values()) or 1
    pieces, words, left = [], [], 0.0
    for status in BAR:
        count = counts.get(status, 0)
        share = count / total * 100
        place = {"x": f"{left:.3f}%", "y": 0, "width": f"{share:.3f}%", "height": 8}
        pieces.append(element("rect", class_=f"{status_tone(status)} {status}", data_status=status, **place))
        said = (element("b", f"{count:,}"), " ", status_label(status))
        about = {"data_status": status, "hidden": not count}
        words.append(element("li", *said, class_=f"status {status_tone(status)} {status}", **about))
        left += share
    bar = element("svg", join_html(pieces), class_="bar", height=8, aria_hidden="true")
    return element("div", bar, element("ul", join_html(words), class_="counts"), id="run-counts")


# -- failures --------------------------------------------------------------------------------------------------------


def _failures(run: RunOnPage, failures: FailureOverview) -> Html:
    if not failures.total:
        return Html("")
    shown = [
        render_visit(
            visit,
            is_open=number < OPEN_MAX and visit.outcome in (FailureOutcome.UNHANDLED, FailureOutcome.IN_PROGRESS),
            href=ui.path_to("runs", run.run_id, "steps", visit.step),
            name=f"visit-{visit.step}-{visit.visit}",
        )
        for number, visit in enumerate(failures.visits)
    ]
    parts: list[object] = [_codes(failures), *shown[:LISTED_MAX]]
    if rest := shown[LISTED_MAX:]:
        parts.append(ui.details(f"{len(rest):,} more", *rest, id="more-failures"))
    if failures.total > len(shown):
        grid = element("a", "the grid has all of them", href=run.path(tab="grid"))
        parts.append(ui.note(f"Of {failures.total:,} failures {len(shown):,} are listed; ", grid, "."))
    counted = ((failures.unhandled, "unhandled"), (failures.parked, "waiting for a decision"))
    words = ", ".join(f"{count:,} {what}" for count, what in counted if count) or "all handled, or being handled"
    beside = element("span", f"{pluralize(failures.total, 'failure')}, {words}", class_="note")
    return panel("Failures and how they were handled", *parts, name="failures", beside=beside)


def _codes(failures: FailureOverview) -> Html:
    """The failures by code, if there are several codes or many failures."""
    if len(failures.codes) < 2 and failures.total <= LISTED_MAX:
        return Html("")
    return codes_list(
        (one.code, f"{one.count:,}" + (f", {one.unhandled:,} unhandled" if one.unhandled else ""), tone)
        for one in failures.codes[:12]
        for tone in ("bad" if one.unhandled else "idle",)
    )


# -- what run.js draws -----------------------------------------------------------------------------------------------


def _mosaic(run: RunOnPage) -> Html:
    grid = element("a", "as a table", href=run.path(tab="grid"))
    hide = element("label", element("input", type="checkbox", id="hide-completed"), " Hide completed", class_="toggle")
    canvas = element(
        "canvas",
        id="mosaic",
        tabindex="0",
        role="application",
        aria_label="All steps. Arrow keys move, Enter opens a step. The same as a table: the tab Grid.",
        aria_describedby="mosaic-said",
    )
    said = element("p", " ", id="mosaic-said", class_="said", role="status", aria_live="polite")
    beside = element("div", hide, grid, class_="beside")
    return panel("Steps", canvas, said, name="steps", beside=beside)


_LEGEND = (
    ("good", "succeeded"),
    ("bad", "failed"),
    ("now", "running"),
    ("odd", "lost, interrupted or cancelled"),
    ("retry", "a retry has a mark"),
    ("small", "handler, script or check"),
    ("queue", "queued"),
    ("delay", "waits for a delay"),
    ("parked", "waits for a decision"),
    ("calls", "a program waits for its calls"),
)


def _timeline(run: RunOnPage) -> Html:
    lines = (element("li", element("i", class_=kind), words, data_kind=kind) for kind, words in _LEGEND)
    colours = element("ul", *lines, class_="legend", id="gantt-legend", hidden=True)
    label = "Timeline of the steps, in the order in which they started"
    about = {"class_": "gantt", "tabindex": "0", "role": "region", "aria_label": label}
    axis = element("div", class_="gantt-axis", id="gantt-axis", aria_hidden="true")
    chart = element("div", axis, element("div", element("div", id="gantt-rows"), id="gantt", **about))
    reading = element("p", "Reading the timeline …", class_="note", id="gantt-note", role="status")
    box = element("input", type="checkbox", id="gantt-zoom")
    beside = element("div", element("label", box, " Zoom to the rows shown", class_="toggle"), class_="beside")
    return panel("Timeline", colours, reading, chart, name="timeline", beside=beside)
