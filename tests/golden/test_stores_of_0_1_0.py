"""Stores that Mulligan 0.1.0 wrote are opened, shown, continued, retried and replayed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest
from tests.support.commands import SRC, mulligan
from tests.support.nightly import POSTGRES

from mulligan.ports import RunRecord
from mulligan.service.home import Home
from mulligan.service.service import Service

from .old_stores import restore_schema, unpack_home

# What each run says at its end when GATE is open. No other wrote anything else.
SAID = {
    "running": "loaded three rows of east, reported",
    "parked": "converged, published",
    "approval": "built, released",
    "backoff": "fetched",
    "failed": "loaded, reported",
    "completed": "visit 2",
    "partly": "summed",
    "parent": "east.example and west.example",
    "loop": "fetched after 4 visits",
    "paused": "first, second",
    "breaker": "answered",
    "artifacts": "4712",
    "cancelled": "second",
}
STATUSES = {
    **dict.fromkeys(("running", "backoff", "map", "parent", "loop", "breaker", "parked", "approval"), "running"),
    **{"completed": "completed", "partly": "completed", "paused": "paused", "cancelled": "cancelled"},
    **dict.fromkeys(("failed", "artifacts"), "failed"),
}


@pytest.fixture(params=["sqlite", POSTGRES])
def home(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    for name in ("MULLIGAN_STORE", "MULLIGAN_SERVER", "MULLIGAN_TOKEN", "MULLIGAN_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MULLIGAN_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("GATE", "open")
    # Nobody judges the dead for so long.
    monkeypatch.setenv("MULLIGAN_LEASE", "2s")
    monkeypatch.chdir(tmp_path)
    if request.param == "sqlite":
        return Home(unpack_home("v0.1.0", tmp_path / "home"))
    url = request.getfixturevalue("schema_url")
    restore_schema("v0.1.0", url)
    monkeypatch.setenv("MULLIGAN_STORE", url)
    return Home(tmp_path / "home", url)


@pytest.fixture
def service(home: Home) -> Iterator[Service]:
    service = Service(home)
    yield service
    service.close()


def by_name(service: Service) -> dict[str, int]:
    """The runs of `workflows/`, by their names."""
    # Examples of the release have some of the names, too, and the newest come first.
    run_ids = {record.workflow: record.run_id for record in reversed(every_run(service))}
    return {name: run_ids[name] for name in STATUSES}


def every_run(service: Service) -> list[RunRecord]:
    return service.reader.store.runs(limit=1000)


def test_every_run_is_listed_shown_explained_and_what_its_log_says(service: Service):
    records = every_run(service)

    for record in records:
        shown = service.runs.show(record.run_id)
        assert shown["status"] == record.status
        assert all(found.line.text for found in service.runs.story(record.run_id))
        result = service.runs.replay(record.run_id)
        assert (result.ok, result.differing) == (True, ()), record.workflow
        assert service.changes.fork(record.run_id, next(iter(shown["steps"])), {}, dry_run=True).steps
    assert {name: service.runs.record(run_id).status for name, run_id in by_name(service).items()} == STATUSES
    assert len(records) > 80


def test_what_was_left_is_continued_retried_and_decided_to_its_end(service: Service):
    run_ids = by_name(service)
    decided = {
        "parked": ("classify", run_ids["parked"], "simulate", "retry", "--reason", "mesh repaired"),
        "approval": ("approve", run_ids["approval"], "ask", "--reason", "looks good"),
        "partly": ("items", run_ids["partly"], "each", "--retry"),
        **{name: ("retry", run_ids[name]) for name in ("failed", "artifacts", "cancelled")},
    }
    [breaker] = service.machine.list_breakers()
    assert (breaker.name, breaker.status, breaker.failures) == ("llm", "open", 2)

    mulligan("breakers", "--reset", "llm")
    for name, words in decided.items():
        assert mulligan(*words, "--follow").code == 0, name
    for name in ("running", "backoff", "map", "parent", "loop", "breaker", "paused"):
        assert mulligan("resume", run_ids[name]).code == 0, name

    outputs = {name: mulligan("show", run_id, "--json").json["outputs"] for name, run_id in run_ids.items()}
    assert {name: outputs[name]["said"] for name in SAID} == SAID
    assert outputs["map"]["said"]["results"] == ["a12", "b12", "c12", "d12"]
    assert mulligan("show", run_ids["artifacts"], "--output", "numbers").json == [*map(str, range(1, 20001))]
    assert all(service.runs.replay(record.run_id).ok for record in every_run(service))


# -- migrating ---------------------------------------------------------------------------------------------------------

# Dies in the middle of the migrations: as it creates a table, between others.
KILLED_IN_A_FILE = """
import os, signal, sys
import apsw
from mulligan.store import open_store

