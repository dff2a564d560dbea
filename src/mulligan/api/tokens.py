"""Routes of tokens and of the audit."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from mulligan.api.routing import Answer, Call, Route
from mulligan.service import AuditPage, NewToken, TokenForm, TokenList, TokenView


class AuditQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which changes to list, the newest first."""

    # What `next` of the page before said.
    before: str = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 100
    who: str = ""
    action: str = ""


def _list(call: Call) -> Any:
    return call.service.tokens.list_tokens()


def _create(call: Call) -> Any:
    # A secret must not stay in a cache on the way.
    return Answer(call.service.tokens.create(call.body), status=201, headers={"cache-control": "no-store"})


def _revoke(call: Call) -> Any:
    return call.service.tokens.revoke(call.path["token_id"])


def _audit(call: Call) -> Any:
    wanted: AuditQuery = call.query
    return call.service.audit.page(before=wanted.before, limit=wanted.limit, who=wanted.who, action=wanted.action)


ROUTES: tuple[Route, ...] = (
    Route("GET", "tokens", _list, "admin", "All tokens without their secrets, the newest first.", answer=TokenList),
    Route(
        "POST",
        "tokens",
        _create,
        "admin",
        "Make a token. Its secret is in this answer and never again.",
        body=TokenForm,
        answer=NewToken,
        status=201,
    ),
    Route(
        "DELETE",
        "tokens/{token_id}",
        _revoke,
        "admin",
        "Revoke a token: it lets nobody in from then on.",
        answer=TokenView,
    ),
    Route(
        "GET",
        "audit",
        _audit,
        "admin",
        "Which changes were asked for, by whom, and what came of them, the newest first.",
        query=AuditQuery,
        answer=AuditPage,
    ),
)
