"""Small parts that several pages of operations have: times, statuses, buttons, links."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from mulligan.dashboard.components.shell import path_to
from mulligan.service.rendering.page.markup import Html, element
from mulligan.service.rendering.page.styles import status_label, status_tone
from mulligan.service.runs.views.run_list import RunLine
from mulligan.service.runs.views.run_reasons import waits_only_for_a_person


def moment(at: datetime, show: str = "ago") -> Html:
    """A time, which the browser writes in the zone of its reader: `ago`, `time`, `day` or `clock`."""
    return element("time", f"{at:%Y-%m-%d %H:%M} UTC", datetime=at.isoformat(), data_show=show)


def status(text: str, label: str = "") -> Html:
    """The status of a run, in its colour."""
    return element("span", label or status_label(text), class_=f"status {status_tone(text)}")


def run_status(run: RunLine) -> Html:
    """How a run stands, in its colour: what it waits for if only a person can move it, and whether it is degraded."""
    if run.damage:
        return element("span", "damaged", class_=f"status {status_tone('failed')}", title=run.damage)
    if asked := waits_only_for_a_person(run):
        return element("span", asked, class_="status ask")
    is_degraded = run.degraded and run.status == "completed"
    tone = "try" if is_degraded else status_tone(run.status)
    return element("span", "degraded" if is_degraded else status_label(run.status), class_=f"status {tone}")


def run_link(run_id: int) -> Html:
    return element("a", f"run {run_id}", href=path_to("runs", run_id), class_="nowrap")


def action_button(label: str, action: dict[str, Any], *, kind: str = "") -> Html:
    """A button that calls the HTTP interface; see actions.js."""
    return element("button", label, type="button", class_=kind or None, data_action=json.dumps(action))


def link_with(path: str, **query: object) -> str:
    """A path with those parameters that are not empty."""
    given = {name: value for name, value in query.items() if value not in (None, "", False)}
    return f"{path}?{urlencode(given)}" if given else path


def chips(label: str, entries: list[tuple[str, str, bool]]) -> Html:
    """Links of which one is chosen: text, address, whether it is that one."""
    links = [
        element("a", text, href=href, class_="chip", aria_current="true" if is_chosen else None)
        for text, href, is_chosen in entries
    ]
    return element("nav", *links, class_="filters", aria_label=label)


def facts(entries: list[tuple[str, object]]) -> Html:
    """Names and what they are, in two columns."""
    rows = [Html(element("dt", name) + element("dd", value)) for name, value in entries]
    return element("dl", *rows, class_="facts")


def figure(title: str) -> Html:
    """The title of a column of figures, which stand to the right."""
    return element("span", title, class_="n")
