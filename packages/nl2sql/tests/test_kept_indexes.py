"""Kept indexes: a policy is applied at use, and what does not fit any more is read again."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw
import duckdb
import msgspec
import pytest

import mulligan
from mulligan_nl2sql.command_line import main
from mulligan_nl2sql.database_urls import Database, parse_url
from mulligan_nl2sql.execution.schema_reading import read_schema, read_structure
from mulligan_nl2sql.indexing.kept_indexes import (
    FOLDER,
    KeptIndex,
    digest_of_structure,
    find_index,
    keep_index,
    why_file_does_not_fit,
)
from mulligan_nl2sql.policy import Policy
from mulligan_nl2sql.question_steps import kept
from mulligan_nl2sql.workflows import SCAN

from .shop import POLICY, make_duckdb_shop, make_shop, patient

NOW = datetime(2026, 11, 17, tzinfo=UTC)


@pytest.fixture(params=["sqlite", pytest.param("duckdb", marks=pytest.mark.nightly)])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    maker: Callable[[Path], Path] = {"sqlite": make_shop, "duckdb": make_duckdb_shop}[request.param]
    return parse_url(f"{request.param}:///{maker(tmp_path / f'shop.{request.param}')}")


def test_a_kept_index_with_the_policy_is_what_would_be_read_and_has_no_value_of_what_is_hidden(
    shop: Database, tmp_path: Path
) -> None:
    keep_index(tmp_path, shop, POLICY, NOW)

    index = find_index(tmp_path, shop)

    assert index is not None
    assert POLICY.apply(index.schema) == read_schema(shop, POLICY)
    (file,) = tmp_path.glob("shop-*.json")
    assert "Oslo" in file.read_text()
    assert "@example.com" not in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600


def test_whatever_is_written_to_a_file_makes_its_index_unfit(shop: Database, tmp_path: Path) -> None:
    index = keep_index(tmp_path, shop, POLICY, NOW)
    assert why_file_does_not_fit(index, shop, POLICY) == ""

    if shop.dialect == "sqlite":
        with apsw.Connection(shop.location) as connection:
            connection.execute("update customers set city = 'Bonn' where id = 1")
    else:
        with duckdb.connect(shop.location) as connection:
            connection.execute("update customers set city = 'Bonn' where id = 1")

    assert why_file_does_not_fit(index, shop, POLICY) == "the file has changed"


def test_what_stands_in_the_log_of_a_database_makes_its_index_unfit(tmp_path: Path) -> None:
    writer = apsw.Connection(str(tmp_path / "log.db"))
    list(writer.execute("pragma journal_mode = wal; create table a (x text)"))
    database = parse_url(f"sqlite:///{tmp_path}/log.db")
    index = keep_index(tmp_path, database, patient(), NOW)
    assert why_file_does_not_fit(index, database, patient()) == ""

    writer.execute("insert into a values ('new')")

    assert why_file_does_not_fit(index, database, patient()) == "the file has changed"
    writer.close()


def test_another_policy_makes_an_index_unfit(tmp_path: Path) -> None:
    shop = parse_url(f"sqlite:///{make_shop(tmp_path / 'shop.db')}")
    index = keep_index(tmp_path, shop, POLICY, NOW)

    assert why_file_does_not_fit(index, shop, patient()) == "the policy is another one"
    # It is applied at use in any case: a stricter one leaves less of the same index.
    stricter = patient(tables=("orders",))
    assert [table.name for table in stricter.apply(index.schema).tables] == ["orders"]


def test_the_structure_has_neither_values_nor_sizes(tmp_path: Path) -> None:
    first = parse_url(f"sqlite:///{make_shop(tmp_path / 'shop.db')}")
    larger = parse_url(f"sqlite:///{make_shop(tmp_path / 'larger.db', customers=7, orders=9)}")
    index = keep_index(tmp_path, first, patient(), NOW)

    assert digest_of_structure(index.schema) == digest_of_structure(read_structure(larger, patient()))
    with apsw.Connection(larger.location) as connection:
        connection.execute("alter table orders add column note text")
    assert digest_of_structure(index.schema) != digest_of_structure(read_structure(larger, patient()))


@pytest.mark.parametrize(
    "change",
    [
        lambda index: b"{",
        lambda index: msgspec.json.encode(msgspec.structs.replace(index, version=0)),
        lambda index: msgspec.json.encode(msgspec.structs.replace(index, url="sqlite:////other.db")),
    ],
    ids=["no JSON", "another version", "another database"],
)
def test_a_file_that_is_no_index_of_this_database_is_none(change: Callable[[KeptIndex], bytes], tmp_path: Path) -> None:
    shop = parse_url(f"sqlite:///{make_shop(tmp_path / 'shop.db')}")
    index = keep_index(tmp_path, shop, patient(), NOW)
    (file,) = tmp_path.glob("shop-*.json")
    file.write_bytes(change(index))

    assert find_index(tmp_path, shop) is None


def test_databases_that_need_not_be_read_are_named_and_others_have_a_reason(tmp_path: Path) -> None:
    same = parse_url(f"sqlite:///{make_shop(tmp_path / 'same.db')}")
    changed = parse_url(f"sqlite:///{make_shop(tmp_path / 'changed.db')}")
    # With the policy of who names none, which is compared.
    for database in (same, changed):
        keep_index(tmp_path, database, Policy(), NOW)
    os.utime(changed.location, ns=(1, 1))
    urls = {"same": same.location, "changed": changed.location, "new": same.location, "gone": f"{tmp_path}/gone.db"}
    databases = [{"name": name, "url": f"sqlite:///{path}"} for name, path in urls.items()]

    found = kept(databases, str(tmp_path))

    assert (found["names"], found["misfits"]) == (["same"], {"changed": "the file has changed"})
    assert [one["kept_at"] for one in found["databases"]] == ["2026-11-17T00:00:00+00:00"]


# -- in runs -------------------------------------------------------------------------------------------------------


def test_a_question_uses_the_index_that_fits_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    make_shop(tmp_path / "shop.db")
    databases = ("--db", "sqlite:///shop.db", "--db", "sqlite:///gone.db", "--home", "home")

    assert main(["index", *databases, "--json"]) == 4
    report = json.loads(capsys.readouterr().out)
    assert main(["ask", "how many customers are there?", *databases, "--no-exec", "--json"]) == 4
    answer = json.loads(capsys.readouterr().out)

    first, second = report["databases"]
    assert (first["tables"], first["columns"], first["values"]) == (4, 12, 5)
    assert (second["failure"]["code"], report["status"]) == ("DATABASE_URL_INVALID", "partial")
    shop, gone = answer["receipt"]["databases"]
    assert (shop["tables"], shop["attempts"], shop["kept_at"][:19]) == (4, 0, first["read_at"][:19])
    assert gone["failure"]["code"] == "DATABASE_URL_INVALID"
    assert Path("home", FOLDER).is_dir()


def test_a_wrong_name_in_a_kept_index_makes_the_schema_be_read_again_and_the_same_statement_is_tried(
    tmp_path: Path, mulligan_home: mulligan.Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = parse_url(f"sqlite:///{make_shop(tmp_path / 'shop.db')}")
    old = read_schema(shop, patient())
    with apsw.Connection(shop.location) as connection:
        connection.execute("alter table orders add column note text")
    (tmp_path / "script.toml").write_text('answers = [{sql = "select count(note) as notes from orders"}]')
    monkeypatch.setenv("NL2SQL_SCRIPT", str(tmp_path / "script.toml"))
    index: list[dict[str, Any]] = [{"database": "shop", "schema": msgspec.to_builtins(old)}]

    run = mulligan_home.run(
        SCAN,
        question="notes",
        url=f"sqlite:///{shop.location}",
        database="shop",
        planner="scripted",
        today="2026-11-17",
        index=[index],
        is_kept=True,
        execute=False,
    )

    assert (run.status, run.steps["schema"].visits, run.steps["plan"].visits) == ("completed", 1, 2)
    assert [visit.code for visit in run.failures] == ["SQL_COLUMN_UNKNOWN"]
