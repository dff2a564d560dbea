"""Webhooks: the body, the signature, what counts as sent, and that no address or secret is ever shown."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.receiver import Receiver, receiving

from mulligan.errors import InputInvalid
from mulligan.history.notice_text import NoticeBody, NoticeFailure
from mulligan.ports import NoticeRecord
from mulligan.service.server.notices.messages import make_message
from mulligan.service.server.notices.sender import send
from mulligan.service.server.notices.targets import Target, signing_key

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
BODY = NoticeBody(
    event="failed",
    title="run 7 of nightly failed: 'deploy' EXIT_NONZERO 3",
    at=AT,
    run_id=7,
    workflow="nightly",
    status="failed",
    step="deploy",
    failures=(NoticeFailure("deploy", "EXIT_NONZERO 3: no route", "EXIT_NONZERO", "retried twice without success"),),
)
NOTICE = NoticeRecord(key="notice_1", target="ops", body=msgspec.json.encode(BODY), created_at=AT, run_id=7)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


def target(**fields: Any) -> Target:
    return msgspec.convert(fields, Target)


def test_a_webhook_gets_a_cloud_event_signed_with_every_key(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / "old"
    old.write_text("plain words\n")
    monkeypatch.setenv("NEW", "whsec_" + base64.b64encode(b"new key").decode())
    ops = target(webhook=receiver.url, secret=[{"env": "NEW"}, {"file": str(old)}])

    delivery = send(ops, make_message(NOTICE, "https://mulligan.example"), AT)

    assert delivery.problem == ""
    ((headers, body),) = receiver.requests
    assert headers["content-type"] == "application/cloudevents+json; charset=utf-8"
    assert headers["user-agent"] == "mulligan"
    assert (headers["webhook-id"], headers["webhook-timestamp"]) == ("notice_1", str(int(AT.timestamp())))
    signed = b".".join((b"notice_1", headers["webhook-timestamp"].encode(), body))
    assert headers["webhook-signature"].split() == [
        f"v1,{base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()}"
        for key in (b"new key", b"plain words")
    ]
    event = json.loads(body)
    assert {name: event[name] for name in ("specversion", "id", "source", "type", "subject", "time")} == {
        "specversion": "1.0",
        "id": "notice_1",
        "source": "https://mulligan.example",
        "type": "mulligan.run.failed",
        "subject": "runs/7",
        "time": "2026-01-02T03:04:05Z",
    }
    assert event["data"]["commands"] == ["mulligan retry 7", "mulligan explain 7"]
    assert event["data"]["url"] == "https://mulligan.example/api/v1/runs/7/report"
    assert event["data"]["text"].splitlines() == [
        "deploy: EXIT_NONZERO 3: no route",
        "  retried twice without success",
        "",
        "mulligan retry 7",
        "mulligan explain 7",
        "",
        "https://mulligan.example/api/v1/runs/7/report",
    ]


@pytest.mark.parametrize(
    ("status", "retry_after", "problem", "trouble", "seconds"),
    [
        (200, "", "", "", 0.0),
        (299, "5", "", "", 0.0),
        (300, "", "127.0.0.1 answered 300: redirects are not followed", "down", 0.0),
        (302, "", "127.0.0.1 answered 302: redirects are not followed", "down", 0.0),
        (399, "", "127.0.0.1 answered 399: redirects are not followed", "down", 0.0),
        (400, "", "127.0.0.1 answered 400", "", 0.0),
        (429, "30", "127.0.0.1 answered 429", "down", 30.0),
        (429, "", "127.0.0.1 answered 429", "busy", 0.0),
        # A sender waits for an hour at most, and does not read dates.
        (500, "3601", "127.0.0.1 answered 500", "", 3600.0),
        # Patience for one message; the target is left alone only if it refuses several in a row.
        (503, "90", "127.0.0.1 answered 503", "busy", 90.0),
        (502, "Wed, 21 Oct 2026 07:28:00 GMT", "127.0.0.1 answered 502", "busy", 0.0),
        (503, "-1", "127.0.0.1 answered 503", "busy", 0.0),
        (504, "", "127.0.0.1 answered 504", "busy", 0.0),
    ],
)
def test_only_a_good_answer_counts_and_no_redirect_is_followed(
    receiver: Receiver, status: int, retry_after: str, problem: str, trouble: str, seconds: float
) -> None:
    receiver.statuses, receiver.retry_after = [status], retry_after

    delivery = send(target(webhook=receiver.url), make_message(NOTICE), AT)

    said = "down" if delivery.is_target_down else "busy" if delivery.is_target_busy else ""
    assert (delivery.problem, said, delivery.retry_after) == (problem, trouble, seconds)
    assert "webhook-signature" not in receiver.requests[0][0]


def test_a_receiver_that_takes_too_long_is_left(receiver: Receiver) -> None:
    may_answer = threading.Event()
    receiver.hook = lambda: may_answer.wait(2) and None

    delivery = send(target(webhook=receiver.url, timeout_seconds=0.05), make_message(NOTICE), AT)
    may_answer.set()

    assert (delivery.problem, delivery.is_target_down) == ("127.0.0.1 did not answer in 0.05s", True)


def test_an_address_that_cannot_be_called_is_not_shown() -> None:
    delivery = send(target(webhook="http://example.org/s3cret\x00"), make_message(NOTICE), AT)

    assert (delivery.problem, delivery.is_target_down) == ("the address of the webhook is not valid", True)


def test_a_host_that_does_not_answer_is_named_without_the_rest_of_its_address() -> None:
    delivery = send(target(webhook="http://127.0.0.1:9/s3cret?token=s3cret"), make_message(NOTICE), AT)

    assert delivery.problem == "127.0.0.1 could not be reached (ConnectError)"
    assert delivery.is_target_busy and not delivery.is_target_down


# apprise imports a module that Python 3.13 no longer has.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_people_get_it_through_apprise_and_a_refusal_shows_no_address(receiver: Receiver) -> None:
    address = receiver.url.replace("http://", "json://").partition("?")[0]
    sent = send(target(urls=[address]), make_message(NOTICE), AT)
    refused = send(target(urls=["nosuch://s3cret", address.replace("/hook", "/other")]), make_message(NOTICE), AT)

    assert sent.problem == ""
    assert json.loads(receiver.requests[0][1])["title"] == BODY.title
    assert "mulligan retry 7" in json.loads(receiver.requests[0][1])["message"]
    assert refused.problem == "apprise: address 1 is not one that apprise knows"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "a target has 'urls' or a 'webhook', one of the two"),
        ({"urls": ["json://a"], "webhook": "https://a"}, "a target has 'urls' or a 'webhook', one of the two"),
        ({"webhook": "ftp://a"}, "'webhook' is an address that begins with https:// or http://"),
        ({"urls": ["json://a"], "secret": {"env": "A"}}, "'secret' is for a 'webhook': it signs what is sent"),
        ({"webhook": "https://a", "secret": {}}, 'write {env = "NAME"} or {file = "PATH"}'),
        ({"webhook": "https://a", "give_up_after": "soon"}, "'give_up_after' is a time such as \"24h\""),
        ({"webhook": "https://a", "per_minuet": 3}, "Object contains unknown field `per_minuet`"),
    ],
)
def test_a_target_that_cannot_be_meant_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        target(**fields)

    assert str(caught.value).startswith(message)


def test_a_missing_secret_is_named_and_never_shown(tmp_path: Path) -> None:
    missing = target(webhook={"env": "MULLIGAN_TEST_NOT_SET"})

    with pytest.raises(InputInvalid, match="environment variable MULLIGAN_TEST_NOT_SET is not set or empty"):
        missing.webhook_url()
    with pytest.raises(InputInvalid, match="continues with base64"):
        signing_key("whsec_%%%")


def test_an_address_of_100_000_characters_is_refused_before_anything_reads_it() -> None:
    with pytest.raises(msgspec.ValidationError, match="an address has at most 4,000 characters"):
        msgspec.convert({"urls": ["x" * 100_000]}, Target)
