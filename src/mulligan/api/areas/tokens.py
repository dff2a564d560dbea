"""Routes of tokens."""

from __future__ import annotations

from mulligan.api.http.routing import Answer, Call, Routes
from mulligan.service.server.tokens.tokens import NewToken, TokenForm, TokenList, TokenView

ROUTES = Routes()


@ROUTES.add("GET", "tokens", "admin")
def _list(call: Call) -> TokenList:
    """All tokens without their secrets, the newest first."""
    return call.service.tokens.list_tokens()


@ROUTES.add("POST", "tokens", "admin", answer=NewToken, status=201)
def _create(call: Call, body: TokenForm) -> Answer:
    """Make a token. Its secret is in this answer and never again."""
    # A secret must not stay in a cache on the way.
    return Answer(call.service.tokens.create(body), status=201, headers={"cache-control": "no-store"})


@ROUTES.add("DELETE", "tokens/{token_id}", "admin")
def _revoke(call: Call, token_id: str) -> TokenView:
    """Revoke a token: it lets nobody in from then on."""
    return call.service.tokens.revoke(token_id)
