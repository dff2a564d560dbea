"""The password of a database is in no message, whatever its URL looks like: of the store and of `sql` steps."""

from __future__ import annotations

import io
import json
import traceback
from contextlib import redirect_stderr
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.nightly import examples

from mulligan import StepError
from mulligan.cli.words.dispatch import exit_code
from mulligan.core.model.text.database_urls import url_problem
from mulligan.errors import MulliganError
from mulligan.store import open_store
from mulligan.worker.actions import sql

# A password is made of these, which occur nowhere else, and of what people forget to escape between them.
PIECES = ("Zq7", "Xv9", "Kw3", "jH8")
BETWEEN = (
    "",
    "%",
    "%s",
    "%4",
    "%00",
    "%41",
    "@",
    ":",
    "/",
    "?",
    "&",
    "=",
    "#",
    "[",
    "]",
    "[::1]",
    " ",
    "\n",
    "\t",
    "'",
)
MORE = (
    '"',
    "\\",
    ",",
    ";",
    "$",
    "é",
    "密",
    "\U0001f511",
    "?user=",
    "&sslmode=",
    "=x&",
    "//",
    "://",
    "\udcff",
    "\ud800",
    "\0",
)

# All at a port at which nobody listens: nothing leaves this machine.
URLS = (
    "postgresql://app:{}@127.0.0.1:1/runs",
    "postgres://app:{}@127.0.0.1:1/runs",
    "postgresql://app:{}@127.0.0.1:1/runs?sslmode=disable",
    "postgresql://app:{}@[::1]:1/runs",
    "postgresql://app:{}@[bad/runs",
    "postgresql://app:{}@127.0.0.1:port/runs",
    "postgresql://app:{}@127.0.0.1:99999/runs",
    "postgresql://app:{}@127.0.0.1:1,127.0.0.1:1/runs",
    "postgresql://{}@127.0.0.1:1:1/runs",
    "postgresql://app:{}@",
    "postgresql://app:{}",
    "postgresql://app:{}/runs",
    "postgresql://127.0.0.1:1/runs?user=app&password={}",
    "postgresql://127.0.0.1:1/runs?password={}&user=app",
    "postgresql://app@127.0.0.1:1/runs?passwd={}",
    "postgresql://app@127.0.0.1:1/runs?sslpassword={}",
    "postgresql://app:{}@127.0.0.1:1/runs?connect_timeout=no",
    "postgresql:/app:{}@127.0.0.1:1/runs",
    "postgresql:app:{}@127.0.0.1:1/runs",
    "PostgreSQL://app:{}@127.0.0.1:1/runs",
    "postgresqll://app:{}@127.0.0.1:1/runs",
    "mysql://app:{}@127.0.0.1:1/runs",
    "sqlite://app:{}@127.0.0.1:1/runs",
    "://app:{}@127.0.0.1:1/runs",
    "app:{}@127.0.0.1:1/runs",
    "app:{}://127.0.0.1:1/runs",
    " postgresql://app:{}@127.0.0.1:1/runs\n",
    "host=127.0.0.1 port=1 user=app password={} dbname=runs",
    "host=127.0.0.1 port=1 user=app password='{}' dbname=runs",
    "dbname=runs password = {}",
)

passwords = st.lists(st.tuples(st.sampled_from(PIECES), st.sampled_from(BETWEEN + MORE)), min_size=1, max_size=4).map(
    lambda parts: "".join(piece + between for piece, between in parts)
)


def filled(url: str, password: str, is_quoted: bool) -> str:
    written = quote(password, safe="", errors="surrogatepass") if is_quoted else password
    # 'app:one@two' without a host behind it is a URL in order, with the password 'one' and the host 'two'.
    return url.format(written if "@" in url or "=" in url else written.replace("@", ""))


urls = st.builds(filled, st.sampled_from(URLS), passwords, st.booleans())


def leaked(said: str) -> list[str]:
    return [piece for piece in PIECES if piece in said]


@settings(max_examples=examples(120, 400))
@given(url=urls)
def test_no_error_of_a_store_has_a_piece_of_its_password(url: str) -> None:
    with pytest.raises(MulliganError) as refused:
        open_store(url)

    error = refused.value
    said = [error.render(), repr(error.data), repr(error), *traceback.format_exception(error)]
    assert leaked("\n".join(said)) == []


@settings(max_examples=examples(120, 400))
@given(url=urls)
def test_no_failure_of_a_sql_step_has_a_piece_of_its_password(url: str) -> None:
    printed = io.StringIO()
    with redirect_stderr(printed), pytest.raises(StepError) as failed:
        sql.run(url, "select 1")

    error = failed.value
    said = [error.code, error.message, json.dumps(error.details), repr(error), *traceback.format_exception(error)]
    assert leaked("\n".join([*said, printed.getvalue()])) == []


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("postgresql://app:pw%s3cret@h/runs", "write '%25' for the character '%'"),
        ("postgresql://app:s3@cret@h/runs", "write it as '%40'"),
        ("postgresql://app:s3/cret@h/runs", "'%2F'"),
        ("postgresql://app:s3cret@[bad/runs", "write an IPv6 address like '[::1]'"),
        ("postgresql://app:s3cret/runs", "is not a port"),
        ("postgresql://app:s3cret@h:seven/runs", "is not a port"),
        ("postgresql://app:s3cret@h:70000/runs", "is not a port"),
        ("postgresql://app:s3\ncret@h/runs", "'%0A'"),
        ("postgresql://h/runs?password=s3&cret", "'%26'"),
    ],
)
def test_what_is_wrong_with_a_url_is_said_with_what_to_write(url: str, words: str) -> None:
    assert words in url_problem(url)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://",
        "postgresql:///runs",
        "postgresql://db.example",
        "postgresql://app@db.example:5432/runs",
        "postgresql://app:s3cret@db.example/runs?sslmode=require&application_name=x",
        "postgresql://app:s3%40%2F%25cret@db.example/runs",
        "postgresql://app:s3:c?r=e#t&@db.example/runs",
        "postgresql://app@[::1]:5432/runs",
        "postgresql://app@[fe80::1%25eth0]/runs",
        "postgresql://one:5432,two:5433,three/runs?target_session_attrs=read-write",
        "postgresql://postgres@/postgres?host=%2Ftmp%2Fpg&options=-csearch_path%3Dtest",
        "postgresql://%2Fvar%2Frun/runs",
        "postgresql://db.example/runs?user=app@tenant&password=s3cret",
        "postgresql://bücher.example/läufe",
    ],
)
def test_a_url_that_postgresql_understands_has_no_problem(url: str) -> None:
    assert url_problem(url) == ""


# -- as a user meets it ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [("list",), ("list", "--json"), ("doctor",), ("doctor", "--json"), ("worker",)])
def test_no_command_shows_the_password_of_the_store(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MULLIGAN_STORE", "postgresql://app:pw%s3cret@h/runs")
    monkeypatch.setenv("MULLIGAN_DEBUG", "1")

    code = exit_code(words)

    shown = "".join(capfd.readouterr())
    assert code == 1
    assert "%25" in shown
    assert "s3cret" not in shown
