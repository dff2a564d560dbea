"""The pages for errors, and the one that asks who somebody is."""

from __future__ import annotations

from dataclasses import dataclass

from mulligan.api.http.problems import ProblemDetails
from mulligan.api.http.routing import Answer
from mulligan.dashboard.components.parts import removal_button
from mulligan.dashboard.components.shell import bare_page, may, page
from mulligan.errors import RunDamaged, UnknownRun
from mulligan.ports.server_records import TokenRecord
from mulligan.service.rendering.page import ui
from mulligan.service.rendering.page.markup import Html, element, join_html

_UNAUTHORISED, _NOT_FOUND = 401, 404
# By the first part of an address: the list that it belongs to.
_LISTS = {
    "runs": ("All runs", "/runs"),
    "compare": ("All runs", "/runs"),
    "workflows": ("All workflows", "/workflows"),
    "schedules": ("All schedules", "/schedules"),
}


@dataclass(frozen=True)
class _Reader:
    """Who asked for a page that there is not."""

    token: TokenRecord


def render_error(problem: ProblemDetails, path: str, token: TokenRecord | None = None) -> Answer:
    """What is wrong, and what to do; with the navigation for somebody who is logged in."""
    if problem.status == _UNAUTHORISED:
        return _login_page()
    back = _way_back(problem, path)
    parts = [element("h1", _title(problem)), element("p", problem.detail, class_="sentence")]
    # Where there is a link to what a command would list, the command is not named.
    if problem.hint and not (back and "mulligan " in problem.hint):
        parts.append(ui.note(problem.hint))
    again = ui.button_link("Try again", path) if problem.status >= 500 else ""
    actions = element("p", join_html([back, again, ui.button_link("Home", "/")], " "), class_="actions")
    if token is None:
        return bare_page(_title(problem), *parts, actions)
    title, *rest = parts
    reader = _Reader(token)
    modules: tuple[str, ...] = ()
    if problem.code == RunDamaged.code and may(reader, "admin"):
        modules = ("actions.js",)
        actions = join_html([element("p", _remove_button(problem.data["run_id"]), class_="actions"), actions])
    head = element("header", title, class_="page-head")
    return page(reader, _title(problem), head, *rest, actions, section="", modules=modules)


def _remove_button(run_id: int) -> Html:
    text = "Its events, rows and logs go, and the runs that it called. Only a copy of the store has them then."
    title, done = f"Remove run {run_id}?", f"run {run_id} is removed"
    return removal_button("Remove the run", f"runs/{run_id}", title, text=text, done=done, next="/runs")


def _way_back(problem: ProblemDetails, path: str) -> Html:
    """A link to the list in which what was looked for would be; of a step, to its run."""
    area, *rest = path.strip("/").split("/")
    if problem.status != _NOT_FOUND or area not in _LISTS:
        return Html("")
    if area == "runs" and problem.code != UnknownRun.code and rest and rest[0].isdecimal():
        return ui.button_link(f"Run {rest[0]}", f"/runs/{rest[0]}", "primary")
    return ui.button_link(*_LISTS[area], "primary")


def _title(problem: ProblemDetails) -> str:
    return {403: "Not allowed", 404: "Not found", 429: "Too many requests", 503: "The store does not answer"}.get(
        problem.status, problem.title
    )


def _login_page() -> Answer:
    about = {"name": "token", "autocomplete": "current-password", "required": True, "autofocus": True}
    form = element(
        "form",
        element("label", "Token", for_="token"),
        element("input", type="password", id="token", **about),
        element("button", "Log in", type="submit", class_="primary"),
        element("p", id="problem", class_="problem", role="alert"),
        id="login",
    )
    how = "No token? The terminal that started the server printed a link; or make one there: "
    return bare_page(
        "Log in",
        element("h1", "Log in"),
        element("p", "This page is for people with a token of this server.", class_="sentence"),
        form,
        ui.note(how, element("code", "mulligan token create")),
    )
