"""Notices: what was sent and what waits, and the rules for all workflows of a project."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from mulligan.api.routing import Answer, Body, Call, Query, Route
from mulligan.errors import InputInvalid
from mulligan.service import HookRule, Hooks, NoticePage, NoticeStatus, to_json


class NoticesQuery(Query, frozen=True):
    """Which notices to list."""

    status: NoticeStatus | None = None
    run_id: Annotated[int, msgspec.Meta(ge=1)] | None = None
    # The `next` of the page before.
    before: Annotated[int, msgspec.Meta(ge=1)] | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 100


class HooksBody(Body, frozen=True):
    """All rules of the project, in place of those that it has."""

    rules: tuple[HookRule, ...]


def list_notices(call: Call) -> Any:
    asked: NoticesQuery = call.query
    page = call.service.notices.page(status=asked.status, run_id=asked.run_id, before=asked.before, limit=asked.limit)
    return to_json(page)


def get_hooks(call: Call) -> Answer:
    return _with_revision(call.service.notices.hooks())


def put_hooks(call: Call) -> Answer:
    body: HooksBody = call.body
    return _with_revision(call.service.notices.set_hooks(body.rules, _expected(call)))


def _with_revision(hooks: Hooks) -> Answer:
    return Answer(to_json(hooks), headers={"ETag": f'"{hooks.revision}"'})


def _expected(call: Call) -> int | None:
    """The revision of `If-Match`; None if any will do."""
    given = call.headers.get("if-match", "").strip().removeprefix("W/").strip('"')
    if given in ("", "*"):
        return None
    if not given.isascii() or not given.isdecimal():
        raise InputInvalid("If-Match is not a revision", hint='send the ETag of GET hooks, such as "3"')
    return int(given)


ROUTES = (
    Route(
        "GET",
        "notices",
        list_notices,
        "read",
        "List notices, the newest first: what was sent, what waits and why, and what was given up.",
        query=NoticesQuery,
        answer=NoticePage,
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
