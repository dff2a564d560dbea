"""A run that is decided again with its own definition goes exactly as it was recorded."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.support.golden_logs import noted

from mulligan.analysis.whatif.following import REFUSALS, Follower, is_same
from mulligan.analysis.whatif.knowledge import Draw
from mulligan.analysis.whatif.played_history import PlayedHistory
from mulligan.analysis.whatif.recording import record
from mulligan.analysis.whatif.redecide import redecide
from mulligan.core.model import events as e
from mulligan.core.model.codec import decode_log
from mulligan.core.model.graph import Graph
from mulligan.core.model.workflow import Expression, Template, Workflow, decode
from mulligan.core.turn import fold
from mulligan.errors import ExpressionFailed
from proof.simulator.fault_budget import FaultBudget
from proof.simulator.simulation import Simulation
from proof.simulator.workflows import SECRET, RandomEvaluator

GOLDEN = sorted((Path(__file__).parents[1] / "golden").glob("v*/*.log.jsonl"))
# Logs of an older release that decided otherwise, and the turn in which it did: the message of a wait, LOOP_LIMIT that
# was parked, fail-fast, a deadline that had passed. Such a run is listed as one that cannot be decided again.
DECIDED_OTHERWISE = {"04": 71, "05": 25, "06": 27, "09": 30}
# Maps that filter their list: the answers of their expressions cannot be guessed from the log.
UNKNOWN_LISTS = {"07", "11"}
# A run that goes on from an event of another run begins with the turns of that run, and what a program does next is
# decided by its code: such runs are not decided again.
REFUSED = {"forked.log.jsonl", "program.log.jsonl"}


class SteadyEvaluator(RandomEvaluator):
    """Gives the same answer to the same expression, however often it was asked: as real expressions do."""

    def evaluate(self, expression: Expression, names: Mapping[str, Any]) -> Any:
        self._asked.clear()
        return super().evaluate(expression, names)


def simulated_runs(seed: object) -> list[tuple[Workflow, list[e.Entry], int]]:
    """Every run of a simulated history with faults of all kinds, from its store; and how many steps start at once."""
    history = Simulation(seed, budget=FaultBudget(store="memory"))
    cluster = history.cluster
    cluster.evaluator = SteadyEvaluator(seed)
    runs: list[tuple[Workflow, list[e.Entry], int]] = []
    close = cluster.close

    def read_and_close() -> None:
        for run_id in cluster.contents.runs:
            workflow, log = decode(cluster.operator.load(run_id).workflow), cluster.operator.log(run_id)
            started = log[0].fact
            # See REFUSED.
            is_refused = isinstance(started, e.RunStarted) and (started.forked_at or Graph(workflow).program)
            if not is_refused:
                runs.append((workflow, log, cluster.starts_at_once))
        close()

    cluster.close = read_and_close  # type: ignore[method-assign]
    history.run()
    return runs


@pytest.mark.parametrize("seed", range(6))
def test_every_run_of_a_simulated_store_goes_as_recorded(seed: int):
    for workflow, log, starts_at_once in simulated_runs(f"whatif {seed}"):
        graph = Graph(workflow)
        graph.starts_at_once = starts_at_once

        found = redecide(record(graph, log), graph, SteadyEvaluator(f"whatif {seed}"), knowledge=None, draw=Draw(0, 1))

        assert (found.why, found.followed) == ("", len(log))
        assert found.state == fold(workflow, log, graph)


class GuessingEvaluator:
    """Gives the answers of a list, and then the first possible one: the answers of golden logs are not recorded.

    `advance` changes the list to the next possible one.
    """

    def __init__(self, log: list[e.Entry]) -> None:
        lists = [entry.fact.items for entry in log if isinstance(entry.fact, e.MapExpanded) and entry.fact.items]
        self.possible: dict[str, list[Any]] = {
            "bool": [True, False],
            "list": [*lists, [], "not a list"],
            "key": [None, *range(7), "k0", "k1", "k2", [0], [1]],
            "seconds": [0.5, 3, 20, "soon", -1],
            "text": [f"text {number}" for number in range(10)],
            "secrets": [SECRET],
            "over": [*lists, [1, 2], ["x", "y", "z"]],
        }
        self.chosen: list[int] = []
        self.counts: list[int] = []

    def begin(self) -> None:
        self.counts = []

    def advance(self) -> bool:
        """Choose the next answers; False if all were tried."""
        self.chosen = self.chosen[: len(self.counts)]
        while self.chosen:
            self.chosen[-1] += 1
            if self.chosen[-1] < self.counts[len(self.chosen) - 1]:
                return True
            self.chosen.pop()
        return False

    def evaluate(self, expression: Expression, names: Mapping[str, Any]) -> Any:
        answers = self.possible.get(expression.source.partition(".")[0], [True, False])
        position = len(self.counts)
        self.counts.append(len(answers) + 1)
        if position == len(self.chosen):
            self.chosen.append(0)
        choice = self.chosen[position]
        if choice == len(answers):
            raise ExpressionFailed(f"no such key in '{expression.source}'")
        return answers[choice]

    def keep(self, name: str, value: Any) -> Any:
        return value

    def condition(self, expression: Expression, names: Mapping[str, Any]) -> bool:
        answer = self.evaluate(expression, names)
        if not isinstance(answer, bool):
            raise ExpressionFailed(f"'{expression.source}' is not a condition")
        return answer

    def render(self, template: Template, names: Mapping[str, Any]) -> Any:
        values = [part if isinstance(part, str) else self.evaluate(part, names) for part in template.parts]
        return values[0] if len(values) == 1 else "".join(map(str, values))


@pytest.mark.parametrize(
    "path",
    [path for path in GOLDEN if path.name[:2] not in UNKNOWN_LISTS and path.name not in REFUSED],
    ids=lambda path: path.name.partition(".")[0],
)
def test_every_turn_of_a_golden_log_is_decided_again_as_recorded(path: Path):
    """With the right answers of its expressions, which are searched for: each turn has a few."""
    workflow = decode((path.parent / path.name.replace(".log.jsonl", ".workflow.json")).read_bytes())
    log = list(decode_log(path.read_bytes()))
    graph = Graph(workflow)
    evaluator = GuessingEvaluator(log)
    history = PlayedHistory(record(graph, log), graph, evaluator, knowledge=None, draw=Draw(0, 1))
    follower = Follower(history)
    turns = 0

    while follower.next < len(log):
        begin, expected = follower.next, log[follower.next]
        evaluator.chosen = []
        while True:
            evaluator.begin()
            history.state.begin()
            follower.next = begin
            if _is_as_recorded(follower, expected):
                history.state.commit()
                break
            history.state.rollback()
            if not evaluator.advance():
                assert DECIDED_OTHERWISE.get(path.name[:2]) == expected.seq, f"{expected.seq}: {expected.fact}"
                return
        turns += 1

    assert turns > 1
    assert noted(history.state) == noted(fold(workflow, log, Graph(workflow)))


def _is_as_recorded(follower: Follower, expected: e.Entry) -> bool:
    begin = follower.next
    try:
        for entry in follower.turn_of(expected):
            if follower.next == len(follower.entries) or not is_same(entry, follower.entries[follower.next]):
                return False
            if not _has_recorded_values(entry.fact, follower.entries[follower.next].fact):
                return False
            follower.next += 1
    except REFUSALS:
        return False
    return follower.next > begin


def _has_recorded_values(fact: e.Fact, expected: e.Fact) -> bool:
    """Whether an attempt has the recorded values. Releases since then note more of them."""
    if not (isinstance(fact, e.AttemptScheduled) and isinstance(expected, e.AttemptScheduled)):
        return True
    return all(fact.bindings.get(name) == value for name, value in expected.bindings.items())
