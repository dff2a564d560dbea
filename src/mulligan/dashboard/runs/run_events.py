"""The tab Events of a run: what happened, the newest first, in words; the stored event below each."""

from __future__ import annotations

from urllib.parse import urlencode

from mulligan.dashboard.components.shell import empty, path_to, shortened
from mulligan.dashboard.runs.run_tab import RunOnPage, Tab
from mulligan.errors import InputInvalid
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
    is_live = not run.has_ended and not asked.cursor
    return Tab(content, modules=("run_tabs.js",), styles=("run_tabs.css",), live=f"run:{run.run_id}" if is_live else "")


def _before(cursor: str) -> int | None:
    if not cursor:
        return None
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 16):
        raise InputInvalid("this address names no page of the events", hint="open the tab Events", parameter="cursor")
    return int(cursor)


def _address(run: RunOnPage, *, types: tuple[str, ...], step: str, before: int | None = None) -> str:
    query: dict[str, object] = {"tab": "events"}
    if types:
        query["type"] = types
    if step:
        query["step"] = step
    if before is not None:
        query["cursor"] = before
    return f"{path_to('runs', run.run_id)}?{urlencode(query, doseq=True)}"


def _filters(run: RunOnPage) -> Html:
    asked = run.query
    chips = [
        element(
            "a",
            title,
            href=_address(run, types=(name,) if name else (), step=asked.step),
            class_="chip",
            aria_current="true" if (asked.type == (name,) or not (asked.type or name)) else None,
        )
        for name, title in _GROUPS.items()
    ]
    others = [one for one in asked.type if one not in _GROUPS]
    chips += [element("span", one, class_="chip mono", aria_current="true") for one in others]
    box = element(
        "input",
        type="search",
        name="step",
        value=asked.step,
        placeholder="Only this step",
        aria_label="Only events of this step",
        autocomplete="off",
        list="step-names",
        data_step_names=run.run_id,
    )
    hidden = [element("input", type="hidden", name="tab", value="events")]
    hidden += [element("input", type="hidden", name="type", value=one) for one in asked.type]
    form = element("form", *hidden, box, element("datalist", id="step-names", data_keep=True), method="get")
    return element("div", *chips, form, class_="filters")


def _line(run: RunOnPage, one: EventLine) -> Html:
    place: object = ""
    if one.step:
        place = element("a", one.shown_place, href=path_to("runs", run.run_id, "steps", one.step), class_="feed-place")
    parts: list[object] = [element("span", shortened(one.text), class_="feed-text")]
    if one.child_run_id:
        parts.append(element("a", f"run {one.child_run_id}", href=path_to("runs", one.child_run_id)))
    if one.tail:
        parts.append(element("pre", "\n".join(one.tail), class_="tail", tabindex="0"))
    raw = element(
        "details",
        element("summary", one.type, class_="mono", title=f"event {one.seq} as it is stored"),
        element("pre", shortened(one.json, JSON_MAX), tabindex="0"),
        class_="raw",
    )
    return element(
        "li",
        element("span", _clock(one), class_="time"),
        place or element("span", "run", class_="feed-place muted"),
        element("div", *parts, class_=f"feed-what {_TONES[one.tone] if one.is_story else 'muted'}".strip()),
        raw,
        id=f"event-{one.seq}",
        value=one.seq,
    )


def _clock(one: EventLine) -> Html:
    """The time of an event to the second: many events happen within one minute."""
    return Html(time_element(one.at).replace("<time ", '<time data-show="time" ', 1))


def _pages(run: RunOnPage, found: EventFeed) -> Html:
    asked = run.query
    parts: list[object] = []
    if asked.cursor:
        parts.append(element("a", "Newest", href=_address(run, types=asked.type, step=asked.step), class_="button"))
    if found.before is not None:
        older = _address(run, types=asked.type, step=asked.step, before=found.before)
        parts.append(element("a", "Older", href=older, class_="button", rel="next"))
    return element("nav", *parts, class_="pages", aria_label="Pages") if parts else Html("")
