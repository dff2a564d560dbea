"""What all pages have in common: head, navigation, the state of the connection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from mulligan.api.http.routing import Answer, Handler, Query, Route, RouteScope
from mulligan.core.model.scopes import allows
from mulligan.dashboard.assets import POLICY, modules_behind, url_of, url_of_styles
from mulligan.dashboard.components.parts import search_box
from mulligan.errors import LanguageError
from mulligan.ports.server_records import TokenRecord
from mulligan.service.rendering.page import ui
from mulligan.service.rendering.page.markup import Html, element, join_html

HTML = "text/html; charset=utf-8"


@dataclass(frozen=True)
class Entry:
    """One line of the navigation. `key` is typed after g."""

    name: str
    title: str
    path: str
    key: str
    scope: RouteScope = "read"


NAVIGATION = (
    Entry("home", "Home", "/", "h"),
    Entry("runs", "Runs", "/runs", "r"),
    Entry("inbox", "Inbox", "/inbox", "i"),
    Entry("workflows", "Workflows", "/workflows", "w"),
    Entry("schedules", "Schedules", "/schedules", "s"),
    Entry("recovery", "Recovery", "/recovery", "e"),
    Entry("notices", "Notices", "/notices", "n"),
    Entry("usage", "Usage", "/usage", "u"),
    Entry("workers", "Workers", "/workers", "k"),
    Entry("audit", "Audit", "/audit", "a", "admin"),
    Entry("tokens", "Tokens", "/tokens", "t", "admin"),
)

_OPERATIONS = ("schedules", "recovery", "notices", "usage", "workers", "audit", "tokens")
# What all pages of a section look like.
_STYLES = {"workflows": ("workflows.css",), **dict.fromkeys(_OPERATIONS, ("operations.css",))}

# 16 × 16, drawn with lines.
_ICONS = {
    "home": "M2.5 7.5 8 3l5.5 4.5V13h-4V9.5h-3V13h-4z",
    "runs": "M2.5 4h11M2.5 8h11M2.5 12h7",
    "inbox": "M2.5 9.5 4.5 3h7l2 6.5V13h-11zM2.5 9.5h3.5l1 1.5h2l1-1.5h3.5",
    "workflows": "M3 2.5h3.5V6H3zM9.5 10H13v3.5H9.5zM4.75 6v5.75H9.5",
    "schedules": "M8 2.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11M8 5v3.2l2.2 1.6",
    "recovery": "M3 8a5 5 0 0 1 8.8-3.2M13 8a5 5 0 0 1-8.8 3.2M12 2v3H9M4 14v-3h3",
    "notices": "M4 11V7.2a4 4 0 0 1 8 0V11l1 1.2H3zM6.8 14h2.4",
    "usage": "M3 13V8.5M6.4 13V4.5M9.7 13V7M13 13V3",
    "workers": "M3 3h10v4H3zM3 9h10v4H3zM5.2 5h.1M5.2 11h.1",
    "audit": "M4 2.5h6l2.5 2.5v8.5H4zM6 7.5h4.5M6 10.3h4.5",
    "logo": "M3 12.5V4l5 5 5-5v8.5",
    "tokens": "M9.8 6.2a3 3 0 1 0-2.9 3L9 11.3h2v-2h-2M5.6 5.3h.1",
}


class Reader(Protocol):
    """Whoever looks at a page: a call has one."""

    @property
    def token(self) -> TokenRecord: ...


def page(
    call: Reader,
    title: str,
    *content: object,
    section: str,
    live: str = "",
    modules: tuple[str, ...] = (),
    styles: tuple[str, ...] = (),
) -> Answer:
    """A whole page.

    `section`: the entry of the navigation that it belongs to. `live`: what the page watches (`runs,pending,run:7`);
    when it changes, the page is rendered again and what differs is replaced. `modules` and `styles`: the ES modules and
    style sheets that it needs besides the common ones and those of its section.
    """
    main = element("main", *content, id="main", tabindex="-1", data_live=live or None)
    skip = element("a", "Skip to the content", href="#main", class_="skip")
    column = element("div", _top(call), main, class_="column")
    # Where what happened is said.
    notes = element("div", id="notes", class_="notes", role="status", aria_live="polite")
    body = element("body", skip, _sidebar(call, section), column, notes)
    return _answer(title, body, modules=("dashboard.js", *modules), styles=(*_STYLES.get(section, ()), *styles))


def bare_page(title: str, *content: object, modules: tuple[str, ...] = ("plain.js",)) -> Answer:
    """A page for somebody who is not logged in: it says nothing about what is on the server."""
    brand = element("p", _logo(), "Mulligan", class_="brand")
    return _answer(title, element("body", element("main", brand, *content, id="main"), class_="bare"), modules=modules)


def page_route(
    path: str,
    handler: Handler,
    summary: str,
    *,
    query: type[Query] | None = None,
    scope: RouteScope = "read",
    is_slow: bool = False,
    is_sum: bool = False,
) -> Route:
    """The route of a page. `is_slow`: it may compute for seconds; `is_sum`: it looks at very many runs."""
    return Route(
        "GET", path, handler, scope, summary, query=query, media=HTML, is_page=True, is_slow=is_slow, is_sum=is_sum
    )


def path_to_entry(run_id: int, step: str = "") -> str:
    """The inbox with the entry of a step, or of a run that is paused, shown in full."""
    return ui.link_with("/inbox", run=run_id, step=step)


def may(call: Reader, scope: RouteScope) -> bool:
    """Whether whoever looks at the page may do what needs this scope."""
    return scope == "public" or allows(call.token.scopes, scope)


def heading(title: object, *beside: object, over: object = "") -> Html:
    """The top of a page: its title, and what can be done here."""
    parts = [element("p", over, class_="over")] if over else []
    actions = [element("div", *beside, class_="actions")] if any(beside) else []
    return element("header", element("div", *parts, element("h1", title)), *actions, class_="page-head")


def panel(title: object, *content: object, name: str = "", beside: object = "", tone: str = "") -> Html:
    """A part of a page, with a title."""
    head = element("div", element("h2", title, id=name or None), beside, class_="panel-head")
    return element("section", head, *content, class_=f"panel {tone}".strip(), aria_labelledby=name or None)


def problems_panel(title: str, refused: LanguageError) -> Html:
    """What is wrong with the text of a workflow, in place of what would be shown of it."""
    lines = join_html((one.render() for one in refused.problems[:20]), "\n")
    return panel(title, ui.text_block(lines), tone="bad")


# How much of one text of a step or a person a page shows.
TEXT_MAX = 4_000


def shortened(text: str, most: int = TEXT_MAX) -> str:
    """The beginning of a text: a page is not spoilt by one of megabytes."""
    return text if len(text) <= most else f"{text[:most]} … (the first {most:,} of {len(text):,} characters)"


def empty(text: object, *more: object) -> Html:
    """What stands where a list would, if it has nothing."""
    return element("div", element("p", text), *more, class_="empty")


def _answer(title: str, body: Html, *, modules: tuple[str, ...], styles: tuple[str, ...] = ()) -> Answer:
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"{title} · Mulligan"),
        # Before the page is painted: the theme that its reader chose. A script behind a style sheet would wait for it.
        element("script", src=url_of("theme.js")),
        Html(f'<link rel="stylesheet" href="{url_of_styles(("charts.css", "dashboard.css", *styles))}">'),
        *(element("script", type="module", src=url_of(name)) for name in modules),
        # What they import: otherwise each is asked for when the one before it has arrived.
        *(_link("modulepreload", name) for name in modules_behind(modules)),
        _link("icon", "icon.svg"),
    )
    text = f"<!doctype html>\n{element('html', head, body, lang='en')}\n"
    return Answer(text.encode(), headers={"content-security-policy": POLICY}, media=HTML)


def _link(kind: str, name: str) -> Html:
    return Html(f'<link rel="{kind}" href="{url_of(name)}">')


def _icon(name: str, kind: str = "icon", size: int = 16) -> Html:
    shape = element("path", d=_ICONS[name])
    return element("svg", shape, class_=kind, viewBox="0 0 16 16", width=size, height=size, aria_hidden="true")


def _logo() -> Html:
    return _icon("logo", "icon logo", 20)


def _sidebar(call: Reader, section: str) -> Html:
    links = join_html(
        element(
            "a",
            _icon(one.name),
            element("span", one.title),
            element("span", class_="count", id="inbox-count", hidden=True) if one.name == "inbox" else "",
            href=one.path,
            data_key=one.key,
            aria_current="page" if one.name == section else None,
        )
        for one in NAVIGATION
        if may(call, one.scope)
    )
    brand = element("a", _logo(), element("span", "Mulligan"), href="/", class_="brand", aria_label="Mulligan")
    return element("nav", brand, links, class_="sidebar", aria_label="Main")


def _top(call: Reader) -> Html:
    box = search_box("text", "", "Search runs", id="search", aria_keyshortcuts="/")
    search = element("form", box, element("kbd", "/"), action="/runs", method="get", role="search", class_="search")
    where = element("span", call.token.project, class_="project") if call.token.project else ""
    state = element("span", "connecting", id="connection", class_="connection", role="status")
    user = element("span", call.token.user, class_="user")
    buttons = (
        element("button", text, type="button", id=name, class_="quiet", aria_label=label)
        for name, text, label in (
            ("theme", "Theme", "Change the theme"),
            ("keys", "?", "Keyboard shortcuts"),
            ("log-out", "Log out", None),
        )
    )
    return element("header", search, where, state, user, *buttons, class_="top")
