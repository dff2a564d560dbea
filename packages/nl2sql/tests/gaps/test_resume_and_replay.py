"""Gap 6: a question survives `kill -9` at any moment: it goes on where it was, gives the same answer, and asks no model
again that has answered. Its log says the same when databases and network are gone."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import mulligan
from mulligan.cli.words.dispatch import exit_code as mulligan_command
from mulligan.core.model import events as e
from mulligan.ports import FAULT_POINTS
from mulligan.testing.faults import faults

from .asked_questions import asking
from .simulated_home import GOOD, Planner, SimulatedHome
from .stub_model import stub_model

WRONG = "select nam from customers"
# The planner writes a wrong statement, and then a good one.
PLANS_NEEDED = 2
KILLED = Path(__file__).with_name("killed_question.py")
QUESTION = ("ask", "how many customers?", "--db", "sqlite:///shop.db", "--planner", "openai")


# -- at every commit, in one process ---------------------------------------------------------------------------------


class Watched(SimulatedHome):
    """Notes at a crash how many plans are recorded, and how many the planner was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.planner = Planner(WRONG, GOOD)
        self.asked_twice = 0

    def crashed(self, run: int) -> None:
        recorded = [fact for fact in self.facts(run, e.AttemptSucceeded) if fact.place == "plan"]
        self.asked_twice = self.planner.calls - len(recorded)

    def outcome(self) -> tuple[Any, ...]:
        """What a crash may not change."""
        run = self.ask(functions={"plan": self.planner})
        (executed,) = [fact.output for fact in self.facts(run, e.AttemptSucceeded) if fact.place == "execute"]
        plans = [fact.output["sql"] for fact in self.facts(run, e.AttemptSucceeded) if fact.place == "plan"]
        return self.status(run), executed["sql"], executed["rows"], plans, self.codes(run, "check")


def passes_of(point: str) -> int:
    with faults() as points:
        Watched().outcome()
    return points.passes[point]


@pytest.mark.parametrize(
    "point",
    [
        pytest.param(one, marks=() if one in ("after_commit", "before_report") else pytest.mark.nightly)
        for one in sorted(FAULT_POINTS)
    ],
)
def test_a_crash_at_any_moment_changes_no_answer_and_repeats_no_plan_that_was_recorded(point: str) -> None:
    expected = Watched().outcome()
    count = passes_of(point)

    assert count >= 8
    for number in range(1, count + 1):
        home = Watched()
        with faults() as points:
            points.arm(point, number)
            assert home.outcome() == expected, f"died at pass {number} of '{point}'"

        assert home.planner.calls == PLANS_NEEDED + home.asked_twice, f"died at pass {number} of '{point}'"
        # Only the call whose answer was not written yet is lost, and only where that can be.
        assert home.asked_twice <= (point not in ("after_commit", "after_drain", "after_lease"))


# -- kill -9 of the process ------------------------------------------------------------------------------------------


def recorded_plans(home: Path, run: int = 1) -> int:
    with mulligan.Home(home) as opened:
        scans = opened.get(run).children
        return sum(one.status == "succeeded" for scan in scans for one in scan.steps["plan"].attempts)


@pytest.mark.parametrize(
    "moment", [pytest.param("while the model is asked", marks=pytest.mark.nightly), "when the model has answered"]
)
def test_a_process_that_is_killed_is_resumed_with_the_same_answer_and_no_answered_call_is_repeated(
    moment: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    flag = tmp_path / "answered"
    with stub_model(monkeypatch, GOOD) as model:
        process = subprocess.Popen([sys.executable, str(KILLED), str(flag), *QUESTION], stdout=subprocess.DEVNULL)
        model.on_request = {"while the model is asked": process.kill, "when the model has answered": flag.touch}[moment]
        assert process.wait() == -signal.SIGKILL

        model.on_request = None
        before, recorded = len(model.prompts), recorded_plans(tmp_path / "home")
        code, answer = asking(capsys)("resume", "1")

    assert (code, answer["status"], answer["results"][0]["rows"]) == (0, "answered", [{"n": 30}])
    assert before == 1
    assert len(model.prompts) == before + 1 - recorded
    if moment == "while the model is asked":
        assert recorded == 0


# -- replay ----------------------------------------------------------------------------------------------------------


def test_a_log_is_replayed_and_verified_when_databases_and_network_are_gone(
    shop: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = SimulatedHome(tmp_path / "home")
    home.ask(functions={"plan": Planner(WRONG, GOOD)})
    home.store.close()
    ask = asking(capsys)
    answer = ask("resume", "1")
    shop.unlink()

    assert ask("resume", "1") == answer
    for run in ("1", "2"):
        assert mulligan_command(["replay", run, "--verify"]) == 0
    capsys.readouterr()

    # The check bites: another plan in the log of the scan is noticed.
    with sqlite3.connect(tmp_path / "home" / "mulligan.db") as connection:
        changed = connection.execute(
            "update events set entry = cast(replace(cast(entry as text), 'count(*)', 'count(0)') as blob)"
            " where cast(entry as text) like '%count(*)%'"
        )
    assert changed.rowcount > 0
    assert mulligan_command(["replay", "2", "--verify"]) != 0
