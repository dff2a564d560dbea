"""A server whose store a newer Mulligan has migrated: it says so, answers nothing else, and writes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import apsw
import psycopg
import pytest
from tests.support.api_client import A_WORKFLOW, Client, open_client
from tests.support.nightly import POSTGRES

from mulligan.errors import StoreOvertaken
from mulligan.service.home import DATABASE, Home
from mulligan.service.server.background_jobs import JOBS, Job, run_jobs
from mulligan.service.service import Service
from mulligan.store.http.http_connection import error_of
from mulligan.store.statements import SQLITE_NEEDED

pytestmark = pytest.mark.postgres

PROTOCOL = {"mulligan-protocol": "1"}


@pytest.fixture(params=["sqlite", POSTGRES])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Home:
    url = request.getfixturevalue("schema_url") if request.param == "postgres" else ""
    return Home(tmp_path / "home", url)


@pytest.fixture
def client(home: Home) -> Iterator[Client]:
    with Service(home) as service:
        service.reader.store.runs()
    opened = open_client(home)
    yield opened
    opened.close()


def migrate(home: Home) -> None:
    """What a migration of a newer release does, beside which older processes cannot work."""
    if home.store_url:
        with psycopg.connect(home.store_url) as connection:
            connection.execute("UPDATE schema_version SET version = 99")
            connection.execute(
                "CREATE OR REPLACE FUNCTION schema_needed() RETURNS bigint LANGUAGE sql STABLE AS 'SELECT 99::bigint'"
            )
        return
    with apsw.Connection(str(home.folder / DATABASE)) as db:
        found = db.execute("SELECT type, name, sql FROM sqlite_schema WHERE sql LIKE '%newer Mulligan%'").fetchall()
        for kind, name, sql in found:
            db.execute(f"DROP {kind} {name}")
            db.execute(sql.replace(SQLITE_NEEDED, "migrated to schema 99"))
        db.pragma("user_version", 99)


def rows(home: Home) -> list[int]:
    """How many rows each table has that a server writes."""
    tables = ("runs", "audit", "documents", "workflow_versions", "tokens", "notices")
    if home.store_url:
        with psycopg.connect(home.store_url) as connection:
            return [connection.execute(f"SELECT count(*) FROM {one}".encode()).fetchall()[0][0] for one in tables]
    with apsw.Connection(str(home.folder / DATABASE)) as db:
        return [db.execute(f"SELECT count(*) FROM {one}").fetchall()[0][0] for one in tables]


def test_it_is_not_ready_refuses_every_call_in_words_and_writes_nothing(client: Client, home: Home) -> None:
    assert client.get("/readyz", scope=None).status == 200
    assert client.post("runs", {"text": A_WORKFLOW}).status == 201
    before = rows(home)

    migrate(home)

    # A change first: it is refused by the store itself, however short ago the server has looked.
    replies = [
        client.post("runs", {"text": A_WORKFLOW}),
        client.get("/readyz", scope=None),
        client.get("runs", limit=1),
        client.get("stats"),
        client.get("runs/1"),
        client.get("workflows"),
        client.put("workflows/nightly", {"text": A_WORKFLOW}),
        client.put("hooks", {"rules": []}),
        client.post("tokens", {"user": "ana", "scopes": ["read"]}),
        client.post("store/read/runs", b'{"limit":5,"before":null,"statuses":[]}', headers=PROTOCOL),
        client.post("store/worker/work.now", b"{}", scope="worker", headers=PROTOCOL),
    ]
    assert [(reply.status, reply.code) for reply in replies] == [(503, "store.overtaken")] * len(replies)
    assert {reply.headers["retry-after"] for reply in replies} == {"30"}
    assert {reply.json["detail"] for reply in replies} == {
        "a newer Mulligan has migrated the store of this server, which answers nothing any more"
    }
    assert rows(home) == before
    # The process is up all the same.
    assert client.get("/healthz", scope=None).status == 200


def test_the_jobs_of_a_server_stop_in_words_and_go_on_only_if_the_store_is_theirs_again(home: Home) -> None:
    with Service(home) as service:
        service.reader.store.runs()
    said: list[str] = []
    left = [3]

    def should_end() -> bool:
        left[0] -= 1
        return left[0] < 0

    def write(service: Service, now: datetime) -> None:
        service.notices.set_hooks(())

    migrate(home)
    before = rows(home)
    run_jobs(
        lambda: Service(home), should_end, said.append, jobs=[*JOBS, Job("hooks", write)], sleep=lambda seconds: None
    )

    assert len(said) == 1
    assert "newer Mulligan" in said[0]
    assert rows(home) == before


def test_a_store_that_is_open_writes_nothing_once_it_is_overtaken_and_a_task_reports_all_the_same(home: Home) -> None:
    with Service(home, "ana") as service:
        outbox = service.reader.store.server_records
        service.notices.set_hooks(())
        migrate(home)

        with pytest.raises(StoreOvertaken):
            service.notices.set_hooks(())
        with pytest.raises(StoreOvertaken):
            outbox.claim_notices("ops", datetime.now(UTC), datetime.now(UTC), 1)
        with pytest.raises(StoreOvertaken):
            service.machine.check_store()


def test_who_comes_over_http_waits_for_such_a_server_as_for_one_that_is_away() -> None:
    body = b'{"type":"x","title":"Store overtaken","status":503,"detail":"migrated","code":"store.overtaken","hint":""}'

    assert error_of(503, body, "here").code == "store.unavailable"
