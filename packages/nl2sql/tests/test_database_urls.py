"""URLs of databases."""

from __future__ import annotations

from pathlib import Path

import pytest

from mulligan_nl2sql.database_urls import parse_url
from mulligan_nl2sql.failures import Code, QueryFailed


@pytest.mark.parametrize("scheme", ["sqlite", "duckdb"])
def test_a_file_is_named_by_its_path(scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my shop.db").touch()
    monkeypatch.chdir(tmp_path)

    relative, absolute = parse_url(f"{scheme}:///my%20shop.db"), parse_url(f"{scheme}:///{tmp_path}/my shop.db")

    assert relative == absolute
    assert (relative.dialect, relative.name) == (scheme, "my_shop")
    assert relative.location == str(tmp_path / "my shop.db")


def test_passwords_are_not_shown() -> None:
    database = parse_url("postgresql://ann:s%40crt@db.example:5432/sales?sslpassword=hush")

    assert (database.dialect, database.name) == ("postgres", "sales")
    assert database.redact("no s%40crt, no s@crt, no hush") == "no •••, no •••, no •••"


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("shop.db", "the URL is no known database"),
        ("mysql://ann:secret@host/x", "'mysql://…' is no known database"),
        ("sqlite://shop.db", "a sqlite database has no host: write 'sqlite:///'"),
        ("sqlite:///", "needs the path of a file"),
        ("sqlite:///:memory:", "a database in memory has nothing to read"),
        ("sqlite:///shop.db?mode=rwc", "may have no '?'"),
        ("duckdb:///missing.duckdb", "there is no file"),
    ],
)
def test_a_wrong_url_is_refused_in_words(
    url: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(QueryFailed) as caught:
        parse_url(url)

    assert caught.value.code == Code.URL_INVALID
    assert message in caught.value.message
    assert "secret" not in caught.value.message
