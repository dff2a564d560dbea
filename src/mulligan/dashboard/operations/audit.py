"""Audit: who changed what, and who was refused."""

from __future__ import annotations

import re
from typing import Annotated

import msgspec

from mulligan.api.http.routing import PREFIX, Answer, Call, Query
from mulligan.api.routes import ROUTES as API
from mulligan.dashboard.components.parts import link_with, moment
from mulligan.dashboard.components.shell import empty, heading, page, page_route, path_to, table
from mulligan.ports.server_records import AuditRecord
from mulligan.service.rendering.page.markup import Html, element, join_html
from mulligan.service.server.tokens.decision_ledger import TOOL_DECISIONS

_LIMIT = 100
# The run of a path, or of a decision.
_RUN = re.compile(rf"{PREFIX}runs/(\d+)|[^?]*\?run_id=(\d+)")
_REFUSED = 400
_SUMMARIES = {route.name: route.summary for route in API}


class AuditQuery(Query, frozen=True):
    """Which rows to list."""

    who: str = ""
    action: str = ""
    before: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)] | None = None


def show_audit(call: Call) -> Answer:
    asked: AuditQuery = call.query
    found = call.service.audit.page(
        project=call.token.project, before=asked.before, limit=_LIMIT, who=asked.who, action=asked.action
    )
    is_filtered = bool(asked.who or asked.action)
    words = "Nobody has changed anything that fits." if is_filtered else "Nobody has changed anything yet."
    head = ("When", "Who", "What", "About", "Result", "Why", "From")
    rows = [_row(one, asked) for one in found.audit]
    older = link_with("/audit", who=asked.who, action=asked.action, before=found.next)
    pages = [
        element("a", "Newest", href=link_with("/audit", who=asked.who, action=asked.action), class_="button")
        if asked.before
        else "",
        element("a", "Older", href=older, class_="button", rel="next") if found.next else "",
    ]
    return page(
        call,
        "Audit",
        heading("Audit"),
        _filters(asked),
        table(head, rows, label="Audit", keyed=True) if rows else empty(words),
        element("div", *pages, class_="actions pages"),
        section="audit",
        styles=("operations.css",),
    )


def _filters(asked: AuditQuery) -> Html:
    actions = [*sorted({route.name for route in API if route.changes}), *TOOL_DECISIONS]
    if asked.action and asked.action not in actions:
        actions.append(asked.action)
    options = [element("option", "any change", value="")]
    options += [element("option", _what(name), value=name, selected=name == asked.action) for name in actions]
    who = element(
        "input",
        type="search",
        name="who",
        value=asked.who or None,
        placeholder="who",
        aria_label="Who",
        autocomplete="off",
    )
    choose = element("select", *options, name="action", aria_label="What was changed")
    clear = element("a", "Clear", href="/audit", class_="button quiet") if asked.who or asked.action else ""
    return element(
        "form",
        who,
        choose,
        element("button", "Filter", type="submit"),
        clear,
        class_="filters",
        action="/audit",
        method="get",
    )


def _row(one: AuditRecord, asked: AuditQuery) -> Html:
    who = element("a", one.who, href=link_with("/audit", who=one.who, action=asked.action)) if one.who else "nobody"
    return element(
        "tr",
        element("td", moment(one.at, "time"), class_="time"),
        element("td", who, _project(one)),
        element("td", _action(one, asked)),
        element("td", _target(one.target), class_="mono"),
        element("td", _result(one)),
        element("td", one.why),
        element("td", one.source, class_="muted"),
        id=f"audit-{one.id}",
    )


def _action(one: AuditRecord, asked: AuditQuery) -> Html:
    href = link_with("/audit", who=asked.who, action=one.action)
    return element("a", _what(one.action), href=href, title=_SUMMARIES.get(one.action))


def _project(one: AuditRecord) -> Html | str:
    return join_html([" ", element("small", one.project)]) if one.project else ""


def _what(action: str) -> str:
    """A route without what all of them have: `POST runs/{run_id}:cancel`."""
    method, _, path = action.partition(" ")
    return f"{method} {path.removeprefix(PREFIX)}"


def _target(path: str) -> Html | str:
    found = _RUN.match(path)
    shown = path.removeprefix(PREFIX)
    return element("a", shown, href=path_to("runs", found[1] or found[2])) if found else shown


def _result(one: AuditRecord) -> Html:
    if one.status >= _REFUSED:
        return element("span", f"refused ({one.status})", class_="status bad nowrap")
    return element("span", "accepted", class_="status good")


ROUTES = (page_route("/audit", show_audit, "Who changed what.", query=AuditQuery, scope="admin"),)
