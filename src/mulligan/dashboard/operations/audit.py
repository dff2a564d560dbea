"""Audit: who changed what, and who was refused."""

from __future__ import annotations

import re
from typing import Annotated

import msgspec

from mulligan.api.http.routing import PREFIX, Answer, Call, Query
from mulligan.api.routes import ROUTES as API
from mulligan.dashboard.components.parts import search_box
from mulligan.dashboard.components.shell import empty, heading, page, page_route
from mulligan.ports.server_records import AuditRecord
from mulligan.service.rendering.page import ui
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
    head = (
        ui.Column("When", "time"),
        "Who",
        "What",
        ui.Column("About", "mono"),
        "Result",
        "Why",
        ui.Column("From", "muted"),
    )
    rows = [_row(one, asked) for one in found.audit]
    newest = ui.link_with("/audit", who=asked.who, action=asked.action)
    older = ui.link_with("/audit", who=asked.who, action=asked.action, before=found.next)
    pages = (
        ui.button_link("Newest", newest) if asked.before else "",
        ui.button_link("Older", older, rel="next") if found.next else "",
    )
    return page(
        call,
        "Audit",
        heading("Audit"),
        _filters(asked),
        ui.table(head, rows, label="Audit", keyed=True) if rows else empty(words),
        element("div", *pages, class_="actions pages"),
        section="audit",
    )


def _filters(asked: AuditQuery) -> Html:
    actions = [*sorted({route.name for route in API if route.changes}), *TOOL_DECISIONS]
    if asked.action and asked.action not in actions:
        actions.append(asked.action)
    options = [element("option", "any change", value="")]
    options += [element("option", _what(name), value=name, selected=name == asked.action) for name in actions]
    fields = (
        search_box("who", asked.who, "who", "Who"),
        element("select", *options, name="action", aria_label="What was changed"),
        element("button", "Filter", type="submit"),
        ui.button_link("Clear", "/audit", "quiet") if asked.who or asked.action else "",
    )
    return element("form", *fields, class_="filters", action="/audit", method="get")


def _row(one: AuditRecord, asked: AuditQuery) -> ui.Row:
    who = element("a", one.who, href=ui.link_with("/audit", who=one.who, action=asked.action)) if one.who else "nobody"
    project = [" ", element("small", one.project)] if one.project else []
    href = ui.link_with("/audit", who=asked.who, action=one.action)
    action = element("a", _what(one.action), href=href, title=_SUMMARIES.get(one.action))
    result = ui.status("completed", "accepted")
    if one.status >= _REFUSED:
        result = ui.status("failed", f"refused ({one.status})", tone="bad nowrap")
    about = (ui.moment(one.at, "time"), join_html([who, *project]), action, _target(one.target))
    return ui.row(*about, result, one.why, one.source, id=f"audit-{one.id}")


def _what(action: str) -> str:
    """A route without what all of them have: `POST runs/{run_id}:cancel`."""
    method, _, path = action.partition(" ")
    return f"{method} {path.removeprefix(PREFIX)}"


def _target(path: str) -> Html | str:
    found = _RUN.match(path)
    shown = path.removeprefix(PREFIX)
    return ui.link(shown, "runs", found[1] or found[2]) if found else shown


ROUTES = (page_route("/audit", show_audit, "Who changed what.", query=AuditQuery, scope="admin"),)
