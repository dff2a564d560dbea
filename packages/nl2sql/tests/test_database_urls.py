"""URLs of databases."""

from __future__ import annotations

from pathlib import Path

import pytest

from mulligan_nl2sql.database_urls import parse_url, url_to_keep
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
        ("sqlite:///.", "is not a file"),
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


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:hunter?zw@127.0.0.1:3/x",
        "postgresql://u:hunter#zw@127.0.0.1:3/x",
        "postgres://u:hunter/zw@127.0.0.1/x",
        "postgres://u:hunter@zw@127.0.0.1/x",
        "postgres://u:hunter/zw",
        "postgresql://u:hunter%zw@127.0.0.1/x",
        "POSTGRESQL://u:hunter zw@127.0.0.1/x",
    ],
)
def test_a_password_that_is_not_percent_encoded_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(QueryFailed, match="percent-encode") as caught:
        parse_url(url)

    assert caught.value.code == Code.URL_INVALID
    assert "hunter" not in caught.value.message and "zw" not in caught.value.message


@pytest.mark.parametrize("key", ["password", "PASSWORD", "pass%57ord", "SslPassword"])
def test_a_password_among_the_parameters_is_not_kept(key: str) -> None:
    database = parse_url(f"postgresql://u@127.0.0.1/x?{key}=hunter")

    with pytest.raises(QueryFailed) as caught:
        url_to_keep(database)

    assert caught.value.code == Code.URL_INVALID and "hunter" not in caught.value.message
    assert database.redact("hunter") == "•••"


@pytest.mark.parametrize("host", ["h:99999", "h:0", "h:x", "a b", "[::1", "h1:5,h2:x"])
def test_a_host_or_a_port_that_cannot_be_is_refused(host: str) -> None:
    with pytest.raises(QueryFailed) as caught:
        parse_url(f"postgresql://u@{host}/x")

    assert caught.value.code == Code.URL_INVALID


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:a%2Fb%3F%23%40@[::1]:5432,h2:/x?sslmode=require",
        "postgresql:///x?host=/var/run/postgresql",
        "postgresql://%2Fvar%2Frun/x",
    ],
)
def test_what_postgresql_understands_is_taken(url: str) -> None:
    assert parse_url(url).name == "x"
