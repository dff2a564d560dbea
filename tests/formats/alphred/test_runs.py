"""Trees of Alphred's, run: where its users were let down, and what they meant."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from tests.support.commands import mulligan
from tests.support.runner import Live, Ran

from mulligan.core.model import events as e

from .reading import decides, edge, failing, node, text

# An agent that does, for each node and attempt, what the test has written down: NODE-ATTEMPT, else NODE.
AGENT = """\
cat > "prompt-$MULLIGAN_STEP"
act="act-$MULLIGAN_STEP${MULLIGAN_ERROR_CODE:+-summary}"
[ -e "$act-$MULLIGAN_ATTEMPT" ] && act="$act-$MULLIGAN_ATTEMPT"
echo "${act#act-}" >> done
if [ -e "$act" ]; then . "./$act"; else echo "$MULLIGAN_STEP is done"; fi
"""
CHANGES = decides("changes_requested")


class Agent:
    """A run of a tree whose agents do as they are told."""

    def __init__(self, live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
        self.live = live
        monkeypatch.setenv("MULLIGAN_AGENT_CLAUDE", f"sh {live.write('agent.sh', AGENT)}")

    def does(self, **acts: str) -> None:
        """What each does; `a_2` is the second attempt of `a`, `a_summary` whoever sums up its failure."""
        for name, act in acts.items():
            self.live.write(f"act-{name.replace('_', '-')}", act)

    def run(self, nodes: list[Any], edges: list[Any] | None = None) -> Ran:
        return self.live.run(self.live.write("tree.json", text(nodes, edges)))

    @property
    def done(self) -> list[str]:
        return self.live.lines("done")

    def told(self, step: str) -> str:
        return self.live.read(f"prompt-{step}")


@pytest.fixture
def agent(live: Live, monkeypatch: pytest.MonkeyPatch) -> Agent:
    """On both databases."""
    return Agent(live, monkeypatch)


@pytest.fixture
def agent_here(live_file: Live, monkeypatch: pytest.MonkeyPatch) -> Agent:
    return Agent(live_file, monkeypatch)


def test_each_visit_has_its_own_retries(agent: Agent):
    """Alphred counts retries over all visits: a node that is visited again there has none left."""
    agent.does(write="exit 1", write_2="echo a", write_4="echo b", review_1="echo decision: changes_requested")
    agent.does(review="echo decision: approved")

    ran = agent.run(
        [node("write", 1, maxRetries=1, error_handler_config={"mode": "disabled"}), node("review", 2)],
        [edge("write", "review"), edge("review", "write", CHANGES)],
    )

    assert ran.status == "completed"
    assert agent.done == ["write", "write-2", "review-1", "write", "write-4", "review"]


def test_who_is_visited_again_is_told_what_the_reviewer_said(agent_here: Agent):
    agent_here.does(review_1="echo Shorter, please; echo decision: changes_requested", review="echo decision: approved")

    agent_here.run([node("write", 1), node("review", 2)], [edge("write", "review"), edge("review", "write", CHANGES)])

    told = agent_here.told("write")
    assert told.startswith("MULLIGAN_UPSTREAM_OUTPUT v1\n")
    assert "\nsource_node_key: review\n" in told
    assert "\ncontent_type: text\n" in told
    assert "<<<BEGIN>>>\nShorter, please\ndecision: changes_requested\n<<<END>>>" in told


def test_an_agent_that_forgot_to_decide_is_asked_again_and_told_why(agent_here: Agent):
    agent_here.does(review="echo fine", review_2="echo decision: approved", review_summary="echo Say what you decide.")

    ran = agent_here.run([node("review", 1, maxRetries=1), node("fix", 2)], [edge("review", "fix", CHANGES)])

    assert (ran.status, agent_here.done) == ("completed", ["review", "review-summary", "review-2"])
    assert "\n<<<BEGIN>>>\nSay what you decide.\n<<<END>>>" in agent_here.told("review")


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("echo fine", "VALIDATION_FAILED"),
        ("echo decision: blocked", "NO_ROUTE"),
        ("echo decision: changes_requested", "NO_ROUTE"),
    ],
)
def test_a_decision_that_leads_nowhere_fails_the_node_and_the_run_can_be_retried(
    agent_here: Agent, said: str, code: str
):
    """Alphred ends such a run for ever: it finds nothing to retry."""
    agent_here.does(review=said, review_2="echo decision: retry")
    tree = [node("review", 1), node("again", 2)], [edge("review", "again", decides("retry"))]

    failed = agent_here.run(*tree)
    agent_here.live.service.changes.retry(failed.run_id)
    retried = agent_here.live.resume(failed.run_id)

    assert (failed.status, failed.steps["review"]["failure"]["code"]) == ("failed", code)
    assert (retried.status, agent_here.done) == ("completed", ["review", "review-2", "again"])


def test_a_failure_edge_takes_a_decision_that_leads_nowhere_too(agent_here: Agent):
    agent_here.does(review="echo decision: blocked")

    ran = agent_here.run(
        [node("review", 1), node("again", 2), node("help", 3)],
        [edge("review", "again", decides("retry")), failing("review", "help")],
    )

    assert (ran.status, agent_here.done) == ("completed", ["review", "help"])


def test_a_retry_goes_on_where_nobody_can_sum_up(agent_here: Agent):
    agent_here.does(a="echo locked >&2; exit 1", a_2="echo in", a_summary="exit 9")

    ran = agent_here.run([node("a", 1, maxRetries=1)])

    assert (ran.status, agent_here.done) == ("completed", ["a", "a-summary", "a-2"])
    assert "attempt 1 ended with EXIT_NONZERO, exit code 1; its last message:\nlocked" in agent_here.told("a")


def test_no_failure_is_summed_up_after_the_last_attempt(agent_here: Agent):
    agent_here.does(a="exit 1")

    ran = agent_here.run([node("a", 1, maxRetries=1)])

    assert (ran.status, agent_here.done) == ("failed", ["a", "a-summary", "a"])


def test_two_roots_never_run_at_once_and_a_failure_leaves_the_other_alone(agent: Agent):
    """Alphred ends the run at the first failure without a route, and what is left stays pending for ever."""
    agent.does(a="exit 1")

    ran = agent.run([node("a", 1), node("b", 3), node("c", 2)], [edge("b", "c")])

    assert (ran.status, agent.done) == ("failed", ["a", "b", "c"])
    assert ran.steps["c"]["status"] == "completed"
    starts = [entry.seq for entry in ran.entries(e.StepEntered)]
    ends = [entry.seq for entry in (*ran.entries(e.StepCompleted), *ran.entries(e.StepFailed))]
    assert all(end < start for end, start in zip(sorted(ends), sorted(starts)[1:], strict=False))


def test_two_failures_that_share_a_remediation_are_both_told(agent_here: Agent):
    """Alphred tells it the newer one alone."""
    agent_here.does(a="echo one is broken >&2; exit 1", b="echo two is broken >&2; exit 1")

    ran = agent_here.run([node("a", 1), node("b", 2), node("fix", 3)], [failing("a", "fix"), failing("b", "fix")])

    told = agent_here.told("fix")
    assert (ran.status, agent_here.done) == ("completed", ["a", "b", "fix"])
    assert told.index("two is broken") < told.index("one is broken")


# -- spawners --------------------------------------------------------------------------------------------------------

FAN_OUT = [node("split", 1, nodeRole="spawner", maxChildren=2), node("merge", 2, nodeRole="join"), node("fix", 3)]
EDGES = [edge("split", "merge"), failing("split", "fix")]


def subtasks(*titles: str) -> str:
    listed = ", ".join(f'{{"title": "{title}", "prompt": "do {title}"}}' for title in titles)
    return f"""echo '{{"schemaVersion": 1, "subtasks": [{listed}]}}'"""


def test_the_join_runs_though_every_subtask_has_failed(agent: Agent):
    agent.does(split=subtasks("x", "y"))
    agent.live.write("act-split_subtasks", "echo no >&2; exit 1")

    ran = agent.run(FAN_OUT, EDGES)

    assert ran.status == "completed"
    assert agent.done == ["split", "split_subtasks", "split_subtasks", "merge"]
    assert "\nsubtasks.failed: 2\n" in agent.told("merge")


def test_the_join_runs_though_there_is_nothing_to_do(agent_here: Agent):
    agent_here.does(split=subtasks())

    ran = agent_here.run(FAN_OUT, EDGES)

    assert (ran.status, agent_here.done) == ("completed", ["split", "merge"])
    assert "\nsubtasks.total: 0\n" in agent_here.told("merge")


@pytest.mark.parametrize(
    ("said", "failure"),
    [
        (subtasks("x", "y", "z"), "SPAWNER_OUTPUT_INVALID: there are 3 subtasks, but at most 2 are allowed"),
        ("echo a list", "its answer is not JSON: JSON is malformed: invalid character (byte 0); it says: a list"),
    ],
)
def test_an_answer_that_lists_no_subtasks_is_a_failure_like_any_other(agent_here: Agent, said: str, failure: str):
    agent_here.does(split=said)

    ran = agent_here.run(FAN_OUT, EDGES)

    assert (ran.status, agent_here.done) == ("completed", ["split", "fix"])
    assert ran.steps["split"]["failure"]["message"] == failure
    assert failure in agent_here.told("fix")


# -- a node alone ----------------------------------------------------------------------------------------------------


def test_a_node_runs_alone_once_without_retries_and_edges(agent_here: Agent, monkeypatch: pytest.MonkeyPatch):
    agent_here.does(tests="echo 2 tests fail >&2; exit 1")
    tree = text([node("tests", 1, maxRetries=3), node("fix", 2)], [failing("tests", "fix")])
    path = agent_here.live.write("tree.json", tree)
    monkeypatch.chdir(path.parent)

    said = mulligan("step", path, "tests")

    assert (said.code, said.err) == (1, "2 tests fail\nstep 'tests' failed with EXIT_NONZERO 1: 2 tests fail\n")
    assert agent_here.done == ["tests"]


def test_a_node_alone_is_told_what_the_node_before_it_gave(agent_here: Agent, monkeypatch: pytest.MonkeyPatch):
    path = agent_here.live.write("tree.json", text([node("write", 1), node("review", 2)], [edge("write", "review")]))
    monkeypatch.chdir(path.parent)

    said = mulligan("step", path, "review", "--result", 'write="the notes"')

    assert (said.code, said.out) == (0, "review is done\n")
    assert "<<<BEGIN>>>\nthe notes\n<<<END>>>" in agent_here.told("review")


def test_a_join_alone_is_told_what_it_is_given(agent_here: Agent, monkeypatch: pytest.MonkeyPatch):
    path = agent_here.live.write("tree.json", text(FAN_OUT, EDGES))
    monkeypatch.chdir(path.parent)

    said = mulligan("step", path, "merge", "--result", 'split_summary="two of two"')

    assert (said.code, said.out) == (0, "merge is done\n")
    assert "<<<BEGIN>>>\ntwo of two\n<<<END>>>" in agent_here.told("merge")


def test_an_example_of_ours_runs_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Nothing of a run depends on where the file lies."""
    example = Path(__file__).parents[3] / "examples/formats/alphred/repair.json"
    monkeypatch.chdir(tmp_path)
    for name in ("CLAUDE", "CODEX"):
        monkeypatch.setenv(f"MULLIGAN_AGENT_{name}", f"sh {example.parent / 'agent.sh'}")

    said = mulligan("run", example, "--json")

    assert (said.json["status"], sorted(os.listdir(tmp_path))) == (
        "completed",
        [".mulligan", "fixed", "prompt-fix", "prompt-publish", "prompt-tests", "work"],
    )