def kill(cursor, sql, bindings):
    if "CREATE TABLE tokens" in sql:
        os.kill(os.getpid(), signal.SIGKILL)
    return True

apsw.connection_hooks.append(lambda connection: connection.set_exec_trace(kill))
open_store(sys.argv[1])
"""
KILLED_ON_A_SERVER = "import sys; from mulligan.store import open_store; open_store(sys.argv[1])"
WAITING = "SELECT 1 FROM pg_locks WHERE relation = 'breakers'::regclass AND NOT granted"


def open_in_a_process(program: str, where: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", program, str(where)], env={**os.environ, "PYTHONPATH": str(SRC)})


def schema_and_tables(home: Home) -> tuple[int, int]:
    """The number of the schema, and how many tables and views there are."""
    if not home.store_url:
        db = apsw.Connection(str(home.folder / "mulligan.db"))
        [(tables,)] = db.execute("SELECT count(*) FROM sqlite_schema WHERE type IN ('table', 'view')")
        found: tuple[int, int] = db.pragma("user_version"), tables
        db.close()
        return found
    with psycopg.connect(home.store_url) as connection:
        [(version,)] = connection.execute("SELECT version FROM schema_version").fetchall()
        tables = "SELECT count(*) FROM information_schema.tables WHERE table_schema = current_schema()"
        return version, fetch_one(connection, tables)


def fetch_one(connection: psycopg.Connection[Any], sql: str) -> Any:
    return connection.execute(sql.encode()).fetchall()[0][0]


def test_a_migration_that_is_killed_has_changed_nothing_and_is_done_by_the_next_one(home: Home):
    before = schema_and_tables(home)

    if home.store_url:
        with psycopg.connect(home.store_url) as other:
            # The last migration but one waits for it.
            other.execute("SELECT count(*) FROM breakers")
            process = open_in_a_process(KILLED_ON_A_SERVER, home.store_url)
            with psycopg.connect(home.store_url, autocommit=True) as watcher:
                while not watcher.execute(WAITING.encode()).fetchall():
                    assert process.poll() is None
                    time.sleep(0.01)
            process.kill()
            process.wait()
    else:
        process = open_in_a_process(KILLED_IN_A_FILE, home.folder / "mulligan.db")
        assert process.wait() == -signal.SIGKILL
    between = schema_and_tables(home)
    service = Service(home)

    assert between == before
    assert before[0] == 5
    assert service.runs.replay(1).ok
    assert schema_and_tables(home)[0] > 10
    service.close()


def test_doctor_says_that_an_older_store_would_be_migrated_and_does_not_migrate_it(home: Home):
    before = schema_and_tables(home)

    checks = {check["name"]: check for check in mulligan("doctor", "--json").json["checks"]}

    assert (checks["store"]["health"], schema_and_tables(home)) == ("warning", before)
    assert " has schema 5 of an older Mulligan; this one migrates it to schema " in checks["store"]["found"]
    assert checks["versions"]["health"] == "ok"
