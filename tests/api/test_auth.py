"""Who is let in, what is refused, and what the audit has of it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.api_client import A_WORKFLOW, AT, Client, open_client, token_record

from mulligan.api.access.auth import REFUSALS_AT_ONCE
from mulligan.api.access.rate_limits import TokenBuckets
from mulligan.api.http.routing import Body, Call, Route
from mulligan.api.routes import ROUTES
from mulligan.core.model.reports import Classified
from mulligan.errors import InputInvalid, Refused, TokenRefused, TooManyRequests
from mulligan.ports.server_records import TokenLimits, TokenRecord
from mulligan.service.home import Home
from mulligan.service.server.logins import LINKS_MAX, Logins, owner_of
from mulligan.service.server.server_config import ServerConfig, ServerSection, TrustedProxy
from mulligan.service.service import Service


class Wish(Body, frozen=True):
    reason: str = ""
    workflow: str = ""
    dry_run: bool = False


def wish(call: Call) -> Any:
    if call.body.reason == "impossible":
        raise Refused("that is not possible")
    return {"by": call.service.by}


def choose(call: Call) -> Any:
    """What the store does with a decision before the run gets it."""
    call.service.ledger.begin(1, Classified(AT, "build", "retry", call.service.by, call.body.reason))
    return wish(call)


TABLE = (
    *ROUTES,
    Route("POST", "wishes", wish, "run", "Wish.", body=Wish, answer=dict[str, str]),
    Route("POST", "choices", choose, "decide", "Choose.", body=Wish, answer=dict[str, str]),
)
PROXY = TrustedProxy(("10.0.0.0/8",), scopes=("read", "run"))


@pytest.fixture
def server(home: Home) -> Iterator[Client]:
    config = ServerConfig(ServerSection(hosts=("mulligan.example.org",), trusted_proxy=PROXY))
    limited = [
        token_record("few", ["decide"], limits=TokenLimits(decisions_per_hour=2)),
        token_record("one", ["run"], limits=TokenLimits(workflows=("nightly",))),
        token_record("author", ["write"], limits=TokenLimits(workflows=("nightly",))),
        token_record("theirs", ["admin"], project="theirs"),
        token_record("everything", ["admin"], project=None),
    ]
    opened = open_client(home, config, TABLE, limited)
    yield opened
    opened.close()


def rows(server: Client) -> list[tuple[str, str, int, str]]:
    """The audit, oldest first: who, action, status, why."""
    found = server.get("audit", scope="admin").json["audit"]
    return [(one["who"], one["action"], one["status"], one.get("why", "")) for one in reversed(found)]


def test_the_audit_has_every_change_and_every_refusal(server: Client) -> None:
    server.post("wishes", {"reason": "it is late"}, scope="run")
    server.post("wishes", {"reason": "impossible"}, scope="run")
    server.post("wishes", {"reason": "only asked", "dry_run": True}, scope="run")
    server.post("wishes", {"raeson": ""}, scope="run")
    server.post("wishes", {"reason": "x"}, scope="read")
    server.post("wishes", {"reason": "x"}, scope="expired")
    server.get("runs", scope="worker")
    server.get("runs", scope=None)

    wishes, runs = "POST /api/v1/wishes", "GET /api/v1/runs"
    assert rows(server) == [
        ("run", wishes, 202, "it is late"),
        ("run", wishes, 202, "impossible"),
        ("run", wishes, 409, "refused"),
        ("run", wishes, 422, "input.invalid"),
        ("read", wishes, 403, "token.scope"),
        ("", wishes, 401, "token.refused"),
        ("worker", runs, 403, "token.scope"),
        ("", runs, 401, "token.refused"),
    ]
    (newest,) = server.get("audit", limit=1).json["audit"]
    assert (newest["source"], newest["target"]) == ("127.0.0.1", "/api/v1/runs")


@pytest.mark.parametrize(
    ("wanted", "leads_to"),
    [
        ("/runs/7?tab=graph", "/runs/7?tab=graph"),
        ("//evil.example/", "/"),
        ("/\\evil.example/", "/"),
        ("https://evil.example/", "/"),
        ("/a\r\nset-cookie: x=1", "/"),
    ],
)
def test_after_the_login_a_browser_is_sent_to_a_page_of_this_server(server: Client, wanted: str, leads_to: str) -> None:
    code = server.post("logins", scope="run").json["url"].partition("code=")[2]

    reply = server.request("GET", "/login", query={"code": code, "next": wanted}, scope=None)

    assert (reply.status, reply.headers["location"]) == (303, leads_to)


def test_a_login_that_fails_is_answered_as_the_schema_says_and_with_a_page_for_a_browser(client: Client) -> None:
    described = client.get("/openapi.json").json["paths"]["/login"]["get"]["responses"]

    for query, status in (("code=guess", 401), ("", 422), ("code=a&code=b", 422)):
        for accept in ("", "*/*", "application/problem+json", "text/html"):
            reply = client.request("GET", "/login", query=query, scope=None, headers={"accept": accept})
            assert reply.status == status
            assert reply.headers["content-type"] in described[str(status)]["content"]
            if accept != "text/html":
                assert reply.code in ("token.refused", "input.invalid")


def test_a_token_that_is_revoked_while_somebody_logs_in_leaves_no_session(service: Service) -> None:
    records, now = service.reader.store.server_records, datetime.now(UTC)
    owner = token_record("owner", ("read",))
    records.add_token(owner)
    code = Logins(service.reader).offer(owner, now)

    class Records:
        def __getattr__(self, name: str) -> Any:
            return getattr(records, name)

        def add_token(self, session: TokenRecord) -> None:
            service.tokens.revoke(owner.id)
            records.add_token(session)

    reader: Any = SimpleNamespace(store=SimpleNamespace(server_records=Records()))
    with pytest.raises(TokenRefused):
        Logins(reader).log_in(code, now)

    assert all(one.revoked_at for one in records.tokens() if one.id == owner.id or owner_of(one.id) == owner.id)


def test_a_browser_logs_in_once_with_a_link_and_then_has_a_session(server: Client) -> None:
    link = server.post("logins", scope="run").json["url"]
    path = link.removeprefix("http://localhost")
    query = path.partition("?")[2]

    looked = server.request("HEAD", "/login", query=query, scope=None)
    first = server.request("GET", "/login", query=query, scope=None)
    second = server.request("GET", "/login", query=query, scope=None)

    assert (looked.status, first.status, first.headers["location"], first.body) == (405, 303, "/", b"")
    assert (second.status, second.code) == (401, "token.refused")
    cookie, *rules = first.headers["set-cookie"].split("; ")
    assert {"HttpOnly", "SameSite=Lax", "Path=/"} <= set(rules) and "Secure" not in rules
    session = {"cookie": f"other=1; {cookie}"}
    assert server.request("GET", "runs", scope=None, headers=session).status == 200

    def change(**headers: str) -> Any:
        return server.post("wishes", {}, scope=None, headers={**session, **headers})

    assert change().code == "token.scope"
    assert change(origin="https://evil.example").status == 403
    assert change(**{"x-mulligan-request": "1", "sec-fetch-site": "cross-site"}).status == 403
    assert change(origin="http://localhost").json == {"by": "run"}
    assert change(**{"x-mulligan-request": "1"}).status == 200
    assert server.request("GET", "audit", scope=None, headers=session).status == 403
    ended = server.post("logins:end", scope=None, headers={**session, "origin": "http://localhost"})
    assert (ended.status, "Max-Age=0" in ended.headers["set-cookie"]) == (204, True)
    assert server.request("GET", "runs", scope=None, headers=session).status == 401
    assert not [row for row in server.get("audit").json["audit"] if "code=" in str(row)]


def test_a_session_lasts_as_long_as_the_configuration_says(home: Home) -> None:
    client = open_client(home, ServerConfig(server=ServerSection(session_hours=1)))
    query = client.post("logins", scope="run").json["url"].partition("?")[2]

    reply = client.request("GET", "/login", query=query, scope=None)
    with Service(home) as service:
        (session,) = (one for one in service.tokens.list_tokens().tokens if one.id.startswith("session-"))
    client.close()

    assert "Max-Age=3600" in reply.headers["set-cookie"].split("; ")
    assert session.expires_at == session.created_at + timedelta(hours=1)


def test_a_link_of_a_server_behind_tls_gives_a_secure_cookie(home: Home) -> None:
    server = open_client(home, ServerConfig(ServerSection(public_url="https://runs.example.org/")))
    url = server.post("logins").json["url"]

    reply = server.request("GET", "/login", query=url.partition("?")[2], scope=None)

    assert url.startswith("https://runs.example.org/login?code=")
    assert reply.headers["set-cookie"].endswith("; Secure")
    server.close()


@pytest.mark.parametrize("host", ["localhost:8642", "127.0.0.1", "[::1]:8642", "10.1.2.3:80", "mulligan.example.org"])
def test_the_server_answers_under_its_names_and_addresses(server: Client, host: str) -> None:
    assert server.request("GET", "/healthz", headers={"host": host}).status == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example:8642", "", "127.0.0.1.evil.example", "localhost:80@evil"]
)
def test_a_name_that_is_not_ours_is_refused(server: Client, host: str) -> None:
    assert server.request("GET", "/healthz", headers={"host": host}).code == "request.host"


def test_a_user_header_counts_only_from_the_trusted_proxy(server: Client) -> None:
    person = {"x-forwarded-user": "ada", "x-forwarded-for": "6.6.6.6, 198.51.100.7, 10.0.0.9"}
    change = {**person, "origin": "https://localhost", "x-forwarded-proto": "https"}

    spoofed = server.request("GET", "runs", headers=person, scope=None, source="203.0.113.9")
    read = server.request("GET", "runs", headers=person, scope=None, source="10.0.0.2")
    made = server.post("wishes", {}, headers=change, scope=None, source="10.0.0.2")
    cross = server.post("wishes", {}, headers={**change, "origin": "https://evil"}, scope=None, source="10.0.0.2")
    admin = server.request("GET", "audit", headers=person, scope=None, source="10.0.0.2")

    assert (spoofed.status, read.status, made.json, cross.status, admin.status) == (401, 200, {"by": "ada"}, 403, 403)
    accepted = [one for one in server.get("audit").json["audit"] if one["status"] == 202]
    assert [(one["who"], one["token_id"], one["source"]) for one in accepted] == [("ada", "proxy:ada", "198.51.100.7")]


def test_a_proxy_whose_address_is_none_is_refused_before_anything_is_served(home: Home) -> None:
    with pytest.raises(InputInvalid, match=r"'10\.0\.0' is neither an address nor a network"):
        open_client(home, ServerConfig(ServerSection(trusted_proxy=TrustedProxy(("10.0.0",)))))


def test_limits_of_a_token_are_kept(server: Client) -> None:
    decided = [server.post("choices", {}, scope="few") for _ in range(3)]
    allowed = server.post("wishes", {"workflow": "nightly"}, scope="one")
    refused = server.post("wishes", {"workflow": "weekly"}, scope="one")

    assert [one.status for one in decided] == [200, 200, 429]
    assert decided[2].headers["retry-after"] == "3600"
    assert (allowed.status, refused.status) == (200, 403)


def test_strangers_who_ask_too_often_have_to_wait(home: Home) -> None:
    server = open_client(home, clock=lambda: 0.0)
    for _ in range(REFUSALS_AT_ONCE):
        server.api.gate._refusals.take("127.0.0.1", "")

    reply = server.get("runs", scope="unknown")

    assert (reply.status, reply.headers["retry-after"]) == (429, "60")
    assert server.request("GET", "runs", scope="read", source="127.0.0.2").status == 200
    server.close()


def test_a_bucket_is_filled_with_time() -> None:
    now = [0.0]
    buckets = TokenBuckets(2, 3, lambda: now[0])

    for _ in range(3):
        buckets.take("a", "a")
    with pytest.raises(TooManyRequests) as refusal:
        buckets.take("a", "a")
    buckets.take("b", "b")
    now[0] = 0.5
    buckets.take("a", "a")

    assert refusal.value.data == {"retry_after": 1}
    assert buckets.is_empty("a") and not buckets.is_empty("b")


def test_a_token_of_a_project_sees_its_own_audit_only(server: Client) -> None:
    server.post("wishes", {}, scope="run")
    server.post("wishes", {}, scope="theirs")

    assert [one["who"] for one in server.get("audit", scope="theirs").json["audit"]] == ["theirs"]


def log_in(server: Client, scope: str) -> dict[str, str]:
    """The headers of a session of that token."""
    query = server.post("logins", scope=scope).json["url"].partition("?")[2]
    cookie = server.request("GET", "/login", query=query, scope=None).headers["set-cookie"].partition(";")[0]
    return {"cookie": cookie, "x-mulligan-request": "1"}


def test_a_session_sees_the_project_of_its_token(server: Client) -> None:
    session = log_in(server, "theirs")

    server.post("wishes", {}, scope=None, headers=session)

    assert {one["who"] for one in server.get("audit", scope="theirs").json["audit"]} == {"theirs"}
    # `everything` is for all projects, and its session as well.
    tokens = server.request("GET", "tokens", scope=None, headers=log_in(server, "everything")).json["tokens"]
    assert {one["project"] for one in tokens} == {"theirs", None}


def test_a_session_has_the_limits_of_its_token_and_not_as_many_again(server: Client) -> None:
    statuses = [server.post("choices", {}, scope=None, headers=log_in(server, "few")).status for _ in range(3)]

    assert statuses == [200, 200, 429]


def test_with_a_token_its_sessions_and_links_are_revoked(server: Client) -> None:
    made = server.post("tokens", {"user": "thief", "scopes": ["read"]}).json
    server.secrets["thief"] = made["secret"]
    session = log_in(server, "thief")
    link = server.post("logins", scope="thief").json["url"]

    server.delete(f"tokens/{made['token']['id']}")

    assert server.request("GET", "runs", scope=None, headers=session).status == 401
    assert server.request("GET", "/login", query=link.partition("?")[2], scope=None).status == 401


def test_of_many_unused_links_the_newest_count(server: Client) -> None:
    links = [server.post("logins", scope="run").json["url"].partition("?")[2] for _ in range(LINKS_MAX + 1)]

    statuses = [server.request("GET", "/login", query=link, scope=None).status for link in links]

    assert statuses == [401] + [303] * LINKS_MAX


def test_a_token_for_one_workflow_leaves_schedules_and_breakers_of_others_alone(server: Client) -> None:
    for name in ("nightly", "weekly"):
        server.put(f"workflows/{name}", {"text": A_WORKFLOW})
    for name, workflow in (("nightly", "weekly"), ("mine", "nightly")):
        assert server.put(f"schedules/{name}", {"workflow": workflow, "cron": "0 3 * * *"}).status == 200
    span = {"from": "2026-01-01T00:00:00Z", "to": "2026-01-03T00:00:00Z"}

    # The schedule of the other workflow has the name of this one.
    assert server.post("schedules/nightly:backfill", span, scope="one").status == 403
    assert server.post("schedules/nightly:pause", {}, scope="one").status == 403
    assert server.put("schedules/nightly", {"workflow": "nightly", "every": "1h"}, scope="author").status == 403
    assert server.post("schedules/mine:pause", {}, scope="one").status == 200
    protocol = {"mulligan-protocol": "1"}
    reset = server.post("store/run/reset_breaker", {"name": "crm"}, scope="one", headers=protocol)
    assert reset.code == "token.scope"
    refusal = {"shape": {"cpus": 1.0}, "message": "none", "project": None}
    assert server.post("store/run/refuse_queued", refusal, scope="one", headers=protocol).code == "token.scope"
    counted = {"name": "slurm:gpu", "rules": {"failures": 1}, "verdict": "failure"}
    assert server.post("store/run/count_outcome", counted, scope="one", headers=protocol).code == "token.scope"


def test_strangers_do_not_lock_out_a_token_behind_the_same_address(home: Home) -> None:
    server = open_client(home, clock=lambda: 0.0)
    assert server.get("runs", scope="read").status == 200
    for _ in range(REFUSALS_AT_ONCE):
        server.api.gate._refusals.take("127.0.0.1", "")
    server.api.gate.forget_tokens()

    statuses = [server.get("runs", scope=scope).status for scope in ("read", "unknown", "expired", None)]
    # A link is not guessed without end either, and fills no audit.
    guess = server.request("GET", "/login", query="code=guess", scope=None)

    assert (statuses, guess.status) == ([200, 429, 429, 429], 429)
    server.close()


def test_a_link_that_does_not_work_counts_as_a_request_without_a_token(home: Home) -> None:
    server = open_client(home, clock=lambda: 0.0)
    for _ in range(REFUSALS_AT_ONCE - 1):
        server.api.gate._refusals.take("127.0.0.1", "")

    statuses = [server.request("GET", "/login", query="code=guess", scope=None).status for _ in range(2)]

    assert statuses == [401, 429]
    server.close()
