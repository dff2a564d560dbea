"""What agents have spent, and may spend, as the command line shows it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.commands import mulligan, ran

REVIEW = """\
name: review
budget: {cost: 0.50}
steps:
  - {step: plan, agent: {provider: robot, prompt: Plan it.}}
  - step: parts
    needs: plan
    map: {over: [1, 2, 3], max_parallel: 1}
    do: [{agent: {provider: robot, prompt: "Part ${item}"}}]
  - {step: sum_up, needs: parts, agent: {provider: robot, prompt: Sum up.}}
"""
# 12,000 tokens at $3 a million and 1,400 at $75: $0.141.
AGENTS = """\
robot:
  command: 'echo "{\\"text\\": \\"$MULLIGAN_BUDGET_COST left\\", \\"in\\": 12000, \\"out\\": 1400}"'
  output: {content: text, tokens: {input: in, output: out}}
  prices: {default: {input: 3, output: 75}}
"""


@pytest.fixture(autouse=True)
def robot(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "agents.yaml").write_text(AGENTS, encoding="utf-8")
    monkeypatch.setenv("MULLIGAN_AGENTS", str(folder / "agents.yaml"))


def test_a_run_says_what_its_agents_spent_and_what_to_type_when_the_budget_is_gone() -> None:
    said = ran(REVIEW)

    assert said.code == 1
    assert "  agents: 4 calls, 53,600 tokens, $0.564\n" in said.err
    assert "BUDGET_EXCEEDED: the run has spent its budget for agents: $0.564 of $0.50" in said.err
    assert "  mulligan retry 1 --budget cost=N  # continue with a larger budget\n" in said.err
    assert "(mulligan explain 1 sum_up)" in said.err


def test_show_and_the_report_give_the_same_command_as_the_run_did() -> None:
    ran(REVIEW)

    shown, commands = mulligan("show", 1), mulligan("report", 1, "--json").json["next_commands"]

    assert shown.err == "its story: mulligan explain 1; to try again: mulligan retry 1 --budget cost=N\n"
    assert [one["text"] for one in commands] == [
        "mulligan retry 1 --budget cost=N",
        "mulligan explain 1",
    ]


GROUP = """\
name: review
BUDGET
steps:
  - step: both
    group:
      steps:
        - {step: plan, agent: {provider: robot, prompt: Plan it.}}
        - {step: sum_up, needs: plan, agent: {provider: robot, prompt: Sum up.}}
    LIMIT
"""


@pytest.mark.parametrize(
    ("top", "limit", "what"),
    [("budget: {calls: 1}", "", "calls"), ("", "budget: {cost: 0.1}", "both.cost")],
)
def test_the_budget_to_raise_is_that_which_a_group_has_spent(top: str, limit: str, what: str) -> None:
    said = ran(GROUP.replace("BUDGET", top).replace("LIMIT", limit))

    assert said.code == 1
    assert f"  mulligan retry 1 --budget {what}=N  # continue with a larger budget\n" in said.err


def test_a_matrix_has_no_budget_to_raise_but_each_of_its_steps_has() -> None:
    ran("name: w\nsteps:\n  - {step: s, matrix: {a: [1, 2]}, agent: {provider: robot, prompt: x}, validate: 'false'}\n")

    said = mulligan("retry", 1, "--budget", "s.calls=9")

    assert "'s' is not a step of run 1\n  's' is a matrix: name one of its steps, such as 's_1'\n" in said.err


def test_show_sums_up_by_step_and_for_the_run() -> None:
    ran(REVIEW)

    shown, found = mulligan("show", 1), mulligan("show", 1, "--json").json

    lines = shown.out.splitlines()
    assert lines[1] == "agents: 4 calls, 53,600 tokens, $0.564; budget: $0.50"
    assert lines[4].endswith("3 of 3 items done; agents: 3 calls, 40,200 tokens, $0.423")
    assert (found["spent"]["cost"], found["spent"]["currency"], found["budget"]) == ("0.564", "USD", {"cost": "0.5"})
    assert found["steps"]["parts"]["spent"] == {
        **{"calls": 3, "tokens": 40_200, "input_tokens": 36_000, "output_tokens": 4_200},
        **{"cost": "0.423", "currency": "USD", "tool_calls": 0},
    }
    assert found["steps"]["sum_up"]["spent"] is None


def test_the_list_and_the_report_have_the_sums() -> None:
    ran(REVIEW)

    [listed] = mulligan("list", "--json").json
    report = mulligan("report", 1, "--json").json

    assert (listed["spent"]["calls"], listed["spent"]["cost"]) == (4, "0.564")
    assert (report["spent"]["cost"], report["agents"]) == ("0.564", "4 calls, 53,600 tokens, $0.564")
    assert report["steps"][0]["agents"] == "1 call, 13,400 tokens, $0.141"


def test_a_run_without_agents_says_nothing_of_them() -> None:
    said = ran("steps: [{step: a, shell: 'true'}]")

    assert "agents" not in said.err
    assert "agents" not in mulligan("show", 1).out
    assert mulligan("list", "--json").json[0]["spent"] is None


def test_a_retry_with_a_larger_budget_goes_on_and_is_told() -> None:
    ran(REVIEW)

    said = mulligan("retry", 1, "--budget", "cost=3", "--follow")

    assert said.code == 0
    assert "agents: 5 calls, 67,000 tokens, $0.705" in said.err
    assert "; agents may spend $3.00" in mulligan("explain", 1).out


@pytest.mark.parametrize(
    ("word", "code"), [("cost=0.1", "input.invalid"), ("much", "input.invalid"), ("nosuch.cost=3", "step.unknown")]
)
def test_a_budget_that_makes_no_sense_is_refused_and_nothing_is_opened(word: str, code: str) -> None:
    ran(REVIEW)

    said = mulligan("retry", 1, "--budget", word)

    assert said.code == 2
    assert said.err.startswith(f"error[{code}]")
    assert mulligan("show", 1, "--json").json["round"] == 1


def test_a_parked_agent_goes_on_with_the_budget_that_a_person_gives_it() -> None:
    ran(REVIEW.replace("prompt: Sum up.}}", "prompt: Sum up.}, triage: true}"))

    said = mulligan("classify", 1, "sum_up", "retry", "--reason", "worth it", "--budget", "cost=1", "--follow")

    assert said.code == 0
    assert mulligan("show", 1, "--json").json["budget"] == {"cost": "1"}
