"""Gap 4: every failure has a code, a severity, whether a retry helps, its step, which attempt it was, and what has
resolved it; from the step that raises it to the JSON, the text and the exit code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mulligan import StepError
from mulligan_nl2sql.failures import RULES, Code, Position, QueryFailed, Stage
from mulligan_nl2sql.planning.failures import REFUSED

from .asked_questions import asking, text_of
from .simulated_home import GOOD, STAND_INS, Flaky, Planner, SimulatedHome, failing
from .workflow_copies import copy_of, repairing

MISTAKES = [code for code in RULES if code.startswith("SQL_")]
ATTEMPTS_OF_RETRIED, ATTEMPTS_OF_REPAIRED = 3, 4


def step_of_code(code: Code) -> str:
    if code in MISTAKES:
        return "check"
    if code is Code.TOO_EXPENSIVE:
        return "explain"
    return "execute" if code.startswith("QUERY_") else "index"


def stage_of(step: str) -> Stage:
    return Stage.SCHEMA if step == "index" else Stage(step)


def raised(code: Code, step: str) -> QueryFailed:
    place = Position(1, 8, 7, 11) if code in MISTAKES else None
    return QueryFailed(code, f"why {code} came", stage=stage_of(step), node="Column", position=place)


def errors_of(answer: dict[str, Any]) -> list[dict[str, Any]]:
    receipt = answer["receipt"]
    return [error for part in (receipt, *receipt["databases"], *receipt["scans"]) for error in part["errors"]]


def kind_of(code: Code) -> tuple[object, ...]:
    rule = RULES[code]
    return step_of_code(code), rule.severity, rule.is_retryable, rule.repair


# One of each kind by day.
BY_DAY = {kind_of(code): code for code in RULES}.values()


@pytest.mark.parametrize(
    "code", [pytest.param(code, marks=() if code in BY_DAY else pytest.mark.nightly) for code in RULES]
)
def test_a_failure_keeps_everything_it_says_from_its_step_to_the_exit_code(
    code: Code, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    step, rule = step_of_code(code), RULES[code]
    home = SimulatedHome(tmp_path / "home")
    run = home.ask(functions={"plan": Planner(), step: failing(raised(code, step))})
    home.store.close()

    exit_code, answer = asking(capsys)("resume", str(run))
    said = text_of(capsys, "resume", str(run))

    failure = answer["failure"]
    assert (exit_code, answer["status"], answer["results"]) == (1, "failed", [])
    assert [scan["rows"] for scan in answer["receipt"]["scans"]] in ([], [None])
    assert (failure["code"], failure["severity"], failure["retryable"]) == (code, rule.severity, rule.is_retryable)
    assert (failure["step"], failure["message"]) == (step, f"why {code} came")
    assert (failure["details"]["stage"], failure["details"]["node"]) == (stage_of(step), "Column")
    assert ("position" in failure["details"]) == (code in MISTAKES)
    attempts = ATTEMPTS_OF_RETRIED if rule.is_retryable else ATTEMPTS_OF_REPAIRED if rule.repair else 1
    assert [(one["step"], one["code"], one["attempt"], one["resolved_by"]) for one in errors_of(answer)] == [
        (step, code, number, "") for number in range(1, attempts + 1)
    ]
    word = "critical" if rule.severity == "critical" else "error"
    assert (said.code, said.err.splitlines()[0]) == (1, f"{word}[{code}]: why {code} came")


PLANNING = [
    ("HTTP_5XX", True, 3, 1),
    ("HTTP_429", True, 3, 1),
    ("CONNECTION", True, 3, 1),
    ("TIMEOUT", True, 3, 1),
    ("OUTPUT_INVALID", True, 2, 1),
    ("HTTP_4XX", False, 1, 1),
    ("INPUT_INVALID", False, 1, 1),
    (REFUSED, False, 1, 3),
]


@pytest.mark.parametrize(("code", "is_retryable", "attempts", "exit_code"), PLANNING)
def test_a_planner_that_gives_no_sql_fails_with_its_code(
    code: str, is_retryable: bool, attempts: int, exit_code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = SimulatedHome(tmp_path / "home")
    run = home.ask(functions={"plan": failing(StepError(code, "no", retryable=is_retryable))})
    home.store.close()

    ended, answer = asking(capsys)("resume", str(run))

    assert (ended, answer["failure"]["code"], answer["failure"]["step"]) == (exit_code, code, "plan")
    assert [one["retryable"] for one in errors_of(answer)] == [is_retryable] * attempts


# -- what has resolved it --------------------------------------------------------------------------------------------


def test_what_a_retry_and_what_a_repair_has_resolved_is_told_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = SimulatedHome(tmp_path / "home")
    down = StepError("HTTP_5XX", "overloaded")
    crash = QueryFailed(Code.CRASHED, "killed", stage=Stage.EXECUTE)
    planner = Planner("select nam from customers", GOOD)
    functions = {
        "index": Flaky(STAND_INS["index"], QueryFailed(Code.BUSY, "locked", stage=Stage.SCHEMA)),
        "plan": Flaky(planner, down, times=1),
        "execute": Flaky(STAND_INS["execute"], crash),
    }
    run = home.ask(functions=functions)
    home.store.close()

    code, answer = asking(capsys)("resume", str(run))

    assert (code, answer["status"], answer["failure"]) == (0, "answered", None)
    assert [(one["step"], one["code"], one["attempt"], one["resolved_by"]) for one in errors_of(answer)] == [
        ("index", "DATABASE_BUSY", 1, "retry"),
        ("index", "DATABASE_BUSY", 2, "retry"),
        ("plan", "HTTP_5XX", 1, "retry"),
        ("check", "SQL_COLUMN_UNKNOWN", 1, "repair"),
        ("execute", "QUERY_CRASHED", 1, "retry"),
        ("execute", "QUERY_CRASHED", 2, "retry"),
    ]


# -- security --------------------------------------------------------------------------------------------------------


SECURITY = [code for code, rule in RULES.items() if rule.severity == "critical"]


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("drop table customers", "SQL_NOT_A_QUERY"),
        ("select 1; select 2", "SQL_MANY_STATEMENTS"),
        ("select * from salaries", "SQL_TABLE_FORBIDDEN"),
        ("select email from customers", "SQL_COLUMN_FORBIDDEN"),
        ("select load_extension('x') from customers", "SQL_FUNCTION_FORBIDDEN"),
    ],
)
def test_a_statement_against_security_ends_the_question_and_no_better_one_is_asked_for(
    sql: str, code: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = SimulatedHome(tmp_path / "home")
    planner, other_planner = Planner(sql, GOOD), Planner(sql, GOOD)
    run = home.ask(functions={"plan": planner})
    # The check bites: if such failures were repaired, the question would be answered.
    repaired = home.ask(copy_of(tmp_path, repairing(*SECURITY)), {"plan": other_planner})
    home.store.close()
    ask = asking(capsys)

    exit_code, answer = ask("resume", str(run))

    assert (exit_code, answer["status"], answer["results"], planner.calls) == (1, "failed", [], 1)
    assert (answer["failure"]["code"], answer["failure"]["severity"]) == (code, "critical")
    assert [scan["executed"] for scan in answer["receipt"]["scans"]] == [False]
    assert ask("resume", str(repaired))[0] == 0
