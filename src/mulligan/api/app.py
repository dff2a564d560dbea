"""The application: from the table of routes to answers."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.types import Message, Receive, Scope, Send

from mulligan.api import openapi
from mulligan.api.access import audit
from mulligan.api.access.auth import Gate, Request, TokenLookup, find_stored_token
from mulligan.api.access.repeated_refusals import RepeatedRefusals
from mulligan.api.access.request_counts import RequestCounts
from mulligan.api.access.shared_answers import SharedAnswers
from mulligan.api.access.shares import Claimant
from mulligan.api.access.token_limits import check_limits
from mulligan.api.http import uploads
from mulligan.api.http.decoding import BodyDecoder, QueryDecoder, refuse_nul
from mulligan.api.http.entity_tags import has_version
from mulligan.api.http.path_table import Found, PathTable
from mulligan.api.http.problems import PROBLEM, as_known_error, details, headers_of
from mulligan.api.http.routing import JSON, PREFIX, Answer, AnswerBody, Call, Pages, Route, Streamed
from mulligan.api.processes.service_threads import ServiceThreads
from mulligan.api.processes.stream_hub import TOKEN_SECONDS, StreamClient, StreamHub
from mulligan.api.routes import ROUTES
from mulligan.errors import (
    MediaUnsupported,
    MethodNotAllowed,
    MulliganError,
    NotAcceptable,
    RequestRefused,
    RequestTooLarge,
    RequestTooSlow,
    TooManyRequests,
    UnknownPath,
)
from mulligan.ports.server_records import TokenLimits, TokenRecord
from mulligan.service.home import Home
from mulligan.service.rendering.json_output import to_json
from mulligan.service.runs.stored.damaged_runs import may_be_damage
from mulligan.service.server.audit import AuditWithRun
from mulligan.service.server.logins import owner_of
from mulligan.service.server.server_config import ServerConfig
from mulligan.service.server.tokens.decision_ledger import DecisionLedger
from mulligan.service.service import Service

# What no answer does without.
SECURITY_HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    # A cached answer is asked for again with its ETag.
    "cache-control": "private, no-cache",
}

# How long the threads may take to end what nobody waits for any more.
CLOSE_SECONDS = 2.0

# How long a body may take, and how much longer for each part of it that has come: a slow line sends 16 kB a second.
BODY_SECONDS, BODY_BYTES_PER_SECOND = 30.0, 16 * 1024
# How many logs and files one token, with its sessions, reads at once. Live streams are counted by themselves.
STREAMED_PER_TOKEN = 200
# The parameters and fields of bodies that name a run.
RUN_FIELDS = ("run_id", "run", "a", "b")

_log = logging.getLogger("mulligan.server")


class _Endpoint:
    """A route with what was prepared for it."""

    def __init__(self, route: Route) -> None:
        handler = route.handler.func if isinstance(route.handler, partial) else route.handler
        is_json = route.body is not None and route.body is not bytes
        self.route = route
        self.query = QueryDecoder(route.query)
        self.body = BodyDecoder(route.body) if is_json else None
        self.is_coroutine = inspect.iscoroutinefunction(inspect.unwrap(handler))


@dataclass
class _Exchange:
    """One request, and what is known of it so far."""

    request: Request
    scope: Scope
    receive: Receive
    route: Route | None = None
    token: TokenRecord | None = None
    # The runs that it names.
    run_ids: tuple[int, ...] = ()


class Api:
    """Answers the requests of all routes, as an ASGI application."""

    def __init__(
        self,
        home: Home,
        config: ServerConfig,
        *,
        find_token: TokenLookup = find_stored_token,
        start_token: TokenRecord | None = None,
        routes: Iterable[Route] = ROUTES,
        pages: Pages | None = None,
        others: Iterable[Route] = (),
        clock: Callable[[], float] = time.monotonic,
        body_seconds: float = BODY_SECONDS,
    ) -> None:
        """`others`: routes that speak a protocol of their own, so that OpenAPI does not describe them."""
        self.config = config
        self._pages = pages
        self._body_seconds = body_seconds
        # How often the token of an answer in pieces is looked up again.
        self.token_seconds = TOKEN_SECONDS
        self._upload_folder = home.uploads
        self._refusals = RepeatedRefusals(clock)
        self.threads = ServiceThreads(home)
        find = _with_start_token(find_token, start_token)
        self.gate = Gate(self.threads, config, find, clock)
        self.counts = RequestCounts()
        # Set when the server ends: streams end with it.
        self.closing = asyncio.Event()
        self.hub = StreamHub(self.threads.read, find)
        self._shared = SharedAnswers()
        self._streams: set[asyncio.Timeout] = set()
        # How many answers in pieces each token gets, by its id.
        self._streams_of: Counter[str] = Counter()
        # The requests that are being answered, and since when.
        self._open: dict[int, tuple[Request, float]] = {}
        self._closer: asyncio.Future[None] | None = None
        self._routes = tuple(routes)
        self._decisions = tuple(one.name for one in self._routes if one.scope == "decide" and one.changes)
        described = Route(**openapi.ROUTE, handler=partial(openapi.answer, self._routes))
        table = (*self._routes, described, *(pages.routes if pages else ()), *others)
        self._paths = PathTable(table)
        self._endpoints = {id(route): _Endpoint(route) for route in table}

    def close(self) -> None:
        self.threads.close()

    @property
    def busy(self) -> list[str]:
        """What is being answered, and what the threads do: for a log that says why the server does not end."""
        now = time.monotonic()
        answered = [f"{request.where} ({now - since:.0f} s)" for request, since in self._open.values()]
        return [*answered, *self.threads.busy]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        client = scope.get("client")
        request = Request(
            method=scope["method"],
            path=(scope.get("raw_path") or scope["path"].encode()).decode("ascii", "replace").partition("?")[0],
            headers={name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]},
            peer=client[0] if client else "",
            scheme=scope.get("scheme", "http"),
        )
        started_at = time.monotonic()
        self._open[id(request)] = request, started_at
        try:
            await self._exchange(_Exchange(request, scope, receive), started_at, send)
        finally:
            del self._open[id(request)]

    async def _exchange(self, exchange: _Exchange, started_at: float, send: Send) -> None:
        request = exchange.request
        try:
            answer = await self._answer(exchange)
            if isinstance(answer, Streamed) and not isinstance(answer.pieces, StreamClient):
                self._refuse_many_streams(exchange.token)
        except Exception as error:
            answer = await self._refuse(exchange, as_known_error(await self._explain(error, exchange), request.where))
        seconds = time.monotonic() - started_at
        # A method that no route has, or a path, is chosen by the client: it does not become a name of its own.
        route = exchange.route
        method, path = (route.method, route.path) if route is not None else ("", "")
        self.counts.add(method, path, answer.status, seconds)
        if isinstance(answer, Streamed):
            await self._stream(answer, exchange, send)
        else:
            await _send(answer, request, send)

    # -- one request -------------------------------------------------------------------------------------------------

    async def _answer(self, exchange: _Exchange) -> Answer | Streamed:
        arrived = time.monotonic()
        request = exchange.request
        self.gate.check_host(request)
        found = self._find(request)
        if request.method == "OPTIONS":
            return Answer(status=204, headers={"allow": ", ".join(found.methods)})
        endpoint, path = self._match(found, request)
        route = exchange.route = endpoint.route
        token = exchange.token = await self.gate.admit(request, route)
        _check_accepted(route, request.headers.get("accept", ""))
        query = endpoint.query.decode(exchange.scope.get("query_string", b"").decode("latin-1"))
        if route.is_upload:
            pieces = _pieces(route.body_bytes_max, exchange, self._body_seconds)
            body: Any = await uploads.receive(self._upload_folder, pieces)
        else:
            body = await _body(endpoint, exchange, self._body_seconds)
        exchange.run_ids = _named_runs(path, query, body)
        make = partial(
            Call,
            token=token,
            path=path,
            query=query,
            body=body,
            headers=request.headers,
            source=self.gate.source(request),
            hub=self.hub,
            is_closing=self.closing.is_set,
            base_url=self.config.server.public_url.rstrip("/") or self.gate.base_url(request),
            session_hours=self.config.server.session_hours,
            arrived=arrived,
            counts=self.counts,
            decisions=self._decisions,
            limit_webhook=self.gate.limit_webhook,
            read=lambda work: self.threads.read(lambda service: work(service.for_token(token)), claimant(token)),
            change=lambda work: self.threads.change(lambda service: work(service.for_token(token)), claimant(token)),
            compute=lambda work: self._compute(lambda service: work(service.for_token(token)), token),
        )
        try:
            return await self._call(endpoint, make, exchange)
        finally:
            if route.is_upload:
                uploads.remove(body.path)

    async def _explain(self, error: Exception, exchange: _Exchange) -> Exception:
        """The error; one that comes from a damaged run as `RunDamaged`."""
        token, run_ids = exchange.token, exchange.run_ids
        is_known = isinstance(error, MulliganError) and error.http_status < 500
        if token is None or not run_ids or is_known or not may_be_damage(error):
            return error
        try:
            found = await self._compute(
                lambda service: service.for_token(token).runs.explain_damage(run_ids, error), token
            )
        except MulliganError as other:
            return other
        if found is not None:
            _log.warning("%s: %s", exchange.request.where, found.message)
        return found or error

    async def _refuse(self, exchange: _Exchange, error: MulliganError) -> Answer:
        """The answer to a refused request. The audit has it first, if the store can write."""
        source = self.gate.source(exchange.request)
        if exchange.route is not None and exchange.route.scope == "public" and exchange.route.changes:
            self.gate.note_refusal(exchange.request)
        found = audit.refused(exchange.route, exchange.request, source, error, exchange.token)
        rows = self._refusals.rows_for(found)
        if rows:
            try:
                await self.threads.change(lambda service: service.audit.add(rows))
            except Exception as trouble:
                as_known_error(trouble, "writing the audit")
        return self._problem(error, exchange)

    def _problem(self, error: MulliganError, exchange: _Exchange) -> Answer:
        """An error as JSON; as a page for somebody who has opened a page."""
        problem = details(error)
        if self._pages is not None and _wants_page(exchange):
            page = self._pages.render_error(problem, exchange.request.path, exchange.token)
            return replace(page, status=problem.status, headers={**page.headers, **headers_of(error)})
        return Answer(msgspec.json.encode(problem), problem.status, headers_of(error), PROBLEM)

    def _find(self, request: Request) -> Found:
        try:
            found = self._paths.find(request.path)
        except UnicodeDecodeError:
            raise RequestRefused("the path is not UTF-8", hint="percent-encode the bytes of UTF-8") from None
        if found is None:
            raise UnknownPath(f"there is nothing at '{request.path}'", hint="/openapi.json lists what there is")
        for value in found.values:
            refuse_nul(value, "the path")
        return found

    def _match(self, found: Found, request: Request) -> tuple[_Endpoint, dict[str, str]]:
        matched = found.route(request.method)
        if matched is None or (request.method == "HEAD" and matched[0].changes):
            allowed = ", ".join(found.methods)
            message = f"'{request.path}' does not answer {request.method}"
            raise MethodNotAllowed(message, hint=f"it answers {allowed}", allow=allowed)
        return self._endpoints[id(matched[0])], matched[1]

    async def _call(self, endpoint: _Endpoint, make: partial[Call], exchange: _Exchange) -> Answer | Streamed:
        route, token = endpoint.route, exchange.token
        assert token is not None

        def prepare(service: Service) -> Call:
            """Check the limits of the token, and write the audit before the change: a crash does not lose it."""
            call = make(service=service.for_token(token))
            if audit.is_written(route, call.body, call.query):
                check_limits(call, route)
                if route.scope not in ("decide", "public"):
                    service.audit.add(audit.accepted(call, route, exchange.request))
                return replace(call, service=service.for_token(token, ledger=ledger(service, call)))
            return call

        def ledger(service: Service, call: Call) -> DecisionLedger:
            """The rows of decisions; of other requests, beside their own row, those of the approvals that they keep."""
            row, has_row = audit.decision(call, route, exchange.request), route.scope != "decide"
            return DecisionLedger(service.audit, row, token.limits, self._decisions, service.now, has_row=has_row)

        def carry_out(service: Service) -> Answer | Streamed:
            call = prepare(service)
            found = _as_answer(route, route.handler(call))
            if route.scope == "public" and audit.is_written(route, call.body, call.query):
                # Not before: whoever guesses a link is a stranger, who would have a row for each guess.
                service.audit.add(audit.accepted(call, route, exchange.request))
            return found

        def create(service: Service) -> Answer | Streamed:
            """As another change, but with one transaction for the run and its row of the audit."""
            asked = make(service=None)
            if not audit.is_written(route, asked.body, asked.query):
                return _as_answer(route, route.handler(prepare(service)))
            rows = AuditWithRun(audit.accepted(asked, route, exchange.request))
            call = replace(asked, service=service.for_token(token, rows, ledger(service, asked)))
            check_limits(call, route)
            answer = _as_answer(route, route.handler(call))
            rows.write_rest(service.audit)
            return answer

        if endpoint.is_coroutine:
            if route.changes:
                await self.threads.change(prepare, claimant(token))
            # It may use a service only in the thread for readers.
            return _as_answer(route, await route.handler(make(service=None)))
        if route.is_shared:
            return await self.threads.read(
                lambda service: self._shared_answer(route, make, token, service), claimant(token)
            )
        is_read = route.method == "GET" and not route.changes
        run: Callable[[Callable[[Service], Any]], Awaitable[Any]]
        run = partial(self.threads.read if is_read else self.threads.change, claimant=claimant(token))
        if takes_long(route, make.keywords["body"]):
            run = partial(self._compute, token=token)
        elif route.is_sum is True or (route.is_sum and make.keywords["path"]["call"] in route.is_sum):
            run = self.threads.sum_up
        elif route.is_question:
            run = partial(self.threads.look_up, claimant=claimant(token))
        if route.creates_run:
            return await run(create)
        answer = await run(carry_out)
        if route.changes and route.path.startswith(("tokens", "logins")):
            self.gate.forget_tokens()
        return answer

    async def _compute(self, work: Callable[[Service], Any], token: TokenRecord) -> Any:
        return await self.threads.compute(work, claimant(token))

    def _shared_answer(self, route: Route, make: partial[Call], token: TokenRecord, service: Service) -> Answer:
        call = make(service=service.for_token(token))
        # A token with limits may see less than others.
        seen_by = token.id if token.limits != TokenLimits() else ""
        key = (route.path, tuple(call.path.items()), msgspec.json.encode(call.query), token.project, seen_by)
        return self._shared.get(service, key, call.arrived, lambda: _run_whole(route, call))

    def _refuse_many_streams(self, token: TokenRecord | None) -> None:
        """A log that is followed is read again and again, in the thread for readers. The hub counts its own streams."""
        if token is not None and self._streams_of[owner_of(token.id)] >= STREAMED_PER_TOKEN:
            raise TooManyRequests(
                f"this token reads {STREAMED_PER_TOKEN} logs or files already", hint="wait until one is read"
            )

    async def _stream(self, answer: Streamed, exchange: _Exchange, send: Send) -> None:
        """Send the pieces until there are no more, the client leaves, its token counts no more or the server ends."""
        owner = owner_of(exchange.token.id) if exchange.token is not None else ""
        self._streams_of[owner] += 1
        try:
            await self._send_pieces(answer, exchange, send)
        finally:
            self._streams_of[owner] -= 1
            if not self._streams_of[owner]:
                del self._streams_of[owner]

    async def _send_pieces(self, answer: Streamed, exchange: _Exchange, send: Send) -> None:
        await send(_start(answer.status, {"content-type": answer.media, **answer.headers}))
        pieces = answer.pieces if isinstance(answer.pieces, AsyncIterator) else self._in_thread(answer.pieces)
        leaving = asyncio.ensure_future(_disconnected(exchange.receive))
        watching: asyncio.Future[None] | None = None
        try:
            async with asyncio.timeout(None) as limit:
                if exchange.token is not None and not isinstance(pieces, StreamClient):
                    watching = asyncio.ensure_future(self._end_with_token(exchange.token, limit))
                # Cheaper than to wait for three things at once: a server may have a thousand streams.
                self._streams.add(limit)
                leaving.add_done_callback(lambda _: self._end(limit))
                if self._closer is None:
                    self._closer = asyncio.ensure_future(self._end_streams())
                if exchange.request.method != "HEAD":
                    async for piece in pieces:
                        await send({"type": "http.response.body", "body": piece, "more_body": True})
                        if not isinstance(pieces, StreamClient):
                            # Neither of the two may have waited: others have their turn.
                            await asyncio.sleep(0)
        except TimeoutError:
            if not limit.expired():
                raise
        except Exception as error:
            # The status is sent already: the client sees that the answer breaks off.
            as_known_error(error, exchange.request.where)
            raise
        finally:
            self._streams.discard(limit)
            beside = [one for one in (leaving, watching) if one is not None]
            for one in beside:
                one.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
            if hasattr(pieces, "aclose"):
                await pieces.aclose()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _end_with_token(self, token: TokenRecord, limit: asyncio.Timeout) -> None:
        """End a stream when its token was revoked or has expired. The hub does so for its own."""
        while True:
            await asyncio.sleep(self.token_seconds)
            try:
                counts = await self.gate.still_counts(token)
            except MulliganError:
                continue  # the store is away
            if not counts:
                self._end(limit)
                return

    def _end(self, limit: asyncio.Timeout) -> None:
        """End a stream, unless it has ended."""
        if limit in self._streams:
            limit.reschedule(0)

    async def _end_streams(self) -> None:
        """When the server ends: clients of live streams get an event that says so, every other stream breaks off."""
        await self.closing.wait()
        await self.hub.close()
        for limit in list(self._streams):
            self._end(limit)
        self._closer = None

    async def _in_thread(self, pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
        """The pieces of a plain iterator, each read in the thread for readers."""
        while (piece := await self.threads.read(lambda _: next(pieces, None))) is not None:
            yield piece


def make_app(
    home: Home,
    config: ServerConfig,
    *,
    start_token: TokenRecord | None = None,
    routes: Iterable[Route] = ROUTES,
    pages: Pages | None = None,
    others: Iterable[Route] = (),
    close_seconds: float = CLOSE_SECONDS,
) -> Starlette:
    """The application of a server. Its lifespan closes the stores."""
    api = Api(home, config, start_token=start_token, routes=routes, pages=pages, others=others)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            api.closing.set()
            await _close(api, close_seconds)

    app = Starlette(lifespan=lifespan)
    # Not a route: its patterns do not match a path with a line break, which the table refuses in words.
    app.router.default = api
    app.state.api = api
    return app


async def _close(api: Api, seconds: float) -> None:
    """Close the stores when the threads have done what they do; what takes longer, nobody waits for any more."""
    # In a thread, so that a second signal is heard meanwhile.
    closed = asyncio.get_running_loop().run_in_executor(ThreadPoolExecutor(1), api.close)
    done, _ = await asyncio.wait([closed], timeout=seconds)
    if not done:
        _log.warning("ending without an answer from %s", ", ".join(api.busy) or "a store that does not close")


def _with_start_token(find_token: TokenLookup, start_token: TokenRecord | None) -> TokenLookup:
    """Also find the token that only this process knows."""
    if start_token is None:
        return find_token

    def find(service: Service, digest: str) -> TokenRecord | None:
        return start_token if digest == start_token.digest else find_token(service, digest)

    return find


def claimant(token: TokenRecord) -> Claimant:
    """Whose share of the threads a request takes: the sessions of a token have one together."""
    return Claimant(token.project or "", owner_of(token.id))


def takes_long(route: Route, body: Any) -> bool:
    """Whether a request may compute for seconds."""
    is_large = route.slow_bytes is not None and len(body) >= route.slow_bytes
    return route.is_slow or is_large or bool(getattr(body, "text", None))


def _run_whole(route: Route, call: Call) -> Answer:
    answer = _as_answer(route, route.handler(call))
    assert isinstance(answer, Answer), f"{route.name} cannot be shared: it is sent in pieces"
    return answer


def _as_answer(route: Route, result: Any) -> Answer | Streamed:
    """What a handler gave, with its value as bytes."""
    if isinstance(result, Streamed):
        return result
    if isinstance(result, Answer):
        answer = result
    else:
        is_empty = result is None and route.answer is None
        answer = Answer(result, 204 if is_empty else route.status, media=route.media)
    if isinstance(answer.value, bytes) or answer.status in (204, 304):
        return answer
    if isinstance(answer.value, str) and answer.media != JSON:
        return replace(answer, value=answer.value.encode())
    value = answer.value
    if isinstance(value, AnswerBody):
        value = {name: to_json(getattr(value, name)) for name in value.__struct_fields__}
    elif not isinstance(value, dict):
        value = to_json(value)
    return replace(answer, value=msgspec.json.encode(value))


def _named_runs(path: Mapping[str, str], query: Any, body: Any) -> tuple[int, ...]:
    """The runs that a request names: in its path, or in a field of that meaning."""
    given = [path.get("run_id"), *(getattr(one, name, None) for one in (query, body) for name in RUN_FIELDS)]
    numbers = (int(one) for one in given if one is not None and str(one).isascii() and str(one).isdecimal())
    return tuple(dict.fromkeys(one for one in numbers if one < 2**63))


def _wants_page(exchange: _Exchange) -> bool:
    """Whether an error is shown as a page: of a page, or at a path that nothing has and that a browser asks for."""
    request = exchange.request
    is_browser = "text/html" in request.headers.get("accept", "")
    if exchange.route is not None:
        return exchange.route.is_page or (is_browser and exchange.route.media.startswith("text/html"))
    return is_browser and not request.path.startswith(PREFIX)


# -- reading a request -----------------------------------------------------------------------------------------------


def _check_accepted(route: Route, accept: str) -> None:
    """`NotAcceptable` if the caller wants none of the types that the route gives. Problems are always sent."""
    if not accept or route.status == 204:
        return
    kind = route.media.partition(";")[0].strip()
    wanted = [one.partition(";")[0].strip().lower() for one in accept.split(",")]
    if not {"*/*", kind, f"{kind.partition('/')[0]}/*", PROBLEM} & set(wanted):
        raise NotAcceptable(f"this address answers with {kind}, not with '{accept}'", hint=f"send 'Accept: {kind}'")


async def _body(endpoint: _Endpoint, exchange: _Exchange, seconds: float) -> Any:
    route, request = endpoint.route, exchange.request
    if route.body is None:
        return None
    if endpoint.body is None:
        return await _read_body(route.body_bytes_max, exchange, seconds)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    data = await _read_body(route.body_bytes_max, exchange, seconds)
    if not data and not kind and _may_be_missing(route.body):
        data = b"{}"
    elif kind != JSON and not kind.endswith("+json"):
        given = f"not '{kind}'" if kind else "and says so in a header"
        raise MediaUnsupported(f"this address takes JSON, {given}", hint=f"send the header 'Content-Type: {JSON}'")
    return endpoint.body.decode(data)


def _may_be_missing(body: Any) -> bool:
    """Whether no body is as good as an empty object: all of its fields have defaults."""
    return (
        isinstance(body, type)
        and issubclass(body, msgspec.Struct)
        and not any(one.required for one in msgspec.structs.fields(body))
    )


async def _read_body(bytes_max: int, exchange: _Exchange, seconds: float) -> bytes:
    return b"".join([piece async for piece in _pieces(bytes_max, exchange, seconds)])


async def _pieces(bytes_max: int, exchange: _Exchange, seconds: float) -> AsyncIterator[bytes]:
    """The body as it comes. `RequestTooLarge`, `RequestTooSlow`, `RequestRefused` if it breaks off."""
    size = exchange.request.headers.get("content-length", "")
    if size.isascii() and size.isdecimal() and int(size) > bytes_max:
        raise _too_large(bytes_max)
    total = 0
    begun = asyncio.get_running_loop().time()
    while True:
        try:
            async with asyncio.timeout_at(begun + seconds + total / BODY_BYTES_PER_SECOND):
                message = await exchange.receive()
        except TimeoutError:
            raise RequestTooSlow("the body of the request does not come", hint="send it again") from None
        if message["type"] == "http.disconnect":
            raise RequestRefused("the request ended before its body did", hint="send it again")
        chunk = message.get("body", b"")
        total += len(chunk)
        if total > bytes_max:
            raise _too_large(bytes_max)
        yield chunk
        if not message.get("more_body"):
            return


def _too_large(bytes_max: int) -> RequestTooLarge:
    return RequestTooLarge(
        f"the body is larger than {bytes_max:,} bytes", hint="send less at once", bytes_max=bytes_max
    )


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


# -- sending an answer -----------------------------------------------------------------------------------------------


def _start(status: int, headers: Mapping[str, str]) -> Message:
    joined = {**SECURITY_HEADERS, **{name.lower(): value for name, value in headers.items()}}
    encoded = [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in joined.items()]
    return {"type": "http.response.start", "status": status, "headers": encoded}


async def _send(answer: Answer, request: Request, send: Send) -> None:
    data = answer.value if isinstance(answer.value, bytes) else b""
    status, headers = answer.status, {name.lower(): value for name, value in answer.headers.items()}
    if status == 200 and "etag" in headers and has_version(request.headers, headers["etag"]):
        status, data = 304, b""
    if status not in (204, 304):
        headers = {"content-type": answer.media, "content-length": str(len(data)), **headers}
    await send(_start(status, headers))
    await send({"type": "http.response.body", "body": b"" if request.method == "HEAD" else data})
