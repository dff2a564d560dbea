"""What holds for every route: reading requests, refusing them, answering."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec
import pytest
from tests.support.api_client import AT, Client, open_client, start_run, token_record

from mulligan.api import app
from mulligan.api.access.auth import BELIEVED_SECONDS
from mulligan.api.access.shares import TOKEN_WAITING_MAX, Claimant
from mulligan.api.app import claimant, make_app, takes_long
from mulligan.api.areas.store_calls import DEFINITION_BYTES
from mulligan.api.http.decoding import REFUSAL_CHARS_MAX
from mulligan.api.http.routing import Answer, Body, Call, Query, Route, Streamed
from mulligan.api.openapi import document
from mulligan.api.processes.service_threads import ServiceThreads
from mulligan.api.routes import ROUTES
from mulligan.dashboard.pages import PAGES
from mulligan.errors import StoreUnavailable, TakesTooLong, TooManyRequests, UnknownRun
from mulligan.service.home import Home
from mulligan.service.server.server_config import ServerConfig
from mulligan.service.server.store_calls import CALLS
from mulligan.service.service import Service


class Wanted(Query, frozen=True):
    status: tuple[str, ...] = ()
    limit: int = 50
    is_dry: bool = False


class Inner(Body, frozen=True):
    count: int = 0


class Sent(Body, frozen=True):
    name: str
    inner: Inner = Inner()
    labels: dict[str, str] = msgspec.field(default_factory=dict)


class Optional(Body, frozen=True):
    reason: str = ""


def echo(call: Call) -> dict[str, Any]:
    return {"query": msgspec.to_builtins(call.query), "body": msgspec.to_builtins(call.body), "path": dict(call.path)}


def raises(error: Exception) -> Any:
    def handler(call: Call) -> None:
        raise error

    return handler


class Clock:
    """A clock that goes on when a test says so."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


async def live(call: Call) -> Streamed:
    async def pieces() -> AsyncIterator[bytes]:
        while True:
            yield b"tick\n"

    return Streamed(pieces(), media="text/event-stream")


def in_pieces(call: Call) -> Streamed:
    return Streamed(iter([b"a", b"b", b"c"]), media="text/plain")


async def who(call: Call) -> Any:
    return {"by": await call.read(lambda service: service.by), "user": call.token.user}


TABLE = (
    Route("GET", "things", echo, "read", "Things.", query=Wanted, answer=dict[str, Any]),
    Route("POST", "things", echo, "write", "A thing.", body=Sent, answer=dict[str, Any], status=201),
    Route("GET", "things/{number:int}", echo, "read", "One.", answer=dict[str, Any]),
    Route("GET", "things/{name}", echo, "read", "One by name.", answer=dict[str, Any]),
    Route("POST", "things/{name}:stop", echo, "run", "Stop it.", body=Optional, answer=dict[str, Any]),
    Route("POST", "things:check", echo, "read", "Check.", body=Optional, answer=dict[str, Any], is_change=False),
    Route(
        "PUT",
        "raw/{a}/{b}",
        lambda call: {"size": len(call.body)},
        "write",
        "Bytes.",
        body=bytes,
        answer=dict[str, int],
    ),
    Route("DELETE", "things/{name}", lambda call: None, "admin", "Remove it."),
    Route(
        "GET", "version", lambda call: Answer({"seq": 7}, headers={"ETag": '"7"'}), "read", "7.", answer=dict[str, int]
    ),
    Route("GET", "bug", raises(RuntimeError("password=hunter2")), "read", "A bug.", answer=dict[str, int]),
    Route("GET", "unknown", raises(UnknownRun("there is no run 7", run_id=7)), "read", "No.", answer=dict[str, int]),
    Route("GET", "away", raises(StoreUnavailable("the store is away")), "read", "Away.", answer=dict[str, int]),
    Route("GET", "live", live, "read", "Live.", media="text/event-stream"),
    Route("GET", "pieces", in_pieces, "read", "Pieces.", media="text/plain"),
    Route("GET", "who", who, "read", "Who.", answer=dict[str, str]),
)


