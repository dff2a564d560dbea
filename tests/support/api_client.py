"""A server in this process, without a port: requests go straight into the application."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from mulligan.api.access.auth import find_stored_token
from mulligan.api.app import Api
from mulligan.api.http.routing import Pages, Route
from mulligan.api.routes import ROUTES
from mulligan.errors import TokenRefused
from mulligan.ports.server_records import Scope, TokenRecord
from mulligan.service.home import Home
from mulligan.service.runs.changes.prepared_runs import prepare
from mulligan.service.server.logins import digest_of
from mulligan.service.server.server_config import ServerConfig
from mulligan.service.service import Service
from proof.asgi import ask_asgi

# One token for each scope, and two that count for nothing.
SCOPES: tuple[Scope, ...] = ("read", "send", "run", "decide", "propose", "write", "admin", "worker")
AT = datetime(2026, 1, 1, tzinfo=UTC)
A_WORKFLOW = "name: nightly\nsteps:\n  - step: fetch\n    shell: 'true'\n"


def admitted(service: Service, secret: str, now: datetime | None = None) -> TokenRecord:
    """The token of a secret, as every server that has the store would let it in. `TokenRefused`."""
    found = find_stored_token(service, digest_of(secret))
    if found is None or not found.is_valid(now or service.now()):
        raise TokenRefused("a valid token is needed")
    return found


@dataclass(frozen=True)
class Reply:
    """An answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def code(self) -> str:
        """The code of a problem."""
        assert self.headers["content-type"] == "application/problem+json", (self.status, self.body[:300])
        return str(self.json["code"])


@dataclass
class Client:
    """Sends requests to an application, with a token of one of the scopes (by default `admin`)."""

    api: Api
    home: Home
    secrets: dict[str, str]
    scope: str | None = "admin"
    headers: dict[str, str] = field(default_factory=dict)
    source: str = "127.0.0.1"
    _runner: asyncio.Runner = field(default_factory=asyncio.Runner)

    def get(self, path: str, *, scope: str | None = "", **query: Any) -> Reply:
        return self.request("GET", path, scope=scope, query=query)

    def post(self, path: str, body: Any = None, *, scope: str | None = "", **options: Any) -> Reply:
        return self.request("POST", path, body=body, scope=scope, **options)

    def put(self, path: str, body: Any = None, *, scope: str | None = "", **options: Any) -> Reply:
        return self.request("PUT", path, body=body, scope=scope, **options)

    def delete(self, path: str, *, scope: str | None = "", **options: Any) -> Reply:
        return self.request("DELETE", path, scope=scope, **options)

    def request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        query: Mapping[str, Any] | str = "",
        headers: Mapping[str, str] | None = None,
        scope: str | None = "",
        source: str = "",
        pieces_max: int | None = None,
    ) -> Reply:
        """Ask, and wait for the answer. A body that is not bytes is sent as JSON.

        `scope`: whose token to send; None sends none. With `pieces_max` the client leaves after so many pieces of a
        stream.
        """
        if not path.startswith("/"):
            path = f"/api/v1/{path}"
        sent = {"host": "localhost", **self.headers}
        name = self.scope if scope == "" else scope
        if name is not None:
            sent["authorization"] = f"Bearer {self.secrets[name]}"
        data = body if isinstance(body, bytes) else b"" if body is None else msgspec.json.encode(body)
        if body is not None and not isinstance(body, bytes):
            sent["content-type"] = "application/json"
        if data:
            sent["content-length"] = str(len(data))
        sent.update(headers or {})
        text = query if isinstance(query, str) else urlencode(query, doseq=True)
        scope_ = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": quote(path, safe="/%:{}@[]!$&'()*+,;=~").encode(),
            "query_string": text.encode(),
            "headers": [(key.lower().encode(), value.encode("latin-1")) for key, value in sent.items()],
            "client": (source or self.source, 50_000),
            "scheme": "http",
        }
        return Reply(*self._runner.run(ask_asgi(self.api, scope_, data, pieces_max=pieces_max)))

    def close(self) -> None:
        self.api.close()
        self._runner.close()


def token_record(name: str, scopes: Sequence[Scope], **others: Any) -> TokenRecord:
    return TokenRecord(
        id=f"t-{name}", digest=digest_of(f"mul_{name}"), user=name, scopes=(*scopes,), created_at=AT, **others
    )


def open_client(
    home: Home,
    config: ServerConfig | None = None,
    routes: Sequence[Route] = ROUTES,
    tokens: Sequence[TokenRecord] = (),
    clock: Callable[[], float] = time.monotonic,
    pages: Pages | None = None,
    others: Sequence[Route] = (),
) -> Client:
    """A server over a home, with a token for each scope, one that has expired and one that was revoked."""
    known = [
        *(token_record(scope, [scope]) for scope in SCOPES),
        token_record("expired", ["admin"], expires_at=AT),
        token_record("revoked", ["admin"], revoked_at=AT),
        token_record("later", ["read"], expires_at=datetime.now(UTC) + timedelta(days=1)),
        *tokens,
    ]
    by_digest = {one.digest: one for one in known}

    def find(service: Service, digest: str) -> TokenRecord | None:
        return by_digest.get(digest) or find_stored_token(service, digest)

    api = Api(home, config or ServerConfig(), find_token=find, routes=routes, pages=pages, others=others, clock=clock)
    return Client(api, home, {one.user: f"mul_{one.user}" for one in known} | {"unknown": "mul_unknown"})


def start_run(service: Service, text: str = A_WORKFLOW, **inputs: Any) -> int:
    """A run that nobody drives."""
    folder = service.home.folder.parent
    file = folder / "nightly.yaml"
    file.write_text(text)
    (run_id,) = service.changes.create(prepare(service.workflows.load_workflow(file), inputs, folder))
    return run_id
