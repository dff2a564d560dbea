"""One question and several databases: who is asked, what is combined, and what is missing."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import apsw
import pytest

from mulligan_nl2sql.command_line import main

from .shop import make_shop

SHOP = ("--db", "sqlite:///shop.db")
HELP = ("--db", "help=sqlite:///support.db")
GONE = ("--db", "sqlite:///gone.db")


@pytest.fixture(autouse=True)
def _databases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_shop(tmp_path / "shop.db")
    make_support(tmp_path / "support.db")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MULLIGAN_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NL2SQL_SCRIPT", str(tmp_path / "script.toml"))


def make_support(path: Path) -> None:
    connection = apsw.Connection(str(path))
    connection.execute(
        "create table tickets (id integer primary key, priority text, opened_on date);"
        "create table customers (id integer primary key, city text);"
        "insert into tickets values (1, 'low', '2024-01-02'), (2, 'urgent', '2025-02-03');"
        "insert into customers values (1, 'Oslo')"
    )
    connection.close()


def ask(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """The JSON, which must agree with the exit code."""
    code = main([*arguments, "--json"])
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert answer["exit_code"] == code
    return answer


def test_the_same_columns_become_one_table_that_says_which_database_a_row_is_from(
    capsys: pytest.CaptureFixture[str],
) -> None:
    answer = ask(capsys, "ask", "how many customers are there?", *SHOP, *HELP)

    assert (answer["status"], answer["warnings"]) == ("answered", [])
    (result,) = answer["results"]
    assert result["columns"] == ["database", "customer_count"]
    assert result["rows"] == [
        {"database": "shop", "customer_count": 30},
        {"database": "help", "customer_count": 1},
    ]
    files = [scan["file"] for scan in answer["receipt"]["scans"]]
    assert [Path(file).read_text() for file in files] == ['{"customer_count":30}\n', '{"customer_count":1}\n']


@pytest.mark.nightly
def test_a_question_that_no_database_explains_alone_is_split_and_its_results_stay_apart(
    capsys: pytest.CaptureFixture[str],
) -> None:
    answer = ask(capsys, "ask", "how many orders are there and how many tickets are there?", *SHOP, *HELP)

    assert [(one["databases"], one["rows"]) for one in answer["results"]] == [
        (["shop"], [{"order_count": 60}]),
        (["help"], [{"ticket_count": 2}]),
    ]


def test_a_database_that_is_missing_makes_the_answer_partial_and_with_strict_a_failure(
    capsys: pytest.CaptureFixture[str],
) -> None:
    answer = ask(capsys, "ask", "how many tickets are there?", *GONE, *HELP)

    assert (answer["status"], answer["exit_code"], answer["failure"]) == ("partial", 4, None)
    assert answer["results"][0]["rows"] == [{"ticket_count": 2}]
    (warning,) = answer["warnings"]
    assert warning.startswith("the answer is not whole: gone was not read: DATABASE_URL_INVALID: there is no file ")
    assert ask(capsys, "resume", str(answer["run"])) == answer

    answer = ask(capsys, "ask", "how many tickets are there?", *GONE, *HELP, "--strict")

    assert (answer["status"], answer["exit_code"], answer["results"]) == ("failed", 1, [])
    assert answer["failure"]["code"] == "ANSWER_INCOMPLETE"
    (scan,) = answer["receipt"]["scans"]
    assert (scan["status"], scan["rows"]) == ("answered", 1)


# -- a planner that decomposes -------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_a_planner_is_asked_once_and_what_it_took_is_in_the_receipt(capsys: pytest.CaptureFixture[str]) -> None:
    Path("script.toml").write_text("""
        [[decompositions]]
        parts = [{database = "shop", question = "first"}, {database = "help", question = "second"}]
        usage = {input_tokens = 100}
        [[answers]]
        question = "first"
        sql = "select count(*) as n from orders"
        usage = {input_tokens = 20}
        [[answers]]
        question = "second"
        attempt = 1
        sql = "select wrong from tickets"
        usage = {input_tokens = 3}
        [[answers]]
        question = "second"
        refusal = "there is nothing better"
        usage = {input_tokens = 4}
    """)

    answer = ask(capsys, "ask", "all of it", *SHOP, *HELP, "--planner", "scripted")

    assert (answer["status"], [one["rows"] for one in answer["results"]]) == ("partial", [[{"n": 60}]])
    assert answer["warnings"] == ["the answer is not whole: help refused: there is nothing better"]
    receipt = answer["receipt"]
    assert (receipt["decomposed_by"], receipt["attempts"], receipt["usage"]["input_tokens"]) == ("model", 1, 127)
    assert [scan["usage"]["input_tokens"] for scan in receipt["scans"]] == [20, 7]


@pytest.mark.nightly
def test_a_critical_failure_fails_the_question_whatever_the_others_say(capsys: pytest.CaptureFixture[str]) -> None:
    Path("script.toml").write_text("""
        [[decompositions]]
        parts = [{database = "shop", question = "first"}, {database = "help", question = "second"}]
        [[answers]]
        question = "first"
        sql = "select count(*) as n from orders"
        [[answers]]
        question = "second"
        sql = "drop table tickets"
    """)

    answer = ask(capsys, "ask", "all of it", *SHOP, *HELP, "--planner", "scripted")

    assert (answer["status"], answer["exit_code"], answer["results"]) == ("failed", 1, [])
    assert (answer["failure"]["code"], answer["failure"]["severity"]) == ("SQL_NOT_A_QUERY", "critical")
    assert [scan["status"] for scan in answer["receipt"]["scans"]] == ["answered", "failed"]


def test_a_decomposition_that_does_not_fit_is_asked_for_once_more_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    Path("script.toml").write_text('decompositions = [{parts = [{database = "salaries", question = "all"}]}]')

    answer = ask(capsys, "ask", "all of it", *SHOP, *HELP, "--planner", "scripted")

    assert (answer["status"], answer["failure"]["code"]) == ("failed", "OUTPUT_INVALID")
    assert "there is no database 'salaries'" in answer["failure"]["message"]
    assert (answer["receipt"]["attempts"], answer["receipt"]["scans"]) == (2, [])


@pytest.mark.nightly
def test_an_agent_is_asked_by_the_engine_which_databases_get_which_part(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = {"parts": [{"database": "help", "question": "all tickets"}]}
    Path("agent.py").write_text(f"""