@pytest.fixture
def things(home: Home) -> Iterator[Client]:
    opened = open_client(home, routes=TABLE)
    yield opened
    opened.close()


def test_parameters_and_bodies_reach_the_handler_as_its_types(things: Client) -> None:
    listed = things.get("things", status=["failed", "running"], limit=3, is_dry="true")
    made = things.post("things", {"name": "a", "labels": {"team": "b"}})
    stopped = things.post("things/my%2Fthing:stop", {"reason": "late"})

    assert (listed.status, made.status, stopped.status) == (200, 201, 200)
    assert listed.json["query"] == {"status": ["failed", "running"], "limit": 3, "is_dry": True}
    assert made.json["body"] == {"name": "a", "labels": {"team": "b"}}
    assert stopped.json == {"query": None, "body": {"reason": "late"}, "path": {"name": "my/thing"}}
    assert things.get("things/7").json["path"] == {"number": "7"}
    assert things.get("things/seven").json["path"] == {"name": "seven"}
    assert things.put("raw/x/y", b"\0\1").json == {"size": 2}
    assert things.post("things:check").json["body"] == {}
    assert things.delete("things/a").status == 204
    assert things.get("who", scope="read").json == {"by": "read", "user": "read"}


@pytest.mark.parametrize(
    ("query", "code", "detail", "hint"),
    [
        ("limit=many", "input.invalid", "query parameter 'limit' 'many': expected a whole number", ""),
        ("limt=3", "input.invalid", "there is no query parameter 'limt' here", "did you mean 'limit'?"),
        ("limit=3&limit=4", "input.invalid", "query parameter 'limit' is given twice", "give it once"),
        ("status=%00", "input.invalid", "query parameter 'status' contains a NUL character", "remove it"),
        ("status=%ff", "request.refused", "the query is not UTF-8", "percent-encode the bytes of UTF-8"),
        ("status=a&" * 201, "request.refused", "the query has more than 200 parameters", ""),
    ],
)
def test_a_bad_query_is_refused_by_the_name_of_the_parameter(
    things: Client, query: str, code: str, detail: str, hint: str
) -> None:
    reply = things.request("GET", "things", query=query)

    assert (reply.code, reply.json["detail"], reply.json.get("hint", "")) == (code, detail, hint)


@pytest.mark.parametrize(
    ("body", "status", "detail"),
    [
        (b'{"name": 3}', 422, "field 'name' of the body: expected a text, got a whole number"),
        (b"{}", 422, "the body lacks the field 'name'"),
        (b'{"name": "a", "nme": 1}', 422, "the body has an unknown field 'nme'"),
        (b'{"name": "a", "inner": {"cuont": 1}}', 422, "the body has an unknown field 'cuont' in 'inner'"),
        (
            b'{"name": "a", "labels": {"x": 1}}',
            422,
            "field 'labels[...]' of the body: expected a text, got a whole number",
        ),
        (b"[]", 422, "the body: expected an object, got a list"),
        (b'{"name": ', 400, "the body is not JSON: Input data was truncated"),
        (b'{"name": "\xff"}', 400, "the body is not UTF-8"),
        (b"", 400, "the body is missing"),
    ],
)
def test_a_bad_body_is_refused_by_the_name_of_the_field(things: Client, body: bytes, status: int, detail: str) -> None:
    reply = things.post("things", body, headers={"content-type": "application/json"})

    assert (reply.status, reply.json["detail"]) == (status, detail)


