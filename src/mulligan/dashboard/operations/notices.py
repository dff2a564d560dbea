"""Notices: what was sent to whom, what waits and why, what was given up; and the rules behind it."""

from __future__ import annotations

from typing import Annotated

import msgspec

from mulligan.api.http.routing import Answer, Call, Query
from mulligan.dashboard.components.parts import chips, link_with, moment, run_link
from mulligan.dashboard.components.shell import empty, heading, may, page, page_route, panel, table
from mulligan.ports.server_records import NoticeStatus
from mulligan.service.rendering.formatting import pluralize
from mulligan.service.rendering.page.markup import Html, element
from mulligan.service.server.notices.notices import Hooks, NoticeLine

_LIMIT = 100
_WORDS = {"needs_person": "needs a person"}
_TONES = {"waiting": "try", "sent": "good", "given_up": "bad"}


class NoticesQuery(Query, frozen=True):
    """Which notices to list."""

    status: NoticeStatus | None = None
    run: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)] | None = None
    before: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)] | None = None


def show_notices(call: Call) -> Answer:
    asked: NoticesQuery = call.query
    found = call.service.notices.page(status=asked.status, run_id=asked.run, before=asked.before, limit=_LIMIT)
    choices = chips(
        "Status",
        [
            (text, link_with("/notices", status=name, run=asked.run), name == (asked.status or ""))
            for name, text in (("", "all"), ("waiting", "waiting"), ("sent", "sent"), ("given_up", "given up"))
        ],
    )
    words = "A workflow says with 'notify:' whom to notify; the rules below are for all workflows."
    older = link_with("/notices", status=asked.status, run=asked.run, before=found.next)
    head = ("When", "Status", "About", "To", "What happened")
    rows = [_row(one) for one in found.notices]
    return page(
        call,
        "Notices",
        heading("Notices"),
        choices,
        table(head, rows, label="Notices", keyed=True)
        if rows
        else empty("No notices.", element("p", words, class_="note")),
        element("div", element("a", "Older", href=older, class_="button"), class_="actions pages")
        if found.next
        else "",
        _rules(call, call.service.notices.hooks()),
        section="notices",
        live="runs",
        modules=("notices.js",),
        styles=("operations.css",),
    )


def _row(one: NoticeLine) -> Html:
    return element(
        "tr",
        element("td", moment(one.created_at, "time"), class_="time"),
        element("td", element("span", one.status.replace("_", " "), class_=f"status {_TONES[one.status]} nowrap")),
        element("td", one.title, " ", run_link(one.run_id) if one.run_id else ""),
        element("td", one.target, class_="nowrap"),
        element("td", *_happened(one)),
        id=f"notice-{one.id}",
    )


def _happened(one: NoticeLine) -> list[object]:
    tries = pluralize(one.attempts, "attempt") if one.attempts else ""
    when: list[object] = [moment(one.due_at)] if one.due_at else []
    if one.status == "sent":
        return ["sent ", *when]
    if one.status == "given_up":
        return [one.reason, element("small", f" after {tries}" if tries else "")]
    again: list[object] = ["; next attempt ", *when] if when else []
    return [one.reason or "not sent yet", *again, element("small", f" ({tries})" if tries else "")]


def _rules(call: Call, found: Hooks) -> Html:
    edit = ""
    if may(call, "admin"):
        rules = msgspec.json.encode(found.rules).decode()
        edit = element(
            "button", "Edit", type="button", id="edit-rules", data_rules=rules, data_revision=str(found.revision)
        )
    title = "Rules for all workflows"
    if not found.rules:
        return panel(title, element("p", "None: each workflow has its own.", class_="muted"), name="rules", beside=edit)
    rows = [
        element(
            "tr",
            element("td", ", ".join(_WORDS.get(kind, kind) for kind in one.on)),
            element("td", ", ".join(one.to)),
            element("td", f"late after {one.late_after}" if one.late_after else ""),
        )
        for one in found.rules
    ]
    by = (
        element("p", f"Set by {found.updated_by} ", moment(found.updated_at), class_="note") if found.updated_at else ""
    )
    return panel(title, table(("When a run", "Notify", ""), rows, label="Rules"), by, name="rules", beside=edit)


ROUTES = (page_route("/notices", show_notices, "What was sent, what waits and why.", query=NoticesQuery),)