import json, os, sys
prompt = sys.stdin.read()
content = {json.dumps(parts)!r} if "Database shop:" in prompt else "select count(*) as n from tickets"
with open(os.environ["MULLIGAN_OUTPUT"], "w") as output:
    json.dump({{"content": content, "tokens": {{"input": 9, "output": 1}}}}, output)
""")
    monkeypatch.setenv("MULLIGAN_AGENT_LOCAL", f"{sys.executable} agent.py")

    answer = ask(capsys, "ask", "all of it", *SHOP, *HELP, "--planner", "local")

    assert (answer["status"], answer["results"][0]["rows"]) == ("answered", [{"n": 2}])
    receipt = answer["receipt"]
    (scan,) = receipt["scans"]
    assert (receipt["decomposed_by"], receipt["attempts"], scan["question"]) == ("model", 1, "all tickets")
    assert (scan["usage"]["output_tokens"], receipt["usage"]["output_tokens"]) == (1, 2)


# -- before anything runs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([*SHOP, *SHOP], "two databases are called 'shop': name them, as in --db shop_2=URL"),
        ([*SHOP, "--db", "SHOP=sqlite:///support.db"], "two databases are called 'shop'"),
        (["--db", "a b=sqlite:///shop.db"], "'a b' is no name for a database"),
        (["--db", "postgresql:/u:pass=word@h/x"], "'…' is no name for a database"),
        ([*GONE, "--db", "sqlite:///none.db"], "there is no file"),
        (["--db", "sqlite:///shop.db"] * 17, "17 databases are given, and a question may have 16"),
        ([*SHOP, *HELP, "--policy", "policy.toml"], "the policy file has no section for the database 'help'"),
    ],
)
def test_databases_that_cannot_be_asked_are_refused_before_a_run(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    Path("policy.toml").write_text("[databases.shop]\n")

    answer = ask(capsys, "ask", "how many customers", *arguments)

    assert (answer["exit_code"], answer["run"]) == (2, None)
    assert message in answer["failure"]["message"]
    assert "pass" not in answer["failure"]["message"]
    assert not (tmp_path / "home").exists()
