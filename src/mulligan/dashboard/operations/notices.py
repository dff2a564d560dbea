"""Notices: what was sent to whom, what waits and why, what was given up; and the rules behind it."""

from __future__ import annotations

from typing import Annotated

import msgspec

from mulligan.api.http.routing import Answer, Call, Query
from mulligan.dashboard.components.parts import chips
from mulligan.dashboard.components.shell import empty, heading, may, page, page_route, panel
from mulligan.ports.server_records import NoticeStatus
from mulligan.service.rendering.formatting import pluralize
from mulligan.service.rendering.page import ui
from mulligan.service.rendering.page.markup import Html, element, join_html
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
    names = (("", "all"), ("waiting", "waiting"), ("sent", "sent"), ("given_up", "given up"))
    choices = [
        (text, ui.link_with("/notices", status=name, run=asked.run), name == (asked.status or ""))
        for name, text in names
    ]
    words = "A workflow says with 'notify:' whom to notify; the rules below are for all workflows."
    older = ui.link_with("/notices", status=asked.status, run=asked.run, before=found.next)
    head = (ui.Column("When", "time"), "Status", "About", ui.Column("To", "nowrap"), "What happened")
    rows = [_row(one) for one in found.notices]
    return page(
        call,
        "Notices",
        heading("Notices"),
        chips("Status", choices),
        ui.table(head, rows, label="Notices", keyed=True) if rows else empty("No notices.", ui.note(words)),
        element("div", ui.button_link("Older", older), class_="actions pages") if found.next else "",
        _rules(call, call.service.notices.hooks()),
        section="notices",
        live="runs",
        modules=("notices.js",),
    )


def _row(one: NoticeLine) -> ui.Row:
    state = ui.status(one.status, one.status.replace("_", " "), tone=f"{_TONES[one.status]} nowrap")
    about = join_html([one.title, " ", ui.run_link(one.run_id) if one.run_id else ""])
    happened = join_html(_happened(one))
    return ui.row(ui.moment(one.created_at, "time"), state, about, one.target, happened, id=f"notice-{one.id}")


def _happened(one: NoticeLine) -> list[object]:
    tries = pluralize(one.attempts, "attempt") if one.attempts else ""
    when: list[object] = [ui.moment(one.due_at)] if one.due_at else []
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
        about = {"id": "edit-rules", "data_rules": rules, "data_revision": str(found.revision)}
        edit = element("button", "Edit", type="button", **about)
    title = "Rules for all workflows"
    if not found.rules:
        return panel(title, element("p", "None: each workflow has its own.", class_="muted"), name="rules", beside=edit)
    rows = [
        ui.row(
            ", ".join(_WORDS.get(kind, kind) for kind in one.on),
            ", ".join(one.to),
            f"late after {one.late_after}" if one.late_after else "",
        )
        for one in found.rules
    ]
    by = ui.note(f"Set by {found.updated_by} ", ui.moment(found.updated_at)) if found.updated_at else ""
    return panel(title, ui.table(("When a run", "Notify", ""), rows, label="Rules"), by, name="rules", beside=edit)


ROUTES = (page_route("/notices", show_notices, "What was sent, what waits and why.", query=NoticesQuery),)
