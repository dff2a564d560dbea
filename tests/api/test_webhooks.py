"""Webhooks: what is signed does what the webhook says, once; what is forged, old, too large or too much is refused."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.api_client import Client, Reply, open_client, token_record
from tests.support.deliveries import JSON, KEY, SECRET, deliver, signature, signed_headers
from tests.support.nightly import POSTGRES
from tests.support.store_files import write_empty_store

from mulligan.api.app import Api
from mulligan.service.home import DATABASE, Home
from mulligan.service.server.server_config import ServerConfig, ServerSection
from mulligan.service.server.webhooks.area import BODY_BYTES_MAX

ORDER = """\
name: order
inputs: {number: {type: any, default: 0}}
steps:
- step: paid
  wait: {event: paid, schema: {type: object}}
"""
START = {"secret": "shop", "start": {"workflow": "order", "inputs": {"number": "${body.number}"}}}
PLAIN = "a plain secret of the tests"


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["sqlite", POSTGRES])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Home:
    url = request.getfixturevalue("store_schema_url") if request.param == "postgres" else ""
    if not url:
        write_empty_store(tmp_path / "home" / DATABASE)
    found = Home(tmp_path / "home", url)
    configure(found, shop=[SECRET], plain=[PLAIN])
    return found


def configure(home: Home, **secrets: list[str]) -> None:
    """Where the server finds secrets."""
    home.folder.mkdir(exist_ok=True)
    lines = ["[webhook_secrets]"]
    for name, values in secrets.items():
        for number, value in enumerate(values):
            (home.folder / f"{name}{number}.key").write_text(f"{value}\n")
        files = (f'{{file = "{home.folder}/{name}{number}.key"}}' for number in range(len(values)))
        lines.append(f"{name} = [{', '.join(files)}]")
    (home.folder / "server.toml").write_text("\n".join(lines))


@pytest.fixture
def client(home: Home, clock: Clock) -> Iterator[Client]:
    tokens = [token_record("stranger", ["admin"], project="other")]
    config = ServerConfig(ServerSection(webhook_requests_per_second=2, webhook_requests_at_once=20))
    opened = open_client(home, config, tokens=tokens, clock=clock)
    assert opened.put("workflows/order", {"text": ORDER}).status == 200
    assert opened.put("webhooks/shop", START).status == 200
    yield opened
    opened.close()


def runs(client: Client) -> list[int]:
    return sorted(one["run_id"] for one in client.get("runs").json["runs"])


def audit(client: Client) -> list[tuple[str, int, str]]:
    """Who did what at webhooks, the oldest first."""
    found = reversed(client.get("audit", limit=1000).json["audit"])
    return [(one.get("who", ""), one["status"], one.get("why", "")) for one in found if "/hooks/" in one["action"]]


def inputs_of(client: Client, run_id: int) -> Any:
    return client.get(f"runs/{run_id}").json["inputs"]


def accepted(*run_ids: int) -> dict[str, Any]:
    return {"status": "accepted", "run_ids": [*run_ids]}


IGNORED = {"status": "ignored", "run_ids": []}


# -- a delivery that counts ------------------------------------------------------------------------------------------


def test_a_signed_delivery_starts_a_run_in_the_name_of_the_webhook(client: Client) -> None:
    reply = deliver(client, "shop", {"number": 7})

    assert (reply.status, reply.json) == (202, accepted(1))
    assert inputs_of(client, 1) == {"number": 7}
    assert audit(client) == [("hook:shop", 202, "started a run")]
    assert "set-cookie" not in reply.headers


@pytest.mark.postgres
def test_the_same_delivery_again_is_the_same_run_whatever_it_says_now(client: Client) -> None:
    deliver(client, "shop", {"number": 7})
    client.put("webhooks/shop", {**START, "start": {"workflow": "order"}})

    for body in ({"number": 7}, {"number": 8}):
        assert deliver(client, "shop", body).json == accepted(1)

    assert runs(client) == [1]
    assert deliver(client, "shop", {"number": 7}, "msg_2").json == accepted(2)
    assert audit(client) == [("hook:shop", 202, "started a run")] * 2


@pytest.mark.postgres
def test_an_event_reaches_the_run_with_the_key_once(client: Client) -> None:
    start = {"workflow": "order", "key": "order ${body.number}"}
    client.put("webhooks/shop", {"secret": "shop", "start": start})
    client.put("webhooks/pay", {"secret": "shop", "send": {"event": "paid", "run_key": "order ${body.number}"}})
    deliver(client, "shop", {"number": 7})
    # Another delivery about the same order.
    assert deliver(client, "shop", {"number": 7}, "msg_2").json == accepted(1)

    replies = [deliver(client, "pay", {"number": 7, "amount": 3}, "msg_3") for _ in range(2)]

    assert [one.json for one in replies] == [accepted(1)] * 2
    assert received(client, 1) == [("paid", {"amount": 3, "number": 7}, "hook:pay")]


def received(client: Client, run_id: int) -> list[tuple[str, Any, str]]:
    """The events of a run, once somebody has driven it."""
    from mulligan.service.service import Service

    with Service(client.home) as service, service.driving.driver() as driver:
        driver.drive(run_id)
    facts = [one["fact"] for one in client.get(f"runs/{run_id}/events").json["events"]]
    return [(one["name"], one["value"], one["by"]) for one in facts if one["type"] == "event.received"]


@pytest.mark.postgres
def test_an_event_reaches_all_open_runs_with_the_labels(client: Client) -> None:
    client.put("webhooks/pay", {"secret": "shop", "send": {"event": "paid", "labels": {"team": "${body.team}"}}})
    for team in ("a", "b", "a"):
        client.post("runs", {"workflow": "order", "labels": {"team": team}})

    assert deliver(client, "pay", {"team": "a"}).json == accepted(1, 3)
    assert deliver(client, "pay", {"team": "c"}).status == 409
    client.post("runs/2:cancel", {})
    assert deliver(client, "pay", {"team": "b"}).json == IGNORED
    assert audit(client)[-1] == ("hook:pay", 202, "'paid' was ignored: all runs with the labels have ended")


def test_an_event_for_a_run_that_is_not_there_is_refused_or_ignored_as_the_webhook_says(client: Client) -> None:
    send = {"event": "paid", "run_key": "7"}
    client.put("webhooks/pay", {"secret": "shop", "send": send})
    client.put("webhooks/maybe", {"secret": "shop", "send": {**send, "if_no_run": "ignore"}})

    refused = deliver(client, "pay", {})

    assert (refused.status, refused.code) == (409, "webhook.no_run")
    assert deliver(client, "maybe", {}).json == IGNORED
    assert audit(client) == [("hook:pay", 409, "run.unknown: no run was started under the key '7'")]


def test_an_event_for_a_run_that_has_ended_is_ignored_and_the_audit_says_so(client: Client) -> None:
    client.put("webhooks/pay", {"secret": "shop", "send": {"event": "paid", "run_key": "7"}})
    client.post("runs", {"workflow": "order"}, headers={"idempotency-key": "7"})
    assert client.post("runs/1:cancel", {}).status == 200
    assert client.get("runs/1").json["status"] == "cancelled"

    assert deliver(client, "pay", {}).json == IGNORED
    assert audit(client)[-1] == ("hook:pay", 202, "refused by 1: run 1: run.finished")


def test_a_value_that_the_run_cannot_use_is_refused_without_a_word_about_the_run(client: Client) -> None:
    client.put("webhooks/pay", {"secret": "shop", "send": {"event": "paid", "run_key": "7", "value": "no object"}})
    client.post("runs", {"workflow": "order"}, headers={"idempotency-key": "7"})
    received(client, 1)

    reply = deliver(client, "pay", {})

    assert (reply.status, reply.code) == (422, "webhook.refused")
    assert b"paid" not in reply.body and b"order" not in reply.body


def test_a_webhook_of_a_project_acts_in_that_project(client: Client) -> None:
    client.put("workflows/order", {"text": ORDER}, scope="stranger")
    client.put("webhooks/shop", START, scope="stranger")

    assert deliver(client, "other/shop", {"number": 7}).json == accepted(1)
    assert deliver(client, "shop", {"number": 7}).json == accepted(2)
    assert [one["run_id"] for one in client.get("runs", scope="stranger").json["runs"]] == [1]
    assert [one["path"] for one in client.get("webhooks", scope="stranger").json["webhooks"]] == ["/hooks/other/shop"]


# -- who sends it ----------------------------------------------------------------------------------------------------


def forged(client: Client) -> Iterator[Reply]:
    body, now = b'{"number":7}', int(time.time())
    good = signed_headers(body)

    def send(data: bytes = body, **changed: str) -> Reply:
        headers = {**good, **{name.replace("_", "-"): value for name, value in changed.items()}}
        return client.request("POST", "/hooks/shop", body=data, scope=None, headers=headers)

    yield send(b'{"number":8}')
    yield send(webhook_id="msg_2")
    yield send(webhook_timestamp=str(now - 1))
    yield send(webhook_signature="")
    yield send(webhook_signature=good["webhook-signature"][:-1])
    yield send(webhook_signature=good["webhook-signature"].replace("v1,", "v1a,"))
    yield send(webhook_signature=signature(b"another key", "msg_1", good["webhook-timestamp"], body))
    yield send(webhook_signature=signature(b"", "msg_1", good["webhook-timestamp"], body))
    yield send(webhook_signature=f"{'v1,x ' * 20}{good['webhook-signature']}")
    yield send(webhook_signature="v1,\xe4\xf6", webhook_id="\xe4")
    # A signature of nothing in particular, and a token of an admin, which is of no use here.
    yield send(webhook_signature=signature(KEY, "", "", b""), webhook_id="", webhook_timestamp="")
    yield client.request("POST", "/hooks/shop", body=body, headers={"content-type": JSON})
    yield client.request("POST", "/hooks/shop", body=body, scope=None, headers={"x-hook-token": SECRET})


def test_what_is_forged_is_refused_with_the_same_words_and_does_nothing(client: Client) -> None:
    replies = list(forged(client))

    assert [(one.status, one.code) for one in replies] == [(401, "webhook.signature")] * len(replies)
    assert {one.body for one in replies} == {replies[0].body}
    assert runs(client) == []
    # The first of them has a row.
    assert audit(client) == [("", 401, "webhook.signature")]


@pytest.mark.parametrize("age", [301, -301, 10**9, 3600])
def test_a_delivery_of_another_time_is_refused_although_it_is_signed(client: Client, age: int) -> None:
    reply = deliver(client, "shop", {"number": 7}, age=age)

    assert (reply.status, reply.code) == (401, "webhook.time")
    assert runs(client) == []


@pytest.mark.parametrize("age", [280, -280])
def test_clocks_may_differ_by_some_minutes(client: Client, age: int) -> None:
    assert deliver(client, "shop", {"number": 7}, age=age).status == 202


def test_while_a_secret_is_changed_either_counts(client: Client) -> None:
    new = b"another key of the tests, longer"
    body = b'{"number":7}'
    assert deliver(client, "shop", body, "msg_1", key=new).status == 401

    configure(client.home, shop=["whsec_%%% is not base64", SECRET])
    # Not base64: nothing is checked until somebody mends it, and no value is shown.
    reply = deliver(client, "shop", body, "msg_1")
    assert (reply.status, reply.code) == (503, "server.busy")
    assert client.get("webhooks/shop").json["problem"] == "the secret 'shop' cannot be read where the server runs"

    configure(client.home, shop=[new.decode(), SECRET])
    assert deliver(client, "shop", body, "msg_2", key=new).status == 202
    assert deliver(client, "shop", body, "msg_3").status == 202
    both = " ".join(signature(key, "msg_4", int(time.time()), body) for key in (b"old", new))
    headers = {**signed_headers(body, "msg_4"), "webhook-signature": both}
    assert client.request("POST", "/hooks/shop", body=body, scope=None, headers=headers).status == 202

    configure(client.home, shop=[new.decode()])
    assert deliver(client, "shop", body, "msg_5").status == 401


def test_a_delivery_of_github_is_known_by_what_is_signed(client: Client) -> None:
    client.put("webhooks/github", {**START, "secret": "plain", "auth": "github"})
    body = b'{"number": 7}'
    headers = {
        "content-type": JSON,
        "x-hub-signature-256": f"sha256={hmac.digest(PLAIN.encode(), body, 'sha256').hex()}",
    }

    def send(data: bytes = body, **others: str) -> Reply:
        return client.request("POST", "/hooks/github", body=data, scope=None, headers={**headers, **others})

    assert send(**{"x-github-delivery": "1"}).json == accepted(1)
    assert send(**{"x-github-delivery": "2"}).json == accepted(1)
    assert send(b'{"number": 8}').status == 401
    assert send(**{"x-hub-signature-256": headers["x-hub-signature-256"].removeprefix("sha256=")}).status == 401


@pytest.mark.parametrize(
    ("header", "sent"),
    [("X-Hook-Token", PLAIN), ("X-Gitlab-Token", PLAIN), ("Authorization", f"Bearer {PLAIN}")],
)
def test_a_secret_in_a_header_counts_and_gets_into_no_run(client: Client, header: str, sent: str) -> None:
    start = {"workflow": "order", "inputs": {"number": "${headers}"}}
    client.put("webhooks/plain", {"secret": "plain", "auth": "secret", "header": header, "start": start})

    def send(value: str, **others: str) -> Reply:
        headers = {"content-type": JSON, header.lower(): value, **others}
        return client.request("POST", "/hooks/plain", body=b"{}", scope=None, headers=headers)

    assert send(sent).json == accepted(1)
    assert send(sent).json == accepted(1), "the same body without an id is the same delivery"
    assert send(sent, **{"idempotency-key": "2"}).json == accepted(2)
    assert send(sent, **{"webhook-timestamp": str(int(time.time()))}).json == accepted(3)
    assert send(sent, **{"webhook-timestamp": "17"}).code == "webhook.time"
    assert send(f"{PLAIN}x").status == send("").status == send(PLAIN[:-1]).status == 401
    assert PLAIN not in str(inputs_of(client, 1))


@pytest.mark.postgres
def test_secrets_are_in_no_answer_and_nowhere_in_the_store(client: Client) -> None:
    deliver(client, "shop", {"number": 7})
    list(forged(client))

    said = client.get("webhooks").body + client.get("audit", limit=1000).body + client.get("runs/1/events").body

    assert SECRET.encode() not in said and str(KEY).encode() not in said
    kept = [one.read_bytes() for one in client.home.folder.glob("mulligan.db*")]
    assert not any(SECRET.encode() in one or KEY in one for one in kept)


# -- what it is ------------------------------------------------------------------------------------------------------


def test_a_delivery_that_the_filter_does_not_want_is_ignored(client: Client) -> None:
    client.put("webhooks/shop", {**START, "filter": "body.kind == 'new' && query.from == 'shop'"})

    assert deliver(client, "shop", {"kind": "new", "number": 7}, query="from=me").json == IGNORED
    assert deliver(client, "shop", {"kind": "old", "number": 7}, query="from=shop").json == IGNORED
    assert deliver(client, "shop", {"kind": "new", "number": 7}, query="from=shop").json == accepted(1)
    assert audit(client) == [("hook:shop", 202, "started a run")]


def test_an_expression_that_fails_refuses_the_delivery_and_the_audit_says_why_once_a_minute(client: Client) -> None:
    replies = [deliver(client, "shop", {"other": 7}, f"msg_{number}") for number in range(3)]

    assert {(one.status, one.code) for one in replies} == {(422, "webhook.refused")}
    assert audit(client) == [("hook:shop", 422, "expression.failed: 'body.number': no such key 'number'")]
    assert runs(client) == []


def test_an_expression_that_takes_too_long_is_refused(client: Client) -> None:
    costly = "body.all(a, body.all(b, body.all(c, a + b + c >= 0)))"
    client.put("webhooks/shop", {**START, "filter": costly})

    reply = deliver(client, "shop", list(range(400)))

    assert reply.status == 422
    assert "iterates over more than" in audit(client)[0][2]


def test_the_body_is_json_or_a_form(client: Client) -> None:
    form = {"content-type": "application/x-www-form-urlencoded"}

    assert deliver(client, "shop", b"number=A%C3%A4&x=1", headers=form).json == accepted(1)
    assert inputs_of(client, 1) == {"number": "Aä"}
    assert deliver(client, "shop", b"\xff=7", "msg_2", headers=form).status == 400
    assert deliver(client, "shop", b"&".join([b"a=1"] * 2_000), "msg_2", headers=form).status == 400
    assert deliver(client, "shop", b"{", "msg_2").status == 400
    for kind in ("text/plain", "", "multipart/form-data; boundary=x"):
        assert deliver(client, "shop", {"number": 7}, "msg_2", headers={"content-type": kind}).status == 415


@pytest.mark.parametrize("number", ["[" * 100_000, "1e999", '"\\ud800"', "9" * 5_000])
def test_a_body_that_nothing_can_keep_is_refused(client: Client, number: str) -> None:
    reply = deliver(client, "shop", f'{{"number": {number}}}'.encode())

    assert reply.status in (400, 422), reply.body
    assert runs(client) == []


def test_a_body_that_is_too_large_is_refused_and_the_largest_is_read(client: Client) -> None:
    def body(size: int) -> bytes:
        return b'{"number": 7, "x": "' + b"x" * (size - 22) + b'"}'

    assert deliver(client, "shop", body(BODY_BYTES_MAX + 1)).status == 413
    # Whatever it says of its size.
    assert deliver(client, "shop", body(BODY_BYTES_MAX + 1), headers={"content-length": "2"}).status == 413
    assert deliver(client, "shop", body(BODY_BYTES_MAX)).json == accepted(1)


def test_a_body_that_does_not_come_is_answered(home: Home) -> None:
    api = Api(home, ServerConfig(), body_seconds=0.0)
    sent: list[Any] = []

    async def ask() -> None:
        pieces = [{"type": "http.request", "body": b"{", "more_body": True}]

        async def receive() -> Any:
            return pieces.pop() if pieces else await asyncio.Event().wait()

        async def send(message: Any) -> None:
            sent.append(message)

        headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": "/hooks/shop", "query_string": b"", "headers": headers}
        await api({**scope, "client": ("127.0.0.1", 1)}, receive, send)

    asyncio.run(ask())

    assert sent[0]["status"] == 408
    api.close()


def test_what_is_not_there_and_other_methods_are_refused_in_constant_words(client: Client) -> None:
    replies = [deliver(client, name, {}) for name in ("nobody", "other/shop", "Shop", "a%2Fb", "x" * 300, "%00x")]
    replies.append(client.post("/hooks/nobody", {}))

    assert {one.status for one in replies} <= {404, 422}
    assert len({one.body for one in replies if one.status == 404}) == 1
    for method in ("GET", "PUT", "DELETE", "HEAD"):
        assert client.request(method, "/hooks/shop", scope=None).status == 405
    assert runs(client) == []


# -- how much --------------------------------------------------------------------------------------------------------


def test_too_many_deliveries_are_refused_and_those_of_a_forger_do_not_count(client: Client, clock: Clock) -> None:
    for _ in range(100):
        assert deliver(client, "shop", {"number": 7}, key=b"x", source="10.0.0.1").status == 401

    replies = [deliver(client, "shop", {"number": 7}, f"msg_{number}") for number in range(21)]

    assert [one.status for one in replies] == [202] * 20 + [429]
    assert replies[-1].headers["retry-after"] == "1"
    clock.now += 1
    assert deliver(client, "shop", {"number": 7}, "msg_20").status == 202


def test_an_address_that_forges_again_and_again_is_not_heard_for_a_while(client: Client) -> None:
    statuses = [deliver(client, "nobody", b"{}", source="10.0.0.1").status for _ in range(1_001)]

    assert statuses.count(404) == 1_000
    assert statuses[-1] == 429
    assert deliver(client, "shop", {"number": 7}, source="10.0.0.2").status == 202


# -- what a webhook may be -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "form",
    [
        {"secret": "shop"},
        {**START, "send": {"event": "paid", "run_key": "7"}},
        {"secret": "shop", "send": {"event": "paid"}},
        {"secret": "shop", "send": {"event": "paid", "run_key": "7", "labels": {"a": "b"}}},
        {"secret": "shop", "send": {"event": "", "run_key": "7"}},
        {"secret": "shop", "auth": "github", "send": {"event": "paid", "labels": {"a": "b"}}},
        {**START, "auth": "basic"},
        {**START, "header": "X-Token"},
        {**START, "auth": "secret", "header": "a header"},
        {**START, "filter": "body.x =="},
        {**START, "filter": "secrets.x == 1"},
        {**START, "filter": "env.HOME == ''"},
        {**START, "id": "${steps.a.output}"},
        {"secret": "shop", "start": {"workflow": "order", "inputs": {"number": "${body"}}},
        {"secret": "shop", "start": {"workflow": "order", "inputs": {"other": 1}}},
        {"secret": "shop", "start": {"workflow": "order", "labels": {"version": "1"}}},
        {"secret": "shop", "start": {"workflow": "order", "inputs": {"number": ["${body.x}"] * 101}}},
        {"start": {"workflow": "order"}},
        {**START, "surprise": 1},
    ],
)
def test_a_webhook_that_cannot_be_meant_is_refused(client: Client, form: dict[str, Any]) -> None:
    reply = client.put("webhooks/other", form)

    assert reply.status == 422, reply.body
    assert client.get("webhooks/other").code == "webhook.unknown"


def test_a_webhook_of_a_workflow_that_is_not_published_is_refused(client: Client) -> None:
    assert client.put("webhooks/x", {"secret": "shop", "start": {"workflow": "nothing"}}).code == "workflow.unknown"


def test_a_token_for_some_workflows_makes_webhooks_for_these_alone(client: Client) -> None:
    text = "name: other\nsteps: [{step: a, shell: 'true'}]\n"
    client.put("workflows/other", {"text": text})
    client.put("webhooks/sends", {"secret": "shop", "send": {"event": "paid", "run_key": "7"}})
    form = {"user": "narrow", "scopes": ["admin"], "workflows": ["other"]}
    headers = {"authorization": f"Bearer {client.post('tokens', form).json['secret']}"}

    def put(name: str, webhook: dict[str, Any]) -> int:
        return client.request("PUT", f"webhooks/{name}", body=webhook, scope=None, headers=headers).status

    starts_other = {"secret": "shop", "start": {"workflow": "other"}}
    assert put("other", starts_other) == 200
    # The name of a webhook says nothing; one that is there belongs to others.
    assert put("other2", START) == put("shop", starts_other) == put("sends", starts_other) == 403
    assert put("other", {"secret": "shop", "send": {"event": "paid", "run_key": "7"}}) == 403
    assert client.request("DELETE", "webhooks/shop", scope=None, headers=headers).status == 403
    assert client.request("DELETE", "webhooks/other", scope=None, headers=headers).status == 200


@pytest.mark.postgres
def test_a_webhook_is_changed_at_a_revision_shown_and_removed(client: Client) -> None:
    changed = client.put("webhooks/shop", {**START, "filter": "true"}, headers={"if-match": '"1"'})

    assert (changed.json["revision"], changed.json["filter"]) == (2, "true")
    assert client.put("webhooks/shop", START, headers={"if-match": '"1"'}).status == 412
    assert client.put("webhooks/shop", START, query={"dry_run": "true"}).json["dry_run"] is True
    assert client.get("webhooks/shop").json["filter"] == "true"
    assert client.delete("webhooks/shop").json == {"name": "shop", "is_deleted": True}
    assert deliver(client, "shop", {"number": 7}).status == 404


def test_a_webhook_without_a_secret_on_the_server_says_so_and_accepts_nothing(client: Client) -> None:
    configure(client.home, shop=["short"])
    assert client.get("webhooks/shop").json["problem"] == "the secret 'shop' has less than 16 characters"

    configure(client.home, plain=[PLAIN])
    assert "has no 'shop'" in client.get("webhooks/shop").json["problem"]
    assert deliver(client, "shop", {"number": 7}).status == 503
    assert runs(client) == []
