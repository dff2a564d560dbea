"""Agents with tools, live: a scripted model, real tools, workers that are killed in the middle of a call."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.support.runner import Live

from mulligan.core.model import events as e

EXAMPLES = Path(__file__).parents[2] / "examples" / "agents"

# Each call writes its word down. The third and the fifth kill the worker above them, once, before they end.
KILLED = """
steps:
  - step: note
    description: write a word down
    tool: {inputs: {word: string}}
    shell: |
      echo "${inputs.word}" >> notes
      case "${inputs.word}" in
      three|five) [ "$MULLIGAN_ATTEMPT" != 1 ] || { kill -9 $PPID; sleep 60; };;
      esac
      echo "noted ${inputs.word}"
  - step: ask
    agent: {provider: scripted, prompt: Note the numbers, tools: [note]}
"""
ANSWERS = """
- {turn: 1, tool_calls: [{name: note, arguments: {word: one}}, {name: note, arguments: {word: two}}]}
- {turn: 2, tool_calls: [{name: note, arguments: {word: three}}]}
- {turn: 3, tool_calls: [{name: note, arguments: {word: four}}, {name: note, arguments: {word: five}}]}
- {turn: 4, answer: done}
"""


def test_a_worker_that_is_killed_in_a_call_repeats_that_call_and_no_finished_one(
    live_file: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = live_file.folder / "answers.yaml"
    script.write_text(ANSWERS)
    monkeypatch.setenv("MULLIGAN_SCRIPTED_AGENT", str(script))

    ran = live_file.run(KILLED)

    assert (ran.status, ran.steps["ask"]["output"]["content"]) == ("completed", "done")
    assert (live_file.folder / "notes").read_text().split() == "one two three three four five five".split()
    assert [fact.output for fact in ran.facts(e.ToolAnswered)] == [
        f"noted {word}" for word in "one two three four five".split()
    ]
    assert ran.steps["ask"]["spent"]["tool_calls"] == 5


def test_the_example_of_research_calls_its_tools_and_the_next_agent_has_its_session(
    live_file: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(EXAMPLES, live_file.folder, dirs_exist_ok=True)
    monkeypatch.setenv("MULLIGAN_SCRIPTED_AGENT", str(live_file.folder / "research-answers.yaml"))

    ran = live_file.run(EXAMPLES / "research.yaml")

    assert (ran.status, ran.shown["outputs"]) == ("completed", {"summary": "Two books are about fjords."})
    assert (live_file.folder / "notes.txt").read_text() == "Fjords of Norway\nIce in fjords\n"
    first = ran.steps["research"]["tool_calls"][0]
    assert (first["tool"], first["output"]) == ("search", '["Fjords of Norway", "Ice in fjords"]')
    assert [fact.session for fact in ran.facts(e.SessionKept)] == ["library", "library"]
