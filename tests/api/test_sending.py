"""Events for runs over REST: whom they reach, what the sender sees, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from tests.support.api_client import Client, open_client, token_record
from tests.support.commands import mulligan

from mulligan.ports.server_records import TokenLimits
from mulligan.service.home import DATABASE, Home

ORDER = """
name: order
steps:
  - step: pay
    wait: {event: paid, schema: {type: integer}}
  - step: ship
    needs: [pay]
    shell: 'true'
"""


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.chdir(tmp_path)
    Path("order.yaml").write_text(ORDER, encoding="utf-8")
    for number in (1, 2):
        assert mulligan("run", "order.yaml", "--key", f"order-{number}", "--label", "team=ops").code == 4
    others = [token_record("limited", ["send"], limits=TokenLimits(workflows=("weekly",)))]
    opened = open_client(Home(tmp_path / ".mulligan"), tokens=others)
    yield opened
    opened.close()


def events(client: Client, run_id: int = 1) -> list[dict[str, Any]]:
    return [one["fact"] for one in client.get(f"runs/{run_id}/events").json["events"]]


def taken(client: Client, run_id: int = 1) -> list[Any]:
    return [one["output"] for one in events(client, run_id) if one["type"] == "attempt.succeeded"]


def test_who_may_only_send_sends_and_sees_nothing(client: Client) -> None:
    sent = client.post("runs/1/events", {"name": "paid", "value": 40}, scope="send")

    assert sent.status == 200
    assert sent.json == {
        "run_id": 1,
        "dry_run": False,
        "status": "running",
        "follows": [],
        "starts": [],
        "stops": [],
        "still_running": [],
        "left_out": 0,
    }
    assert taken(client) == [40]
    assert [one["by"] for one in events(client) if one["type"] == "event.received"] == ["send"]
    for path in ("runs", "runs/1", "runs/1/events"):
        assert client.get(path, scope="send").status == 403
    assert client.post("runs/1/events", {"name": "x", "dry_run": True}, scope="send").status == 403


def test_a_trial_says_what_would_follow_and_sends_nothing(client: Client) -> None:
    before = events(client)

    found = client.post("runs/1/events", {"name": "paid", "value": 40, "dry_run": True}, scope="run").json

    assert found["dry_run"] and any("ship" in line for line in found["starts"])
    assert events(client) == before


def test_the_same_key_sends_once(client: Client) -> None:
    headers = {"idempotency-key": '"invoice-9"'}

    for _ in range(2):
        assert client.post("runs/1/events", {"name": "later", "value": 1}, headers=headers).status == 200
    other = client.post("runs/1/events", {"name": "later", "value": 2}, headers=headers)

    assert other.status == 409
    assert [one["value"] for one in events(client) if one["type"] == "event.received"] == [1]


def test_the_run_with_a_key_and_all_runs_with_labels_get_it(client: Client) -> None:
    one = client.post("events", {"name": "paid", "value": 1, "run_key": "order-2"}, scope="send")
    every = client.post("events", {"name": "later", "labels": {"team": "ops"}}, scope="send")

    assert (one.json, every.json) == ({"run_ids": [2], "refused": []}, {"run_ids": [1, 2], "refused": []})
    assert (taken(client, 1), taken(client, 2)) == ([], [1])


def test_what_a_step_cannot_use_and_what_reaches_nobody_is_refused(client: Client) -> None:
    asked = {
        ("runs/1/events", 422): {"name": "paid", "value": "much"},
        ("runs/9/events", 404): {"name": "paid"},
        ("runs/2/events", 422): {"name": "a b"},
        ("events", 422): {"name": "paid"},
    }
    for (path, status), body in asked.items():
        assert client.post(path, body, scope="send").status == status, path
    assert client.post("events", {"name": "paid", "run_key": "nobody"}).status == 404
    assert client.post("events", {"name": "paid", "labels": {"team": "nobody"}}).status == 404
    assert client.post("runs/1/events", {"name": "paid", "value": "x" * 70_000}, scope="send").status == 422
    assert not [one for one in events(client) if one["type"] == "event.received"]


def test_a_token_for_other_workflows_sends_nothing(client: Client) -> None:
    assert client.post("runs/1/events", {"name": "paid", "value": 1}, scope="limited").status == 403
    assert client.post("events", {"name": "paid", "value": 1, "labels": {"team": "ops"}}, scope="limited").status == 403

    assert taken(client) == []


def test_who_may_only_send_learns_nothing_of_a_run_that_refuses(client: Client) -> None:
    alone = client.post("runs/1/events", {"name": "paid", "value": "much"}, scope="send")
    all_of_them = client.post("events", {"name": "paid", "value": "much", "labels": {"team": "ops"}}, scope="send")
    other = client.post("runs/1/events", {"name": "paid", "value": 1}, scope="limited")

    assert (alone.status, alone.json["detail"]) == (422, "what waits for this event cannot use its value")
    assert all_of_them.status == 409 and "pay" not in all_of_them.json["detail"].replace("paid", "")
    assert (other.status, "order" in other.body.decode()) == (403, False)
    assert "'pay' waits for 'paid'" in client.post("runs/1/events", {"name": "paid", "value": "x"}).json["detail"]


def put_event(client: Client, scope: str, run_id: int = 1, value: Any = "much", **fields: Any) -> Any:
    """The call of a store over HTTP, as a client makes it who believes that he may say who sends it."""
    report = {"at": "2020-01-01T00:00:00Z", "name": "paid", "value": value, "by": "root", "key": "", **fields}
    body = {"run_id": run_id, "report": report, "is_asking": True}
    return client.post("store/send/put_event", body, scope=scope, headers={"mulligan-protocol": "1"})


def test_the_store_over_http_says_no_more_of_a_run_to_who_may_only_send(client: Client) -> None:
    refused = put_event(client, "send").json["answer"]
    other = put_event(client, "limited")

    assert refused == {"error": "input.invalid", "message": "what waits for this event cannot use its value"}
    assert (other.status, b"order" in other.body) == (403, False)
    assert "'pay' waits for 'paid'" in put_event(client, "run").json["answer"]["message"]


def test_who_may_only_send_learns_that_a_run_has_ended_and_not_how(client: Client) -> None:
    assert mulligan("cancel", "1").code == 0

    replies = [
        client.post("runs/1/events", {"name": "paid", "value": 1}, scope="send"),
        client.post("events", {"name": "paid", "value": 1, "run_key": "order-1"}, scope="send"),
    ]

    assert {(one.status, one.code, one.json["detail"]) for one in replies} == {
        (409, "run.finished", "the run has ended, and takes no events")
    }
    assert put_event(client, "send").json["answer"]["message"] == "the run has ended, and takes no events"
    assert "was cancelled" in client.post("runs/1/events", {"name": "paid", "value": 1}).json["detail"]


def test_who_sends_an_event_and_when_is_what_the_server_says(client: Client) -> None:
    assert put_event(client, "send", value=1).json["answer"] == {}

    (event,) = (one for one in client.get("runs/1/events").json["events"] if one["fact"]["type"] == "event.received")
    assert event["fact"]["by"] == "send" and event["at"] > "2021"


def test_the_keys_of_deliveries_are_those_of_webhooks(client: Client) -> None:
    """Otherwise somebody who may send could send an event in place of a delivery that is to come."""
    key = "hook:shop: id msg_1"
    body = {"name": "later", "value": 1}

    assert client.post("runs/1/events", body, scope="send", headers={"idempotency-key": key}).status == 422
    assert put_event(client, "send", value=1, key=key).status == 422
    assert client.post("runs", {"workflow": "order"}, headers={"idempotency-key": key}).status == 422
    assert not [one for one in events(client) if one["type"] == "event.received"]


def test_an_event_for_a_damaged_run_is_refused_without_a_word_about_what_is_damaged(client: Client) -> None:
    spoil(client.home)

    alone = client.post("runs/1/events", {"name": "paid", "value": 1}, scope="send")

    assert (alone.status, alone.json["detail"]) == (409, "the run takes no events now")
    assert "is damaged" in client.post("runs/1/events", {"name": "paid", "value": 1}).json["detail"]


def spoil(home: Home) -> None:
    file = apsw.Connection(str(home.folder / DATABASE))
    file.execute("UPDATE rows SET data = x'00' WHERE run_id = 1")
    file.close()
