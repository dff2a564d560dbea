"""`nl2sql ask`: a question is a run, and answer, JSON and exit code agree."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

import mulligan
from mulligan_nl2sql.asking.answers import (
    EXIT_CODES,
    Answer,
    DatabaseReceipt,
    FailedAttempt,
    Problem,
    Receipt,
    Result,
    ScanReceipt,
    Status,
)
from mulligan_nl2sql.asking.shown_answers import show_answer, show_problem
from mulligan_nl2sql.command_line import main
from mulligan_nl2sql.database_urls import give_passwords, parse_url, url_to_keep, url_with_password
from mulligan_nl2sql.demo.questions import DemoQuestion, play
from mulligan_nl2sql.failures import RULES
from mulligan_nl2sql.planning.failures import REFUSED
from mulligan_nl2sql.planning.planner import Usage
from mulligan_nl2sql.steps import plan, refine
from mulligan_nl2sql.workflows import ASK, SCAN

from .shop import make_shop, schema_of

SCRIPT = Path(__file__).with_name("scripted_answers.toml")
REPAIRED = {code.value for code, rule in RULES.items() if rule.repair}


@pytest.fixture(autouse=True)
def _shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_shop(tmp_path / "shop.db")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MULLIGAN_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NL2SQL_SCRIPT", str(SCRIPT))


def ask(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    """The exit code and the JSON, which have to agree."""
    code = main([*arguments, "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert answer["exit_code"] == code
    return code, answer


def scripted(capsys: pytest.CaptureFixture[str], question: str, *more: str) -> tuple[int, dict[str, Any]]:
    return ask(capsys, "ask", question, "--db", "sqlite:///shop.db", "--planner", "scripted", *more)


# -- runs ----------------------------------------------------------------------------------------------------------


def test_a_mistake_of_the_planner_is_repaired_and_the_receipt_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    code, answer = scripted(capsys, "repaired")

    assert (code, answer["status"], answer["failure"]) == (0, "answered", None)
    (result,) = answer["results"]
    assert result["rows"] == [{"name": "customer 1", "city": "Oslo"}, {"name": "customer 2", "city": "Rome"}]
    (receipt,) = answer["receipt"]["scans"]
    assert (receipt["tables"], receipt["rows"], receipt["cut"]) == (["main.customers"], 2, "")
    assert receipt["attempts"] == {"plan": 2, "check": 2, "explain": 1, "execute": 1}
    assert [(one["database"], one["tables"], one["attempts"]) for one in answer["receipt"]["databases"]] == [
        ("shop", 4, 1)
    ]
    (error,) = receipt["errors"]
    assert (error["step"], error["code"], error["resolved_by"]) == ("check", "SQL_COLUMN_UNKNOWN", "repair")
    assert Path(receipt["file"]).read_text().count("\n") == 2
    # Asked again, it is the same answer from the same run; and as text.
    assert ask(capsys, "resume", "latest") == (code, answer)
    assert main(["resume", "1"]) == 0
    assert "customer 1  Oslo" in capsys.readouterr().out


@pytest.mark.nightly
def test_a_question_whose_deadline_has_passed_can_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    make_shop(Path("second.db"))
    databases = ("--db", "sqlite:///shop.db", "--db", "sqlite:///second.db")
    question = ("ask", "how many customers are in each city?", *databases, "--no-exec")

    code, answer = ask(capsys, *question, "--deadline", "1ms")
    assert (code, answer["status"], answer["results"]) == (124, "unfinished", [])

    code, answer = ask(capsys, "resume", str(answer["run"]))
    assert (code, answer["status"], answer["results"]) == (0, "answered", [])
    receipt, second = answer["receipt"]["scans"]
    assert (receipt["database"], second["database"], second["status"]) == ("shop", "second", "answered")
    assert (receipt["executed"], receipt["cost"]) == (False, 30.0)
    assert {"words": "customers", "meaning": "table customers"} in receipt["explained"]


@pytest.mark.parametrize("seconds", ["1ms", "900ms"])
def test_a_deadline_holds_for_a_program_that_ignores_ctrl_c(seconds: str) -> None:
    """As a script has it that starts it in the background. It passes before the run is driven, and while it is."""
    code = "import signal, sys\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    code += "from mulligan_nl2sql import command_line\nsys.exit(command_line.main())"
    slow = {**os.environ, "MULLIGAN_AGENT_SLOW": "sleep 600"}
    question = (
        "ask",
        "how many customers are in each city?",
        "--db",
        "sqlite:///shop.db",
        "--planner",
        "slow",
        "--json",
    )

    done = subprocess.run(
        [sys.executable, "-c", code, *question, "--deadline", seconds], capture_output=True, text=True, env=slow
    )

    assert (done.returncode, json.loads(done.stdout)["status"]) == (124, "unfinished")


def test_the_deadline_of_the_program_counts_from_its_start() -> None:
    """What Python needs to load the program is a part of the time that a user waits."""
    code = "import time\nfrom mulligan_nl2sql import command_line\nused = time.process_time()\n"
    code += "print(command_line._seconds_since_start() > used - 0.02, flush=True)\ncommand_line.main()"
    question = ("ask", "how many customers are in each city?", "--db", "sqlite:///shop.db", "--json")

    done = subprocess.run([sys.executable, "-c", code, *question, "--deadline", "1ms"], capture_output=True, text=True)

    first, _, answer = done.stdout.partition("\n")
    assert (first, done.returncode, json.loads(answer)["status"]) == ("True", 124, "unfinished")


def test_a_refusal_names_the_words_and_has_an_exit_code_of_its_own_as_the_demo_shows(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert play([DemoQuestion("revenue in 2024", 3)]) == [3]

    shown = capsys.readouterr()
    assert shown.out.startswith("$ nl2sql ask 'revenue in 2024' --db sqlite:///")
    assert "(exit code 3)" in shown.out
    assert shown.err.splitlines()[0] == "refused[QUESTION_REFUSED]: not explained by the schema: 'revenue'"


# -- before anything runs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--db", "sqlite:///none.db"], "DATABASE_URL_INVALID"),
        (["--db", "oracle://x"], "DATABASE_URL_INVALID"),
        (["--db", "sqlite:///shop.db", "--policy", "none.toml"], "POLICY_INVALID"),
        (["--db", "sqlite:///shop.db", "--planner", "openai"], "INPUT_INVALID"),
        (["--db", "sqlite:///shop.db", "--planner", "nobody"], "INPUT_INVALID"),
        (["--db", "postgresql://ada@host/shop?password=secret"], "DATABASE_URL_INVALID"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_a_run(
    arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, answer = ask(capsys, "ask", "how many customers", *arguments)

    assert (code, answer["status"], answer["failure"]["code"], answer["run"]) == (2, "failed", problem, None)
    assert "secret" not in json.dumps(answer)
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["ask"],
        ["ask", "q"],
        ["ask", "q", "--db", "x", "--deadline", "soon"],
    ],
)
def test_wrong_usage_says_what_is_wrong(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)

    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_an_empty_question_and_an_unknown_run_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ask", " ", "--db", "sqlite:///shop.db"]) == 2
    assert main(["resume", "7"]) == 2

    empty, unknown = capsys.readouterr().err.splitlines()
    assert empty == "error[QUESTION_INVALID]: the question is empty"
    assert unknown.startswith("error[run.unknown]: there is no run 7")


def test_a_run_of_something_else_is_no_question(capsys: pytest.CaptureFixture[str]) -> None:
    flow = mulligan.Workflow("hello")
    flow.step("pause", wait="1h")
    mulligan.Home().start(flow)

    assert main(["resume", "1"]) == 2
    assert "run 1 is no question" in capsys.readouterr().err


# -- policy, doctor ------------------------------------------------------------------------------------------------


def test_what_may_be_read_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    Path("policy.toml").write_text(
        '[databases.shop]\ntables = ["customers", "orders"]\nhidden = ["customers.email"]\nfunctions = ["replace"]\n'
    )

    assert main(["policy", "--db", "sqlite:///shop.db", "--policy", "policy.toml"]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[:5] == [
        "shop (sqlite)",
        "  main.customers: id, name, city; hidden: email",
        "  main.orders: id, customer_id, total, placed, status",
        "hidden tables: main.payroll, main.salaries",
        "further functions: replace",
    ]
    assert lines[5].startswith("limits: seconds 10.0, ")


def test_a_doctor_finds_what_keeps_questions_from_being_asked(capsys: pytest.CaptureFixture[str]) -> None:
    Path("text.db").write_text("this is no database, whatever its name says")

    healthy = main(["doctor", "--db", "sqlite:///shop.db"])
    said = capsys.readouterr().out
    code = main(["doctor", "--db", "sqlite:///text.db", "--planner", "openai", "--json"])
    found = json.loads(capsys.readouterr().out)

    assert (healthy, said.splitlines()[-1]) == (0, "shop can be asked")
    assert "ok       schema: 4 tables may be read" in said
    assert (code, found["is_usable"]) == (1, False)
    assert [one["name"] for one in found["findings"] if one["is_problem"]] == ["database", "planner"]


def test_a_database_that_cannot_be_read_is_no_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    Path("text.db").write_text("this is no database, whatever its name says")

    assert main(["policy", "--db", "sqlite:///text.db"]) == 1
    assert capsys.readouterr().err.startswith("error[DATABASE_UNUSABLE]: ")


# -- the steps -----------------------------------------------------------------------------------------------------


def test_sql_that_has_failed_already_fails_in_the_same_way() -> None:
    schema = msgspec.to_builtins(schema_of("sqlite"))
    first = plan("the same", schema, "2026-11-17", "scripted")
    failed = refine(first, "SQL_COLUMN_UNKNOWN", "no column 'nam'", {"repair": "schema"})

    with pytest.raises(mulligan.StepError) as raised:
        plan("the same", schema, "2026-11-17", "scripted", failed)

    assert (raised.value.code, raised.value.retryable) == ("SQL_COLUMN_UNKNOWN", False)
    assert raised.value.message.startswith("no column 'nam'")
    assert failed == [
        {
            "sql": "select  nam from customers;",
            "code": "SQL_COLUMN_UNKNOWN",
            "message": "no column 'nam'",
            "repair": "schema",
        }
    ]


# -- the workflow --------------------------------------------------------------------------------------------------


WORKFLOW = yaml.safe_load(SCAN.read_text())


def test_a_question_and_its_scans_have_the_same_breakers_and_retries() -> None:
    asking = yaml.safe_load(ASK.read_text())

    assert asking["breakers"] == WORKFLOW["breakers"]
    # Agents are asked by scans alone.
    assert asking["retry_policies"] == WORKFLOW["retry_policies"]


def codes_of_retries() -> set[str]:
    return {
        code for policy in WORKFLOW["retry_policies"].values() for rule in policy["rules"] for code in rule["codes"]
    }


def test_exactly_the_failures_that_a_planner_can_repair_lead_to_a_repair() -> None:
    edges = [
        edge
        for step in WORKFLOW["steps"]
        for edge in (step["next"] if isinstance(step.get("next"), list) else [])
        if edge["to"] == "refine"
    ]

    assert len(edges) == 3
    assert all(set(edge["codes"]) == REPAIRED for edge in edges)


def test_what_may_work_later_is_retried_and_never_repaired() -> None:
    retryable = {code.value for code, rule in RULES.items() if rule.is_retryable}

    assert codes_of_retries() >= retryable
    assert codes_of_retries() & (REPAIRED | {REFUSED}) == set()


def test_only_trouble_of_a_service_counts_in_its_breaker() -> None:
    ignored = {name: set(breaker["ignore"]) for name, breaker in WORKFLOW["breakers"].items()}

    assert ignored["model"] >= REPAIRED | {REFUSED, "HTTP_429"}
    assert {code.value for code in RULES} - ignored["database"] == {
        *("QUERY_TIMEOUT", "QUERY_CRASHED", "DATABASE_UNREACHABLE", "DATABASE_BUSY", "DATABASE_UNUSABLE")
    }
    guarded = {step["step"]: step["breaker"]["name"] for step in WORKFLOW["steps"] if "breaker" in step}
    assert guarded == {
        "schema": "database",
        "agent": "model",
        "plan": "model",
        "explain": "database",
        "execute": "database",
    }


# -- passwords -----------------------------------------------------------------------------------------------------


def test_a_password_is_not_kept_and_comes_back_from_the_environment() -> None:
    kept, password = url_to_keep(parse_url("postgresql://ada:p%40ss:x@host:5432/shop?sslmode=require"))

    assert (kept, password) == ("postgresql://ada@host:5432/shop?sslmode=require", "p@ss:x")
    given: dict[str, str] = {}
    give_passwords({"shop": password}, given)
    assert url_with_password(kept, given) == url_with_password(kept, {"NL2SQL_PASSWORD_SHOP": password})
    again = url_with_password(kept, given)
    assert again == "postgresql://ada:p%40ss%3Ax@host:5432/shop?sslmode=require"
    assert parse_url(again).redact("p@ss:x p%40ss%3Ax") == "••• •••"
    assert url_with_password(again, {"NL2SQL_PASSWORD_SHOP": "other"}) == again
    assert url_with_password(kept, {}) == kept


def test_the_url_of_a_file_is_kept_with_its_whole_path(tmp_path: Path) -> None:
    make_shop(tmp_path / "a shop%20.db")

    kept, _ = url_to_keep(parse_url("sqlite:///a%20shop%2520.db"))

    assert parse_url(kept).location == str(tmp_path / "a shop%20.db")


# -- the text ------------------------------------------------------------------------------------------------------


def an_answer(**fields: Any) -> Answer:
    error = FailedAttempt(
        step="plan", attempt=1, code="HTTP_5XX", severity="error", retryable=True, message="no", resolved_by="retry"
    )
    usage = Usage(input_tokens=1200, output_tokens=30, cost=0.01)
    scan = ScanReceipt(
        database="shop",
        question="q",
        status=Status.ANSWERED,
        run=4,
        model="large",
        planned_sql="select 1",
        sql="SELECT 1",
        tables=["main.customers"],
        cost=12.0,
        rows=2,
        cut="rows",
        file="rows.jsonl",
        executed=True,
        seconds=1.0,
        attempts={"plan": 2},
        repairs=1,
        errors=[error],
        explained=[],
        usage=usage,
        failure=None,
    )
    database = DatabaseReceipt(database="shop", tables=3, kept_at="", misfit="", attempts=1, errors=[], failure=None)
    receipt = Receipt(
        planner="openai",
        databases=[database],
        decomposed_by="model",
        attempts=1,
        errors=[],
        scans=[scan],
        seconds=1.2,
        usage=usage,
    )
    return Answer(
        **{"status": Status.ANSWERED, "exit_code": 0, "question": "q", "run": 3, "receipt": receipt, **fields}
    )


def test_an_answer_is_a_table_and_a_receipt_without_control_characters() -> None:
    rows = [{"n": 1, "name": "a\x1b[2J\nb"}, {"n": 20, "name": None}]
    result = Result(databases=["shop"], question="q", columns=["n", "name"], rows=rows)
    answer = an_answer(results=[result], warnings=["cut\n"])

    assert list(show_answer(answer)) == [
        " n  name",
        "--  -------",
        " 1  a\ufffd[2J b",
        "20  NULL",
        "(2 rows)",
        "",
        "status     answered (exit code 0)",
        "run        3, 1.2 s",
        "planner    openai",
        "used       1,200 tokens read, 30 tokens written, $0.0100",
        "database   shop: 3 tables",
        "decomposed by the planner, in 1 attempt",
        "scan       shop: answered, run 4, 1.0 s",
        "  sql      SELECT 1",
        "  tables   main.customers",
        "  cost     12",
        "  rows     2 (cut by its limit of rows)",
        "  file     rows.jsonl",
        "  model    large",
        "  used     1,200 tokens read, 30 tokens written, $0.0100",
        "  attempts plan 2",
        "  error    plan, attempt 1: HTTP_5XX: no (resolved by retry)",
    ]
    assert list(show_problem(answer)) == ["warning: cut "]


def test_a_problem_says_what_the_question_may_mean() -> None:
    failure = Problem(code=REFUSED, message="unclear", details={"words": ["x"], "candidates": ["a.x", "b.x"]})

    assert list(show_problem(an_answer(status=Status.REFUSED, failure=failure, receipt=None))) == [
        "refused[QUESTION_REFUSED]: unclear",
        "  not explained: x",
        "  it may mean: a.x",
        "  it may mean: b.x",
    ]


def test_every_status_has_an_exit_code_of_its_own() -> None:
    assert len(set(EXIT_CODES.values())) == len(Status)
