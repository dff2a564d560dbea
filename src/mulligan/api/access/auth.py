"""Who asks, and what they may do: tokens, browser sessions, people that a proxy has logged in."""

from __future__ import annotations

import ipaddress
import math
import re
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal
from urllib.parse import urlsplit

from mulligan.api.access.rate_limits import TokenBuckets
from mulligan.api.http.routing import Route, RouteScope
from mulligan.api.processes.service_threads import ServiceThreads
from mulligan.core.model.scopes import allows as scopes_allow
from mulligan.errors import HostRefused, InputInvalid, OriginRefused, ScopeMissing, TokenRefused, TooManyRequests
from mulligan.ports.server_records import TokenRecord
from mulligan.service.server.logins import digest_of, owner_of
from mulligan.service.server.server_config import ServerConfig, TrustedProxy
from mulligan.service.service import Service

# A name or an address, and a port: what else a `Host` may have would get into links.
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:@/?#\s]*)(:[0-9]{1,5})?")
COOKIE = "mulligan_session"
# A page of another site cannot send this header without being asked first, and it is never allowed to.
CUSTOM_HEADER = "x-mulligan-request"
# How long a token that was looked up is believed: another process may revoke it meanwhile.
BELIEVED_SECONDS = 1.0
KNOWN_MAX = 10_000
# How many requests without a valid token an address may send in a second, for a while and at once.
REFUSALS_PER_SECOND, REFUSALS_AT_ONCE = 50, 1_000

# Who logs in may do so in any project.
NOBODY = TokenRecord(id="", digest="", user="", scopes=(), created_at=datetime(1970, 1, 1, tzinfo=UTC), project=None)


# Finds a token by the SHA-256 of its secret.
TokenLookup = Callable[[Service, str], TokenRecord | None]


def find_stored_token(service: Service, digest: str) -> TokenRecord | None:
    return service.logins.find_token(digest)


def allows(token: TokenRecord, scope: RouteScope) -> bool:
    """Whether one of the scopes of the token is, or implies, this one."""
    return scope == "public" or scopes_allow(token.scopes, scope)


@dataclass(frozen=True)
class Request:
    """What is asked, and by whom as far as the connection says."""

    method: str
    # Still percent-encoded, without the query.
    path: str
    # By their names in small letters.
    headers: Mapping[str, str]
    # The address of the other end of the connection, and the scheme of it.
    peer: str = ""
    scheme: str = "http"

    @property
    def where(self) -> str:
        return f"{self.method} {self.path}"


