"""What a server removes from its store by itself, and that every table has a rule, on both stores."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import apsw
import psycopg
import pytest
from tests.support.nightly import POSTGRES
from tests.support.store_files import write_empty_store

from mulligan.ports import AuditRecord, Document, TokenRecord
from mulligan.service.home import DATABASE, Home
from mulligan.service.host.gc import RunRetention
from mulligan.service.server.background_jobs import JOBS
from mulligan.service.server.retention import Retention, remove_all_old, remove_old
from mulligan.service.server.server_config import RetentionSection, parse_config
from mulligan.service.service import Service

pytestmark = pytest.mark.postgres

NOW = datetime(2026, 6, 1, tzinfo=UTC)
NOTHING = RunRetention()
OPERATIONS = Path(__file__).parents[2] / "docs" / "operate" / "operations.md"
RULES = RetentionSection(audit_days=10, token_days=5)


@pytest.fixture(params=["sqlite", POSTGRES])
def service(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Service]:
    url = request.getfixturevalue("store_schema_url") if request.param == "postgres" else ""
    if not url:
        write_empty_store(tmp_path / "home" / DATABASE)
    with Service(Home(tmp_path / "home", url), "ada") as opened:
        yield opened


def execute(service: Service, statement: str, *values: object) -> None:
    if service.home.store_url:
        with psycopg.connect(service.home.store_url, autocommit=True) as database:
            database.execute(statement.replace("?", "%s"), values)
        return
    connection = apsw.Connection(str(service.home.folder / DATABASE))
    connection.execute(statement, values)
    connection.close()


def test_every_table_of_the_store_has_a_rule_that_bounds_it(service: Service) -> None:
    tables = {one.name for one in service.reader.store.server_records.table_sizes()}
    # Those that the index of words is made of.
    parts = {name for name in tables if name.startswith("run_words_")}

    documented = set(re.findall(r"^\| `(\w+)` \| \S", OPERATIONS.read_text(encoding="utf-8"), re.MULTILINE))
    assert tables - parts <= documented
    assert {"runs", "events", "audit", "tokens", "answers"} <= tables


def test_the_audit_is_kept_for_its_days_and_removed_in_batches(service: Service) -> None:
    records = service.reader.store.server_records
    ages = (30, 20, 11, 9, 0)
    records.add_audit([AuditRecord(NOW - timedelta(days=age), "ada", "POST", f"/{age}", 200) for age in ages])

    first = remove_old(records, RULES, NOW, batch=2)
    second = remove_old(records, RULES, NOW, batch=2)

    assert (first.audit, first.is_cut) == (2, True)
    assert (second.audit, second.is_cut) == (1, False)
    assert [row.target for row in records.audit()] == ["/0", "/9"]


def test_tokens_and_sessions_go_some_days_after_their_end_and_valid_ones_stay(service: Service) -> None:
    records = service.reader.store.server_records
    made = NOW - timedelta(days=90)
    ends = {"long ago": NOW - timedelta(days=6), "lately": NOW - timedelta(days=4), "later": NOW + timedelta(days=1)}
    for name, at in ends.items():
        records.add_token(TokenRecord(f"expires {name}", f"a {name}", "ada", ("read",), made, expires_at=at))
        records.add_token(TokenRecord(f"revoked {name}", f"b {name}", "ada", ("read",), made))
        records.revoke_token(f"revoked {name}", at)
    records.add_token(TokenRecord("for ever", "c", "ada", ("read",), made))

    removed = remove_all_old(records, RULES, NOW)

    assert removed.tokens == 2
    assert {one.id for one in records.tokens()} == {
        "for ever",
        *(f"{how} {name}" for how in ("expires", "revoked") for name in ("lately", "later")),
    }


def test_an_answer_that_nobody_fetched_goes_after_an_hour(service: Service) -> None:
    records = service.reader.store.server_records
    for number in (1, 2, 3):
        execute(service, "INSERT INTO answers VALUES (?, ?)", number, b"{}")

    at_once = remove_old(records, RULES, NOW)
    execute(service, "INSERT INTO answers VALUES (?, ?)", 4, b"{}")
    soon = remove_old(records, RULES, NOW + timedelta(minutes=59))
    later = remove_old(records, RULES, NOW + timedelta(minutes=61))

    assert (at_once.answers, soon.answers, later.answers) == (0, 0, 3)
    assert records.newest_answer() == 4
    assert remove_old(records, RULES, NOW + timedelta(hours=3)).answers == 1


def test_links_that_nobody_used_and_marks_of_readers_go_after_a_day(service: Service) -> None:
    records = service.reader.store.server_records
    for kind in ("login", "log_watch", "draft"):
        for name, age in (("old", 30), ("new", 1)):
            records.put_document(Document(kind, name, b"{}", NOW - timedelta(hours=age)))

    assert remove_old(records, RULES, NOW).documents == 2
    assert [one.name for one in records.documents("login")] == ["new"]
    assert len(records.documents("draft")) == 2


def test_a_server_does_it_every_hour_by_its_configuration(service: Service) -> None:
    records = service.reader.store.server_records
    (service.home.folder).mkdir(parents=True, exist_ok=True)
    (service.home.folder / "server.toml").write_text("[retention]\naudit_days = 2\n")
    records.add_audit([AuditRecord(NOW - timedelta(days=3), "ada", "POST", "/", 200)])
    job = next(job for job in JOBS if job.name == "retention")

    following = job.work(service, NOW)

    assert following == NOW + timedelta(hours=1)
    assert records.audit() == []
    assert parse_config("").retention == RetentionSection(audit_days=365, token_days=30)


def test_gc_removes_old_rows_and_says_how_many(service: Service) -> None:
    records = service.reader.store.server_records
    records.add_audit([AuditRecord(datetime.now(UTC) - timedelta(days=400), "ada", "POST", "/", 200)])

    dry = service.machine.collect_garbage(NOTHING, is_dry=True)
    found = service.machine.collect_garbage(NOTHING)

    assert (dry.rows, found.rows, records.audit()) == ({}, {"audit": 1}, [])


def write_file(path: Path, age: timedelta) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"half")
    at = (datetime.now(UTC) - age).timestamp()
    os.utime(path, (at, at))
    return path


def test_a_server_removes_uploads_and_half_written_artifacts_of_an_hour_ago(service: Service) -> None:
    home = service.home.folder
    old, young = timedelta(minutes=61), timedelta(minutes=59)
    gone = [write_file(home / "uploads" / "a", old)]
    left = [write_file(home / "uploads" / "b", young)]
    if not service.home.store_url:
        folder = home / "artifacts" / "1" / "build" / "1" / "1"
        gone.append(write_file(folder / ".half-a", old))
        left += [write_file(folder / ".half-b", young), write_file(folder / "output.json", old)]
    job = next(job for job in JOBS if job.name == "retention")

    job.work(service, NOW)

    assert [path for path in gone if path.exists()] == []
    assert [path for path in left if not path.exists()] == []


def test_files_are_looked_at_in_batches_and_all_of_them_in_the_end(service: Service) -> None:
    home = service.home.folder
    old = timedelta(days=1)
    files = [write_file(home / "uploads" / f"{number}", old) for number in range(5)]
    if not service.home.store_url:
        files += [write_file(home / "artifacts" / "1" / f"{number}" / ".half-a", old) for number in range(5)]
    abandoned = Retention(service.home, service.reader.store, batch=2)

    looks, is_cut = 0, False
    while looks == 0 or is_cut:
        is_cut = abandoned.remove_files(datetime.now(UTC))
        looks += 1

    assert [path for path in files if path.exists()] == []
    assert looks >= 3
