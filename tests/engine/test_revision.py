"""A run that goes on under a corrected definition: in every store, in one commit, whatever crashes."""

from __future__ import annotations

from typing import Any

import pytest

from mulligan.core.effects.snapshot import restore
from mulligan.core.effects.tasks import Task
from mulligan.core.evolve.revision import plain_from_json
from mulligan.core.model import reports as r
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.workflow import encode, version
from mulligan.engine.engine import Engine
from mulligan.language import load_text
from mulligan.ports import FAULT_POINTS
from mulligan.testing.faults import Crash, faults

from .conftest import World

FIRST = """
steps:
  - {step: fetch, shell: fetch}
  - {step: load, needs: [fetch], shell: load}
  - {step: old, needs: [load], shell: old}
"""
FIXED = """
breakers: {api: {}}
steps:
  - {step: fetch, shell: fetch, timeout: 5m}
  - {step: load, needs: [fetch], shell: load --fixed, breaker: api}
  - {step: new, needs: [load], shell: new}
"""


def fails_unless_fixed(task: Task) -> Outcome:
    return Outcome(exit_code=int(task.params.get("text") == "load"))


def corrected(text: str = FIXED) -> r.Revised:
    data = encode(load_text(text))
    return r.Revised(version(data), plain_from_json(data), file="fixed.yaml")


def ended(world: World) -> int:
    engine = world.engine(ends=fails_unless_fixed)
    run_id = world.start(FIRST, engine)
    world.settle(engine)
    assert world.status(run_id) == "failed"
    return run_id


def finish(world: World, run_id: int) -> None:
    """Drive the run to its end, with a new engine after each crash."""
    engine: Engine | None = None
    while world.store.inbox([run_id]) or world.status(run_id) == "running":
        if engine is None:
            engine = world.engine(ends=fails_unless_fixed)
            engine.take_up([run_id])
        try:
            world.settle(engine)
        except Crash:
            world.expire(engine)
            engine = None


def retried(world: World) -> int:
    run_id = ended(world)
    world.store.put(run_id, r.RetryRequested(world.clock.now(), "someone", revised=corrected()))
    return run_id


def outcome(world: World, run_id: int) -> dict[str, Any]:
    state, facts = world.state(run_id), world.facts(run_id)
    loaded = world.store.load(run_id)
    assert restore(world.workflow(run_id), loaded.rows) == state
    return {
        "status": state.run.status,
        "steps": {place.key: (place.status, place.visit) for place in state.steps()},
        "revised": (facts.count("RunRevised"), facts.count("RunReopened")),
        "file": state.run.revision and state.run.revision.file,
    }


def test_the_run_goes_on_under_the_corrected_definition(world: World) -> None:
    run_id = retried(world)

    finish(world, run_id)

    assert outcome(world, run_id) == {
        "status": "completed",
        "steps": {"fetch": ("completed", 1), "load": ("completed", 2), "new": ("completed", 1)},
        "revised": (1, 1),
        "file": "fixed.yaml",
    }
    assert world.store.breakers()[0].name == "api"


@pytest.mark.parametrize("point", sorted(FAULT_POINTS))
def test_a_crash_at_any_pass_of_a_fault_point_changes_no_outcome(world: World, point: str) -> None:
    with faults() as points:
        run_id = retried(world)
        before = points.passes[point]
        finish(world, run_id)
        passes = points.passes[point]
    expected = outcome(world, run_id)

    assert passes > before
    for nth in world.crashes(passes - before):
        run_id = retried(world)
        with faults() as points:
            points.arm(point, nth)
            finish(world, run_id)

        assert outcome(world, run_id) == expected, f"died at pass {nth} of '{point}'"


def test_what_is_refused_leaves_the_definition_as_it_was(world: World) -> None:
    run_id = ended(world)
    other = corrected(f"name: other{FIXED}")
    message = world.store.put(run_id, r.RetryRequested(world.clock.now(), "someone", revised=other), is_asking=True)

    finish(world, run_id)

    answer = world.store.answer(message)
    assert (answer and answer.error, "RunRevised" in world.facts(run_id)) == ("refused", False)
    assert world.status(run_id) == "failed"