def test_what_is_wrong_with_a_request_as_such_has_its_own_status(things: Client) -> None:
    json = {"content-type": "application/json"}

    replies = [
        things.get("nothing"),
        things.get("things/a/b"),
        things.put("things", {}),
        things.post("things", b"name=a", headers={"content-type": "application/x-www-form-urlencoded"}),
        things.request("GET", "things", headers={"accept": "text/html"}),
        things.post("things", b"x" * (4 * 1024 * 1024 + 1), headers=json),
        things.get("things/%ff"),
    ]

    assert [(one.status, one.code) for one in replies] == [
        (404, "request.path"),
        (404, "request.path"),
        (405, "request.method"),
        (415, "request.media"),
        (406, "request.not_acceptable"),
        (413, "request.too_large"),
        (400, "request.refused"),
    ]
    assert replies[2].headers["allow"] == "GET, HEAD, OPTIONS, POST"
    assert things.request("OPTIONS", "things").headers["allow"] == "GET, HEAD, OPTIONS, POST"


def test_head_is_get_without_a_body_and_a_known_version_is_not_sent_again(things: Client) -> None:
    head = things.request("HEAD", "version")
    again = things.request("GET", "version", headers={"if-none-match": 'W/"6", "7"'})

    assert (head.status, head.body, head.headers["content-length"]) == (200, b"", "9")
    assert (again.status, again.body, again.headers["etag"]) == (304, b"", '"7"')
    assert things.request("GET", "version", headers={"if-none-match": '"8"'}).json == {"seq": 7}


def test_an_error_is_a_problem_with_its_code_and_data(things: Client) -> None:
    reply = things.get("unknown")

    assert reply.json == {
        "type": "urn:mulligan:error:run.unknown",
        "title": "Unknown run",
        "status": 404,
        "detail": "there is no run 7",
        "code": "run.unknown",
        "data": {"run_id": 7},
    }


def test_a_bug_is_answered_with_an_id_and_its_text_is_only_in_the_log(
    things: Client, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, "mulligan.server"):
        reply = things.get("bug")

    assert (reply.status, reply.code) == (500, "server.failed")
    assert b"hunter2" not in reply.body
    assert reply.json["data"]["error_id"] in caplog.text and "hunter2" in caplog.text


def test_a_store_that_is_away_is_503_and_says_when_to_ask_again(things: Client) -> None:
    reply = things.get("away")

    assert (reply.status, reply.code, reply.headers["retry-after"]) == (503, "store.unavailable", "2")


def test_where_the_store_is_is_said_in_the_log_alone(things: Client, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "mulligan.server"):
        reply = things.get("away")

    assert reply.json["detail"] == "the store does not answer now"
    assert "the store is away" in caplog.text


def test_a_thread_opens_its_store_again_after_it_was_away(home: Home) -> None:
    threads = ServiceThreads(home)

    def fail(service: Service) -> None:
        raise StoreUnavailable("the store is away")

    async def ask() -> list[Service]:
        first = await threads.read(lambda service: service)
        with pytest.raises(StoreUnavailable):
            await threads.read(fail)
        return [first, await threads.read(lambda service: service), await threads.read(lambda service: service)]

    first, second, third = asyncio.run(ask())
    threads.close()

    assert first is not second
    assert second is third


def test_what_readers_have_counted_is_counted_by_another_thread_with_a_store_of_its_own(home: Home) -> None:
    threads = ServiceThreads(home)

    def count(service: Service) -> tuple[bool, str]:
        assert service.reader.counts.count_in_background is not None
        is_own, name = service.reader.counts.count_in_background(
            lambda store: (store is not service.reader.store, threading.current_thread().name)
        ).result(60)
        return is_own, name

    found = asyncio.run(threads.read(count))
    threads.close()

    assert found == (True, "count_0")


def test_a_server_that_ends_does_not_wait_for_a_thread_that_hangs_and_says_where_it_is(
    home: Home, caplog: pytest.LogCaptureFixture
) -> None:
    has_begun, may_end = threading.Event(), threading.Event()
    app = make_app(home, ServerConfig(), close_seconds=0.0)

    def hang(service: Service) -> None:
        has_begun.set()
        may_end.wait(30)

    async def serve() -> None:
        async with app.router.lifespan_context(app):
            asked = asyncio.ensure_future(app.state.api.threads.change(hang))
            await asyncio.to_thread(has_begun.wait)
            asked.cancel()

    with caplog.at_level(logging.WARNING, "mulligan.server"):
        asyncio.run(serve())
    may_end.set()

    assert "ending without an answer from thread change_0 in mulligan.api.processes.service_threads" in caplog.text


