"""Random runs that fail and continue with corrected definitions: invariants hold, log and tables agree."""

from __future__ import annotations

from random import Random
from typing import Any, Self

import pytest
from tests.support.nightly import examples

from mulligan.core.effects import effects as fx
from mulligan.core.effects.snapshot import Row, changes, restore
from mulligan.core.model import events as e
from mulligan.core.model.reports import Report
from mulligan.core.model.workflow import Workflow
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.core.turn import fold, turn
from mulligan.testing.history import History
from proof.invariants.run_invariants import check
from proof.simulator.corrections import corrected
from proof.simulator.workflows import RandomEvaluator, random_workflow

ROUNDS_MAX, MOVES_MAX = 4, 400


class Kept(History):
    """A history whose tables are kept as a store would keep them."""

    def __init__(self, definition: Workflow, evaluator: Any) -> None:
        super().__init__(definition, evaluator=evaluator)
        self.rows: list[Row] = []

    def report_once(self, report: Report) -> Self:
        self.last = turn(self.state, report, self.evaluator)
        self.rows += changes(self.state)
        self.state.commit()
        self.log.extend(self.last)
        for entry in self.last:
            for effect in fx.effects(self.state, entry.fact):
                self._take_up(effect)
        return self


def move(run: Kept, rng: Random) -> None:
    """One of the things that may happen next."""
    places = [place for place in run.state.places.values() if place.spec.action is not None and not place.child]
    queued = [place.key for place in places if place.key in run.tasks and place.status in ("ready", "running")]
    parked = [place.key for place in places if place.status == "pending_failed"]
    running = [place for place in places if place.status == "running" and place.key not in run.tasks]
    approvals = [one.key for one in running if one.spec.action and one.spec.action.kind == "approve" and not one.phase]
    called = [one.key for one in running if one.spec.action and one.spec.action.kind == "workflow"]
    if parked and rng.random() < 0.5:
        run.classify(parked[0], rng.choice(["retry", "fail"]))
    elif approvals and rng.random() < 0.5:
        run.approve(rng.choice(approvals), rng.random() < 0.7)
    elif called and rng.random() < 0.5:
        # Each new child run has a number of its own.
        new = {"child_run_id": run.state.run.seq + 2}
        key = rng.choice(called)
        status = rng.choice(["completed", "failed"])
        last = run[key].last_child
        run.child_ended(key, status, **({} if last is not None and last.attempt == run[key].attempt else new))
    elif queued and rng.random() < 0.9:
        key = rng.choice(queued)
        run.ok(key, output=rng.choice([None, 1, "more"])) if rng.random() < 0.6 else run.fail(key, rng.choice([1, 11]))
    elif rng.random() < 0.02:
        run.cancel(now=rng.random() < 0.5)
    else:
        run.wait(100)


@pytest.mark.parametrize("seed", range(0, 60, 10))
def test_a_run_that_goes_on_under_corrected_definitions_keeps_every_promise(seed: int) -> None:
    revised = 0
    for number in range(seed, seed + examples(3, 10)):
        rng = Random(number)
        first = random_workflow(rng)
        run = Kept(first, RandomEvaluator(number)).start()
        for _ in range(MOVES_MAX):
            if run.status not in RUN_ENDED:
                move(run, rng)
            elif run.status == "completed" or run.state.run.round == ROUNDS_MAX:
                break
            else:
                definition = corrected(rng, run.state.workflow)
                run.retry_with(definition, rng.choice(["", "", *(step.name for step in definition.steps)]), force=True)

        assert run.status in RUN_ENDED
        check(run.log, run.state, first)
        assert fold(first, run.log) == run.state == restore(first, run.rows)
        graph = run.state.graph
        assert run.state.arcs.keys() <= {arc.key for node in graph.nodes.values() for arc in node.arcs}
        assert run.state.barriers.keys() == graph.barriers.keys()
        revised += len(run.facts(e.RunRevised))
    assert revised
