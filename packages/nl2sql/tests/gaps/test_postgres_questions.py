"""Questions to PostgreSQL: the role, the time of a statement, and a server that goes away."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from mulligan.testing.postgres import GIVEN

from ..postgres_shop import PostgresShop
from .asked_questions import Asked, asking
from .simulated_home import Planner, SimulatedHome, execute_here

pytestmark = pytest.mark.skipif(GIVEN in os.environ, reason="needs roles and a database of its own")

CITIES = "select city, count(*) as n from customers group by city order by city"
SLOW = "select count(*) as n from " + ", ".join(f"orders o{n}" for n in range(8))


@pytest.fixture(scope="module")
def postgres(server_url: str) -> Iterator[PostgresShop]:
    with PostgresShop.made(server_url) as made:
        yield made


def asked(capsys: pytest.CaptureFixture[str], url: str, sql: str, *, seconds: float = 60) -> Asked:
    """Everything that asks the server is real: its queries run in processes of their own."""
    Path("policy.toml").write_text(f"[databases.shop.limits]\ncost = 1e300\nseconds = {seconds}\n")
    home = SimulatedHome(Path("home"))
    run = home.ask(
        functions={"plan": Planner(sql), "execute": execute_here},
        real=("index", "explain"),
        databases=[{"name": "shop", "url": url}],
        policy="policy.toml",
    )
    home.store.close()
    return asking(capsys)("resume", str(run))


def scan_of(answer: dict[str, Any]) -> dict[str, Any]:
    (scan,) = answer["receipt"]["scans"]
    return scan  # type: ignore[no-any-return]


@pytest.mark.nightly
def test_a_question_on_the_command_line_is_answered_with_a_role_that_may_only_read(
    postgres: PostgresShop, capsys: pytest.CaptureFixture[str]
) -> None:
    question = "how many customers are there in each city?"

    code, answer = asking(capsys)("ask", question, "--db", f"shop={postgres.reader_url}")

    assert (code, answer["status"]) == (0, "answered")
    assert sorted(row["city"] for row in answer["results"][0]["rows"]) == ["Bern", "Oslo", "Rome"]
    assert scan_of(answer)["tables"] == ["public.customers"]


def test_nothing_is_asked_with_a_role_that_may_write(
    postgres: PostgresShop, capsys: pytest.CaptureFixture[str]
) -> None:
    code, answer = asked(capsys, postgres.owner_url, CITIES)

    assert (code, answer["failure"]["code"], answer["failure"]["severity"]) == (1, "DATABASE_UNSAFE", "critical")
    assert (answer["failure"]["step"], scan_of(answer)["executed"], answer["results"]) == ("explain", False, [])


def test_a_statement_that_takes_too_long_ends_the_question_and_its_session(
    postgres: PostgresShop, capsys: pytest.CaptureFixture[str]
) -> None:
    code, answer = asked(capsys, postgres.reader_url, SLOW, seconds=1.5)

    # On a machine that is very busy it may be the schema that takes too long.
    assert (code, answer["failure"]["code"]) == (1, "QUERY_TIMEOUT")
    assert all(scan["attempts"]["plan"] == 1 for scan in answer["receipt"]["scans"])
    assert sessions_that_count(postgres) == []


def sessions_that_count(postgres: PostgresShop) -> list[int]:
    query = "select pid from pg_stat_activity where datname = %s and state = 'active' and query like 'FETCH%%'"
    with psycopg.connect(postgres.superuser_url, autocommit=True) as connection:
        return [pid for (pid,) in connection.execute(query.encode(), [postgres.name]).fetchall()]


@pytest.mark.nightly
def test_a_server_that_goes_away_in_the_middle_of_a_query_is_asked_again(
    postgres: PostgresShop, capsys: pytest.CaptureFixture[str]
) -> None:
    """The session is ended by the server, and with one order the same statement is answered at once."""
    is_over = threading.Event()

    def end_session() -> None:
        while not (found := sessions_that_count(postgres)) and not is_over.wait(0.05):
            pass
        with psycopg.connect(postgres.superuser_url, autocommit=True) as connection:
            connection.execute("delete from orders where id > 1")
            for pid in found:
                connection.execute("select pg_terminate_backend(%s)", [pid])

    thread = threading.Thread(target=end_session)
    thread.start()
    try:
        code, answer = asked(capsys, postgres.reader_url, SLOW)
    finally:
        is_over.set()
        thread.join()
        postgres.fill()

    scan = scan_of(answer)
    assert (code, answer["results"][0]["rows"], scan["attempts"]["execute"]) == (0, [{"n": 1}], 2)
    (error,) = scan["errors"]
    assert (error["step"], error["code"], error["resolved_by"]) == ("execute", "DATABASE_UNREACHABLE", "retry")