def test_a_stream_ends_with_its_pieces_its_client_or_the_server(things: Client) -> None:
    whole = things.get("pieces")
    left = things.request("GET", "live", pieces_max=3)

    assert (whole.body, whole.headers["content-type"]) == (b"abc", "text/plain")
    assert left.body.startswith(b"tick\ntick\n")
    things.api.closing.set()
    assert things.get("live").status == 200


def test_a_stream_ends_when_its_token_is_revoked(things: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log may be followed for days."""
    things.api.token_seconds = 0.01
    later = Clock()
    gate = things.api.gate
    monkeypatch.setattr(gate, "_clock", later)
    with Service(things.home) as service:
        records, token = service.reader.store.server_records, token_record("gone", ["read"])
        records.add_token(token)
        things.secrets["gone"] = "mul_gone"

        async def revoke() -> None:
            await asyncio.sleep(0.05)
            records.revoke_token(token.id, AT)
            later.now += 2 * BELIEVED_SECONDS

        revoking = things._runner.get_loop().create_task(revoke())
        reply = things.get("live", scope="gone")

    assert (reply.status, revoking.done()) == (200, True)
    assert things.get("live", scope="gone").status == 401


def test_a_token_reads_a_bounded_number_of_logs_at_once(things: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each that is followed is read again and again by the thread that answers everybody."""
    monkeypatch.setattr(app, "STREAMED_PER_TOKEN", 0)

    assert things.get("pieces").status == 429

    monkeypatch.setattr(app, "STREAMED_PER_TOKEN", 1)
    for _ in range(3):
        assert things.get("pieces").body == b"abc"


def test_a_route_needs_its_scope_or_one_that_implies_it(things: Client) -> None:
    allowed = {
        scope: [
            things.get("things", scope=scope).status,
            things.post("things/a:stop", scope=scope).status,
            things.post("things", {"name": "a"}, scope=scope).status,
            things.delete("things/a", scope=scope).status,
        ]
        for scope in ("read", "run", "decide", "write", "admin", "worker")
    }

    assert allowed == {
        "read": [200, 403, 403, 403],
        "run": [200, 200, 403, 403],
        "decide": [200, 403, 403, 403],
        "write": [200, 200, 201, 403],
        "admin": [200, 200, 201, 204],
        "worker": [403, 403, 403, 403],
    }


def test_without_a_valid_token_every_answer_is_the_same(things: Client) -> None:
    replies = [things.get("things", scope=one) for one in (None, "unknown", "expired", "revoked")]

    assert {one.status for one in replies} == {401}
    assert len({one.body for one in replies}) == 1
    assert replies[0].headers["www-authenticate"] == 'Bearer realm="mulligan"'


def test_the_server_says_that_it_is_up_and_lists_runs(client: Client, service: Service) -> None:
    run_id = start_run(service)

    assert client.get("/healthz", scope=None).json["status"] == "ok"
    assert client.get("/readyz", scope=None).json["status"] == "ready"
    assert [one["run_id"] for one in client.get("runs").json["runs"]] == [run_id]
    assert client.get("runs", status="failed").json == {"runs": [], "next": None}


def test_every_answer_forbids_what_a_page_must_not_do(client: Client) -> None:
    headers = client.get("/healthz").headers

    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert "default-src 'none'" in headers["content-security-policy"]
    assert not [name for name in headers if name.startswith("access-control")]


def test_the_document_describes_every_route(client: Client) -> None:
    found = client.get("/openapi.json", scope=None).json

    operations = [one for path in found["paths"].values() for one in path.values()]
    assert found["openapi"] == "3.1.0"
    assert len(operations) == len(ROUTES) == len({route.name for route in ROUTES})
    assert len({one["operationId"] for one in operations}) == len(operations)
    (listed,) = [one for one in operations if one["operationId"] == "get_runs"]
    assert {one["name"] for one in listed["parameters"]} >= {"status", "workflow", "limit"}
    assert listed["x-scope"] == "read"
    assert msgspec.json.decode(msgspec.json.encode(document(ROUTES))) == found


def body_structs(type_: Any) -> Iterator[type[msgspec.Struct]]:
    if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
        yield type_


def test_no_route_takes_fields_that_it_does_not_know() -> None:
    lenient = [
        route.name
        for route in ROUTES
        for one in body_structs(route.body)
        if not one.__struct_config__.forbid_unknown_fields
    ]

    assert lenient == []


def test_checking_texts_holds_up_no_change_and_no_other_project(client: Client) -> None:
    """Whoever may only read cannot keep the threads for changes busy with texts, nor those that take long."""
    busy, release = threading.Event(), threading.Event()

    def check(_: Service) -> None:
        busy.set()
        release.wait(10)

    async def ask() -> tuple[int, int, int]:
        compute = client.api.threads.compute
        hostile = [Claimant("hostile", f"t{number}") for number in (1, 2, 3) for _ in range(TOKEN_WAITING_MAX + 2)]
        slow = [asyncio.ensure_future(compute(check, one)) for one in hostile]
        await asyncio.to_thread(busy.wait, 10)
        changed = await client.api.threads.change(lambda _: 1)
        checked = await compute(lambda _: 2, Claimant("other", "t4"))
        release.set()
        done = await asyncio.gather(*slow, return_exceptions=True)
        return changed, checked, sum(isinstance(one, TooManyRequests) for one in done)

    # One of each token runs or waits for the threads, eight wait behind it, and one more is refused.
    assert client._runner.run(ask()) == (1, 2, 4)
    slow = {route.path for route in ROUTES if route.is_slow}
    checking = {f"workflows:{verb}" for verb in ("validate", "convert", "edit", "whatif", "coverage")}
    whole = {f"runs/{{run_id:int}}/{one}" for one in ("artifacts", "picture.svg", "report", "report.json")}
    assert slow == {"doctor", "suggestions", "workflows/{name}/coverage", *checking, *whole}


def test_questions_to_the_store_hold_up_no_change_and_no_other_project(client: Client) -> None:
    """Whoever may only read asks for as many rows as there are, as often as it likes."""
    busy, release = threading.Event(), threading.Event()

    def look(_: Service) -> None:
        busy.set()
        release.wait(10)

    async def ask() -> tuple[int, int]:
        look_up = client.api.threads.look_up
        slow = [asyncio.ensure_future(look_up(look, Claimant("hostile", f"t{number}"))) for number in range(20)]
        await asyncio.to_thread(busy.wait, 10)
        changed = await client.api.threads.change(lambda _: 1)
        found = await look_up(lambda _: 2, Claimant("other", "t"))
        release.set()
        await asyncio.gather(*slow)
        return changed, found

    assert client._runner.run(ask()) == (1, 2)
    assert {route.path for route in ROUTES if route.is_question} == {"store/read/{call}"}


def test_large_runs_that_a_token_reads_hold_up_no_other_token(client: Client) -> None:
    """A page of a run with a hundred thousand items takes half a second, and one thread reads for everybody."""
    seen: list[str] = []

    async def ask() -> None:
        read = client.api.threads.read
        slow = [asyncio.ensure_future(read(lambda _: seen.append("slow"), Claimant("p", "t"))) for _ in range(50)]
        await asyncio.sleep(0)
        await read(lambda _: seen.append("other"), Claimant("p", "other"))
        await asyncio.gather(*slow)

    client._runner.run(ask())

    assert len(seen) == 51
    assert seen.index("other") < 10


def test_changes_that_take_long_hold_up_no_other_project(client: Client) -> None:
    """A change waits for the process that drives its run: for ten seconds, if that one is stopped."""
    busy, release = threading.Event(), threading.Event()

    def change(_: Service) -> None:
        busy.set()
        release.wait(10)

    async def ask() -> int:
        threads = client.api.threads
        claimants = [Claimant("hostile", f"t{number % 2}") for number in range(20)]
        slow = [asyncio.ensure_future(threads.change(change, one)) for one in claimants]
        await asyncio.to_thread(busy.wait, 10)
        changed = await asyncio.wait_for(threads.change(lambda _: 1, Claimant("other", "t")), 5)
        release.set()
        await asyncio.gather(*slow)
        return changed

    assert client._runner.run(ask()) == 1


def test_the_sessions_of_a_token_have_one_share_together() -> None:
    session = msgspec.structs.replace(token_record("mine", ("read",)), id="session-0a1b2c-mine")

    assert claimant(session) == claimant(msgspec.structs.replace(session, id="mine"))


@pytest.mark.parametrize("path", ["workflows:validate", "runs", "decisions"])
def test_a_name_of_megabytes_is_refused_without_reading_it_all(client: Client, path: str) -> None:
    """The loop of the server decodes bodies: it would answer nobody else meanwhile."""
    body = b'{"' + b"t" * 2_000_000 + b'": 1}'

    reply = client.post(path, body, scope="admin", headers={"content-type": "application/json"})

    assert reply.code == "input.invalid"
    assert len(reply.body) < 3 * REFUSAL_CHARS_MAX


def test_a_large_definition_is_checked_where_texts_are(client: Client) -> None:
    small, large = b"x" * (DEFINITION_BYTES - 1), b"x" * DEFINITION_BYTES
    routes = [route for route in ROUTES if route.path.endswith("{call}")]

    assert {route.scope for route in routes if takes_long(route, large)} == {"write", "run"}
    assert not any(takes_long(route, small) for route in routes)


def test_sums_over_all_runs_hold_up_no_other_answer_and_nobody_waits_for_them_for_ever(home: Home) -> None:
    may_end, has_begun = threading.Event(), threading.Event()
    threads = ServiceThreads(home, sum_seconds_max=0.05)

    def count(service: Service) -> str:
        has_begun.set()
        may_end.wait(30)
        return "counted"

    async def ask() -> list[Any]:
        slow = asyncio.ensure_future(threads.sum_up(count))
        while not has_begun.is_set():
            await asyncio.sleep(0)
        beside = [await threads.read(lambda _: "read"), await threads.change(lambda _: "changed")]
        with pytest.raises(TakesTooLong) as refused:
            await slow
        may_end.set()
        return [*beside, refused.value.http_status, await threads.sum_up(lambda _: "next")]

    try:
        assert asyncio.run(ask()) == ["read", "changed", 503, "next"]
    finally:
        may_end.set()
        threads.close()


def test_sums_that_are_no_longer_good_are_answered_and_counted_again_by_another_thread(home: Home) -> None:
    threads = ServiceThreads(home)

    try:
        for ask in (threads.sum_up, threads.read):
            assert asyncio.run(ask(lambda service: service.reader.counts.count_in_background is not None))
    finally:
        threads.close()


def test_every_route_that_looks_at_all_runs_has_the_thread_for_that() -> None:
    pages = {route.full_path for route in PAGES.routes if route.is_sum}
    paths = {route.full_path for route in ROUTES if route.is_sum is True}

    assert paths == {f"/api/v1/{path}" for path in ("stats", "stats/weeks", "usage/spending", "usage/workflows/{name}")}
    assert pages == {"/usage", "/recovery"}
    assert {name for route in ROUTES if isinstance(route.is_sum, frozenset) for name in route.is_sum} <= CALLS.keys()
