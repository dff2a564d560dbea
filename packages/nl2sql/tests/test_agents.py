"""Planners that are agents of the engine: who asks them, how they fail, and what they are given."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

import mulligan
from mulligan_nl2sql.asking.receipts import wasted_by_agent
from mulligan_nl2sql.command_line import main
from mulligan_nl2sql.planning.failures import PlannerFailed
from mulligan_nl2sql.planning.find_planner import find_agent, find_planner
from mulligan_nl2sql.planning.planner import Usage
from mulligan_nl2sql.planning.prompts import SYSTEM
from mulligan_nl2sql.planning.providers.agent import read_usage
from mulligan_nl2sql.workflows import SCAN

from .shop import make_shop, schema_of

# What each agent does with the prompt on its standard input.
AGENTS = {
    "good": "cat > asked.txt; env > env.txt; "
    """printf '%s' '{"content": "select count(*) as n from customers", "tokens": {"input": 900, "output": 20}, """
    """"cost": 0.01, "model": "m-7"}' > "$MULLIGAN_OUTPUT\"""",
    "corrected": "grep -q SQL_COLUMN_UNKNOWN && echo 'select name from customers' || echo 'select nme from customers'",
    "stubborn": "cat > /dev/null; echo 'select nme from customers'",
    "failing": """printf '%s' '{"tokens": 7}' > "$MULLIGAN_OUTPUT"; exit 1""",
    "hung": "exec sleep 1000",
    "babbling": "echo 'What a good question!'",
    "writing": """echo '{"sql": "delete from customers"}'""",
    "refusing": """echo '{"refusal": "there are no dragons", "words": ["dragons"]}'""",
    "missing": "no-such-program",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("agents")


@pytest.fixture(scope="module")
def scans(folder: Path) -> dict[str, mulligan.Run]:
    """A scan by each of the agents, all in one run. Retries come at once, and who hangs has not long."""
    make_shop(folder / "shop.db")
    text = SCAN.read_text()
    for delay in ("delay: 1s", "delay: 200ms"):
        assert delay in text
        text = text.replace(delay, "delay: 0s")
    # Only for the one that hangs: the others may be slow, on a machine that has much to do.
    assert text.count("timeout: 5m") == 1
    (folder / "hasty.yaml").write_text(text.replace("timeout: 5m", "timeout: 500ms"))
    (folder / "patient.yaml").write_text(text)
    asked = {
        "question": "how many customers?",
        "url": f"sqlite:///{folder / 'shop.db'}",
        "database": "shop",
        "today": "2025-11-17",
        "index": [{"database": "shop", "schema": msgspec.to_builtins(schema_of("sqlite"))}],
    }
    steps = []
    for file, names in (("hasty.yaml", ["hung"]), ("patient.yaml", [name for name in AGENTS if name != "hung"])):
        inputs = {**asked, **dict.fromkeys(("planner", "agent", "model"), "${item}")}
        call = {"workflow": {"file": file, "inputs": inputs}}
        over = {"over": names, "on_item_failure": "collect", "collect_critical": True}
        steps.append({"step": file.partition(".")[0], "map": over, "do": [call]})
    (folder / "all.yaml").write_text(yaml.safe_dump({"name": "all", "steps": steps}))
    with pytest.MonkeyPatch.context() as patch:
        for name, command in AGENTS.items():
            patch.setenv(f"MULLIGAN_AGENT_{name.upper()}", command)
        patch.setenv("NL2SQL_PASSWORDS", '{"shop": "hunter2"}')
        patch.chdir(folder)
        home = mulligan.Home(folder / "home")
        run = home.run(folder / "all.yaml")
    assert run.status == "completed"
    return {child.inputs["planner"]: child for child in run.children}


@pytest.mark.parametrize(
    ("agent", "code", "attempts"),
    [
        ("stubborn", "SQL_COLUMN_UNKNOWN", 2),
        ("failing", "EXIT_NONZERO", 3),
        ("hung", "TIMEOUT", 1),
        ("babbling", "OUTPUT_INVALID", 1),
        ("writing", "SQL_NOT_A_QUERY", 1),
        ("refusing", "QUESTION_REFUSED", 1),
        ("missing", "INPUT_INVALID", 1),
    ],
)
def test_an_agent_fails_with_the_codes_of_the_engine(
    scans: dict[str, mulligan.Run], agent: str, code: str, attempts: int
) -> None:
    run = scans[agent]

    assert run.status == "failed"
    assert run.failures[-1].failure.code == code
    assert len(run.steps["agent"].attempts) == attempts
    assert run.steps["execute"].attempts == []


def test_sql_that_writes_is_critical_and_not_repaired(scans: dict[str, mulligan.Run]) -> None:
    assert str(scans["writing"].failures[-1].failure.severity) == "critical"
    assert scans["writing"].steps["refine"].attempts == []


