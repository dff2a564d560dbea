"""Callers that are refused do not fill the audit, and are still seen by whoever reads it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.api_client import AT, Client, open_client
from tests.support.nightly import POSTGRES
from tests.support.store_files import write_empty_store

from mulligan.api.access.repeated_refusals import INTERVAL_SECONDS, KINDS_MAX, RepeatedRefusals
from mulligan.ports.server_records import AuditRecord
from mulligan.service.home import DATABASE, Home
from mulligan.service.server.server_config import ServerConfig, ServerSection


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["sqlite", POSTGRES])
def client(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Iterator[Client]:
    url = request.getfixturevalue("store_schema_url") if request.param == "postgres" else ""
    if not url:
        write_empty_store(tmp_path / "home" / DATABASE)
    config = ServerConfig(ServerSection(requests_per_second=1e6, requests_at_once=1_000_000))
    opened = open_client(Home(tmp_path / "home", url), config, clock=clock)
    yield opened
    opened.close()


def rows(client: Client) -> list[tuple[str, int, str]]:
    found = reversed(client.get("audit", scope="admin", limit=1000).json["audit"])
    return [(one["action"].partition("v1/")[2] or one["action"], one["status"], one.get("why", "")) for one in found]


def test_a_caller_without_the_scope_gets_one_row_a_minute_for_each_route(client: Client, clock: Clock) -> None:
    for number in range(30):
        assert client.post(f"runs/{number}:cancel", {}, scope="read").status == 403
        assert client.get("audit", scope="run").status == 403

    assert rows(client) == [("runs/{run_id}:cancel", 403, "token.scope"), ("audit", 403, "token.scope")]
    clock.now += INTERVAL_SECONDS
    client.get("tokens", scope="run")

    assert rows(client)[2:] == [
        ("runs/{run_id}:cancel", 403, "token.scope (29 more within a minute)"),
        ("audit", 403, "token.scope (29 more within a minute)"),
        ("tokens", 403, "token.scope"),
    ]


def test_strangers_and_failed_logins_are_seen_and_counted_by_their_address(client: Client) -> None:
    for source in ("192.0.2.1", "192.0.2.2"):
        for _ in range(5):
            assert client.request("GET", "/login", query="code=guess", scope=None, source=source).status == 401
            assert client.get("runs", scope="unknown").status in (401, 429)

    login = ("GET /login", 401, "token.refused")
    assert rows(client) == [login, ("runs", 401, "token.refused"), login]


def test_callers_without_end_take_no_more_memory_and_no_more_rows() -> None:
    refusals = RepeatedRefusals(Clock())
    record = AuditRecord(at=AT, who="", action="GET runs", target="/", status=401, why="token.refused")

    written = [
        row
        for number in range(10 * KINDS_MAX)
        for row in refusals.rows_for([AuditRecord(**{**_fields(record), "source": f"a{number}"})])
    ]

    assert len(written) == KINDS_MAX + 1


def _fields(record: AuditRecord) -> dict[str, object]:
    return {name: getattr(record, name) for name in record.__struct_fields__}
