"""`nl2sql benchmark`: questions with known answers are asked as users ask them, and counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import mulligan
from mulligan_nl2sql.asking.answers import Answer, Problem, Status
from mulligan_nl2sql.benchmark.case_files import Case, Expected
from mulligan_nl2sql.benchmark.reports import (
    AnsweredRows,
    Bars,
    ExpectedRows,
    Report,
    find_missed_bars,
    judge,
    summarize,
)
from mulligan_nl2sql.benchmark.shown_reports import show_report_problem
from mulligan_nl2sql.command_line import main

from .shop import make_shop

CASES = """
[databases]
shop = "sqlite:///shop.db"

[[cases]]
question = "how many customers are in each city?"
sql = "select count(*), city from customers group by city"
tags = ["groups"]

[[cases]]
question = "repaired"
rows = [["customer 1", "Oslo"], ["customer 2", "Bern"]]
tags = ["lists"]
"""
SCRIPT = """
[[answers]]
question = "how many customers are in each city?"
sql = "drop table customers"

[[answers]]
question = "repaired"
attempt = 1
sql = "select nam from customers"

[[answers]]
question = "repaired"
sql = "select name, city from customers order by id limit 2"
usage = {input_tokens = 100, output_tokens = 7, cost = 0.25}
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NL2SQL_SCRIPT", str(tmp_path / "script.toml"))
    make_shop(tmp_path / "shop.db")
    Path("cases.toml").write_text(CASES)
    Path("script.toml").write_text(SCRIPT)