def test_an_agent_gets_the_prompt_of_all_models_and_no_password(scans: dict[str, mulligan.Run], folder: Path) -> None:
    run, asked = scans["good"], (folder / "asked.txt").read_text()

    assert (run.status, run.result()["result"]["rows"]) == ("completed", 1)
    assert asked.startswith(SYSTEM) and asked.endswith("Question: how many customers?")
    assert "NL2SQL_PASSWORDS=\n" in (folder / "env.txt").read_text()
    plan = run.result()["plan"]
    assert (plan["planner"], plan["model"]) == ("good", "m-7")
    assert msgspec.convert(plan["usage"], Usage) == Usage(900, 20, 0.01)


def test_an_agent_that_wrote_a_wrong_name_is_asked_again_with_the_failure(scans: dict[str, mulligan.Run]) -> None:
    run = scans["corrected"]

    assert (run.status, len(run.steps["agent"].attempts)) == ("completed", 2)
    assert run.result()["plan"]["sql"] == "select name from customers"


def test_what_a_failed_attempt_has_spent_is_known(scans: dict[str, mulligan.Run]) -> None:
    assert wasted_by_agent(scans["failing"]) == [Usage(tokens=7)] * 3
    assert wasted_by_agent(scans["good"]) == []


@pytest.mark.parametrize(
    ("said", "usage"),
    [
        ({}, Usage()),
        ({"tokens": 12, "cost": "0.5"}, Usage(cost=0.5, tokens=12)),
        ({"tokens": {"input": 3, "output": 4}}, Usage(3, 4)),
        ({"tokens": {"input": -3, "output": True}, "cost": -1}, Usage()),
        ({"tokens": "many", "cost": "much"}, Usage()),
    ],
)
def test_what_an_agent_says_about_tokens_is_believed_if_it_makes_sense(said: dict[str, Any], usage: Usage) -> None:
    assert read_usage(said) == usage


@pytest.mark.parametrize(
    ("name", "environ", "agent"),
    [
        ("my-model", {"MULLIGAN_AGENT_MY_MODEL": "ask"}, "my-model"),
        ("other", {"MULLIGAN_AGENTS": "agents.yaml"}, "other"),
        ("rules", {"MULLIGAN_AGENT_RULES": "ask"}, ""),
        ("cassette", {"NL2SQL_CASSETTE": "c", "NL2SQL_CASSETTE_OF": "x", "MULLIGAN_AGENT_X": "ask"}, "x"),
        ("cassette", {"NL2SQL_CASSETTE": "c", "NL2SQL_CASSETTE_OF": "rules"}, ""),
        ("cassette", {"NL2SQL_CASSETTE": "c"}, ""),
    ],
)
def test_who_is_asked(name: str, environ: dict[str, str], agent: str) -> None:
    assert find_planner(name, environ) is not None
    assert find_agent(name, environ) == agent


@pytest.mark.parametrize("name", ["nobody", "", "a b", "../x", "claude"])
def test_an_agent_that_nobody_has_described_is_refused_with_the_variable(name: str) -> None:
    with pytest.raises(PlannerFailed) as caught:
        find_planner(name, {"PATH": "/nowhere"})

    assert (caught.value.code, caught.value.retryable) == ("INPUT_INVALID", False)
    assert "MULLIGAN_AGENT_" in caught.value.message


@pytest.mark.nightly
def test_a_cassette_records_an_agent_and_plays_it_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_shop(tmp_path / "shop.db")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NL2SQL_CASSETTE", str(tmp_path / "cassette.jsonl"))
    monkeypatch.setenv("NL2SQL_CASSETTE_OF", "good")
    monkeypatch.setenv("MULLIGAN_AGENT_GOOD", AGENTS["good"])
    question = ("ask", "how many?", "--db", "sqlite:///shop.db", "--planner", "cassette", "--json")

    assert main([*question, "--home", "first"]) == 0
    recorded = json.loads(capsys.readouterr().out)
    monkeypatch.delenv("NL2SQL_CASSETTE_OF")
    monkeypatch.delenv("MULLIGAN_AGENT_GOOD")
    assert main([*question, "--home", "second"]) == 0
    played = json.loads(capsys.readouterr().out)

    assert recorded["results"] == played["results"]
    assert (
        recorded["receipt"]["usage"]
        == played["receipt"]["usage"]
        == {
            "input_tokens": 900,
            "output_tokens": 20,
            "cost": 0.01,
        }
    )
    assert recorded["receipt"]["scans"][0]["attempts"]["agent"] == 1
    assert "agent" not in played["receipt"]["scans"][0]["attempts"]
