"""The tab Events of a run: what happened, the newest first, in words; the stored event below each."""

from __future__ import annotations

from mulligan.dashboard.components.parts import step_search
from mulligan.dashboard.components.shell import empty, shortened
from mulligan.dashboard.runs.run_tab import RunOnPage, Tab
from mulligan.errors import InputInvalid
from mulligan.service.rendering.page import ui
from mulligan.service.rendering.page.markup import Html, element, join_html
from mulligan.service.rendering.page.styles import time_element
from mulligan.service.runs.views.run_events import EventFeed, EventLine

# How much of the stored JSON of an event is shown.
JSON_MAX = 20_000
EVENTS = 100
_GROUPS = {
    "": "All",
    "failures": "Failures",
    "recovery": "Recovery",
    "people": "By people",
    "steps": "Steps",
    "attempts": "Attempts",
    "items": "Items and commands",
    "run": "The run",
}
_TONES = {"plain": "", "good": "good", "bad": "bad", "try": "try", "wait": "ask"}


def render_events(run: RunOnPage) -> Tab:
    """A page of events. A word of `type` is a group of events, or the type of one."""
    asked = run.query
    found = run.call.service.details.feed(
        run.run_id,
        groups=[one for one in asked.type if one in _GROUPS],
        types=[one for one in asked.type if one not in _GROUPS],
        step=asked.step,
        before=_before(asked.cursor),
        limit=EVENTS,
    )
    if found.events:
        lines = join_html(_line(run, one) for one in found.events)
        body = element("ol", lines, class_="feed", reversed=True, aria_label="Events, the newest first")
    elif found.before is not None:
        body = empty("None of these among the newest events.")
    else:
        body = empty("No such event." if asked.type or asked.step else "Nothing has happened yet.")
    content = element("section", _filters(run), body, _pages(run, found), class_="events-tab")
    # Older events stay as they are.
    return Tab(content, modules=("run_tabs.js",), live="" if asked.cursor else run.live)


def _before(cursor: str) -> int | None:
    if not cursor:
        return None
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 16):
        raise InputInvalid("this address names no page of the events", hint="open the tab Events", parameter="cursor")
    return int(cursor)


def _filters(run: RunOnPage) -> Html:
    asked = run.query
    chips = [
        element(
            "a",
            title,
            href=run.path(tab="events", type=name, step=asked.step),
            class_="chip",
            aria_current="true" if (asked.type == (name,) or not (asked.type or name)) else None,
        )
        for name, title in _GROUPS.items()
    ]
    others = [one for one in asked.type if one not in _GROUPS]
    chips += [element("span", one, class_="chip mono", aria_current="true") for one in others]
    only = ("Only this step", "Only events of this step")
    form = step_search(run.run_id, asked.step, *only, tab="events", type=asked.type)
    return element("div", *chips, form, class_="filters")


def _line(run: RunOnPage, one: EventLine) -> Html:
    place: object = ""
    if one.step:
        place = ui.step_link(run.run_id, one.step, one.shown_place, class_="feed-place")
    parts: list[object] = [element("span", shortened(one.text), class_="feed-text")]
    if one.child_run_id:
        parts.append(ui.link(f"run {one.child_run_id}", "runs", one.child_run_id))
    if one.tail:
        parts.append(ui.text_block("\n".join(one.tail), class_="tail"))
    head = element("summary", one.type, class_="mono", title=f"event {one.seq} as it is stored")
    raw = element("details", head, ui.text_block(shortened(one.json, JSON_MAX)), class_="raw")
    return element(
        "li",
        # To the second: many events happen within one minute.
        element("span", time_element(one.at, data_show="time"), class_="time"),
        place or element("span", "run", class_="feed-place muted"),
        element("div", *parts, class_=f"feed-what {_TONES[one.tone] if one.is_story else 'muted'}".strip()),
        raw,
        id=f"event-{one.seq}",
        value=one.seq,
    )


def _pages(run: RunOnPage, found: EventFeed) -> Html:
    here = {"tab": "events", "type": run.query.type, "step": run.query.step}
    return ui.paged(
        ui.button_link("Newest", run.path(**here)) if run.query.cursor else "",
        "" if found.before is None else ui.button_link("Older", run.path(**here, cursor=found.before), rel="next"),
    )
