"""Tokens: who may do what. Their secrets are shown once, when they are made."""

from __future__ import annotations

import json

from mulligan.api.http.routing import Answer, Call
from mulligan.core.model.agents.guard_rails import VERDICTS
from mulligan.core.model.scopes import MEANINGS
from mulligan.dashboard.components.parts import removal_button
from mulligan.dashboard.components.shell import empty, heading, page, page_route
from mulligan.service.rendering.formatting import pluralize
from mulligan.service.rendering.page import ui
from mulligan.service.rendering.page.markup import Html, element, join_html
from mulligan.service.server.tokens.tokens import TokenView

_SHOWN_MAX = 200


def show_tokens(call: Call) -> Answer:
    found = call.service.tokens.list_tokens().tokens
    sessions = [one for one in found if one.id.startswith("session-") and one.is_valid]
    valid = [one for one in found if one.is_valid and not one.id.startswith("session-")]
    ended = [one for one in found if not one.is_valid and not one.id.startswith("session-")]
    form = {"meanings": dict(MEANINGS), "verdicts": VERDICTS, "project": call.token.project}
    new = element("button", "New token", type="button", class_="primary", id="new-token", data_form=json.dumps(form))
    words = "A token lets a person or a program in. This server has none but the one that it printed when it started."
    return page(
        call,
        "Tokens",
        heading("Tokens", new),
        _table(valid, "Valid tokens", can_revoke=True) if valid else empty(words),
        _folded(f"{pluralize(len(sessions), 'browser session')}", sessions, can_revoke=True),
        _folded(f"{len(ended):,} expired or revoked", ended, can_revoke=False),
        section="tokens",
        modules=("tokens.js",),
    )


def _folded(title: str, found: list[TokenView], *, can_revoke: bool) -> Html | str:
    if not found:
        return ""
    more = ui.note(f"the newest {_SHOWN_MAX}") if len(found) > _SHOWN_MAX else ""
    shown = _table(found[:_SHOWN_MAX], title, can_revoke=can_revoke)
    return ui.details(title, shown, more, kind="folded", id=f"folded-{can_revoke}")


def _table(found: list[TokenView], label: str, *, can_revoke: bool) -> Html:
    head = ("For", ui.Column("May", "scopes"), "Limits", "Made", "Ends", "Id", ui.figure(""))
    return ui.table(head, (_row(one, can_revoke=can_revoke) for one in found), label=label, keyed=can_revoke)


def _row(one: TokenView, *, can_revoke: bool) -> ui.Row:
    about = [element("br"), element("small", one.note)] if one.note else []
    return ui.row(
        join_html([element("strong", one.user), *about]),
        join_html(element("span", scope, class_="chip") for scope in one.scopes),
        _limits(one),
        join_html([ui.moment(one.created_at), f" by {one.created_by}" if one.created_by else ""]),
        _expiry(one),
        element("code", one.id if len(one.id) <= 20 else f"{one.id[:20]}…"),
        _revoke(one) if can_revoke else "",
        id=f"token-{one.id}",
    )


def _limits(one: TokenView) -> Html:
    found = []
    if one.project is None:
        found.append("all projects")
    elif one.project:
        found.append(f"project {one.project}")
    if one.workflows:
        found.append(f"only {', '.join(one.workflows)}")
    if one.decisions_per_hour is not None:
        found.append(f"{pluralize(one.decisions_per_hour, 'decision')} an hour")
    if one.verdicts:
        found.append(f"may decide {', '.join(one.verdicts)}")
    if one.min_confidence is not None:
        found.append(f"at least {one.min_confidence:.0%} sure")
    return join_html(["; ".join(found) or ui.muted("none")])


def _expiry(one: TokenView) -> Html:
    if one.revoked_at is not None:
        return join_html([ui.status("failed", "revoked"), " ", ui.moment(one.revoked_at)])
    if one.expires_at is None:
        return ui.muted("never")
    return join_html([*([] if one.is_valid else [ui.status("", "expired"), " "]), ui.moment(one.expires_at)])


def _revoke(one: TokenView) -> Html:
    path, title = f"tokens/{ui.path_to(one.id)[1:]}", f"Revoke the token of {one.user}?"
    text = "It lets nobody in from now on, nor do the browsers that logged in with it."
    return removal_button("Revoke", path, title, text=text, done=f"the token of {one.user} is revoked", kind="quiet")


ROUTES = (page_route("/tokens", show_tokens, "Who may do what.", scope="admin"),)
