"""Gap 1: a failure is answered by what it is. A mistake of the planner goes back to it with what it must know, a
service that does not answer is tried again, and what would only happen again ends the question."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from msgspec.structs import replace

from mulligan import StepError
from mulligan_nl2sql.failures import RULES, Code, QueryFailed, Stage
from mulligan_nl2sql.planning.planner import FailedSql, PlanRequest
from mulligan_nl2sql.planning.prompts import describe_schema, make_prompt

from ..shop import schema_of
from .asked_questions import asking
from .simulated_home import GOOD, STAND_INS, Flaky, Planner, SimulatedHome, failing
from .stub_model import stub_model
from .workflow_copies import Documents, copy_of, repairing, without, without_repairs

SCHEMA = schema_of("sqlite")
WRONG_TABLE = "select count(*) from clients"


def failure(code: Code) -> QueryFailed:
    return QueryFailed(code, "the database says so", stage=Stage.EXECUTE)


# -- repairs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "code", "is_name"),
    [
        (WRONG_TABLE, "SQL_TABLE_UNKNOWN", True),
        ("select nam from customers", "SQL_COLUMN_UNKNOWN", True),
        ("select count(* from customers", "SQL_SYNTAX", False),
        ("select frobnicate(id) from customers", "SQL_FUNCTION_UNKNOWN", False),
    ],
)
def test_a_mistake_goes_back_to_the_model_with_its_message_and_a_wrong_name_with_the_names_that_there_are(
    wrong: str, code: str, is_name: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = SimulatedHome()

    with stub_model(monkeypatch, wrong, GOOD) as model:
        run = home.ask(real=("plan",), planner="openai")

    first, second = model.prompts
    assert (home.status(run), home.codes(run, "check")) == ("completed", [code])
    assert wrong not in first
    assert f"failed with {code}: " in second and wrong in second
    assert describe_schema(SCHEMA) in second
    assert ("use only tables and columns that are above" in second) == is_name


def test_after_three_repairs_the_last_real_failure_is_the_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home, planner = SimulatedHome(tmp_path / "home"), Planner(*(f"select {name} from customers" for name in "abcde"))
    run = home.ask(functions={"plan": planner})
    home.store.close()

    code, answer = asking(capsys)("resume", str(run))

    assert (code, answer["status"], answer["failure"]["code"]) == (1, "failed", "SQL_COLUMN_UNKNOWN")
    assert "'d'" in answer["failure"]["message"]
    (scan,) = answer["receipt"]["scans"]
    assert (scan["attempts"], scan["repairs"], planner.calls) == ({"plan": 4, "check": 4}, 3, 4)
    assert scan["planned_sql"] == "select d from customers"
    assert {error["resolved_by"] for error in scan["errors"]} == {""}


def test_without_its_routes_a_mistake_is_the_end(tmp_path: Path) -> None:
    home, planner = SimulatedHome(), Planner(WRONG_TABLE, GOOD)

    run = home.ask(copy_of(tmp_path, without_repairs), {"plan": planner})

    assert (home.status(run), planner.calls) == ("failed", 1)


def test_without_what_has_failed_the_planner_would_write_the_same_again(tmp_path: Path) -> None:
    def forget(documents: Documents) -> None:
        del documents.step("plan")["args"]["failed"]

    home, planner = SimulatedHome(), Planner(WRONG_TABLE, GOOD)

    run = home.ask(copy_of(tmp_path, forget), {"plan": planner})

    assert (home.status(run), planner.calls) == ("failed", 4)


def test_a_model_that_was_shown_a_part_of_the_schema_is_told_all_names_after_a_wrong_one() -> None:
    wrong = FailedSql(WRONG_TABLE, "SQL_TABLE_UNKNOWN", "no table 'clients'", "schema")
    request = PlanRequest("who?", SCHEMA, date(2026, 1, 1), (wrong,), guidance="table orders")

    assert "main.customers (id, name, city)" in make_prompt(request)
    assert "main.customers" not in make_prompt(replace(request, failed=(replace(wrong, repair="message"),)))


# -- what a planner cannot help --------------------------------------------------------------------------------------


UNREPAIRED = [code for code, rule in RULES.items() if not rule.repair]


@pytest.fixture(scope="module")
def repairing_all(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every failure leads back to the planner."""
    return copy_of(tmp_path_factory.mktemp("copies"), repairing(*UNREPAIRED))


# One of each kind by day.
BY_DAY = {(RULES[code].severity, RULES[code].is_retryable): code for code in UNREPAIRED}.values()


@pytest.mark.parametrize(
    "code", [pytest.param(code, marks=() if code in BY_DAY else pytest.mark.nightly) for code in UNREPAIRED]
)
def test_what_no_other_statement_avoids_is_not_given_to_the_planner(code: Code, repairing_all: Path) -> None:
    home, planner, other_planner = SimulatedHome(), Planner(), Planner()
    fail = failing(failure(code))

    run = home.ask(functions={"plan": planner, "execute": fail})
    SimulatedHome().ask(repairing_all, {"plan": other_planner, "execute": fail})

    assert (home.status(run), planner.calls) == ("failed", 1)
    assert home.codes(run, "execute") == [code] * (3 if RULES[code].is_retryable else 1)
    # With a route to the planner it would be asked again.
    assert other_planner.calls > 1


# -- retries ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def without_retries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_of(tmp_path_factory.mktemp("copies"), without("retry", "index", "plan", "explain", "execute"))


@pytest.mark.parametrize(
    ("step", "error"),
    [
        *[(step, failure(Code.UNREACHABLE)) for step in ("index", "explain", "execute")],
        *[("execute", failure(code)) for code in (Code.BUSY, Code.CRASHED)],
        *[("plan", StepError(code, "no")) for code in ("HTTP_5XX", "HTTP_429", "CONNECTION", "TIMEOUT")],
    ],
)
def test_what_may_work_a_moment_later_is_tried_again_twice_without_the_planner(
    step: str, error: StepError, without_retries: Path
) -> None:
    home = SimulatedHome()
    planner = Planner()
    functions = {"plan": planner, step: Flaky(planner if step == "plan" else STAND_INS[step], error)}

    run = home.ask(functions=functions)
    alone = home.ask(without_retries, {step: Flaky(STAND_INS[step], error)})

    assert (home.status(run), home.codes(run, step)) == ("completed", [error.code] * 2)
    assert (planner.calls, planner.failed) == (1, [])
    assert (home.status(alone), home.codes(alone, step)) == ("failed", [error.code])
