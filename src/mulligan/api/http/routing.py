"""What a route is, what its handler gets, and what it gives.

`api.routes` has the one table of routes. The application, the OpenAPI document, docs/operate/api.md, the checks of
scopes and the audit are all made from it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from mulligan.api.access.request_counts import RequestCounts
from mulligan.api.http.problems import ProblemDetails
from mulligan.api.processes.stream_hub import StreamHub
from mulligan.ports.server_records import TokenRecord
from mulligan.service.service import Service

Method = Literal["GET", "POST", "PUT", "DELETE"]
# "public" needs no token.
RouteScope = Literal["public", "read", "run", "decide", "propose", "write", "admin", "worker"]
JSON = "application/json"
PREFIX = "/api/v1/"
BODY_BYTES_MAX = 4 * 1024 * 1024


class Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a request has in its body. A field that it does not have is refused, at any depth."""


class Query(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The parameters behind `?`. A field of a sequence type may be given several times, every other one once."""


@dataclass(frozen=True)
class Call:
    """One request, after everything about it was checked: its token, its scope, its size, its parameters."""

    # In the name of the token's user, for the token's project. A coroutine uses it only inside `read`.
    service: Service
    token: TokenRecord
    path: Mapping[str, str]
    # Of the types that the route names; None where it names none.
    query: Any
    body: Any
    # By their names in small letters.
    headers: Mapping[str, str]
    # The address that it came from, and the address under which the caller knows the server, without a final "/".
    source: str = ""
    base_url: str = ""
    # What this server has answered so far.
    counts: RequestCounts | None = None
    # For coroutines: `await call.read(lambda service: …)` runs in the thread for readers.
    read: Callable[[Callable[[Service], Any]], Awaitable[Any]] = field(default=None, repr=False)  # type: ignore[assignment]
    # The same in a thread for changes.
    change: Callable[[Callable[[Service], Any]], Awaitable[Any]] = field(default=None, repr=False)  # type: ignore[assignment]
    # The same in a thread for what takes long, when it is the turn of the token.
    compute: Callable[[Callable[[Service], Any]], Awaitable[Any]] = field(default=None, repr=False)  # type: ignore[assignment]
    # When it came in, by the monotonic clock.
    arrived: float = 0.0
    # What all clients of live streams share.
    hub: StreamHub = field(default=None, repr=False)  # type: ignore[assignment]
    # Whether the server ends: whoever waits answers at once.
    is_closing: Callable[[], bool] = lambda: False


@dataclass(frozen=True)
class Answer:
    """What a handler gives where a plain value, which becomes JSON, is not enough.

    With the header `ETag` a reader that has this version already gets 304. A value of bytes is sent as it is.
    """

    value: Any = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    media: str = JSON
    # Whether it stays the same until something is written, however much time passes.
    is_timeless: bool = False


@dataclass(frozen=True)
class Streamed:
    """An answer in pieces. It ends when the server ends.

    A plain iterator is read in the thread for readers, piece by piece, and must not wait; one that waits is
    asynchronous.
    """

    pieces: AsyncIterator[bytes] | Iterator[bytes]
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    media: str = "application/octet-stream"


# A plain function runs in the thread for readers (GET) or in the pool for changes; a coroutine runs in the loop.
Handler = Callable[[Call], Any | Awaitable[Any]]


@dataclass(frozen=True)
class Route:
    """One line of the table."""

    method: Method
    # Below /api/v1, unless it begins with `/`: "runs/{run_id:int}:cancel".
    path: str
    handler: Handler
    scope: RouteScope
    # One sentence for the documentation.
    summary: str
    query: type[msgspec.Struct] | None = None
    # A type for JSON, or `bytes` for a body that is taken as it is.
    body: Any = None
    # The type of the JSON answer; None where `media` is not JSON.
    answer: Any = None
    status: int = 200
    # Other statuses with the same kind of answer, such as 206 for a part of it.
    other_statuses: tuple[int, ...] = ()
    media: str = JSON
    # The headers of a request that count here, and what each is for, in one sentence.
    request_headers: tuple[tuple[str, str], ...] = ()
    # Statuses of problems besides those that every route may have: 400, 401, 403, 404, 422, 429, 503.
    problems: tuple[int, ...] = ()
    # Whether it changes something, so that it is audited. None: by the method.
    is_change: bool | None = None
    # Whether the change is a new run: then the audit is written in the transaction that creates it.
    creates_run: bool = False
    body_bytes_max: int = BODY_BYTES_MAX
    # Whether the body, which is `bytes`, is written to disk while it comes: then the call has an `UploadedFile`.
    is_upload: bool = False
    # Whether it may compute for seconds: then it has threads of its own, and holds up no change. A request that brings
    # the text of a workflow in `text` of its body may in any case.
    is_slow: bool = False
    # Or with a body, which is `bytes`, of at least so many: it has a workflow in it that has to be checked.
    slow_bytes: int | None = None
    # Whether it looks at all runs, or which calls of the store do: then it has a thread of its own and a limit of time.
    is_sum: bool | frozenset[str] = False
    # Whether it asks the store whatever the caller wants: then it has threads of its own, and each token has a share.
    is_question: bool = False
    # Whether all tokens of a project get the same answer, so that one that was made serves several callers.
    is_shared: bool = False
    # Whether it is a page for people: it is not part of the interface that is documented, and its errors are pages.
    is_page: bool = False

    @property
    def changes(self) -> bool:
        return self.method != "GET" if self.is_change is None else self.is_change

    @property
    def full_path(self) -> str:
        return self.path if self.path.startswith("/") else PREFIX + self.path

    @property
    def name(self) -> str:
        """As the audit and the documentation have it: `POST /api/v1/runs/{run_id}:cancel`."""
        return f"{self.method} {self.full_path.replace(':int}', '}')}"


@dataclass(frozen=True)
class Pages:
    """What people see in a browser."""

    routes: tuple[Route, ...]
    # The page for an error at a path, which is still percent-encoded, for whoever has this token; None if nobody has.
    render_error: Callable[[ProblemDetails, str, TokenRecord | None], Answer]
