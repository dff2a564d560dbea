"""A notice as people and programs get it: its text, what to type, the link, the CloudEvent; alone and in a digest."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from mulligan.history.notice_text import NoticeBody, NoticeFailure
from mulligan.ports import NoticeRecord
from mulligan.service.server.notices.messages import make_digest, make_message

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
LOAD = NoticeFailure("load", "EXIT_NONZERO 3", "EXIT_NONZERO", "retried, then completed")


def notice(number: int = 7, **fields: Any) -> NoticeRecord:
    named = {"event": "completed", "title": f"run {number}", "at": AT, "run_id": number, "workflow": "nightly"}
    body = msgspec.json.encode(NoticeBody(**{**named, **fields}))
    return NoticeRecord(key=f"k{number}", target="ops", body=body, created_at=AT, run_id=number, project="lab")


@pytest.mark.parametrize(
    ("fields", "commands"),
    [
        ({}, []),
        ({"failures": (LOAD,)}, ["mulligan explain 7"]),
        ({"event": "recovered"}, ["mulligan explain 7"]),
        ({"event": "recovered", "failures": (LOAD,)}, ["mulligan explain 7"]),
        ({"event": "degraded", "failures": (LOAD,)}, ["mulligan explain 7"]),
        ({"event": "late", "status": "running"}, ["mulligan show 7", "mulligan cancel 7"]),
        ({"event": "failed", "status": "failed"}, ["mulligan retry 7", "mulligan explain 7"]),
        (
            {"event": "failed", "status": "failed", "has_run_out": True},
            ["mulligan retry 7", "mulligan retry 7 --adjust", "mulligan explain 7"],
        ),
        (
            {"event": "failed", "status": "failed", "has_run_out": True, "needs_force": True},
            ["mulligan retry 7 --force", "mulligan retry 7 --adjust --force", "mulligan explain 7"],
        ),
        (
            {"event": "needs_person", "request": "approval", "step": "ship"},
            ["mulligan approve 7 ship --reason 'why'"],
        ),
        (
            {"event": "needs_person", "request": "approval", "step": "check[1].0", "name": "check[a b]"},
            ["mulligan approve 7 'check[a b]' --reason 'why'"],
        ),
        ({"event": "test"}, []),
    ],
)
def test_a_notice_says_what_to_type(fields: dict[str, Any], commands: list[str]) -> None:
    event = json.loads(make_message(notice(**fields)).event)

    assert event["data"]["commands"] == commands


def test_the_text_has_details_failures_how_many_more_and_what_to_type() -> None:
    message = make_message(notice(details=("end returned completed",), failures=(LOAD,), failures_count=4))

    assert message.title == "run 7"
    assert message.text.splitlines() == [
        "end returned completed",
        "load: EXIT_NONZERO 3",
        "  retried, then completed",
        "and 3 more",
        "",
        "mulligan explain 7",
    ]


def test_a_notice_without_anything_to_add_has_no_text_but_a_link() -> None:
    assert make_message(notice()).text == ""
    assert make_message(notice(), "https://mulligan.example/").text == ("https://mulligan.example/api/v1/runs/7/report")


def test_no_letter_of_an_address_or_of_a_text_is_lost() -> None:
    message = make_message(notice(details=("X",)), "https://example.org/X/")

    assert message.text == "X\n\nhttps://example.org/X/api/v1/runs/7/report"
    assert make_message(notice(details=("X",))).text == "X"


def test_the_event_of_a_notice_names_its_run_its_project_and_its_target() -> None:
    message = make_message(notice(), "https://mulligan.example")

    assert json.loads(message.event) == {
        "specversion": "1.0",
        "id": "k7",
        "source": "https://mulligan.example",
        "type": "mulligan.run.completed",
        "time": "2026-01-02T03:04:05Z",
        "datacontenttype": "application/json",
        "subject": "runs/7",
        "data": {
            "event": "completed",
            "title": "run 7",
            "at": "2026-01-02T03:04:05Z",
            "run_id": 7,
            "workflow": "nightly",
            "text": "https://mulligan.example/api/v1/runs/7/report",
            "commands": [],
            "project": "lab",
            "target": "ops",
            "url": "https://mulligan.example/api/v1/runs/7/report",
        },
    }


def test_a_test_of_a_target_is_about_no_run() -> None:
    event = json.loads(make_message(notice(0, event="test", workflow=""), "https://mulligan.example").event)

    assert (event["type"], "subject" in event, "url" in event["data"]) == ("mulligan.test", False, False)
    assert json.loads(make_message(notice()).event)["source"] == "mulligan"


def test_a_digest_has_each_notice_under_its_key_and_a_key_of_its_own() -> None:
    notices = [notice(1), notice(2, workflow="weekly")]
    digest = make_digest(notices, AT, "https://mulligan.example")

    event = json.loads(digest.event)

    assert digest.title == event["data"]["title"] == "2 notices about nightly, weekly"
    assert digest.text == "- run 1\n- run 2\n\nmulligan list\nmulligan pending"
    assert (event["type"], event["id"], event["source"]) == ("mulligan.digest", digest.key, "https://mulligan.example")
    assert [one["id"] for one in event["data"]["notices"]] == ["k1", "k2"]
    assert event["data"]["notices"][0]["data"]["url"] == "https://mulligan.example/api/v1/runs/1/report"
    assert digest.notices == tuple(notices)
    # A receiver knows a digest that is sent again, and no digest is taken for another one.
    assert digest.key == make_digest(notices, AT).key == "digest_cad8e92ace6528e129e18bfdda633bbc"
    assert json.loads(make_digest(notices, AT).event)["source"] == "mulligan"


@pytest.mark.parametrize(
    ("workflows", "words"),
    [
        ([""], "mulligan"),
        (["a", "b", "a", "c"], "a, b, c"),
        (["a", "b", "c", "d"], "a, b, c and 1 other"),
        (["a", "b", "c", "d", "e"], "a, b, c and 2 others"),
    ],
)
def test_a_digest_names_a_few_workflows(workflows: list[str], words: str) -> None:
    digest = make_digest([notice(number, workflow=name) for number, name in enumerate(workflows)], AT)

    assert digest.title == f"{len(workflows)} notices about {words}"


@pytest.mark.parametrize(("count", "listed", "more"), [(50, 50, []), (52, 50, ["and 2 more"])])
def test_a_digest_lists_fifty_notices_and_counts_the_others(count: int, listed: int, more: list[str]) -> None:
    lines = make_digest([notice(number) for number in range(count)], AT).text.splitlines()

    assert lines == [
        *(f"- run {number}" for number in range(listed)),
        *more,
        "",
        "mulligan list",
        "mulligan pending",
    ]