def benchmark(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code = main([*arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.nightly
def test_planners_are_compared_side_by_side_and_an_interrupted_benchmark_goes_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    planners = ("--planner", "rules", "--planner", "scripted", "--parallel", "1")
    bars = ("--min", "50%", "--max-wrong", "0")

    code, report = benchmark(capsys, "benchmark", "cases.toml", *planners, *bars, "--deadline", "1ms")
    assert (code, report["status"], report["cases"]) == (124, "unfinished", [])

    code, report = benchmark(capsys, "resume", str(report["run"]))
    assert (code, report["status"]) == (5, "measured")
    assert [(one["planner"], one["verdict"]) for one in report["cases"]] == [
        ("rules", "right"),
        ("rules", "refused"),
        ("scripted", "failed"),
        ("scripted", "wrong"),
    ]
    assert report["missed_bars"] == ["scripted: 0.0 % right, at least 50 %", "scripted: 1 wrong, at most 0"]
    rules, scripted = report["planners"]
    assert rules["tags"]["groups"] == {"cases": 1, "right": 1, "wrong": 0, "refused": 0, "failed": 0, "partial": 0}
    assert (rules["right_percent"], scripted["counts"]["failed"], scripted["repairs"]) == (50.0, 1, 1)
    assert scripted["usage"] == {"input_tokens": 100, "output_tokens": 7, "cost": 0.25}
    dropped, listed = report["cases"][2:]
    # A critical failure is a result of the benchmark, and does not end it.
    assert (dropped["failure"]["code"], dropped["failure"]["severity"]) == ("SQL_NOT_A_QUERY", "critical")
    assert listed["differences"]["shop"]["expected_only"] == [["customer 2", "Bern"]]
    assert listed["differences"]["shop"]["answered_only"] == [["customer 2", "Rome"]]

    # What has ended is shown again, and nothing is asked.
    Path("script.toml").unlink()
    assert main(["resume", str(report["run"])]) == 5
    shown = capsys.readouterr()
    assert "planner rules: 50.0 % right" in shown.out
    assert "refused by rules: repaired (cases.toml:10, run " in shown.out
    assert '    only expected: "customer 2", "Bern"' in shown.out
    assert shown.err.splitlines()[0] == "below the bar: scripted: 0.0 % right, at least 50 %"


def test_expected_sql_is_checked_like_any_other_before_anything_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    Path("cases.toml").write_text(
        CASES.replace("select count(*), city from customers group by city", "drop table orders")
    )

    code, report = benchmark(capsys, "benchmark", "cases.toml")

    assert (code, report["status"], report["failure"]["code"]) == (2, "failed", "BENCHMARK_INVALID")
    assert report["failure"]["message"].startswith("cases.toml:5: case 1: SQL_NOT_A_QUERY: ")
    assert mulligan.Home().get(report["run"]).children == []


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["none.toml"], "error[BENCHMARK_INVALID]: none.toml cannot be read: no such file or directory"),
        (["cases.toml", "--db", "shop=x"], "error[DATABASE_URL_INVALID]: the URL is no known database"),
        (["cases.toml", "--db", "sqlite:///none.db"], "error[DATABASE_URL_INVALID]: there is no file '"),
        (["cases.toml", "--planner", "openai"], "error[INPUT_INVALID]: "),
    ],
)
def test_what_cannot_be_measured_is_refused(
    arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NL2SQL_MODEL", raising=False)

    assert main(["benchmark", *arguments]) == 2

    assert capsys.readouterr().err.startswith(problem)
    assert not Path(".mulligan/mulligan.db").exists()


@pytest.mark.parametrize("option", [("--min", "101"), ("--min", "x"), ("--max-wrong", "-1"), ("--parallel", "0")])
def test_a_wrong_number_is_refused(option: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["benchmark", "cases.toml", *option])

    assert ended.value.code == 2
    assert f"'{option[1]}' is no " in capsys.readouterr().err


SQL = Case(question="q", databases=["shop"], expected={"shop": Expected(sql="select 1")})
REFUSED = Case(question="q", databases=["shop"])
ONE_ROW = AnsweredRows("shop", "select 1", [(1,)])


@pytest.mark.parametrize(
    ("case", "status", "answered", "verdict", "reason"),
    [
        (SQL, Status.ANSWERED, [ONE_ROW], "right", ""),
        (SQL, Status.ANSWERED, [AnsweredRows("shop", "", [(2,)])], "wrong", "1 row expected, 1 answered"),
        (
            SQL,
            Status.ANSWERED,
            [AnsweredRows("shop", "", [(1,)], "rows")],
            "wrong",
            "its limit of rows has cut the result",
        ),
        (SQL, Status.ANSWERED, [], "wrong", "one result is expected, and there are 0"),
        (SQL, Status.ANSWERED, [ONE_ROW, ONE_ROW], "wrong", "one result is expected, and there are 2"),
        (
            SQL,
            Status.ANSWERED,
            [ONE_ROW, AnsweredRows("other", "", [])],
            "wrong",
            "it was asked, and nothing of it is expected",
        ),
        (SQL, Status.REFUSED, [], "refused", "CODE: why"),
        (SQL, Status.FAILED, [], "failed", "CODE: why"),
        (SQL, Status.PARTIAL, [ONE_ROW], "partial", "something is missing"),
        (REFUSED, Status.REFUSED, [], "right", ""),
        (REFUSED, Status.ANSWERED, [ONE_ROW], "wrong", "it was answered, and must be refused"),
        (REFUSED, Status.FAILED, [], "failed", "CODE: why"),
    ],
)
def test_a_verdict_comes_from_the_status_and_the_rows(
    case: Case, status: Status, answered: list[AnsweredRows], verdict: str, reason: str
) -> None:
    has_failed = status in (Status.REFUSED, Status.FAILED)
    failure = Problem(code="CODE", message="why") if has_failed else None
    warnings = ["something is missing"] if status is Status.PARTIAL else []
    answer = Answer(status=status, exit_code=0, question="q", failure=failure, warnings=warnings)
    expected = {name: ExpectedRows("select 1", [(1,)], False) for name in case.expected}

    found = judge(0, case, "rules", answer, expected, answered)

    assert (found.verdict, found.reason) == (verdict, reason)


def test_a_bar_is_missed_by_a_hair_and_not_when_it_is_reached() -> None:
    nothing = summarize("rules", [])

    assert find_missed_bars(Bars(min_right_percent=0.0, max_wrong=0), [nothing]) == []
    assert find_missed_bars(Bars(min_right_percent=0.1), [nothing]) == ["rules: 0.0 % right, at least 0.1 %"]
    assert find_missed_bars(Bars(), [nothing]) == []


def test_what_stopped_a_benchmark_is_said() -> None:
    unfinished = Report(status="unfinished", exit_code=124, file="f", run=3)
    failed = Report(
        status="failed", exit_code=1, file="f", run=3, failure=Problem(code="DATABASE_BUSY", message="a\x1b[1mb")
    )

    assert [*show_report_problem(unfinished, "nl2sql resume 3")][1] == "  to let it go on: nl2sql resume 3"
    assert [*show_report_problem(failed, "")] == ["error[DATABASE_BUSY]: a\ufffd[1mb"]
