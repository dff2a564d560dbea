"""Routes of tokens."""

from __future__ import annotations

from typing import Any

from mulligan.api.http.routing import Answer, Call, Route
from mulligan.service.server.tokens.tokens import NewToken, TokenForm, TokenList, TokenView


def _list(call: Call) -> Any:
    return call.service.tokens.list_tokens()


def _create(call: Call) -> Any:
    # A secret must not stay in a cache on the way.
    return Answer(call.service.tokens.create(call.body), status=201, headers={"cache-control": "no-store"})


def _revoke(call: Call) -> Any:
    return call.service.tokens.revoke(call.path["token_id"])


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
)
