"""Notices: what was sent and what waits, and the rules for all workflows of a project."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from mulligan.api.http.entity_tags import entity_tag, expected_revision
from mulligan.api.http.paging import Count, Limit, decode_cursor, encode_cursor
from mulligan.api.http.routing import Answer, Body, Call, Query, Route
from mulligan.ports.server_records import NoticeStatus
from mulligan.service.rendering.json_output import to_json
from mulligan.service.server.notices.notices import HookRule, Hooks, NoticeLine


class NoticesQuery(Query, frozen=True):
    """Which notices to list."""

    status: NoticeStatus | None = None
    run_id: Annotated[int, msgspec.Meta(ge=1)] | None = None
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


def list_notices(call: Call) -> Any:
    asked: NoticesQuery = call.query
    before = decode_cursor(asked.cursor, Count)
    page = call.service.notices.page(status=asked.status, run_id=asked.run_id, before=before, limit=asked.limit)
    return {"notices": to_json(page.notices), "next": encode_cursor(page.next)}


def get_hooks(call: Call) -> Answer:
    return _with_revision(call.service.notices.hooks())


def put_hooks(call: Call) -> Answer:
    body: HooksBody = call.body
    return _with_revision(call.service.notices.set_hooks(body.rules, expected_revision(call.headers, without=None)))


def _with_revision(hooks: Hooks) -> Answer:
    return Answer(to_json(hooks), headers=entity_tag(hooks.revision))


ROUTES = (
    Route(
        "GET",
        "notices",
        list_notices,
        "read",
        "List notices, the newest first: what was sent, what waits and why, and what was given up.",
        query=NoticesQuery,
        answer=NoticesPage,
    ),
    Route("GET", "hooks", get_hooks, "read", "Get the notice rules for all workflows of the project.", answer=Hooks),
    Route(
        "PUT",
        "hooks",
        put_hooks,
        "admin",
        "Replace the notice rules for all workflows of the project. They count for runs that start from then on.",
        body=HooksBody,
        answer=Hooks,
        problems=(412,),
    ),
)
