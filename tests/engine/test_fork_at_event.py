"""A run that continues another one from one of its events: in every store, whatever crashes."""

from __future__ import annotations

from itertools import pairwise

import pytest

from mulligan.core.effects.tasks import Task
from mulligan.core.model import events as e
from mulligan.core.model import reports as r
from mulligan.core.model.kept_history import pack_history
from mulligan.core.model.outcome import Outcome
from mulligan.engine.engine import Engine
from mulligan.history.moments import is_at_rest
from mulligan.ports import FAULT_POINTS, NewRun
from mulligan.testing.faults import Crash, faults

from .conftest import World

FLOW = """
steps:
  - {step: fetch, shell: fetch}
  - {step: slow, shell: slow}
  - {step: deploy, needs: [fetch], shell: deploy, triage: {when: always}}
  - {step: announce, needs: [deploy], shell: announce}
"""


def ends(task: Task) -> Outcome:
    """The first attempt to deploy fails."""
    return Outcome(exit_code=3 if task.step == "deploy" and task.attempt == 1 else 0)


def parked(world: World) -> int:
    """A run in which somebody let the parked step fail."""
    engine = world.engine(slots=2, ends=ends)
    run_id = world.start(FLOW, engine)
    world.settle(engine)
    world.store.put(run_id, r.Classified(world.clock.now(), "deploy", "fail", "ann", "too late"))
    engine.request_poll()
    world.settle(engine)
    assert world.status(run_id) == "failed"
    return run_id


def fork(world: World, run_id: int, seq: int, engine: Engine, decision: r.Classified | None = None) -> int:
    loaded, now = world.store.load(run_id), world.clock.now()
    history = pack_history(world.store.log(run_id, 0, seq))
    request = r.RunRequested(
        now,
        0,
        version=loaded.record.version,
        by="ben",
        uid=f"fork-{world.count}",
        forked_from=run_id,
        forked_at=seq,
        history=history,
        decision=decision,
    )
    new = NewRun(loaded.workflow, loaded.record.version, loaded.record.workflow, request)
    (turn,) = world.store.create([new], engine.name)
    engine.begin([turn], [new])
    return turn.run_id


def finish(world: World, run_id: int, engine: Engine | None) -> None:
    """Drive the run to its end, or until it is parked, with a new engine after each crash."""
    while True:
        if engine is None:
            engine = world.engine(slots=2, ends=ends)
            engine.take_up([run_id])
        try:
            world.settle(engine)
        except Crash:
            world.expire(engine)
            engine = None
        else:
            return


def seq_where(world: World, run_id: int, kind: type[e.Fact], step: str) -> int:
    """The first event at or behind one of this kind after which the run was at rest."""
    log = world.store.log(run_id)
    named = (getattr(one.fact, "place", "") or getattr(one.fact, "step", "") for one in log)
    first = next(one.seq for one, name in zip(log, named, strict=True) if isinstance(one.fact, kind) and name == step)
    return next(one.seq for one, two in pairwise(log) if one.seq >= first and is_at_rest(one, two))


def started(world: World, run_id: int, step: str) -> int:
    facts = (entry.fact for entry in world.store.log(run_id))
    return sum(isinstance(fact, e.AttemptStarted) and fact.place == step for fact in facts)


@pytest.mark.parametrize("point", sorted(FAULT_POINTS))
def test_a_crash_at_any_pass_of_a_fault_point_changes_no_outcome(world: World, point: str) -> None:
    original = parked(world)
    seq = seq_where(world, original, e.StepParked, "deploy")
    before = world.store.log(original)

    def forked(nth: int) -> tuple[int, int]:
        with faults() as points:
            if nth:
                points.arm(point, nth)
            engine = world.engine(slots=2, ends=ends)
            decision = r.Classified(world.clock.now(), "deploy", "retry", "ben", "again")
            run_id = fork(world, original, seq, engine, decision)
            finish(world, run_id, engine)
            return run_id, points.passes[point]

    passes = forked(0)[1]
    for nth in (0, *world.crashes(passes)):
        run_id, _ = forked(nth)
        assert world.status(run_id) == "completed", f"died at pass {nth} of '{point}'"
        assert world.store.log(run_id, 1, seq - 1) == before[1:seq]
        assert world.state(run_id).places["fetch"].attempt == 1
        assert started(world, run_id, "fetch") == 1
        if not nth:
            # No task of the other run was queued once more.
            assert "ReportRefused" not in world.facts(run_id)
    assert world.store.log(original) == before


def test_what_was_running_runs_again_and_its_old_task_is_not_missed(world: World) -> None:
    original = parked(world)
    engine = world.engine(slots=2, ends=ends)
    run_id = fork(world, original, seq_where(world, original, e.AttemptStarted, "slow"), engine)
    finish(world, run_id, engine)

    places = world.state(run_id).places
    assert places["slow"].status == "completed"
    assert (places["slow"].attempt, places["slow"].climb.losses) == (2, 0)
    assert places["deploy"].status == "pending_failed"
    assert world.store.run(run_id).seq > 0 and not world.store.has_leases(run_id)
