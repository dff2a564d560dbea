"""One question for SQLite, DuckDB and PostgreSQL together, and the kept index of a server."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from mulligan.testing.postgres import GIVEN
from mulligan_nl2sql.command_line import main
from mulligan_nl2sql.execution.schema_reading import read_schema
from mulligan_nl2sql.indexing.kept_indexes import SECONDS_MAX, find_index, keep_index, why_server_does_not_fit
from mulligan_nl2sql.question_steps import index

from .postgres_shop import PostgresShop
from .shop import make_duckdb_shop, make_shop, patient

pytestmark = pytest.mark.skipif(GIVEN in os.environ, reason="needs roles and a database of its own")

NOW = datetime(2026, 11, 17, tzinfo=UTC)


@pytest.fixture(scope="module")
def server(server_url: str) -> Iterator[PostgresShop]:
    with PostgresShop.made(server_url) as made:
        yield made


@pytest.mark.nightly
def test_three_databases_answer_together_and_one_table_says_which(
    server: PostgresShop, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # So that no other test finds the password.
    monkeypatch.setenv("NL2SQL_PASSWORDS", "")
    make_shop(tmp_path / "files.db", customers=12)
    make_duckdb_shop(tmp_path / "columns.duckdb")
    databases = [f"sqlite:///{tmp_path}/files.db", f"duckdb:///{tmp_path}/columns.duckdb", f"rows={server.reader_url}"]

    code = main(
        [
            *("ask", "how many customers are in each city?", "--json", "--home", str(tmp_path / "home")),
            *(word for url in databases for word in ("--db", url)),
        ]
    )

    answer = json.loads(capsys.readouterr().out)
    assert (code, answer["status"], answer["warnings"]) == (0, "answered", [])
    (result,) = answer["results"]
    assert result["columns"] == ["database", "city", "customer_count"]
    counts = {(row["database"], row["city"]): row["customer_count"] for row in result["rows"]}
    assert counts == {
        (database, city): count
        for database, count in (("files", 4), ("columns", 10), ("rows", 10))
        for city in ("Bern", "Oslo", "Rome")
    }
    assert [scan["status"] for scan in answer["receipt"]["scans"]] == ["answered"] * 3


@pytest.mark.nightly
def test_the_index_of_a_server_fits_for_an_hour_and_as_long_as_its_structure_is_the_same(
    server: PostgresShop, tmp_path: Path
) -> None:
    database, policy = server.reader(), patient()
    keep_index(tmp_path, database, policy, NOW)
    known = find_index(tmp_path, database)
    assert known is not None

    def misfit(after: timedelta) -> str:
        return why_server_does_not_fit(known, database, policy, NOW + after)

    assert policy.apply(known.schema) == read_schema(database, policy)
    assert misfit(timedelta(seconds=SECONDS_MAX)) == ""
    assert misfit(timedelta(seconds=SECONDS_MAX + 1)) == misfit(-timedelta(seconds=1)) == "it is more than an hour old"

    server.connection(server.owner_url).execute("alter table orders add column note text")

    assert misfit(timedelta()) == "the structure has changed"


@pytest.mark.nightly
def test_a_question_says_why_the_index_of_a_server_was_not_used(server: PostgresShop, tmp_path: Path) -> None:
    keep_index(tmp_path, server.reader(), patient(), NOW - timedelta(days=1000))

    found = index(server.reader_url, "shop", index=str(tmp_path))

    assert (found.get("kept_at", ""), found["misfit"]) == ("", "it is more than an hour old")
