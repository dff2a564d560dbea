"""Gap 5: an answer is an answer. The exit code, the JSON and the text of a question say the same."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mulligan import Run, StepError
from mulligan_nl2sql.asking import questions
from mulligan_nl2sql.asking.answers import Answer, Status
from mulligan_nl2sql.asking.run_answers import read_answer
from mulligan_nl2sql.failures import Code, QueryFailed, Stage
from mulligan_nl2sql.planning.failures import REFUSED

from .asked_questions import Said, asking, text_of
from .simulated_home import SHOP, STAND_INS, Function, Kept, Planner, SimulatedHome, failing

OTHERS = [{**SHOP, "name": "north"}, {**SHOP, "name": "south"}]
EXIT_CODES = {"answered": 0, "failed": 1, "refused": 3, "partial": 4, "unfinished": 124}
FIRST_WORDS = {"failed": ("error[", "critical["), "refused": ("refused[",), "partial": ("warning:",)}


def cut_rows(**arguments: Any) -> Kept:
    whole: Kept = STAND_INS["execute"](**arguments)
    return msgspec.structs.replace(whole, output={**whole.output, "cut": "rows"})


def check_anything(**arguments: Any) -> dict[str, Any]:
    return {"sql": arguments["sql"], "tables": ["main.customers"]}


OTHERWISE = {**STAND_INS, "check": check_anything}


def only_for(names: str, function: Function, step: str) -> Function:
    """The function for some databases, and for the others what the step does."""

    def call(**arguments: Any) -> Any:
        return (function if arguments["database"] in names.split() else OTHERWISE[step])(**arguments)

    return call


def raising(code: Code, stage: Stage) -> Function:
    return failing(QueryFailed(code, "no", stage=stage))


NO_ANSWER = failing(StepError(REFUSED, "no", retryable=False, details={"words": ["revenue"]}))
CRASHES = raising(Code.CRASHED, Stage.EXECUTE)
UNREADABLE = raising(Code.UNUSABLE, Stage.SCHEMA)
FORBIDDEN = raising(Code.TABLE_FORBIDDEN, Stage.CHECK)
UNSAFE = raising(Code.UNSAFE, Stage.SCHEMA)


class End(msgspec.Struct):
    """How a question ends, by what its steps do."""

    status: Status
    functions: dict[str, Any] = {}
    databases: list[dict[str, str]] = []
    is_strict: bool = False


THREE = [SHOP, *OTHERS]
ENDS = {
    "answered": End(Status.ANSWERED),
    "cut": End(Status.ANSWERED, {"execute": cut_rows}),
    "no schema": End(Status.FAILED, {"index": UNREADABLE}),
    "no plan": End(Status.FAILED, {"plan": failing(StepError("HTTP_4XX", "no", retryable=False))}),
    "refused": End(Status.REFUSED, {"plan": NO_ANSWER}),
    "forbidden": End(Status.FAILED, {"plan": Planner("drop table customers")}),
    "never right": End(Status.FAILED, {"plan": Planner("select nam from customers")}),
    "no cost": End(Status.FAILED, {"explain": raising(Code.CRASHED, Stage.EXPLAIN)}),
    "no rows": End(Status.FAILED, {"execute": CRASHES}),
    "all of three": End(Status.ANSWERED, databases=THREE),
    "two of three": End(Status.PARTIAL, {"execute": only_for("north", CRASHES, "execute")}, THREE),
    "one of three": End(Status.PARTIAL, {"execute": only_for("north south", CRASHES, "execute")}, THREE),
    "none of three": End(Status.FAILED, {"execute": CRASHES}, THREE),
    "one of three, two unread": End(Status.PARTIAL, {"index": only_for("north shop", UNREADABLE, "index")}, THREE),
    "one of three, two refused": End(Status.PARTIAL, {"plan": only_for("north shop", NO_ANSWER, "plan")}, THREE),
    "refused by three": End(Status.REFUSED, {"plan": NO_ANSWER}, THREE),
    "strict": End(Status.FAILED, {"execute": only_for("north", CRASHES, "execute")}, THREE, is_strict=True),
    "forbidden in one": End(Status.FAILED, {"check": only_for("north", FORBIDDEN, "check")}, THREE),
    "unsafe role in one": End(Status.FAILED, {"index": only_for("north", UNSAFE, "index")}, THREE),
}
SECURITY = ("forbidden", "forbidden in one", "unsafe role in one")


def disagreements(exit_code: int, answer: Mapping[str, Any], said: Said) -> list[str]:
    """What of an answer contradicts its status."""
    status, scans = answer["status"], answer["receipt"]["scans"]
    has_answer = status in ("answered", "partial")
    lines = said.err.splitlines()
    answered = [scan["database"] for scan in scans if scan["status"] == "answered"]
    shown = [database for result in answer["results"] for database in result["databases"]]
    unresolved = [error for scan in scans if scan["status"] == "answered" for error in scan["errors"]]
    found = {
        "the exit code": exit_code == EXIT_CODES[status],
        "the exit code in the JSON": answer["exit_code"] == exit_code,
        "the exit code of the text": said.code == exit_code,
        "the status in the text": f"status     {status} (exit code {exit_code})" in said.out,
        "the failure": (answer["failure"] is None) == has_answer,
        "the results": shown == (answered if has_answer else []),
        "the tables": len(re.findall(r"^\(\d+ rows?\)$", said.out, re.MULTILINE)) == len(answer["results"]),
        "the databases": (len(answered) == len(answer["receipt"]["databases"])) == (status == "answered"),
        "what is not resolved": all(error["resolved_by"] for error in unresolved),
        "the first word": not lines or lines[0].startswith(FIRST_WORDS.get(status, ("warning: the result of",))),
        "the silence": bool(lines) or status == "answered",
        "the warnings": [line for line in lines if line.startswith("warning:")]
        == [f"warning: {warning}" for warning in answer["warnings"]],
    }
    return [name for name, agrees in found.items() if not agrees]


BY_DAY = {"answered", "cut", "no schema", "refused", "forbidden", "two of three", "none of three", "strict"}


@pytest.fixture(params=[pytest.param(one, marks=() if one in BY_DAY else pytest.mark.nightly) for one in ENDS])
def ended(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """A question that has ended: which, and its run."""
    end = ENDS[request.param]
    home = SimulatedHome(tmp_path / "home")
    run = home.ask(functions=end.functions, databases=end.databases or [SHOP], strict=end.is_strict)
    home.store.close()
    return request.param, str(run)


def test_exit_code_json_and_text_agree(
    ended: tuple[str, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name, run = ended
    status = ENDS[name].status
    ask = asking(capsys)

    exit_code, answer = ask("resume", run)
    assert answer["status"] == status
    assert disagreements(exit_code, answer, text_of(capsys, "resume", run)) == []
    if status is Status.FAILED:
        assert (answer["failure"]["severity"] == "critical") == (name in SECURITY)

    # The check bites: a program for which whatever has ended is a success contradicts itself.
    monkeypatch.setattr(questions, "read_answer", read_as_success)
    exit_code, answer = ask("resume", run)
    assert (disagreements(exit_code, answer, text_of(capsys, "resume", run)) == []) == (status is Status.ANSWERED)


def read_as_success(run: Run) -> Answer:
    return msgspec.structs.replace(read_answer(run), status=Status.ANSWERED, exit_code=0, failure=None)