class Gate:
    """Lets a request in, or says why not. What it says is the same for all reasons that a stranger must not know."""

    def __init__(
        self,
        threads: ServiceThreads,
        config: ServerConfig,
        find_token: TokenLookup = find_stored_token,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        section = config.server
        self._threads = threads
        self._find = find_token
        self._clock = clock
        self._hosts = _host_names(section.host, section.hosts, section.public_url)
        self._proxy = ProxyRule(section.trusted_proxy) if section.trusted_proxy else None
        self._known: dict[str, tuple[float, TokenRecord]] = {}
        self._buckets = TokenBuckets(section.requests_per_second, section.requests_at_once, clock)
        self._webhooks = TokenBuckets(section.webhook_requests_per_second, section.webhook_requests_at_once, clock)
        self._refusals = TokenBuckets(REFUSALS_PER_SECOND, REFUSALS_AT_ONCE, clock)

    def check_host(self, request: Request) -> None:
        """`HostRefused` for a name that is not ours: a page whose name was pointed at us would send its own."""
        header = request.headers.get("host", "")
        name = _host_name(header)
        # Nobody else can point an address at us.
        if not _HOST.fullmatch(header) or (name not in self._hosts and _address(name) is None):
            raise HostRefused(
                f"this server is not known as '{name}'",
                hint="use its address; or whoever runs it adds the name to 'hosts' in server.toml",
            )

    def source(self, request: Request) -> str:
        """The address that a request came from: of the client, if a trusted proxy stands between."""
        return self._proxy.client(request) if self._proxy else request.peer

    def base_url(self, request: Request) -> str:
        """The address under which the caller knows the server."""
        trusted = self._proxy is not None and self._proxy.is_from_proxy(request)
        scheme = request.headers.get("x-forwarded-proto", request.scheme) if trusted else request.scheme
        return f"{'https' if scheme == 'https' else 'http'}://{request.headers.get('host', 'localhost')}"

    async def admit(self, request: Request, route: Route) -> TokenRecord:
        """The token of a request. `TokenRefused`, `ScopeMissing`, `TooManyRequests`."""
        if route.scope == "public":
            if route.changes:
                self._refuse_flood(self.source(request))
            return NOBODY
        token, how = await self._identify(request)
        # All sessions of a token share its bucket.
        self._buckets.take(owner_of(token.id) or token.user, f"the token of '{token.user}'")
        if how != "token" and route.changes:
            self._check_same_site(request)
        if not allows(token, route.scope):
            raise ScopeRefused(token, route.scope)
        return token

    def forget_tokens(self) -> None:
        """Look every token up again: one may have been revoked."""
        self._known = {digest: (-math.inf, token) for digest, (_, token) in self._known.items()}

    def note_refusal(self, request: Request) -> None:
        """Count a request of somebody who has no token, such as one with a link that does not work."""
        self._refusals.spend(self.source(request))

    def limit_webhook(self, name: str) -> None:
        """Take one of the signed deliveries that a webhook may get. `TooManyRequests`."""
        self._webhooks.take(name, "the sender of this webhook")

    def _refuse_flood(self, source: str) -> None:
        if self._refusals.is_empty(source):
            raise TooManyRequests("too many requests without a valid token", hint="wait a minute", retry_after=60)

    async def _identify(self, request: Request) -> tuple[TokenRecord, Literal["token", "session", "proxy"]]:
        kind, _, secret = request.headers.get("authorization", "").partition(" ")
        secret = secret.strip()
        cookie = _cookie(request.headers.get("cookie", ""))
        # Strangers behind the same address do not lock out whoever has a token.
        if digest_of(secret if kind else cookie) not in self._known:
            self._refuse_flood(self.source(request))
        if kind:
            if kind.lower() == "bearer" and secret and (token := await self._token(secret)):
                return token, "token"
        elif cookie and (token := await self._token(cookie)):
            return token, "session"
        elif self._proxy and (token := self._proxy.token(request)):
            return token, "proxy"
        self.note_refusal(request)
        raise TokenRefused(
            "a valid token is needed", hint="send the header 'Authorization: Bearer TOKEN'; log in with: mulligan login"
        )

    async def still_counts(self, token: TokenRecord) -> bool:
        """Whether a token that was let in would be let in now. Whoever a proxy names has none that could be revoked."""
        return not token.digest or await self._token_of(token.digest) is not None

    async def _token(self, secret: str) -> TokenRecord | None:
        """A token that counts now."""
        return await self._token_of(digest_of(secret))

    async def _token_of(self, digest: str) -> TokenRecord | None:
        at, token = self._known.get(digest, (0.0, None))
        now = self._clock()
        if token is None or now - at > BELIEVED_SECONDS:
            token = await self._threads.read(lambda service: self._find(service, digest))
            if token is None:
                return None
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            self._known[digest] = now, token
        if not token.is_valid(datetime.now(UTC)):
            self._known.pop(digest, None)
            return None
        return token

    def _check_same_site(self, request: Request) -> None:
        """Refuse a change that a page of another site may have made a browser send."""
        origin = request.headers.get("origin")
        if origin is None:
            is_ours = CUSTOM_HEADER in request.headers
        else:
            is_ours = origin == self.base_url(request)
        if not is_ours or request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            raise CrossSiteRefused


def refuse_without_bearer(headers: Mapping[str, str]) -> None:
    """`TokenRefused` for a browser session, which a page could use without being asked."""
    if not headers.get("authorization"):
        raise TokenRefused(
            "a token in a header is needed here: a browser session does not count",
            hint="send the header 'Authorization: Bearer TOKEN'",
        )


def refuse_other_origin(headers: Mapping[str, str], base_url: str) -> None:
    """`OriginRefused` for a page of another site. Programs send no origin."""
    origin = headers.get("origin")
    if origin is not None and origin != base_url:
        raise OriginRefused(
            f"a page of '{origin[:100]}' may not ask this server",
            hint="programs leave the header 'Origin' out",
            origin=origin[:100],
        )


class ScopeRefused(ScopeMissing):
    """The token is known and lacks the scope. Carries the token, for the audit."""

    def __init__(self, token: TokenRecord, scope: str) -> None:
        super().__init__(
            f"this token has no scope '{scope}'",
            hint="use a token that has it; an admin can make one: mulligan token create",
            scope=scope,
        )
        self.token = token


class CrossSiteRefused(ScopeMissing):
    """A browser sent a change with the cookie of a session, and not from a page of this server."""

    def __init__(self) -> None:
        super().__init__(
            "a change with a browser session must come from a page of this server",
            hint=f"programs send a token, or the header '{CUSTOM_HEADER}: 1'",
        )


class ProxyRule:
    """What is believed of a proxy that has logged people in, and from which addresses."""

    def __init__(self, section: TrustedProxy) -> None:
        self._section = section
        self._header = section.user_header.lower()
        self._networks = [_network(text) for text in section.addresses]

    def is_from_proxy(self, request: Request) -> bool:
        return self._is_trusted(request.peer)

    def client(self, request: Request) -> str:
        """The nearest address that is not a trusted proxy."""
        if not self._is_trusted(request.peer):
            return request.peer
        hops = [one.strip() for one in request.headers.get("x-forwarded-for", "").split(",") if one.strip()]
        return next((hop for hop in reversed(hops) if not self._is_trusted(hop)), request.peer)

    def token(self, request: Request) -> TokenRecord | None:
        """What the person may do whom the proxy names."""
        user = request.headers.get(self._header, "").strip()
        if not user or not user.isprintable() or not self._is_trusted(request.peer):
            return None
        section = self._section
        return TokenRecord(
            id=f"proxy:{user}",
            digest="",
            user=user,
            scopes=section.scopes,
            created_at=NOBODY.created_at,
            project=section.project,
        )

    def _is_trusted(self, address: str) -> bool:
        found = _address(address)
        return found is not None and any(found in network for network in self._networks)


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise InputInvalid(
            f"server.trusted_proxy.addresses: '{text}' is neither an address nor a network",
            hint="write it like 10.0.0.7 or 10.0.0.0/8",
        ) from None


def _host_names(host: str, hosts: tuple[str, ...], public_url: str) -> frozenset[str]:
    own = {"localhost", socket.gethostname().lower(), host.lower(), *(one.lower() for one in hosts)}
    return frozenset(own | ({urlsplit(public_url).hostname or ""} if public_url else set()) - {""})


def _host_name(header: str) -> str:
    """The name in a `Host` header, without the port."""
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.rpartition(":")[0].lower() if header.count(":") == 1 else header.lower()


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _cookie(header: str) -> str:
    for one in header.split(";"):
        name, _, value = one.strip().partition("=")
        if name == COOKIE:
            return value
    return ""
