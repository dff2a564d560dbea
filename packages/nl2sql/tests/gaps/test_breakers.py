"""Gap 2: a breaker before every model and every database, which outlives the process that has opened it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.nightly import sample

from mulligan import StepError
from mulligan_nl2sql.failures import Code, QueryFailed, Stage

from .asked_questions import ask_elsewhere
from .simulated_home import STAND_INS, Flaky, SimulatedHome
from .stub_model import stub_model
from .workflow_copies import copy_of, without

MODEL_DOWN = StepError("HTTP_5XX", "the model is down")
DATABASE_DOWN = QueryFailed(Code.UNREACHABLE, "the server does not answer", stage=Stage.EXECUTE)
GUARDED = [("index", DATABASE_DOWN), ("plan", MODEL_DOWN), ("explain", DATABASE_DOWN), ("execute", DATABASE_DOWN)]


@pytest.mark.parametrize(("step", "error"), sample(GUARDED, 2))
def test_after_five_failures_nothing_is_sent_and_after_a_minute_one_request_probes(
    step: str, error: StepError, tmp_path: Path
) -> None:
    home = SimulatedHome()
    # Down for seven requests.
    service = Flaky(STAND_INS[step], error, times=7)
    unguarded = copy_of(tmp_path, without("breaker", step))

    calls, ends = [], []
    for seconds in (0, 0, 0, 61, 0, 61, 61, 0):
        home.clock.advance(seconds)
        run = home.ask(functions={step: service})
        calls.append(service.calls)
        ends.append(home.status(run))
    without_breaker = Flaky(STAND_INS[step], error, times=99)
    for _ in range(3):
        home.ask(unguarded, {step: without_breaker})

    assert calls == [3, 5, 5, 6, 6, 7, 8, 9]
    assert ends == ["failed"] * 6 + ["completed"] * 2
    assert without_breaker.calls == 9


@pytest.mark.parametrize(("step", "error"), GUARDED[1:3])
def test_a_service_that_is_down_leaves_the_others_alone(step: str, error: StepError) -> None:
    home = SimulatedHome()
    Path("other.db").write_bytes(Path("shop.db").read_bytes())
    other = {"databases": [{"name": "other", "url": "sqlite:///other.db"}], "model": "other"}
    service = Flaky(STAND_INS[step], error, times=5)
    for _ in range(2):
        home.ask(functions={step: service})

    refused, answered = home.ask(functions={step: service}), home.ask(functions={step: service}, **other)

    assert (home.status(refused), home.codes(refused, step)) == ("failed", ["CIRCUIT_OPEN"])
    assert home.status(answered) == "completed"


def test_a_breaker_that_one_process_has_opened_keeps_the_next_from_sending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = SimulatedHome(tmp_path / "home")
    with stub_model(monkeypatch, 500) as model:
        at = f"stub at 127.0.0.1:{model.server_port}"
        for _ in range(2):
            home.ask(real=("plan",), planner="openai", model=at)
        home.store.close()
        assert len(model.prompts) == 5

        code, answer = ask_elsewhere("ask", "how many?", "--db", "sqlite:///shop.db", "--planner", "openai")

    assert (code, answer["failure"]["code"], answer["failure"]["step"]) == (1, "CIRCUIT_OPEN", "plan")
    assert answer["failure"]["details"]["breaker"] == f"model[{at}]"
    assert len(model.prompts) == 5
