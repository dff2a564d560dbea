"""Whatever a step does, the question ends as itself: with the code of what has happened, at the step where it did."""

from __future__ import annotations

import shutil
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import mulligan
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.reports import CancelRequested
from mulligan.store import open_store
from mulligan_nl2sql.asking.run_answers import read_answer

from .asked_questions import asking, text_of
from .simulated_home import GOOD, HANGS, SHOP, STAND_INS, Planner, SimulatedHome
from .workflow_copies import Documents, calling, copy_of

BEFORE = ("kept", "index", "resolve", "decompose_prompt", "decompose_agent", "decompose_with_model", "decompose")
OF_SCAN = ("prompt", "agent", "plan", "check", "explain", "execute", "refine")
STEPS = (*BEFORE, *OF_SCAN, "combine", "answer")
TWO = [SHOP, {**SHOP, "name": "other"}]
# What a worker reports of a function that raises, of a process that ends, and of one that takes longer than its limit.
RAISES = Outcome(code="EXCEPTION", exit_code=None, message="LookupError: injected")
EXITS = Outcome(exit_code=3)
EXCEEDS = Outcome(exit_code=None, is_timed_out=True)


# What some steps are there for: a folder of indexes, a choice of databases, an agent.
NEEDED: dict[str, dict[str, Any]] = {
    "kept": {"index": "indexes"},
    "decompose_prompt": {"databases": TWO, "agent": "claude"},
    "decompose_agent": {"databases": TWO, "agent": "claude"},
    "decompose_with_model": {"databases": TWO},
    "prompt": {"agent": "claude"},
    "agent": {"agent": "claude"},
}


def asked(home: SimulatedHome, step: str, function: Any) -> int:
    # Only a statement that is wrong is refined.
    functions = {**STAND_INS, "plan": Planner("select nam from customers", GOOD), step: function}
    return home.ask(functions=functions, **NEEDED.get(step, {}))


def test_no_step_is_left_out_and_each_has_an_end() -> None:
    documents = Documents()
    names = {step["step"] for step in documents.steps()}

    # `schema` is `index` for a scan that is no part of a question, `scan` is a map over runs.
    assert names - {"schema", "scan"} == set(STEPS)
    assert [name for name in names - {"scan"} if "timeout" not in documents.called(name)] == []


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        pytest.param(RAISES, "EXCEPTION", id="raises"),
        # One step each by day, in processes of a worker, is below.
        pytest.param(EXITS, "EXIT_NONZERO", id="exits", marks=pytest.mark.nightly),
        pytest.param(EXCEEDS, "TIMEOUT", id="hangs", marks=pytest.mark.nightly),
    ],
)
def test_a_step_that_misbehaves_fails_the_question_with_its_own_code(
    step: str, outcome: Outcome, code: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = SimulatedHome(tmp_path / "home")
    run = asked(home, step, lambda **_: outcome)
    home.store.close()

    exit_code, answer = asking(capsys)("resume", str(run))
    said = text_of(capsys, "resume", str(run))

    assert (exit_code, said.code, answer["status"], answer["results"]) == (1, 1, "failed", [])
    assert (answer["failure"]["code"], answer["failure"]["step"]) == (code, step)
    assert said.err.startswith(f"error[{code}]: ")
    assert "Traceback" not in said.out + said.err


@pytest.mark.parametrize("step", BEFORE)
def test_no_planner_is_asked_for_a_question_that_has_failed(step: str) -> None:
    planner = Planner()

    run = (home := SimulatedHome()).ask(
        functions={**STAND_INS, "plan": planner, step: lambda **_: RAISES}, **NEEDED.get(step, {})
    )

    assert (home.status(run), planner.calls) == ("failed", 0)


@pytest.mark.parametrize("step", STEPS)
def test_a_question_that_is_cancelled_at_a_step_ends_as_cancelled(
    step: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = SimulatedHome(tmp_path / "home")

    def cancel(**_: Any) -> object:
        # As from another process.
        with closing(open_store(tmp_path / "home" / "mulligan.db")) as store:
            store.put(1, CancelRequested(home.clock.now(), "ann", "enough"))
        return HANGS

    run = asked(home, step, cancel)
    home.store.close()

    exit_code, answer = asking(capsys)("resume", str(run))

    assert (exit_code, answer["status"], answer["results"]) == (1, "failed", [])
    assert (answer["failure"]["code"], answer["failure"]["message"]) == ("CANCELLED", "the run was cancelled: enough")


def test_the_same_in_processes_of_a_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One step for each behaviour: what a worker makes of it is the same for all of them."""
    shutil.copy(Path(__file__).with_name("injected_steps.py"), tmp_path / "injected_steps.py")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    injected = {"index": "raises", "resolve": "exits", "decompose": "hangs", "decompose_with_model": "cancels"}
    together = mulligan.Workflow("together")
    for step, behaviour in injected.items():
        limit = {"timeout": "300ms"} if behaviour == "hangs" else {}
        path = copy_of(tmp_path / step, calling(step, f"injected_steps:{behaviour}", **limit))
        databases = TWO if step == "decompose_with_model" else [SHOP]
        inputs = {"question": behaviour, "databases": databases, "planner": "openai", "today": "2026-01-01"}
        together.step(step, workflow={"file": str(path), "inputs": inputs})

    with mulligan.Home() as home:
        answers = {child.inputs["question"]: read_answer(child) for child in home.run(together, show=False).children}

    ends = {name: (answer.exit_code, answer.failure and answer.failure.code) for name, answer in answers.items()}
    assert ends == {
        "raises": (1, "EXCEPTION"),
        "exits": (1, "EXIT_NONZERO"),
        "hangs": (1, "TIMEOUT"),
        "cancels": (1, "CANCELLED"),
    }


def test_a_step_without_an_end_would_hang_the_question(tmp_path: Path) -> None:
    """The check bites: nothing but a limit, or a person, ends a step that hangs."""
    home = SimulatedHome()

    with pytest.raises(AssertionError, match="it waits for ever"):
        asked(home, "check", lambda **_: HANGS)

    assert home.status(1) == "running"
    assert home.clock.elapsed() > timedelta(minutes=5).total_seconds()
