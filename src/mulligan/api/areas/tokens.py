"""Who may do what: browsers log in, and tokens are made, listed and revoked."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import msgspec

from mulligan.api.access.auth import COOKIE
from mulligan.api.http.routing import Answer, Call, Query, Routes
from mulligan.service.server.logins import LINK_MINUTES
from mulligan.service.server.tokens.tokens import NewToken, TokenForm, TokenList, TokenView

ROUTES = Routes()

HTML = "text/html; charset=utf-8"
# Printable ASCII without a backslash; a second slash would begin the name of another server.
_OWN_PATH = re.compile(r"/(?![/\\])[!-\[\]-~]*")


class LoginQuery(Query, frozen=True):
    """The code of a link, and the page to go to."""

    code: str
    next: str = "/"


class LoginLink(msgspec.Struct, frozen=True):
    """A link with which the user of the token can log in, once."""

    url: str
    expires_at: datetime


@ROUTES.add("GET", "/login", "public", media=HTML, status=303, is_change=True)
def log_in(call: Call, query: LoginQuery) -> Answer:
    """Log a browser in with a link that works once."""
    secret = call.service.logins.log_in(query.code, datetime.now(UTC), call.session_hours)
    cookie = _cookie(call, secret, call.session_hours * 3600)
    return Answer(b"", status=303, headers={"location": _own_path(query.next), "set-cookie": cookie}, media=HTML)


@ROUTES.add("POST", "logins", "read", status=201)
def offer_login(call: Call) -> LoginLink:
    """Make a link with which a browser logs in, once."""
    now = datetime.now(UTC)
    code = call.service.logins.offer(call.token, now)
    return LoginLink(f"{call.base_url}/login?code={code}", now + timedelta(minutes=LINK_MINUTES))


@ROUTES.add("POST", "logins:end", "read")
def log_out(call: Call) -> Answer:
    """Log the browser out that asks."""
    call.service.logins.log_out(call.token, datetime.now(UTC))
    return Answer(status=204, headers={"set-cookie": _cookie(call, "", 0)})


def _own_path(path: str) -> str:
    """A path of this server; "/" for an address of another one, or for what is no path."""
    is_own = _OWN_PATH.fullmatch(path) is not None
    return path if is_own else "/"


def _cookie(call: Call, value: str, seconds: int) -> str:
    # Lax: a link in a message opens the page for somebody who is logged in. Changes are checked by their origin.
    parts = [f"{COOKIE}={value}", "Path=/", f"Max-Age={seconds}", "HttpOnly", "SameSite=Lax"]
    return "; ".join([*parts, "Secure"] if call.base_url.startswith("https:") else parts)


# -- tokens -----------------------------------------------------------------------------------------------------------


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
