"""What a route is, what its handler gets, and what it gives.

`api.routes` has the one table of routes. The application, the OpenAPI document, docs/operate/api.md, the checks of
scopes and the audit are all made from it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Literal, TypeVar, get_type_hints

import msgspec

from mulligan.api.access.request_counts import RequestCounts
from mulligan.api.http.problems import ProblemDetails
from mulligan.api.processes.stream_hub import StreamHub
from mulligan.ports.server_records import TokenRecord
from mulligan.service.server.logins import SESSION_HOURS
from mulligan.service.service import Service

Method = Literal["GET", "POST", "PUT", "DELETE"]
# "public" needs no token.
RouteScope = Literal["public", "read", "send", "run", "decide", "propose", "write", "admin", "worker"]
JSON = "application/json"
PREFIX = "/api/v1/"
BODY_BYTES_MAX = 4 * 1024 * 1024


class Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a request has in its body. A field that it does not have is refused, at any depth."""


class Query(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The parameters behind `?`. A field of a sequence type may be given several times, every other one once."""


class AnswerBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An answer made of results of the service: each field becomes what `to_json` makes of it."""


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
    # How long a browser that logs in stays logged in.
    session_hours: int = SESSION_HOURS
    # The names of the routes that decide: what they do counts against the limit of a token.
    decisions: tuple[str, ...] = ()
    # What this server has answered so far.
    counts: RequestCounts | None = None
    # For coroutines: `await call.read(lambda service: …)` runs in the thread for readers.
    read: Callable[[Callable[[Service], Any]], Awaitable[Any]] = field(default=None, repr=False)  # type: ignore[assignment]
    # The same in a thread for changes.
    change: Callable[[Callable[[Service], Any]], Awaitable[Any]] = field(default=None, repr=False)  # type: ignore[assignment]
    # The same in a thread for what takes long, when it is the turn of the token.
    compute: Callable[[Callable[[Service], Any]], Awaitable[Any]] = field(default=None, repr=False)  # type: ignore[assignment]
    # Takes one delivery to a webhook of what it may get in a second. `TooManyRequests`.
    limit_webhook: Callable[[str], None] = field(default=None, repr=False)  # type: ignore[assignment]
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
    # A struct; or `dict[str, str]` for whatever somebody else has put there.
    query: Any = None
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
    def group(self) -> str:
        """Under which title the documentation has it: the first word of the path."""
        if self.path.startswith("/"):
            return "webhooks" if self.path.startswith("/hooks/") else "server"
        return re.split(r"\W", self.path, maxsplit=1)[0]

    @property
    def name(self) -> str:
        """As the audit and the documentation have it: `POST /api/v1/runs/{run_id}:cancel`."""
        return f"{self.method} {self.full_path.replace(':int}', '}')}"


Declared = TypeVar("Declared", bound=Callable[..., Any])


class Routes(list[Route]):
    """The routes of an area, each declared at its handler.

    The first line of the docstring of a handler is the summary. Its parameters beside `call` are `query`, `body` and
    the parameters of the path, by their names; the annotations of the first two are the types that the route takes. A
    struct that it is said to return is the type of the answer.
    """

    def add(self, method: Method, path: str, scope: RouteScope, **others: Any) -> Callable[[Declared], Declared]:
        """Make a handler a route. `others`: what else there is to say, by the names of the fields of `Route`."""

        def declare(handler: Declared) -> Declared:
            types = get_type_hints(handler, include_extras=True)
            answer = types.pop("return", None)
            if isinstance(answer, type) and issubclass(answer, msgspec.Struct):
                others.setdefault("answer", answer)
            about: dict[str, Any] = {name: types.get(name) for name in ("query", "body")} | others
            summary = inspect.cleandoc(handler.__doc__ or "").partition("\n")[0]
            self.append(Route(method, path, _with_parameters(handler, types), scope, summary, **about))
            return handler

        return declare


def _with_parameters(handler: Callable[..., Any], types: Mapping[str, Any]) -> Handler:
    """The handler as a function of the call alone."""
    own = [name for name in ("query", "body") if name in types]
    of_path = {name: kind for name, kind in types.items() if name not in ("call", *own)}

    @wraps(handler)
    def answer(call: Call) -> Any:
        given = {name: getattr(call, name) for name in own}
        return handler(call, **given, **{name: kind(call.path[name]) for name, kind in of_path.items()})

    return answer


@dataclass(frozen=True)
class Pages:
    """What people see in a browser."""

    routes: tuple[Route, ...]
    # The page for an error at a path, which is still percent-encoded, for whoever has this token; None if nobody has.
    render_error: Callable[[ProblemDetails, str, TokenRecord | None], Answer]
