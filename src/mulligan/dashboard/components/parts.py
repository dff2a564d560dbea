"""Parts that only the dashboard has: buttons that call the HTTP interface, choices, fields to search with."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from mulligan.service.rendering.page import ui
from mulligan.service.rendering.page.markup import Html, element, join_html
from mulligan.service.runs.views.run_list import RunLine
from mulligan.service.runs.views.run_reasons import waits_only_for_a_person
from mulligan.service.server.catalogue.text_diff import DiffLine


def run_status(run: RunLine) -> Html:
    """How a run stands, in its colour: what it waits for if only a person can move it, and whether it is degraded."""
    if run.damage:
        return ui.status("failed", "damaged", title=run.damage)
    if asked := waits_only_for_a_person(run):
        return ui.status("paused", asked)
    if run.degraded and run.status == "completed":
        return ui.status("completed", "degraded", tone="try")
    return ui.status(run.status)


def action_button(
    label: str, path: str, title: str, *, done: str, confirm: str = "", kind: str = "", name: str = "", **more: Any
) -> Html:
    """A button that asks, and then calls the HTTP interface; see actions.js for what an action has.

    `confirm`: the button of the dialog, if it says more than this one. `name`: its id.
    """
    action = {"path": path, "title": title, "label": confirm or label, "done": done, **more}
    asked = json.dumps(action)
    return element("button", label, type="button", class_=kind or None, data_action=asked, id=name or None)


def removal_button(label: str, path: str, title: str, *, done: str, kind: str = "", **more: Any) -> Html:
    """A button that removes something for good."""
    how: dict[str, Any] = {"method": "DELETE", "bodyless": True, "danger": True}
    return action_button(label, path, title, done=done, kind=kind, **how, **more)


def chips(label: str, entries: Iterable[tuple[object, str, bool]]) -> Html:
    """Links of which one is chosen: text, address, whether it is that one."""
    links = [
        element("a", text, href=href, class_="chip", aria_current="true" if is_chosen else None)
        for text, href, is_chosen in entries
    ]
    return element("nav", *links, class_="filters", aria_label=label)


def tabs(label: str, entries: Iterable[tuple[object, str, bool]], *behind: object) -> Html:
    """Links to the parts of a page, of which one is shown: title, address, whether it is that one."""
    links = [
        element("a", title, href=href, aria_current="page" if is_shown else None) for title, href, is_shown in entries
    ]
    return element("nav", *links, *behind, class_="tabs", aria_label=label)


def search_box(name: str, value: str, hint: str, label: str = "", **attributes: Any) -> Html:
    """A field to search with. Without `value` it is empty."""
    more = {"placeholder": hint, "aria_label": label or hint, "autocomplete": "off", **attributes}
    return element("input", type="search", name=name, value=value or None, **more)


def step_search(run_id: int, step: str, hint: str, label: str, **hidden: object) -> Html:
    """A form that asks for a step of a run by its name. `hidden`: what else is sent, each a text or several."""
    box = search_box("step", step, hint, label, list="step-names", data_step_names=run_id)
    names = element("datalist", id="step-names", data_keep=True)
    return element("form", hidden_fields(**hidden), box, names, method="get")


def hidden_fields(**given: object) -> Html:
    """What a form sends besides its fields, each a text or several."""
    return join_html(
        element("input", type="hidden", name=name, value=one)
        for name, value in given.items()
        for one in (value if isinstance(value, tuple) else (value,))
    )


_SIGNS = {"added": "+", "removed": "-", "same": " ", "gap": "⋯"}


def diff(lines: Iterable[DiffLine], label: str) -> Html:
    """What differs between two texts, with the numbers of the lines in both."""
    rows = (
        element(
            "tr",
            *(element("td", number or "", class_="n") for number in (line.old, line.new)),
            element("td", _SIGNS[line.kind], class_="sign"),
            element("td", line.text, class_="line"),
            class_=line.kind,
        )
        for line in lines
    )
    body = element("table", element("tbody", *rows), class_="diff", aria_label=label)
    return element("div", body, class_="scroll", tabindex="0")
