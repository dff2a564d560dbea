"""Triage by an agent with real commands on both stores: a whole night, and a person who is faster than the agent."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest
from tests.support.runner import Live, Terminal, wait_until

from mulligan.core.model import events as e
from mulligan.service.rendering.json_output import to_json

NIGHT = Path(__file__).parents[2] / "examples" / "agents" / "triage-night"


@pytest.mark.nightly
def test_a_night_of_twenty_failures(live_file: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 17 answers within the limits 15 are applied; two are not sure enough, and one verdict is not allowed."""
    shutil.copytree(NIGHT, live_file.folder, dirs_exist_ok=True)
    monkeypatch.setenv("MULLIGAN_AGENTS", str(live_file.folder / "agents.yaml"))

    ran = live_file.run(live_file.folder / "triage-night.yaml")

    applied = ran.facts(e.StepClassified)
    assert {(fact.by, fact.verdict, fact.reason) for fact in applied} == {
        ("agent:night", "retry", "the mirror closed the connection")
    }
    assert (len(applied), ran.exit_code) == (15, 4)
    assert Counter(step["status"] for step in ran.steps.values())["completed"] == 15
    pending = to_json(live_file.service.decisions.list_pending())
    assert Counter(entry["suggestion"]["why_not"] for entry in pending) == {
        "below_confidence": 2,
        "not_allowed": 1,
        "max_per_run": 2,
    }
    assert all(entry["suggestion"]["verdict"] and entry["suggestion"]["reason"] for entry in pending)
    assert all((entry["default"], bool(entry["due"])) == ("fail", True) for entry in pending)
    (stats,) = live_file.service.runs.agent_stats()
    assert (stats.agent, stats.decisions, stats.right, stats.suggestions) == ("night", 15, 15, 5)


def test_a_person_who_decides_first_ends_the_agent(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MULLIGAN_AGENT_SLOW", "echo $$ > pid; exec sleep 600")
    flow = """
        name: slow
        steps:
          - step: load
            shell: "test -e pid || exit 3"
            triage: {by: agent, agent: slow}
    """

    def decide(there: Terminal) -> None:
        there.wait_until(lambda: (there.folder / "pid").exists() and (there.folder / "pid").read_text().strip())
        there.service.changes.classify(there.run_id, "load", "retry", "I know it")

    ran = live.run(flow, meanwhile=decide)

    assert ran.status == "completed"
    assert [fact.reason for fact in ran.facts(e.StepClassified)] == ["I know it"]
    assert ran.facts(e.CommandCancelled, place="load.triager@1")
    agent = Path("/proc", (live.folder / "pid").read_text().strip())
    wait_until(lambda: not agent.exists(), "the agent still runs")
