"""Logging in with a browser: a link that works once becomes a session, which is a token that a cookie carries."""

from __future__ import annotations

import hashlib
import secrets
from datetime import datetime, timedelta

import msgspec

from mulligan.errors import TokenRefused
from mulligan.ports.server_records import Document, Scope, TokenLimits, TokenRecord
from mulligan.service.runs.stored.run_reader import RunReader
from mulligan.service.server.combined_structs import combine

LINK_MINUTES, SESSION_HOURS = 10, 12
_KIND = "login"
_SECRET_BYTES = 32
# How many unused links of one token count: the newest ones.
LINKS_MAX = 10
_SESSION = "session"


class _Offer(msgspec.Struct, frozen=True):
    """Who logs in with a link, and until when."""

    user: str
    scopes: tuple[Scope, ...]
    project: str | None
    limits: TokenLimits
    expires_at: datetime
    # When the token that offered it expires: no session lasts longer.
    until: datetime | None
    # The id of that token, or of the one that it was a session of.
    owner: str = ""


def new_secret() -> str:
    """The secret of a token: 256 random bits."""
    return f"mul_{secrets.token_urlsafe(_SECRET_BYTES)}"


def digest_of(secret: str) -> str:
    """What the store has of a secret."""
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()


def owner_of(token_id: str) -> str:
    """The id of the token from which a session comes; that of any other token is its own."""
    kind, *rest = token_id.split("-", 2)
    return rest[1] if kind == _SESSION and len(rest) == 2 else token_id


def start_token(user: str, now: datetime) -> tuple[str, TokenRecord]:
    """A token that may do all that a person may, as long as the process runs that has it in memory."""
    secret = new_secret()
    record = TokenRecord(
        id="start", digest=digest_of(secret), user=user, scopes=("admin",), created_at=now, project=None
    )
    return secret, record


class Logins:
    """Links and sessions of the store. Every server that shares it accepts them."""

    def __init__(self, reader: RunReader) -> None:
        self._reader = reader

    def find_token(self, digest: str) -> TokenRecord | None:
        """The token with this digest, also if it has expired or was revoked."""
        return self._reader.store.server_records.token_of(digest)

    def offer(self, token: TokenRecord, now: datetime) -> str:
        """The code of a link with which the user of a token can log in, once."""
        records = self._reader.store.server_records
        owner = owner_of(token.id)
        unused = [(old, msgspec.json.decode(old.data, type=_Offer)) for old in records.documents(_KIND)]
        ours = sorted((one for one in unused if one[1].owner == owner), key=lambda one: one[1].expires_at)
        dropped = ours[: max(0, len(ours) - LINKS_MAX + 1)]
        for old in [old for old, found in unused if found.expires_at <= now] + [old for old, _ in dropped]:
            records.delete_document(old.project, _KIND, old.name)
        code = secrets.token_urlsafe(_SECRET_BYTES)
        expires_at = now + timedelta(minutes=LINK_MINUTES)
        offer = combine(_Offer, token, expires_at=expires_at, until=token.expires_at, owner=owner)
        data = msgspec.json.encode(offer)
        records.put_document(Document(_KIND, digest_of(code), data, now, updated_by=token.user), expected=0)
        return code

    def log_in(self, code: str, now: datetime, hours: int = SESSION_HOURS) -> str:
        """The secret of a new session, for its cookie. Only the first one who has the link gets it: `TokenRefused`."""
        records = self._reader.store.server_records
        name = digest_of(code)
        # It may be of any project.
        found = next((one for one in records.documents(_KIND) if one.name == name), None)
        if found is None or not records.delete_document(found.project, _KIND, name):
            raise _refusal()
        offer = msgspec.json.decode(found.data, type=_Offer)
        if offer.expires_at <= now or self._is_revoked(offer.owner):
            raise _refusal()
        secret = new_secret()
        expires_at = now + timedelta(hours=hours)
        token = combine(
            TokenRecord,
            offer,
            id=f"{_SESSION}-{secrets.token_hex(6)}-{offer.owner}",
            digest=digest_of(secret),
            created_at=now,
            created_by=offer.user,
            note="a browser session",
            expires_at=min(expires_at, offer.until) if offer.until else expires_at,
        )
        records.add_token(token)
        # Whoever revoked the token meanwhile has revoked the sessions that there were, without this one.
        if self._is_revoked(offer.owner):
            records.revoke_token(token.id, now)
            raise _refusal()
        return secret

    def _is_revoked(self, token_id: str) -> bool:
        """Whether somebody has revoked this token. The one of a server that is running is in no store."""
        owner = next((one for one in self._reader.store.server_records.tokens() if one.id == token_id), None)
        return owner is not None and owner.revoked_at is not None

    def log_out(self, token: TokenRecord, now: datetime) -> None:
        """End a session. Every other token stays."""
        if token.id != owner_of(token.id):
            self._reader.store.server_records.revoke_token(token.id, now)


def _refusal() -> TokenRefused:
    return TokenRefused(
        "this link is not valid: a link can be used once, and for a few minutes",
        hint="get a new one: POST /api/v1/logins, or start the server again",
    )
