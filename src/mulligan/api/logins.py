"""Logging in with a browser, and the page that one sees then."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec

from mulligan.api.auth import COOKIE
from mulligan.api.routing import Answer, Call, Query, Route
from mulligan.service import LINK_MINUTES, SESSION_HOURS

HTML = "text/html; charset=utf-8"
_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Mulligan</title>
<h1>Mulligan</h1>
<p>This server answers programs. What it offers is described in <a href="/openapi.json">/openapi.json</a>;
the runs are at <a href="/api/v1/runs">/api/v1/runs</a>.</p>
</html>
"""


class LoginQuery(Query, frozen=True):
    """The code of a link."""

    code: str


class LoginLink(msgspec.Struct, frozen=True):
    """A link with which the user of the token can log in, once."""

    url: str
    expires_at: datetime


async def show_page(call: Call) -> str:
    return _PAGE


def log_in(call: Call) -> Answer:
    session = call.service.logins.log_in(call.query.code, datetime.now(UTC))
    cookie = _cookie(call, session.secret, SESSION_HOURS * 3600)
    return Answer(b"", status=303, headers={"location": "/", "set-cookie": cookie}, media=HTML)


def log_out(call: Call) -> Answer:
    call.service.logins.log_out(call.token, datetime.now(UTC))
    return Answer(status=204, headers={"set-cookie": _cookie(call, "", 0)})


def offer_login(call: Call) -> LoginLink:
    now = datetime.now(UTC)
    code = call.service.logins.offer(call.token, now)
    return LoginLink(f"{call.base_url}/login?code={code}", now + timedelta(minutes=LINK_MINUTES))


def _cookie(call: Call, value: str, seconds: int) -> str:
    parts = [f"{COOKIE}={value}", "Path=/", f"Max-Age={seconds}", "HttpOnly", "SameSite=Strict"]
    return "; ".join([*parts, "Secure"] if call.base_url.startswith("https:") else parts)


ROUTES = (
    Route("GET", "/", show_page, "public", "A page that says what this is.", media=HTML),
    Route(
        "GET",
        "/login",
        log_in,
        "public",
        "Log a browser in with a link that works once.",
        query=LoginQuery,
        media=HTML,
        status=303,
        is_change=True,
    ),
    Route(
        "POST",
        "logins",
        offer_login,
        "read",
        "Make a link with which a browser logs in, once.",
        answer=LoginLink,
        status=201,
    ),
    Route("POST", "logins:end", log_out, "read", "Log the browser out that asks."),
)
