"""Who asks, and what they may do: bearer tokens and scopes."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Protocol

from mulligan.api.routing import RouteScope
from mulligan.api.service_threads import ServiceThreads
from mulligan.errors import ScopeMissing, TokenRefused
from mulligan.service import Service, TokenRecord, digest_of

# How long a token that was looked up is believed: it may be revoked meanwhile by another process.
BELIEVED_SECONDS = 1.0
KNOWN_MAX = 10_000

IMPLIED: Mapping[str, frozenset[str]] = {
    "read": frozenset({"read"}),
    "run": frozenset({"run", "read"}),
    "decide": frozenset({"decide", "read"}),
    "write": frozenset({"write", "run", "read"}),
    "admin": frozenset({"admin", "write", "run", "decide", "read"}),
    "worker": frozenset({"worker"}),
}
NOBODY = TokenRecord(id="", digest="", user="", scopes=(), created_at=datetime(1970, 1, 1, tzinfo=UTC))


class TokenLookup(Protocol):
    """Finds a token by the SHA-256 of its secret."""

    def __call__(self, service: Service, digest: str) -> TokenRecord | None: ...


def find_stored_token(service: Service, digest: str) -> TokenRecord | None:
    return service.logins.find_token(digest)


def allows(token: TokenRecord, scope: RouteScope) -> bool:
    """Whether one of the scopes of the token is, or implies, this one."""
    return scope == "public" or any(scope in IMPLIED[one] for one in token.scopes)


class Gate:
    """Lets a request in, or says why not."""

    def __init__(
        self, threads: ServiceThreads, find_token: TokenLookup, start_token: TokenRecord | None = None
    ) -> None:
        self._start_token = start_token
        self._read: Callable[[Callable[[Service], TokenRecord | None]], Awaitable[TokenRecord | None]] = threads.read
        self._find = find_token
        self._known: dict[str, tuple[float, TokenRecord]] = {}

    async def admit(self, headers: Mapping[str, str], scope: RouteScope) -> TokenRecord:
        """The token of a request. `TokenRefused`, `ScopeMissing`."""
        if scope == "public":
            return NOBODY
        token = await self._token(headers)
        if not allows(token, scope):
            raise ScopeMissing(
                f"this token has no scope '{scope}'",
                hint="use a token that has it; an admin can make one: mulligan token create",
                scope=scope,
            )
        return token

    def forget_tokens(self) -> None:
        """Look every token up again: one may have been revoked."""
        self._known.clear()

    async def _token(self, headers: Mapping[str, str]) -> TokenRecord:
        kind, _, secret = headers.get("authorization", "").partition(" ")
        secret = secret.strip()
        if kind.lower() != "bearer" or not secret:
            raise _refusal()
        digest = digest_of(secret)
        if self._start_token is not None and digest == self._start_token.digest:
            return self._start_token
        at, token = self._known.get(digest, (0.0, None))
        now = time.monotonic()
        if token is None or now - at > BELIEVED_SECONDS:
            token = await self._read(lambda service: self._find(service, digest))
            if token is None:
                raise _refusal()
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            self._known[digest] = now, token
        if token.revoked_at is not None or (token.expires_at is not None and token.expires_at <= datetime.now(UTC)):
            raise _refusal()
        return token


def _refusal() -> TokenRefused:
    return TokenRefused(
        "a valid token is needed", hint="send the header 'Authorization: Bearer TOKEN'; log in with: mulligan login"
    )
