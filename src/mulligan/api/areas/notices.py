"""Notices: what was sent and what waits, and the rules for all workflows of a project."""

from __future__ import annotations

from typing import Annotated

import msgspec

from mulligan.api.http.entity_tags import expected_revision, with_revision
from mulligan.api.http.paging import Count, Limit, decode_cursor, encode_cursor
from mulligan.api.http.routing import Answer, Body, Call, Query, Routes
from mulligan.ports.server_records import NoticeStatus
from mulligan.service.server.notices.notices import HookRule, Hooks, NoticeLine

ROUTES = Routes()


class NoticesQuery(Query, frozen=True):
    """Which notices to list."""

    status: NoticeStatus | None = None
    run_id: Annotated[int, msgspec.Meta(ge=1, le=2**53)] | None = None
    limit: Limit = 100
    # The `next` of the page before.
    cursor: str = ""


class NoticesPage(msgspec.Struct, frozen=True):
    """Notices, the newest first."""

    notices: list[NoticeLine]
    next: str | None


class HooksBody(Body, frozen=True):
    """All rules of the project, in place of those that it has."""

    rules: tuple[HookRule, ...]


@ROUTES.add("GET", "notices", "read")
def list_notices(call: Call, query: NoticesQuery) -> NoticesPage:
    """List notices, the newest first: what was sent, what waits and why, and what was given up."""
    before = decode_cursor(query.cursor, Count)
    page = call.service.notices.page(status=query.status, run_id=query.run_id, before=before, limit=query.limit)
    return NoticesPage(page.notices, encode_cursor(page.next))


@ROUTES.add("GET", "hooks", "read", answer=Hooks)
def get_hooks(call: Call) -> Answer:
    """Get the notice rules for all workflows of the project."""
    return with_revision(call.service.notices.hooks())


@ROUTES.add("PUT", "hooks", "admin", answer=Hooks, problems=(412,))
def put_hooks(call: Call, body: HooksBody) -> Answer:
    """Replace the notice rules for all workflows of the project. They count for runs that start from then on."""
    return with_revision(call.service.notices.set_hooks(body.rules, expected_revision(call.headers, without=None)))
